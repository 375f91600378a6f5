//! What stays while things change: old configurations, other namespaces, the number of pods, users' data.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use steersman_testkit::{Play, wait};

use crate::scene::{STACK, Scene, condition, is_told, named, starter, vllm};
use crate::world::OPERATOR_IMAGE;

async fn maps(scene: &Scene) -> Value {
    json!(scene.all::<ConfigMap>().list(&ListParams::default()).await.unwrap().items)
}

#[tokio::test]
async fn two_configurations_stay_and_those_of_other_namespaces_are_left_alone() {
    let (Some(scene), Some(other)) = (Scene::open("kept").await, Scene::open("kept-beside").await) else { return };
    let spec = || starter(json!({ "providers": { "inference": vllm() } }));
    scene.stack(spec()).await;
    other.stack(spec()).await;
    other.ready().await;
    let (beside, server) = (maps(&other).await, other.server().await);
    let mut seen = Vec::new();
    for names in [&["a"][..], &["a", "b"], &["a", "b", "c"], &["a", "b", "c", "d"]] {
        scene.ready().await;
        seen.push(scene.server().await.config_map().unwrap());
        let there = scene.generated().await;
        assert!(there.contains(seen.last().unwrap()), "what pods mount is there: {there:?}");
        scene.spec(json!({ "resources": { "models": names } })).await;
    }
    scene.ready().await;
    let mounted = scene.server().await.config_map().unwrap();
    let kept = wait::eventually("two are left", async || {
        let there = scene.generated().await;
        (there.len() == 2).then_some(there)
    });
    let kept = kept.await.unwrap();
    assert!(kept.contains(&mounted), "FR-025a: {kept:?}");
    assert!(kept.iter().any(|name| seen.contains(name)), "and one to look back at: {kept:?} of {seen:?}");
    let map = scene.get::<ConfigMap>(&mounted).await.unwrap();
    assert_eq!(map["immutable"], true, "NFR-005");
    assert_eq!(map["metadata"]["ownerReferences"][0]["name"], STACK, "FR-025");
    assert_eq!((maps(&other).await, other.server().await), (beside, server));
}

#[tokio::test]
async fn an_autoscaler_decides_on_the_pods_and_goes_when_nobody_asks_for_it() {
    let Some(scene) = Scene::open("scaled").await else { return };
    let autoscaling = json!({ "minReplicas": 1, "maxReplicas": 3, "targetMemoryUtilizationPercentage": 70 });
    scene.stack(starter(json!({ "workload": { "replicas": 1, "autoscaling": autoscaling } }))).await;
    scene.ready().await;
    let scaler = scene.get::<HorizontalPodAutoscaler>("stack-hpa").await.unwrap();
    let spec = &scaler["spec"];
    assert_eq!(spec["scaleTargetRef"]["name"], STACK);
    assert_eq!((&spec["minReplicas"], &spec["maxReplicas"]), (&json!(1), &json!(3)));
    assert_eq!(spec["metrics"][0]["resource"]["name"], "memory");
    assert!(scene.get::<PodDisruptionBudget>("stack-pdb").await.is_some(), "there may be several");

    // As the autoscaler's controller does it. A change of the spec does not undo it.
    let scaled = Patch::Merge(json!({ "spec": { "replicas": 3 } }));
    let scaler = PatchParams { field_manager: Some("kube-controller-manager".into()), ..PatchParams::default() };
    scene.all::<Deployment>().patch_scale(STACK, &scaler, &scaled).await.unwrap();
    scene.until("three run", |object| object["status"]["availableReplicas"] == 3).await;
    scene.spec(json!({ "workload": { "overrides": { "env": [{ "name": "A", "value": "b" }] } } })).await;
    let object = scene.ready().await;
    assert_eq!(scene.server().await.0["spec"]["replicas"], 3);
    assert_eq!(condition(&object, "DeploymentReady")["status"], "True");

    scene.spec(json!({ "workload": { "autoscaling": null } })).await;
    scene.until_gone::<HorizontalPodAutoscaler>("stack-hpa").await;
    scene.until("the spec counts again", |object| object["status"]["availableReplicas"] == 1).await;
    let object = scene.ready().await;
    assert_eq!(condition(&object, "SpecAccepted")["reason"], "SpecAccepted", "{object:#}");
}

