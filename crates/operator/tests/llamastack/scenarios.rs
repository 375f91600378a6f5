//! The twelve scenarios of task 5.2.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use steersman_testkit::{object, wait};

use crate::env;
use crate::test_namespace::{STACK, TestNamespace, condition, find_entry, starter, vllm};

#[tokio::test]
async fn t52_01_simple_inference_owns_its_children() {
    let Some(ns) = TestNamespace::open("t52-01").await else { return };
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() } }))).await;
    let own = ns.wait_until_ready().await;
    let map = ns.server().await.config_map().unwrap();
    let children = [
        ns.server().await.0,
        ns.get::<Service>("stack-service").await.unwrap(),
        ns.get::<ServiceAccount>("stack-sa").await.unwrap(),
        ns.get::<ConfigMap>(&map).await.unwrap(),
    ];
    for child in &children {
        let (name, owner) = (&child["metadata"]["name"], &child["metadata"]["ownerReferences"][0]);
        assert_eq!(owner["uid"], own["metadata"]["uid"], "{name}");
        assert_eq!((&owner["controller"], &owner["apiVersion"]), (&json!(true), &json!("llamastack.io/v1alpha2")));
        assert_eq!(child["metadata"]["labels"]["app.kubernetes.io/managed-by"], "llama-stack-operator", "{name}");
    }
    ns.delete_stack().await;
    ns.wait_until_deleted::<Deployment>(STACK).await;
    ns.wait_until_deleted::<ConfigMap>(&map).await;
    ns.wait_until_deleted::<Service>("stack-service").await;
    ns.wait_until_deleted::<ServiceAccount>("stack-sa").await;
    let no_pods = async || ns.pod_uids().await.is_empty().then_some(());
    wait::eventually("all pods are deleted", no_pods).await.unwrap();
}

#[tokio::test]
async fn t52_02_providers_of_every_api_are_configured() {
    let Some(ns) = TestNamespace::open("t52-02").await else { return };
    ns.apply_secret("keys", "tavily", "hush").await;
    let providers = json!({
        "inference": [vllm_with_id("one"), vllm_with_id("two")],
        "safety": { "provider": "llama-guard" },
        "vectorIo": { "id": "vectors", "provider": "milvus", "endpoint": "http://milvus:19530" },
        "toolRuntime": { "provider": "tavily-search", "apiKey": { "name": "keys", "key": "tavily" } },
        "telemetry": { "provider": "meta-reference" },
    });
    ns.apply_stack(starter(json!({ "providers": providers }))).await;
    let object = ns.wait_until_ready().await;
    let config = ns.config().await;
    for (api, id, type_) in [
        ("inference", "one", "remote::vllm"),
        ("inference", "two", "remote::vllm"),
        ("safety", "llama-guard", "inline::llama-guard"),
        ("vector_io", "vectors", "remote::milvus"),
        ("tool_runtime", "tavily-search", "remote::tavily-search"),
    ] {
        let provider = find_entry(&config["providers"][api], "provider_id", id);
        assert_eq!(provider["provider_type"], type_, "{api} {id}: {config:#}");
    }
    let tavily = find_entry(&config["providers"]["tool_runtime"], "provider_id", "tavily-search");
    assert_eq!(tavily["config"]["api_key"], "${env.LLSD_TAVILY_SEARCH_API_KEY}");
    // The server of this distribution does not have the telemetry API, and would not start with it.
    assert!(config["providers"]["telemetry"].is_null());
    let accepted = condition(&object, "SpecAccepted");
    assert!(
        accepted["status"] == "True" && accepted["message"].as_str().unwrap().contains("spec.providers.telemetry"),
        "{accepted}"
    );
}

fn vllm_with_id(id: &str) -> Value {
    json!({ "id": id, "provider": "vllm", "endpoint": format!("http://{id}:8000/v1") })
}

