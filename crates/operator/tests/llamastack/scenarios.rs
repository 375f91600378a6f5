//! The twelve scenarios of task 5.2.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use steersman_testkit::{object, wait};

use crate::scene::{STACK, Scene, condition, named, starter, vllm};
use crate::world;

#[tokio::test]
async fn t52_01_simple_inference_has_its_children_and_leaves_nothing() {
    let Some(scene) = Scene::open("t52-01").await else { return };
    scene.stack(starter(json!({ "providers": { "inference": vllm() } }))).await;
    let own = scene.ready().await;
    let map = scene.server().await.config_map().unwrap();
    let children = [
        scene.server().await.0,
        scene.get::<Service>("stack-service").await.unwrap(),
        scene.get::<ServiceAccount>("stack-sa").await.unwrap(),
        scene.get::<ConfigMap>(&map).await.unwrap(),
    ];
    for child in &children {
        let (name, owner) = (&child["metadata"]["name"], &child["metadata"]["ownerReferences"][0]);
        assert_eq!(owner["uid"], own["metadata"]["uid"], "{name}");
        assert_eq!((&owner["controller"], &owner["apiVersion"]), (&json!(true), &json!("llamastack.io/v1alpha2")));
        assert_eq!(child["metadata"]["labels"]["app.kubernetes.io/managed-by"], "llama-stack-operator", "{name}");
    }
    scene.delete().await;
    scene.until_gone::<Deployment>(STACK).await;
    scene.until_gone::<ConfigMap>(&map).await;
    scene.until_gone::<Service>("stack-service").await;
    scene.until_gone::<ServiceAccount>("stack-sa").await;
    let gone = async || scene.pods().await.is_empty().then_some(());
    wait::eventually("no pod is left", gone).await.unwrap();
}

#[tokio::test]
async fn t52_02_providers_of_every_api_are_configured() {
    let Some(scene) = Scene::open("t52-02").await else { return };
    scene.secret("keys", "tavily", "hush").await;
    let providers = json!({
        "inference": [vllm_as("one"), vllm_as("two")],
        "safety": { "provider": "llama-guard" },
        "vectorIo": { "id": "vectors", "provider": "milvus", "endpoint": "http://milvus:19530" },
        "toolRuntime": { "provider": "tavily-search", "apiKey": { "name": "keys", "key": "tavily" } },
        "telemetry": { "provider": "meta-reference" },
    });
    scene.stack(starter(json!({ "providers": providers }))).await;
    let object = scene.ready().await;
    let config = scene.config().await;
    for (api, id, type_) in [
        ("inference", "one", "remote::vllm"),
        ("inference", "two", "remote::vllm"),
        ("safety", "llama-guard", "inline::llama-guard"),
        ("vector_io", "vectors", "remote::milvus"),
        ("tool_runtime", "tavily-search", "remote::tavily-search"),
    ] {
        let provider = named(&config["providers"][api], "provider_id", id);
        assert_eq!(provider["provider_type"], type_, "{api} {id}: {config:#}");
    }
    let tavily = named(&config["providers"]["tool_runtime"], "provider_id", "tavily-search");
    assert_eq!(tavily["config"]["api_key"], "${env.LLSD_TAVILY_SEARCH_API_KEY}");
    // The server of this distribution has no such API, and would stop at it.
    assert!(config["providers"]["telemetry"].is_null());
    let said = condition(&object, "SpecAccepted");
    assert!(
        said["status"] == "True" && said["message"].as_str().unwrap().contains("spec.providers.telemetry"),
        "{said}"
    );
}

fn vllm_as(id: &str) -> Value {
    json!({ "id": id, "provider": "vllm", "endpoint": format!("http://{id}:8000/v1") })
}

#[tokio::test]
async fn t52_03_resources_are_registered_and_counted() {
    let Some(scene) = Scene::open("t52-03").await else { return };
    let embedding = json!({ "name": "all-minilm", "provider": "sentence-transformers", "modelType": "embedding" });
    let resources = json!({ "models": ["llama", { "name": "qwen" }], "tools": ["websearch"], "shields": ["guard"] });
    scene.stack(starter(json!({ "providers": { "inference": vllm() }, "resources": resources }))).await;
    let object = scene.ready().await;
    let count = object["status"]["configGeneration"]["resourceCount"].as_i64().unwrap();
    let said = condition(&object, "ConfigGenerated")["message"].as_str().unwrap();
    let providers = &object["status"]["configGeneration"]["providerCount"];
    assert_eq!(said, format!("Generated config.yaml with {providers} providers and {count} models"));
    let first = scene.config().await["registered_resources"].clone();

    scene.spec(json!({ "resources": { "models": ["llama", embedding] } })).await;
    let said = scene.try_patch(json!({ "spec": { "resources": { "models": [{ "provider": "vllm" }] } } })).await;
    assert!(said.unwrap_err().contains("spec.resources.models[0].name"), "a model has a name");
    scene.ready().await;
    let second = scene.config().await["registered_resources"].clone();
    assert!(!named(&first["models"], "model_id", "qwen").is_null());
    assert!(named(&second["models"], "model_id", "qwen").is_null(), "what is taken away goes: {second:#}");
    assert_eq!(named(&second["models"], "model_id", "all-minilm")["model_type"], "embedding");
    assert_eq!((&first["tool_groups"], &first["shields"]), (&second["tool_groups"], &second["shields"]));
}

