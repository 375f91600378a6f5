//! Changes of a running server by the user and by others, and its deletion.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use steersman_testkit::{PodBehaviour, wait};

use crate::env::OPERATOR_IMAGE;
use crate::test_namespace::{STACK, TestNamespace, condition, find_entry, is_condition_current, starter, vllm};

async fn config_maps(ns: &TestNamespace) -> Value {
    json!(ns.api::<ConfigMap>().list(&ListParams::default()).await.unwrap().items)
}

#[tokio::test]
async fn cleanup_keeps_two_configs_and_other_namespaces() {
    let (Some(ns), Some(other)) = (TestNamespace::open("kept").await, TestNamespace::open("kept-beside").await) else {
        return;
    };
    let spec = || starter(json!({ "providers": { "inference": vllm() } }));
    ns.apply_stack(spec()).await;
    other.apply_stack(spec()).await;
    other.wait_until_ready().await;
    let (other_maps, other_server) = (config_maps(&other).await, other.server().await);
    let mut mounted_maps = Vec::new();
    for names in [&["a"][..], &["a", "b"], &["a", "b", "c"], &["a", "b", "c", "d"]] {
        ns.wait_until_ready().await;
        mounted_maps.push(ns.server().await.config_map().unwrap());
        let generated = ns.generated_config_maps().await;
        assert!(generated.contains(mounted_maps.last().unwrap()), "the mounted ConfigMap must exist: {generated:?}");
        ns.patch_spec(json!({ "resources": { "models": names } })).await;
    }
    ns.wait_until_ready().await;
    let mounted = ns.server().await.config_map().unwrap();
    let remaining = wait::eventually("two generated ConfigMaps are left", async || {
        let generated = ns.generated_config_maps().await;
        (generated.len() == 2).then_some(generated)
    });
    let remaining = remaining.await.unwrap();
    assert!(remaining.contains(&mounted), "FR-025a: {remaining:?}");
    assert!(
        remaining.iter().any(|name| mounted_maps.contains(name)),
        "the previous ConfigMap is kept: {remaining:?} of {mounted_maps:?}"
    );
    let map = ns.get::<ConfigMap>(&mounted).await.unwrap();
    assert_eq!(map["immutable"], true, "NFR-005");
    assert_eq!(map["metadata"]["ownerReferences"][0]["name"], STACK, "FR-025");
    assert_eq!((config_maps(&other).await, other.server().await), (other_maps, other_server));
}

#[tokio::test]
async fn autoscaler_sets_replicas_until_removed() {
    let Some(ns) = TestNamespace::open("scaled").await else { return };
    let autoscaling = json!({ "minReplicas": 1, "maxReplicas": 3, "targetMemoryUtilizationPercentage": 70 });
    ns.apply_stack(starter(json!({ "workload": { "replicas": 1, "autoscaling": autoscaling } }))).await;
    ns.wait_until_ready().await;
    let scaler = ns.get::<HorizontalPodAutoscaler>("stack-hpa").await.unwrap();
    let spec = &scaler["spec"];
    assert_eq!(spec["scaleTargetRef"]["name"], STACK);
    assert_eq!((&spec["minReplicas"], &spec["maxReplicas"]), (&json!(1), &json!(3)));
    assert_eq!(spec["metrics"][0]["resource"]["name"], "memory");
    assert!(ns.get::<PodDisruptionBudget>("stack-pdb").await.is_some(), "several replicas are possible");

    // The patch imitates the autoscaler's controller. A change of the spec must not revert it.
    let scaled = Patch::Merge(json!({ "spec": { "replicas": 3 } }));
    let scaler = PatchParams { field_manager: Some("kube-controller-manager".into()), ..PatchParams::default() };
    ns.api::<Deployment>().patch_scale(STACK, &scaler, &scaled).await.unwrap();
    ns.wait_for("three replicas are available", |object| object["status"]["availableReplicas"] == 3).await;
    ns.patch_spec(json!({ "workload": { "overrides": { "env": [{ "name": "A", "value": "b" }] } } })).await;
    let object = ns.wait_until_ready().await;
    assert_eq!(ns.server().await.0["spec"]["replicas"], 3);
    assert_eq!(condition(&object, "DeploymentReady")["status"], "True");

    ns.patch_spec(json!({ "workload": { "autoscaling": null } })).await;
    ns.wait_until_deleted::<HorizontalPodAutoscaler>("stack-hpa").await;
    ns.wait_for("the replicas of the spec are restored", |object| object["status"]["availableReplicas"] == 1).await;
    let object = ns.wait_until_ready().await;
    assert_eq!(condition(&object, "SpecAccepted")["reason"], "SpecAccepted", "{object:#}");
}