#[tokio::test]
async fn t52_03_resources_are_registered_and_counted() {
    let Some(ns) = TestNamespace::open("t52-03").await else { return };
    let embedding = json!({ "name": "all-minilm", "provider": "sentence-transformers", "modelType": "embedding" });
    let resources = json!({ "models": ["llama", { "name": "qwen" }], "tools": ["websearch"], "shields": ["guard"] });
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() }, "resources": resources }))).await;
    let object = ns.wait_until_ready().await;
    let count = object["status"]["configGeneration"]["resourceCount"].as_i64().unwrap();
    let message = condition(&object, "ConfigGenerated")["message"].as_str().unwrap();
    let providers = &object["status"]["configGeneration"]["providerCount"];
    assert_eq!(message, format!("Generated config.yaml with {providers} providers and {count} models"));
    let first = ns.config().await["registered_resources"].clone();

    ns.patch_spec(json!({ "resources": { "models": ["llama", embedding] } })).await;
    let result = ns.try_patch(json!({ "spec": { "resources": { "models": [{ "provider": "vllm" }] } } })).await;
    assert!(result.unwrap_err().contains("spec.resources.models[0].name"), "a model must have a name");
    ns.wait_until_ready().await;
    let second = ns.config().await["registered_resources"].clone();
    assert!(!find_entry(&first["models"], "model_id", "qwen").is_null());
    assert!(
        find_entry(&second["models"], "model_id", "qwen").is_null(),
        "the removed model is unregistered: {second:#}"
    );
    assert_eq!(find_entry(&second["models"], "model_id", "all-minilm")["model_type"], "embedding");
    assert_eq!((&first["tool_groups"], &first["shields"]), (&second["tool_groups"], &second["shields"]));
}

#[tokio::test]
async fn t52_04_storage_backends_can_be_changed() {
    let Some(ns) = TestNamespace::open("t52-04").await else { return };
    ns.apply(
        "{apiVersion: v1, kind: Secret, metadata: {name: state}, stringData: {dsn: 'postgresql://a:b@c/d', key: e}}",
    )
    .await;
    let storage = json!({
        "kv": { "type": "redis", "endpoint": "redis://cache:6380", "password": { "name": "state", "key": "key" } },
        "sql": { "type": "postgres", "connectionString": { "name": "state", "key": "dsn" } },
    });
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() }, "storage": storage }))).await;
    ns.wait_until_ready().await;
    let types = async || {
        let config = ns.config().await;
        ["kv_default", "sql_default"].map(|name| config["storage"]["backends"][name]["type"].clone())
    };
    assert_eq!(types().await, ["kv_redis", "sql_postgres"]);
    let before = ns.server().await;
    assert_eq!(before.init_containers(), ["prepare-storage"]);

    ns.patch_spec(json!({ "storage": { "kv": { "type": "sqlite", "endpoint": null, "password": null } } })).await;
    ns.wait_until_ready().await;
    assert_eq!(types().await, ["kv_sqlite", "sql_postgres"], "each store changes separately");
    ns.patch_spec(json!({ "storage": null })).await;
    ns.wait_until_ready().await;
    assert_eq!(types().await, ["kv_sqlite", "sql_sqlite"]);
    let after = ns.server().await;
    assert!(
        after.init_containers().is_empty() && after.volume("storage-env").is_null(),
        "the storage preparation is removed"
    );
}

#[tokio::test]
async fn t52_05_port_change_reaches_all_children() {
    let Some(ns) = TestNamespace::open("t52-05").await else { return };
    let networking = json!({ "port": 8400, "expose": { "hostname": "llama.example.com" },
        "allowedFrom": { "namespaces": ["apps"] } });
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() }, "networking": networking }))).await;
    for port in [8400, 8500] {
        ns.patch_spec(json!({ "networking": { "port": port } })).await;
        let object = ns.wait_until_ready().await;
        let url = format!("http://stack-service.{}.svc.cluster.local:{port}", ns.name());
        assert_eq!(object["status"]["serviceURL"], url.as_str());
        let server = ns.server().await;
        assert_eq!(server.container()["ports"][0]["containerPort"], port);
        assert_eq!(server.container()["startupProbe"]["httpGet"]["port"], port);
        assert_eq!(server.env("LLS_PORT")["value"], port.to_string());
        assert_eq!(ns.config().await["server"]["port"], port);
        let service = ns.get::<Service>("stack-service").await.unwrap();
        assert_eq!(service["spec"]["ports"][0]["targetPort"], port);
        let rules = |child: Value, path: &str| child["spec"].pointer(path).cloned();
        let ingress = ns.get::<Ingress>("stack-ingress").await.unwrap();
        assert_eq!(rules(ingress, "/rules/0/http/paths/0/backend/service/port/number"), Some(json!(port)));
        let policy = ns.get::<NetworkPolicy>("stack-network-policy").await.unwrap();
        assert_eq!(rules(policy, "/ingress/0/ports/0/port"), Some(json!(port)));
    }
}