#[tokio::test]
async fn t52_04_stores_come_and_go() {
    let Some(scene) = Scene::open("t52-04").await else { return };
    scene
        .apply("{apiVersion: v1, kind: Secret, metadata: {name: state}, stringData: {dsn: 'postgresql://a:b@c/d', key: e}}")
        .await;
    let storage = json!({
        "kv": { "type": "redis", "endpoint": "redis://cache:6380", "password": { "name": "state", "key": "key" } },
        "sql": { "type": "postgres", "connectionString": { "name": "state", "key": "dsn" } },
    });
    scene.stack(starter(json!({ "providers": { "inference": vllm() }, "storage": storage }))).await;
    scene.ready().await;
    let types = async || {
        let config = scene.config().await;
        ["kv_default", "sql_default"].map(|name| config["storage"]["backends"][name]["type"].clone())
    };
    assert_eq!(types().await, ["kv_redis", "sql_postgres"]);
    let before = scene.server().await;
    assert_eq!(before.init_containers(), ["prepare-storage"]);

    scene.spec(json!({ "storage": { "kv": { "type": "sqlite", "endpoint": null, "password": null } } })).await;
    scene.ready().await;
    assert_eq!(types().await, ["kv_sqlite", "sql_postgres"], "each on its own");
    scene.spec(json!({ "storage": null })).await;
    scene.ready().await;
    assert_eq!(types().await, ["kv_sqlite", "sql_sqlite"]);
    let after = scene.server().await;
    assert!(after.init_containers().is_empty() && after.volume("storage-env").is_null(), "nothing is left of it");
}

#[tokio::test]
async fn t52_05_a_new_port_is_new_everywhere() {
    let Some(scene) = Scene::open("t52-05").await else { return };
    let networking = json!({ "port": 8400, "expose": { "hostname": "llama.example.com" },
        "allowedFrom": { "namespaces": ["apps"] } });
    scene.stack(starter(json!({ "providers": { "inference": vllm() }, "networking": networking }))).await;
    for port in [8400, 8500] {
        scene.spec(json!({ "networking": { "port": port } })).await;
        let object = scene.ready().await;
        let url = format!("http://stack-service.{}.svc.cluster.local:{port}", scene.name());
        assert_eq!(object["status"]["serviceURL"], url.as_str());
        let server = scene.server().await;
        assert_eq!(server.container()["ports"][0]["containerPort"], port);
        assert_eq!(server.container()["startupProbe"]["httpGet"]["port"], port);
        assert_eq!(server.env("LLS_PORT")["value"], port.to_string());
        assert_eq!(scene.config().await["server"]["port"], port);
        let service = scene.get::<Service>("stack-service").await.unwrap();
        assert_eq!(service["spec"]["ports"][0]["targetPort"], port);
        let rules = |child: Value, path: &str| child["spec"].pointer(path).cloned();
        let ingress = scene.get::<Ingress>("stack-ingress").await.unwrap();
        assert_eq!(rules(ingress, "/rules/0/http/paths/0/backend/service/port/number"), Some(json!(port)));
        let policy = scene.get::<NetworkPolicy>("stack-network-policy").await.unwrap();
        assert_eq!(rules(policy, "/ingress/0/ports/0/port"), Some(json!(port)));
    }
}

#[tokio::test]
async fn t52_06_an_override_comes_and_goes_in_one_step_each() {
    let Some(scene) = Scene::open("t52-06").await else { return };
    scene.config_map("mine", "config.yaml", "version: 2\n").await;
    scene.stack(starter(json!({ "providers": { "inference": vllm() } }))).await;
    scene.ready().await;
    let generated = scene.server().await;

    scene.spec(json!({ "providers": null, "overrideConfig": { "configMapName": "mine" } })).await;
    let object = scene.ready().await;
    let mine = scene.server().await;
    assert_eq!(mine.config_map().as_deref(), Some("mine"));
    assert_eq!(scene.versions(&generated).await.len(), 1, "one new spec");
    assert!(condition(&object, "ConfigGenerated").is_null() && object["status"]["configGeneration"].is_null());

    scene.spec(json!({ "providers": { "inference": vllm() }, "overrideConfig": null })).await;
    let object = scene.ready().await;
    let again = scene.server().await;
    assert_eq!(scene.versions(&mine).await.len(), 1);
    assert_eq!((again.config_map(), again.hash()), (generated.config_map(), generated.hash()), "the same as before");
    assert_eq!(condition(&object, "ConfigGenerated")["status"], "True");
    assert!(scene.get::<ConfigMap>("mine").await.is_some(), "it is the user's");
}