/// The autoscaler would have to bring back what we take away, and requests are lost in between.
#[tokio::test]
async fn a_number_that_somebody_types_beside_an_autoscaler_stays() {
    let Some(scene) = Scene::open("scaled-beside").await else { return };
    scene.stack(starter(json!({ "workload": { "replicas": 1 } }))).await;
    scene.ready().await;
    let first = scene.server().await;
    let scaler = json!({ "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": { "name": "theirs" },
        "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": STACK },
            "minReplicas": 1, "maxReplicas": 6 } });
    scene.apply(&scaler.to_string()).await;
    let scaled = Patch::Merge(json!({ "spec": { "replicas": 5 } }));
    let typed = PatchParams { field_manager: Some("kubectl".into()), ..PatchParams::default() };
    scene.all::<Deployment>().patch_scale(STACK, &typed, &scaled).await.unwrap();
    let told = scene.until("it is told who decides", |object| {
        condition(object, "SpecAccepted")["reason"] == "ReplicasDecidedElsewhere"
            && object["status"]["availableReplicas"] == 5
    });
    let told = told.await;
    let message = condition(&told, "SpecAccepted")["message"].as_str().unwrap_or_default();
    assert!(message.contains("but HorizontalPodAutoscaler theirs decides"), "{message}");
    let numbers: Vec<Value> =
        scene.versions(&first).await.iter().map(|server| server.0["spec"]["replicas"].clone()).collect();
    assert_eq!(numbers, [json!(5)], "no pod was taken away in between");
    assert_eq!(scene.templates().await, 1, "and none restarted");

    let scalers = scene.all::<HorizontalPodAutoscaler>();
    scalers.delete("theirs", &DeleteParams::default()).await.unwrap();
    scene.touch().await;
    scene.until("the spec counts again", |object| object["status"]["availableReplicas"] == 1).await;
}

/// With another number in its place, ours would be a second port of the same name.
#[tokio::test]
async fn a_port_that_somebody_changed_is_put_right_and_other_marks_stay() {
    let Some(scene) = Scene::open("edited").await else { return };
    scene.stack(starter(json!({ "networking": { "port": 8321 } }))).await;
    scene.ready().await;
    let edited = json!({ "metadata": { "labels": { "example.com/mine": "yes" } },
        "spec": { "ports": [{ "name": "http", "port": 9999, "targetPort": 9999, "protocol": "TCP" }] } });
    let typed = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
    scene.all::<Service>().patch("stack-service", &typed, &Patch::Merge(edited)).await.unwrap();
    let service = wait::eventually("the port is back", async || {
        let service = scene.get::<Service>("stack-service").await?;
        let ports: Vec<_> = service["spec"]["ports"].as_array()?.iter().map(|port| port["port"].clone()).collect();
        (ports == [json!(8321)]).then_some(service)
    });
    let service = service.await.unwrap();
    assert_eq!(service["metadata"]["labels"]["example.com/mine"], "yes");
    scene.ready().await;
    scene.spec(json!({ "networking": { "port": 9000 } })).await;
    scene.ready().await;
    let service = scene.get::<Service>("stack-service").await.unwrap();
    assert_eq!(service["spec"]["ports"].as_array().map(Vec::len), Some(1), "{service:#}");
    assert_eq!(service["spec"]["ports"][0]["port"], 9000);
}

#[tokio::test]
async fn a_rollout_that_somebody_paused_says_so_and_goes_on_when_they_resume_it() {
    let Some(scene) = Scene::open("paused").await else { return };
    scene.stack(starter(json!({ "workload": { "replicas": 1 } }))).await;
    scene.ready().await;
    let pause = async |paused: bool| {
        let patch = Patch::Merge(json!({ "spec": { "paused": paused } }));
        scene.all::<Deployment>().patch(STACK, &PatchParams::default(), &patch).await.unwrap();
    };
    pause(true).await;
    scene.spec(json!({ "workload": { "overrides": { "env": [{ "name": "A", "value": "b" }] } } })).await;
    let told = scene.until("it is told why nothing happens", |object| {
        let message = condition(object, "DeploymentReady")["message"].as_str().unwrap_or_default();
        is_told(object, "DeploymentReady") && message.contains("kubectl rollout resume deployment stack -n")
    });
    assert_eq!(told.await["status"]["phase"], "Initializing");
    pause(false).await;
    scene.ready().await;
    assert_eq!(scene.server().await.env("A")["value"], "b");
}

/// Its data is there for as long as the pod runs: the time to save it.
#[tokio::test]
async fn a_claim_that_somebody_deleted_is_told_of_while_its_pod_still_runs() {
    let Some(scene) = Scene::open("claim-deleted").await else { return };
    scene.stack(starter(json!({ "workload": { "replicas": 1, "storage": {} } }))).await;
    scene.until_condition("StorageReady", "True", "StorageReady").await;
    scene.ready().await;
    let pods = scene.pods().await;
    let claims = scene.all::<PersistentVolumeClaim>();
    claims.delete("stack-pvc", &DeleteParams::default()).await.unwrap();
    let object = scene.until_condition("StorageReady", "False", "StorageFailed").await;
    assert_eq!(condition(&object, "StorageReady")["message"], "PVC is not bound: Terminating");
    assert_eq!(scene.pods().await, pods, "the server runs on");
}

#[tokio::test]
async fn more_or_fewer_pods_restart_none() {
    let Some(scene) = Scene::open("number").await else { return };
    scene.stack(starter(json!({ "workload": { "replicas": 1, "storage": {} } }))).await;
    scene.ready().await;
    for replicas in [3, 1] {
        scene.spec(json!({ "workload": { "replicas": replicas } })).await;
        scene.until("as many run", |object| object["status"]["availableReplicas"] == replicas).await;
        scene.ready().await;
        assert_eq!(scene.templates().await, 1, "{replicas}");
    }
}