#[tokio::test]
async fn t52_06_config_override_switches_in_one_write() {
    let Some(ns) = TestNamespace::open("t52-06").await else { return };
    ns.apply_config_map("mine", "config.yaml", "version: 2\n").await;
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() } }))).await;
    ns.wait_until_ready().await;
    let generated = ns.server().await;
    let service_uid = async || ns.get::<Service>("stack-service").await.map(|found| found["metadata"]["uid"].clone());
    let first_service = service_uid().await;
    assert!(first_service.is_some());

    ns.patch_spec(json!({ "providers": null, "overrideConfig": { "configMapName": "mine" } })).await;
    let object = ns.wait_until_ready().await;
    let mine = ns.server().await;
    assert_eq!(mine.config_map().as_deref(), Some("mine"));
    assert_eq!(ns.versions_since(&generated).await.len(), 1, "the spec changes once");
    assert!(condition(&object, "ConfigGenerated").is_null() && object["status"]["configGeneration"].is_null());
    assert_eq!(service_uid().await, first_service, "the Service stays");

    ns.patch_spec(json!({ "providers": { "inference": vllm() }, "overrideConfig": null })).await;
    let object = ns.wait_until_ready().await;
    let again = ns.server().await;
    assert_eq!(ns.versions_since(&mine).await.len(), 1);
    assert_eq!(
        (again.config_map(), again.config_hash()),
        (generated.config_map(), generated.config_hash()),
        "the generated configuration is the same as before"
    );
    assert_eq!(condition(&object, "ConfigGenerated")["status"], "True");
    assert!(ns.get::<ConfigMap>("mine").await.is_some(), "the user's ConfigMap is kept");
    assert_eq!(service_uid().await, first_service, "the Service stays");
}

/// Only the generated ConfigMap belongs to one source of the configuration.
#[tokio::test]
async fn config_source_change_keeps_other_children() {
    let Some(ns) = TestNamespace::open("config-source").await else { return };
    ns.apply_config_map("mine", "config.yaml", "version: 2\n").await;
    ns.apply_stack(starter(json!({
        "providers": { "inference": vllm() },
        "workload": { "storage": { "size": "1Gi" }, "autoscaling": { "minReplicas": 1, "maxReplicas": 3 },
            "podDisruptionBudget": { "minAvailable": 1 } },
        "networking": { "expose": { "hostname": "stack.example.com" }, "allowedFrom": { "namespaces": ["apps"] } },
    })))
    .await;
    ns.wait_until_ready().await;
    let uids = async || {
        let uid = |found: Option<Value>| found.map(|found| found["metadata"]["uid"].clone());
        [
            ("Deployment", uid(ns.get::<Deployment>("stack").await)),
            ("Service", uid(ns.get::<Service>("stack-service").await)),
            ("PersistentVolumeClaim", uid(ns.get::<PersistentVolumeClaim>("stack-pvc").await)),
            ("ServiceAccount", uid(ns.get::<ServiceAccount>("stack-sa").await)),
            ("Ingress", uid(ns.get::<Ingress>("stack-ingress").await)),
            ("NetworkPolicy", uid(ns.get::<NetworkPolicy>("stack-network-policy").await)),
            ("HorizontalPodAutoscaler", uid(ns.get::<HorizontalPodAutoscaler>("stack-hpa").await)),
            ("PodDisruptionBudget", uid(ns.get::<PodDisruptionBudget>("stack-pdb").await)),
        ]
    };
    let before = uids().await;
    assert!(before.iter().all(|(_, uid)| uid.is_some()), "{before:?}");
    let generated = ns.server().await.config_map();
    ns.patch_spec(json!({ "providers": null, "overrideConfig": { "configMapName": "mine" } })).await;
    ns.wait_until_ready().await;
    assert_eq!(ns.server().await.config_map().as_deref(), Some("mine"));
    assert_eq!(uids().await, before);
    ns.patch_spec(json!({ "providers": { "inference": vllm() }, "overrideConfig": null })).await;
    ns.wait_until_ready().await;
    assert_eq!(ns.server().await.config_map(), generated);
    assert_eq!(uids().await, before);
}