/// A replica that the operator removes would be added again by the autoscaler, and requests would be lost in between.
#[tokio::test]
async fn foreign_autoscaler_keeps_manual_replicas() {
    let Some(ns) = TestNamespace::open("scaled-beside").await else { return };
    ns.apply_stack(starter(json!({ "workload": { "replicas": 1 } }))).await;
    ns.wait_until_ready().await;
    let first = ns.server().await;
    let scaler = json!({ "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": { "name": "theirs" },
        "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": STACK },
            "minReplicas": 1, "maxReplicas": 6 } });
    ns.apply(&scaler.to_string()).await;
    let scaled = Patch::Merge(json!({ "spec": { "replicas": 5 } }));
    let as_kubectl = PatchParams { field_manager: Some("kubectl".into()), ..PatchParams::default() };
    ns.api::<Deployment>().patch_scale(STACK, &as_kubectl, &scaled).await.unwrap();
    let object = ns.wait_for("the foreign autoscaler is reported", |object| {
        condition(object, "SpecAccepted")["reason"] == "ReplicasDecidedElsewhere"
            && object["status"]["availableReplicas"] == 5
    });
    let object = object.await;
    let message = condition(&object, "SpecAccepted")["message"].as_str().unwrap_or_default();
    assert!(message.contains("but HorizontalPodAutoscaler theirs controls"), "{message}");
    let numbers: Vec<Value> =
        ns.versions_since(&first).await.iter().map(|server| server.0["spec"]["replicas"].clone()).collect();
    assert_eq!(numbers, [json!(5)], "no pod was removed in between");
    assert_eq!(ns.template_count().await, 1, "no pod was restarted");

    let scalers = ns.api::<HorizontalPodAutoscaler>();
    scalers.delete("theirs", &DeleteParams::default()).await.unwrap();
    ns.trigger_reconcile().await;
    ns.wait_for("the replicas of the spec are restored", |object| object["status"]["availableReplicas"] == 1).await;
}

/// The changed port has another key in the list, so that applying ours alone would add a second port with the same name.
#[tokio::test]
async fn edited_service_port_is_restored() {
    let Some(ns) = TestNamespace::open("edited").await else { return };
    ns.apply_stack(starter(json!({ "networking": { "port": 8321 } }))).await;
    ns.wait_until_ready().await;
    let edited = json!({ "metadata": { "labels": { "example.com/mine": "yes" } },
        "spec": { "ports": [{ "name": "http", "port": 9999, "targetPort": 9999, "protocol": "TCP" }] } });
    let as_kubectl_edit = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
    ns.api::<Service>().patch("stack-service", &as_kubectl_edit, &Patch::Merge(edited)).await.unwrap();
    let service = wait::eventually("the port is restored", async || {
        let service = ns.get::<Service>("stack-service").await?;
        let ports: Vec<_> = service["spec"]["ports"].as_array()?.iter().map(|port| port["port"].clone()).collect();
        (ports == [json!(8321)]).then_some(service)
    });
    let service = service.await.unwrap();
    assert_eq!(service["metadata"]["labels"]["example.com/mine"], "yes");
    ns.wait_until_ready().await;
    ns.patch_spec(json!({ "networking": { "port": 9000 } })).await;
    ns.wait_until_ready().await;
    let service = ns.get::<Service>("stack-service").await.unwrap();
    assert_eq!(service["spec"]["ports"].as_array().map(Vec::len), Some(1), "{service:#}");
    assert_eq!(service["spec"]["ports"][0]["port"], 9000);
}