#[tokio::test]
async fn t52_07_what_cannot_be_is_refused_or_told() {
    let Some(scene) = Scene::open("t52-07").await else { return };
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
    ];
    for (spec, text) in cases {
        let said = scene.refused(spec).await;
        assert!(said.contains(text), "expected {text:?} in {said}");
    }
    // Objects of the older version may have this, so that it is told and not refused.
    let autoscaling = json!({ "minReplicas": 3, "maxReplicas": 2 });
    scene.stack(starter(json!({ "workload": { "autoscaling": autoscaling } }))).await;
    let object = scene.until_condition("SpecAccepted", "False", "AutoscalingInvalid").await;
    assert!(object["status"]["phase"] == "Failed" && scene.get::<Deployment>(STACK).await.is_none(), "{object:#}");
}

#[tokio::test]
async fn t52_08_a_changed_object_is_followed_and_each_step_is_told() {
    let Some(scene) = Scene::open("t52-08").await else { return };
    scene.stack(starter(json!({ "providers": { "inference": vllm() } }))).await;
    let first = scene.ready().await;
    let templates = scene.templates().await;
    scene.spec(json!({ "resources": { "models": ["a"] } })).await;
    let second = scene.ready().await;
    assert_eq!(scene.templates().await, templates + 1, "one rollout");
    let generation = |object: &Value| object["status"]["configGeneration"].clone();
    assert_ne!(generation(&first)["configMapName"], generation(&second)["configMapName"]);
    assert_eq!(generation(&second)["resourceCount"], 1);
    let map = scene.server().await.config_map().unwrap();
    assert_eq!(condition(&second, "DeploymentUpdated")["message"], format!("Deployment updated with config {map}"));
    assert_eq!(condition(&second, "Available")["message"], "1/1 replicas available with current config");
    let conditions = second["status"]["conditions"].as_array().unwrap();
    for known in conditions {
        assert_eq!(known["observedGeneration"], second["metadata"]["generation"], "none is stale: {known}");
    }
}

#[tokio::test]
async fn t52_09_image_configuration_variables_and_hash_change_in_one_write() {
    let Some(scene) = Scene::open("t52-09").await else { return };
    scene.secret("vllm", "token", "hush").await;
    scene.stack(starter(json!({ "providers": { "inference": vllm() } }))).await;
    scene.ready().await;
    let (before, writes, templates) = (scene.server().await, scene.deployment_writes(), scene.templates().await);
    let key = json!({ "apiKey": { "secretKeyRef": { "name": "vllm", "key": "token" } } });
    scene.spec(json!({ "distribution": { "name": "starter-gpu" }, "providers": { "inference": key } })).await;
    scene.ready().await;

    assert_eq!(scene.deployment_writes(), writes + 1, "FR-100: by the audit log");
    let versions = scene.versions(&before).await;
    assert_eq!(versions.len(), 1, "by the history of the API server: {versions:#?}");
    let after = &versions[0];
    assert_ne!(after.image(), before.image());
    assert_ne!(after.config_map(), before.config_map());
    assert_ne!(after.hash(), before.hash());
    assert!(before.env("LLSD_VLLM_API_KEY").is_null() && !after.env("LLSD_VLLM_API_KEY").is_null());
    assert_eq!(scene.templates().await, templates + 1, "and one rollout");
}