#[tokio::test]
async fn t52_07_invalid_spec_is_rejected() {
    let Some(ns) = TestNamespace::open("t52-07").await else { return };
    let cases = [
        (json!({ "distribution": {} }), "one of name or image must be specified"),
        (json!({ "distribution": { "name": "starter", "image": "a" } }), "only one of name or image can be specified"),
        (
            starter(json!({ "networking": { "tls": { "enabled": true } } })),
            "secretName is required when TLS is enabled",
        ),
        (starter(json!({ "storage": { "kv": { "type": "redis" } } })), "endpoint is required when type is redis"),
        (
            starter(json!({ "storage": { "sql": { "type": "postgres" } } })),
            "connectionString is required when type is postgres",
        ),
        (
            starter(json!({ "storage": { "kv": { "type": "etcd" } } })),
            "spec.storage.kv.type: Unsupported value: \"etcd\"",
        ),
        (starter(json!({ "networking": { "port": 70_000 } })), "spec.networking.port"),
        (
            starter(json!({ "providers": { "inference": { "endpoint": "a" } } })),
            "spec.providers.inference.provider: Required value",
        ),
        (
            starter(json!({ "workload": { "autoscaling": { "minReplicas": 3, "maxReplicas": 2 } } })),
            "spec.workload.autoscaling.maxReplicas: it is 2, less than 3",
        ),
        (starter(json!({ "providers": { "inference": { "provider": "vlm" } } })), "Use \"vllm\"."),
    ];
    for (spec, text) in cases {
        let message = ns.expect_rejection(spec).await;
        assert!(message.contains(text), "expected {text:?} in {message}");
    }
    assert_eq!(ns.get::<Deployment>(STACK).await, None);
}

#[tokio::test]
async fn t52_08_spec_change_updates_config_and_status() {
    let Some(ns) = TestNamespace::open("t52-08").await else { return };
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() } }))).await;
    let first = ns.wait_until_ready().await;
    let templates = ns.template_count().await;
    ns.patch_spec(json!({ "resources": { "models": ["a"] } })).await;
    let second = ns.wait_until_ready().await;
    assert_eq!(ns.template_count().await, templates + 1, "there is one rollout");
    let generation = |object: &Value| object["status"]["configGeneration"].clone();
    assert_ne!(generation(&first)["configMapName"], generation(&second)["configMapName"]);
    assert_eq!(generation(&second)["resourceCount"], 1);
    let map = ns.server().await.config_map().unwrap();
    assert_eq!(condition(&second, "DeploymentUpdated")["message"], format!("Deployment updated with config {map}"));
    assert_eq!(condition(&second, "Available")["message"], "1/1 replicas available with current config");
    let conditions = second["status"]["conditions"].as_array().unwrap();
    for known in conditions {
        assert_eq!(known["observedGeneration"], second["metadata"]["generation"], "the condition is current: {known}");
    }
}

#[tokio::test]
async fn t52_09_image_and_config_change_atomically() {
    let Some(ns) = TestNamespace::open("t52-09").await else { return };
    ns.apply_secret("vllm", "token", "hush").await;
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() } }))).await;
    ns.wait_until_ready().await;
    let (before, writes, templates) = (ns.server().await, ns.deployment_writes(), ns.template_count().await);
    let key = json!({ "apiKey": { "secretKeyRef": { "name": "vllm", "key": "token" } } });
    ns.patch_spec(json!({ "distribution": { "name": "starter-gpu" }, "providers": { "inference": key } })).await;
    ns.wait_until_ready().await;

    assert_eq!(ns.deployment_writes(), writes + 1, "FR-100: one write in the audit log");
    let versions = ns.versions_since(&before).await;
    assert_eq!(versions.len(), 1, "one change in the watch history: {versions:#?}");
    let after = &versions[0];
    assert_ne!(after.image(), before.image());
    assert_ne!(after.config_map(), before.config_map());
    assert_ne!(after.config_hash(), before.config_hash());
    assert!(before.env("LLSD_VLLM_API_KEY").is_null() && !after.env("LLSD_VLLM_API_KEY").is_null());
    assert_eq!(ns.template_count().await, templates + 1, "there is one rollout");
}