#[tokio::test]
async fn paused_rollout_is_reported_until_resumed() {
    let Some(ns) = TestNamespace::open("paused").await else { return };
    ns.apply_stack(starter(json!({ "workload": { "replicas": 1 } }))).await;
    ns.wait_until_ready().await;
    let pause = async |paused: bool| {
        let patch = Patch::Merge(json!({ "spec": { "paused": paused } }));
        ns.api::<Deployment>().patch(STACK, &PatchParams::default(), &patch).await.unwrap();
    };
    pause(true).await;
    ns.patch_spec(json!({ "workload": { "overrides": { "env": [{ "name": "A", "value": "b" }] } } })).await;
    let object = ns.wait_for("the pause is reported", |object| {
        let message = condition(object, "DeploymentReady")["message"].as_str().unwrap_or_default();
        is_condition_current(object, "DeploymentReady")
            && message.contains("kubectl rollout resume deployment stack -n")
    });
    assert_eq!(object.await["status"]["phase"], "Initializing");
    pause(false).await;
    ns.wait_until_ready().await;
    assert_eq!(ns.server().await.env("A")["value"], "b");
}

/// The data exists while the pod runs, so the user can still save it.
#[tokio::test]
async fn terminating_claim_is_reported_while_pod_runs() {
    let Some(ns) = TestNamespace::open("claim-deleted").await else { return };
    ns.apply_stack(starter(json!({ "workload": { "replicas": 1, "storage": {} } }))).await;
    ns.wait_for_condition("StorageReady", "True", "StorageReady").await;
    ns.wait_until_ready().await;
    let pods = ns.pod_uids().await;
    let claims = ns.api::<PersistentVolumeClaim>();
    claims.delete("stack-pvc", &DeleteParams::default()).await.unwrap();
    let object = ns.wait_for_condition("StorageReady", "False", "StorageFailed").await;
    assert_eq!(condition(&object, "StorageReady")["message"], "PVC is not bound: Terminating");
    assert_eq!(ns.pod_uids().await, pods, "the server keeps running");
}

#[tokio::test]
async fn scaling_restarts_no_pod() {
    let Some(ns) = TestNamespace::open("number").await else { return };
    ns.apply_stack(starter(json!({ "workload": { "replicas": 1, "storage": {} } }))).await;
    ns.wait_until_ready().await;
    for replicas in [3, 1] {
        ns.patch_spec(json!({ "workload": { "replicas": replicas } })).await;
        ns.wait_for("all replicas are available", |object| object["status"]["availableReplicas"] == replicas).await;
        ns.wait_until_ready().await;
        assert_eq!(ns.template_count().await, 1, "{replicas}");
    }
}

#[tokio::test]
async fn several_replicas_get_a_disruption_budget() {
    let Some(ns) = TestNamespace::open("budget").await else { return };
    ns.apply_stack(starter(json!({ "workload": { "replicas": 2 } }))).await;
    ns.wait_until_ready().await;
    let budget = async || ns.get::<PodDisruptionBudget>("stack-pdb").await.map(|budget| budget["spec"].clone());
    assert_eq!(budget().await.unwrap()["maxUnavailable"], 1);
    ns.patch_spec(json!({ "workload": { "podDisruptionBudget": { "minAvailable": "50%" } } })).await;
    let half = async || budget().await.filter(|spec| spec["minAvailable"] == "50%" && spec["maxUnavailable"].is_null());
    wait::eventually("the user's limit is applied", half).await.unwrap();
    ns.patch_spec(json!({ "workload": { "replicas": 1, "podDisruptionBudget": null } })).await;
    ns.wait_until_deleted::<PodDisruptionBudget>("stack-pdb").await;
}