#[tokio::test]
async fn several_pods_are_not_evicted_at_once() {
    let Some(scene) = Scene::open("budget").await else { return };
    scene.stack(starter(json!({ "workload": { "replicas": 2 } }))).await;
    scene.ready().await;
    let budget = async || scene.get::<PodDisruptionBudget>("stack-pdb").await.map(|budget| budget["spec"].clone());
    assert_eq!(budget().await.unwrap()["maxUnavailable"], 1);
    scene.spec(json!({ "workload": { "podDisruptionBudget": { "minAvailable": "50%" } } })).await;
    let half = async || budget().await.filter(|spec| spec["minAvailable"] == "50%" && spec["maxUnavailable"].is_null());
    wait::eventually("the user's own limit counts", half).await.unwrap();
    scene.spec(json!({ "workload": { "replicas": 1, "podDisruptionBudget": null } })).await;
    scene.until_gone::<PodDisruptionBudget>("stack-pdb").await;
}

#[tokio::test]
async fn with_a_volume_the_old_pod_goes_first_and_the_claim_stays() {
    let Some(scene) = Scene::open("volume").await else { return };
    scene.stack(starter(json!({ "workload": { "replicas": 1 } }))).await;
    scene.ready().await;
    assert_eq!(scene.server().await.0["spec"]["strategy"]["type"], "RollingUpdate");
    // From rolling to not: the API server refuses that while the fields of the former are there.
    scene.spec(json!({ "workload": { "storage": { "size": "5Gi" } } })).await;
    let object = scene.ready().await;
    let server = scene.server().await;
    assert_eq!(server.0["spec"]["strategy"], json!({ "type": "Recreate" }));
    assert_eq!(server.volume("lls-storage")["persistentVolumeClaim"]["claimName"], "stack-pvc");
    assert_eq!(server.env("HF_HOME")["value"], "/.llama");
    assert_eq!(condition(&object, "StorageReady")["status"], "True", "{object:#}");
    scene.spec(json!({ "workload": { "storage": null } })).await;
    let object = scene.ready().await;
    assert!(condition(&object, "StorageReady").is_null());
    assert!(scene.get::<PersistentVolumeClaim>("stack-pvc").await.is_some(), "it holds the user's data");
}

#[tokio::test]
async fn a_deletion_in_the_middle_of_a_rollout_leaves_nothing() {
    let Some(scene) = Scene::open("leaving").await else { return };
    scene.stack(starter(json!({ "providers": { "inference": vllm() }, "networking": { "expose": true } }))).await;
    scene.ready().await;
    scene.play(Some(Play::Unready)).await;
    scene.spec(json!({ "resources": { "models": ["later"] } })).await;
    let rolling = async || (scene.pods().await.len() == 2).then_some(());
    wait::eventually("two templates have pods", rolling).await.unwrap();
    scene.delete().await;
    let nothing = wait::eventually("nothing is left", async || {
        let maps = scene.generated().await;
        let gone =
            scene.get::<Deployment>(STACK).await.is_none() && scene.get::<Ingress>("stack-ingress").await.is_none();
        (gone && maps.is_empty() && scene.pods().await.is_empty()).then_some(())
    });
    nothing.await.unwrap();
}

#[tokio::test]
async fn external_providers_are_installed_before_the_server_starts() {
    let Some(scene) = Scene::open("external").await else { return };
    let acme = json!({ "providerId": "acme", "image": "example.com/acme:1", "config": { "size": 3 } });
    let external =
        json!({ "inference": [acme], "safety": [{ "providerId": "own-guard", "image": "example.com/guard:2" }] });
    scene.stack(starter(json!({ "providers": { "inference": vllm() }, "externalProviders": external }))).await;
    scene.ready().await;
    let server = scene.server().await;
    let before = ["install-provider-acme", "install-provider-own-guard", "generate-config"];
    assert_eq!(server.init_containers(), before, "FR-090");
    let init = &server.pod()["initContainers"];
    assert_eq!(named(init, "name", "install-provider-acme")["image"], "example.com/acme:1");
    let merge = named(init, "name", "generate-config");
    assert_eq!(merge["image"], OPERATOR_IMAGE);
    assert!(merge["env"].to_string().contains("own-guard"), "FR-091: {merge:#}");
    assert_eq!(server.env("LLAMA_STACK_CONFIG")["value"], "/opt/llama-stack/config/config.yaml");
    assert_eq!(server.env("PYTHONPATH")["value"], "/opt/llama-stack/external-providers/python-packages");
    for volume in ["external-providers", "final-config"] {
        assert!(!server.mount(volume).is_null() && !server.volume(volume).is_null(), "{volume}");
    }

    // FR-092: one with an id that the file has takes its place, and that is told.
    let again = json!([{ "providerId": "vllm", "image": "example.com/vllm:1" }]);
    scene.spec(json!({ "externalProviders": { "inference": again, "safety": null } })).await;
    let object = scene.ready().await;
    let said = condition(&object, "SpecAccepted");
    assert_eq!((&said["status"], &said["reason"]), (&json!("True"), &json!("ProviderOverridden")), "{said:#}");
    assert_eq!(scene.server().await.init_containers(), ["install-provider-vllm", "generate-config"]);
}