#[tokio::test]
async fn t52_10_the_webhook_refuses_with_the_places() {
    let Some(scene) = Scene::open("t52-10").await else { return };
    let objects = world::objects(&scene.admin, scene.name(), "v1alpha2");
    let causes = async |spec: Value| {
        let wish = object(json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution",
            "metadata": { "name": STACK }, "spec": spec }));
        match objects.create(&PostParams::default(), &wish).await {
            Err(kube::Error::Api(status)) => {
                let causes = status.details.into_iter().flat_map(|details| details.causes);
                causes.map(|cause| (cause.field, cause.message)).collect::<Vec<_>>()
            }
            other => panic!("not refused: {other:?}"),
        }
    };
    let provider =
        |id: &str, secret: &str| json!({ "id": id, "provider": "vllm", "apiKey": { "name": secret, "key": "k" } });
    let spec = starter(json!({
        "providers": { "inference": [provider("a", "none-1"), provider("b", "none-2")] },
        "networking": { "tls": { "caBundle": { "configMapName": "none-3" } } },
        "resources": { "models": [{ "name": "m", "provider": "c" }] },
    }));
    let told = causes(spec).await;
    for (field, text) in [
        ("spec.providers.inference[0].apiKey.name", "Secret \"none-1\" not found"),
        ("spec.providers.inference[1].apiKey.name", "Secret \"none-2\" not found"),
        ("spec.networking.tls.caBundle.configMapName", "none-3"),
        ("spec.resources.models[0].provider", "provider ID \"c\" not found"),
    ] {
        let found = told.iter().any(|(place, said)| place == field && said.contains(text));
        assert!(found, "FR-077: {field}: {text} in {told:#?}");
    }
    let unknown = causes(json!({ "distribution": { "name": "startr" } })).await;
    assert_eq!(unknown[0].0, "spec.distribution.name", "FR-079d: {unknown:?}");
    assert!(unknown[0].1.contains("Unknown distribution \"startr\". Available distributions: "), "{unknown:?}");

    // On a change, only what it adds is looked up; a deletion is never refused.
    scene.secret("there", "k", "v").await;
    scene.stack(starter(json!({ "providers": { "inference": provider("a", "there") } }))).await;
    let said = scene.try_patch(json!({ "spec": { "providers": { "inference": provider("a", "none-4") } } })).await;
    assert!(said.unwrap_err().contains("Secret \"none-4\" not found"));
    scene.delete().await;
}

/// The Deployment is put back to what an older operator has made of the same object: another image with another
/// configuration. Both come back together.
#[tokio::test]
async fn t52_11_another_image_for_the_same_name_comes_with_its_configuration() {
    let Some(scene) = Scene::open("t52-11").await else { return };
    scene.stack(starter(json!({ "providers": { "inference": vllm() } }))).await;
    scene.ready().await;
    let new = scene.server().await;
    let older = json!({ "spec": { "template": {
        "metadata": { "annotations": { "configmap.hash/user-config": "0".repeat(64) } },
        "spec": {
            "containers": [{ "name": "llama-stack", "image": "docker.io/llamastack/distribution-starter:0.6.0" }],
            "volumes": [{ "name": "user-config", "configMap": { "name": "stack-config-00000000" } }],
        },
    } } });
    let writes = scene.deployment_writes();
    let deployments = scene.all::<Deployment>();
    let old = deployments.patch(STACK, &PatchParams::default(), &Patch::Strategic(older)).await.unwrap();
    let old = crate::scene::Server(json!(old));
    assert_ne!((old.image(), old.config_map()), (new.image(), new.config_map()));
    let back = async || (scene.server().await.pod() == new.pod()).then_some(());
    wait::eventually("image and configuration are those of this operator", back).await.unwrap();
    scene.ready().await;
    let versions = scene.versions(&old).await;
    assert_eq!(versions.len(), 1, "FR-020b, FR-020c: {versions:#?}");
    assert_eq!((versions[0].pod(), versions[0].hash()), (new.pod(), new.hash()));
    assert_eq!(scene.deployment_writes(), writes + 1);
}

#[tokio::test]
async fn t52_12_a_failed_generation_leaves_every_child_as_it_is() {
    let Some(scene) = Scene::unjudged("t52-12").await else { return };
    let networking = json!({ "port": 8400, "expose": true });
    scene.stack(starter(json!({ "providers": { "inference": vllm() }, "networking": networking }))).await;
    scene.ready().await;
    let children = async || {
        let map = scene.server().await.config_map().unwrap();
        [
            scene.server().await.0,
            scene.get::<ConfigMap>(&map).await.unwrap(),
            scene.get::<Service>("stack-service").await.unwrap(),
            scene.get::<Ingress>("stack-ingress").await.unwrap(),
        ]
    };
    let (before, pods) = (children().await, scene.pods().await);
    // Wrong in one place, with changes that would be right in others: none of them happens.
    let provider = json!([{ "provider": "vllm" }, { "provider": "ollama" }]);
    scene
        .spec(json!({ "providers": { "inference": provider }, "networking": { "port": 8500, "expose": false } }))
        .await;
    let object = scene.until_condition("ConfigGenerated", "False", "ConfigGenerationFailed").await;
    assert_eq!(object["status"]["phase"], "Failed");
    let said = condition(&object, "SpecAccepted");
    assert_eq!(said["status"], "False");
    assert!(said["message"].as_str().unwrap().contains("spec.providers.inference[0].id"), "{said}");
    assert_eq!((children().await, scene.pods().await), (before, pods));
    let url = format!("http://stack-service.{}.svc.cluster.local:8400", scene.name());
    assert_eq!(object["status"]["serviceURL"], url.as_str(), "where it still is");
}