#[tokio::test]
async fn volume_uses_recreate_strategy_and_keeps_claim() {
    let Some(ns) = TestNamespace::open("volume").await else { return };
    ns.apply_stack(starter(json!({ "workload": { "replicas": 1 } }))).await;
    ns.wait_until_ready().await;
    assert_eq!(ns.server().await.0["spec"]["strategy"]["type"], "RollingUpdate");
    // The API server rejects `Recreate` while the fields of `RollingUpdate` are set.
    ns.patch_spec(json!({ "workload": { "storage": { "size": "5Gi" } } })).await;
    let object = ns.wait_until_ready().await;
    let server = ns.server().await;
    assert_eq!(server.0["spec"]["strategy"], json!({ "type": "Recreate" }));
    assert_eq!(server.volume("lls-storage")["persistentVolumeClaim"]["claimName"], "stack-pvc");
    assert_eq!(server.env("HF_HOME")["value"], "/.llama");
    assert_eq!(condition(&object, "StorageReady")["status"], "True", "{object:#}");
    ns.patch_spec(json!({ "workload": { "storage": null } })).await;
    let object = ns.wait_until_ready().await;
    assert!(condition(&object, "StorageReady").is_null());
    assert!(ns.get::<PersistentVolumeClaim>("stack-pvc").await.is_some(), "the claim holds the user's data");
}

#[tokio::test]
async fn deletion_during_rollout_leaves_nothing() {
    let Some(ns) = TestNamespace::open("leaving").await else { return };
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() }, "networking": { "expose": true } }))).await;
    ns.wait_until_ready().await;
    ns.set_play(Some(PodBehaviour::Unready)).await;
    ns.patch_spec(json!({ "resources": { "models": ["later"] } })).await;
    let rolling = async || (ns.pod_uids().await.len() == 2).then_some(());
    wait::eventually("pods of two templates exist", rolling).await.unwrap();
    ns.delete_stack().await;
    let cleanup = wait::eventually("all children are deleted", async || {
        let maps = ns.generated_config_maps().await;
        let gone = ns.get::<Deployment>(STACK).await.is_none() && ns.get::<Ingress>("stack-ingress").await.is_none();
        (gone && maps.is_empty() && ns.pod_uids().await.is_empty()).then_some(())
    });
    cleanup.await.unwrap();
}

#[tokio::test]
async fn kept_claim_outlives_its_object() {
    let Some(ns) = TestNamespace::open("kept-claim").await else { return };
    let stack = |annotations: Value| {
        let spec = starter(json!({ "workload": { "storage": {} } }));
        json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution",
            "metadata": { "name": STACK, "annotations": annotations }, "spec": spec })
        .to_string()
    };
    ns.apply(&stack(json!({ "steersman.dev/keep-volume": "true" }))).await;
    ns.wait_until_ready().await;
    ns.delete_stack().await;
    ns.wait_until_deleted::<Deployment>(STACK).await;
    ns.wait_until_deleted::<ServiceAccount>("stack-sa").await;
    let kept = ns.get::<PersistentVolumeClaim>("stack-pvc").await.unwrap();
    assert!(kept["metadata"]["ownerReferences"].is_null() && kept["metadata"]["deletionTimestamp"].is_null());

    // A new object of the same name uses the claim.
    ns.apply(&stack(json!({}))).await;
    ns.wait_until_ready().await;
    let used = ns.get::<PersistentVolumeClaim>("stack-pvc").await.unwrap();
    assert_eq!(used["metadata"]["uid"], kept["metadata"]["uid"]);
}