#[tokio::test]
async fn t52_10_webhook_rejection_names_the_fields() {
    let Some(ns) = TestNamespace::open("t52-10").await else { return };
    let objects = env::objects(&ns.admin, ns.name(), "v1alpha2");
    let causes = async |spec: Value| {
        let rejected = object(json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution",
            "metadata": { "name": STACK }, "spec": spec }));
        match objects.create(&PostParams::default(), &rejected).await {
            Err(kube::Error::Api(status)) => {
                let causes = status.details.into_iter().flat_map(|details| details.causes);
                causes.map(|cause| (cause.field, cause.message)).collect::<Vec<_>>()
            }
            other => panic!("the object was not rejected: {other:?}"),
        }
    };
    let provider =
        |id: &str, secret: &str| json!({ "id": id, "provider": "vllm", "apiKey": { "name": secret, "key": "k" } });
    let spec = starter(json!({
        "providers": { "inference": [provider("a", "none-1"), provider("b", "none-2")] },
        "networking": { "tls": { "caBundle": { "configMapName": "none-3" } } },
        "resources": { "models": [{ "name": "m", "provider": "c" }] },
    }));
    let reported = causes(spec).await;
    for (field, text) in [
        ("spec.providers.inference[0].apiKey.name", "Secret \"none-1\" not found"),
        ("spec.providers.inference[1].apiKey.name", "Secret \"none-2\" not found"),
        ("spec.networking.tls.caBundle.configMapName", "none-3"),
        ("spec.resources.models[0].provider", "provider ID \"c\" not found"),
    ] {
        let found = reported.iter().any(|(path, message)| path == field && message.contains(text));
        assert!(found, "FR-077: {field}: {text} in {reported:#?}");
    }
    let unknown = causes(json!({ "distribution": { "name": "startr" } })).await;
    assert_eq!(unknown[0].0, "spec.distribution.name", "FR-079d: {unknown:?}");
    assert!(unknown[0].1.contains("Unknown distribution \"startr\". Available distributions: "), "{unknown:?}");

    // An update is checked only for the references that it adds; a deletion is never rejected.
    ns.apply_secret("there", "k", "v").await;
    ns.apply_stack(starter(json!({ "providers": { "inference": provider("a", "there") } }))).await;
    let result = ns.try_patch(json!({ "spec": { "providers": { "inference": provider("a", "none-4") } } })).await;
    assert!(result.unwrap_err().contains("Secret \"none-4\" not found"));
    ns.delete_stack().await;
}

/// The test resets the Deployment to the result of an older operator, with another image and configuration. Both must be
/// updated in one write.
#[tokio::test]
async fn t52_11_image_upgrade_includes_its_config() {
    let Some(ns) = TestNamespace::open("t52-11").await else { return };
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() } }))).await;
    ns.wait_until_ready().await;
    let new = ns.server().await;
    let older = json!({ "spec": { "template": {
        "metadata": { "annotations": { "configmap.hash/user-config": "0".repeat(64) } },
        "spec": {
            "containers": [{ "name": "llama-stack", "image": "docker.io/llamastack/distribution-starter:0.6.0" }],
            "volumes": [{ "name": "user-config", "configMap": { "name": "stack-config-00000000" } }],
        },
    } } });
    let writes = ns.deployment_writes();
    let deployments = ns.api::<Deployment>();
    let old = deployments.patch(STACK, &PatchParams::default(), &Patch::Strategic(older)).await.unwrap();
    let old = crate::test_namespace::Server(json!(old));
    assert_ne!((old.image(), old.config_map()), (new.image(), new.config_map()));
    let updated = async || (ns.server().await.pod_spec() == new.pod_spec()).then_some(());
    wait::eventually("image and configuration are those of this operator", updated).await.unwrap();
    ns.wait_until_ready().await;
    let versions = ns.versions_since(&old).await;
    assert_eq!(versions.len(), 1, "FR-020b, FR-020c: {versions:#?}");
    assert_eq!((versions[0].pod_spec(), versions[0].config_hash()), (new.pod_spec(), new.config_hash()));
    assert_eq!(ns.deployment_writes(), writes + 1);
}

#[tokio::test]
async fn t52_12_failed_generation_changes_no_child() {
    let Some(ns) = TestNamespace::without_admission("t52-12").await else { return };
    let networking = json!({ "port": 8400, "expose": true });
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() }, "networking": networking }))).await;
    ns.wait_until_ready().await;
    let children = async || {
        let map = ns.server().await.config_map().unwrap();
        [
            ns.server().await.0,
            ns.get::<ConfigMap>(&map).await.unwrap(),
            ns.get::<Service>("stack-service").await.unwrap(),
            ns.get::<Ingress>("stack-ingress").await.unwrap(),
        ]
    };
    let (before, pods) = (children().await, ns.pod_uids().await);
    // The patch has one invalid field and valid changes: none of them must be applied.
    let provider = json!([{ "provider": "vllm" }, { "provider": "ollama" }]);
    ns.patch_spec(json!({ "providers": { "inference": provider }, "networking": { "port": 8500, "expose": false } }))
        .await;
    let object = ns.wait_for_condition("ConfigGenerated", "False", "ConfigGenerationFailed").await;
    assert_eq!(object["status"]["phase"], "Failed");
    let accepted = condition(&object, "SpecAccepted");
    assert_eq!(accepted["status"], "False");
    assert!(accepted["message"].as_str().unwrap().contains("spec.providers.inference[0].id"), "{accepted}");
    assert_eq!((children().await, ns.pod_uids().await), (before, pods));
    let url = format!("http://stack-service.{}.svc.cluster.local:8400", ns.name());
    assert_eq!(object["status"]["serviceURL"], url.as_str(), "the URL of the running server");
}