#[tokio::test]
async fn external_providers_are_installed_before_start() {
    let Some(ns) = TestNamespace::open("external").await else { return };
    let acme = json!({ "providerId": "acme", "image": "example.com/acme:1", "config": { "size": 3 } });
    let external =
        json!({ "inference": [acme], "safety": [{ "providerId": "own-guard", "image": "example.com/guard:2" }] });
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() }, "externalProviders": external }))).await;
    ns.wait_until_ready().await;
    let server = ns.server().await;
    let before = ["install-provider-acme", "install-provider-own-guard", "generate-config"];
    assert_eq!(server.init_containers(), before, "FR-090");
    let init = &server.pod_spec()["initContainers"];
    assert_eq!(find_entry(init, "name", "install-provider-acme")["image"], "example.com/acme:1");
    let merge = find_entry(init, "name", "generate-config");
    assert_eq!(merge["image"], OPERATOR_IMAGE);
    assert!(merge["env"].to_string().contains("own-guard"), "FR-091: {merge:#}");
    assert_eq!(server.env("LLAMA_STACK_CONFIG")["value"], "/opt/llama-stack/config/config.yaml");
    assert_eq!(server.env("PYTHONPATH")["value"], "/opt/llama-stack/external-providers/python-packages");
    for volume in ["external-providers", "final-config"] {
        assert!(!server.mount(volume).is_null() && !server.volume(volume).is_null(), "{volume}");
    }

    // FR-092: an external provider replaces the provider with the same id, and the condition reports it.
    let again = json!([{ "providerId": "vllm", "image": "example.com/vllm:1" }]);
    ns.patch_spec(json!({ "externalProviders": { "inference": again, "safety": null } })).await;
    let object = ns.wait_until_ready().await;
    let accepted = condition(&object, "SpecAccepted");
    assert_eq!(
        (&accepted["status"], &accepted["reason"]),
        (&json!("True"), &json!("ProviderOverridden")),
        "{accepted:#}"
    );
    assert_eq!(ns.server().await.init_containers(), ["install-provider-vllm", "generate-config"]);
}

#[tokio::test]
async fn rotated_secret_is_reported_or_restarts_server() {
    let Some(ns) = TestNamespace::open("rotated").await else { return };
    ns.apply_secret("vllm", "token", "a").await;
    ns.apply_secret("own", "key", "a").await;
    let mut provider = vllm();
    provider["apiKey"] = json!({ "name": "vllm", "key": "token" });
    let variable = json!({ "name": "OWN", "valueFrom": { "secretKeyRef": { "name": "own", "key": "key" } } });
    let sections =
        json!({ "providers": { "inference": provider }, "workload": { "overrides": { "env": [variable] } } });
    ns.apply_stack(starter(sections)).await;
    ns.wait_until_ready().await;
    let pods = ns.pod_uids().await;

    // Times have seconds: a change in the second of the start does not count.
    let reported = wait::eventually("the changed Secret is reported", async || {
        ns.apply_secret("own", "key", &jiff::Timestamp::now().to_string()).await;
        let object = ns.object(STACK, "v1alpha2").await;
        let accepted = condition(&object, "SpecAccepted");
        (accepted["reason"] == "SecretChanged").then(|| accepted["message"].to_string())
    });
    let message = reported.await.unwrap();
    assert!(message.contains("before the last change of Secret own."), "{message}");
    assert_eq!(ns.pod_uids().await, pods, "nothing restarts by itself");
    ns.api::<Deployment>().restart(STACK).await.unwrap();
    ns.wait_for_condition("SpecAccepted", "True", "SpecAccepted").await;
    let renewed = async || ns.pod_uids().await.is_disjoint(&pods).then_some(());
    wait::eventually("the old pod is gone", renewed).await.unwrap();

    ns.patch(json!({ "metadata": { "annotations": { "steersman.dev/restart-on-secret-change": "true" } } })).await;
    let versions = async || ns.server().await.annotation("steersman.dev/secret-versions").as_str().map(str::to_owned);
    let first = wait::eventually("the pods have the versions of the Secrets", versions).await.unwrap();
    ns.wait_until_ready().await;
    ns.apply_secret("own", "key", "b").await;
    let next = async || versions().await.filter(|next| *next != first);
    let second = wait::eventually("the change is rolled out", next).await.unwrap();
    ns.wait_until_ready().await;
    // Pods of another template could not start.
    ns.api::<Secret>().delete("own", &DeleteParams::default()).await.unwrap();
    ns.trigger_reconcile().await;
    ns.wait_until_ready().await;
    assert_eq!(versions().await, Some(second));
}
