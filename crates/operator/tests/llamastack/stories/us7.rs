//! User story 7: manifests of v1alpha1 keep working.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use steersman_testkit::{object, wait};

use crate::test_namespace::{STACK, TestNamespace, condition, starter, vllm};

/// A manifest of v1alpha1 as its users have it.
const V1ALPHA1_MANIFEST: &str = r#"
apiVersion: llamastack.io/v1alpha1
kind: LlamaStackDistribution
metadata: {name: stack}
spec:
  replicas: 2
  server:
    distribution: {name: starter}
    containerSpec: {name: own-name, port: 8400, env: [{name: INFERENCE_MODEL, value: m}]}
    storage: {size: 20Gi, mountPath: /data}
  network: {exposeRoute: true, allowedFrom: {namespaces: [apps]}}
"#;

#[tokio::test]
async fn us7_1_v1alpha1_object_runs() {
    let Some(ns) = TestNamespace::open("us7-1").await else { return };
    ns.apply(V1ALPHA1_MANIFEST).await;
    let object = ns.wait_until_ready().await;
    let server = ns.server().await;
    assert_eq!(server.0["spec"]["replicas"], 2);
    assert_eq!(server.0["spec"]["strategy"]["type"], "Recreate", "the volume can be mounted only once");
    assert_eq!((&server.container()["name"], &server.env("LLS_PORT")["value"]), (&json!("own-name"), &json!("8400")));
    assert_eq!(server.mount("lls-storage")["mountPath"], "/data");
    assert!(server.config_map().is_none(), "it uses no field that only v1alpha2 has");
    let claim = ns.get::<PersistentVolumeClaim>("stack-pvc").await.unwrap();
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "20Gi");
    let service = ns.get::<Service>("stack-service").await.unwrap();
    assert_eq!(service["spec"]["ports"][0]["port"], 8400);
    for type_ in ["DeploymentReady", "StorageReady", "ServiceReady"] {
        assert_eq!(condition(&object, type_)["status"], "True", "{object:#}");
    }
}

#[tokio::test]
async fn us7_2_v1alpha1_object_converts_to_v1alpha2() {
    let Some(ns) = TestNamespace::open("us7-2").await else { return };
    ns.apply(V1ALPHA1_MANIFEST).await;
    let spec = ns.object(STACK, "v1alpha2").await["spec"].clone();
    assert_eq!(spec["distribution"], json!({ "name": "starter" }));
    assert_eq!(spec["networking"]["port"], 8400);
    assert_eq!(spec["networking"]["expose"], true);
    assert_eq!(spec["networking"]["allowedFrom"], json!({ "namespaces": ["apps"] }));
    assert_eq!(spec["workload"]["replicas"], 2);
    assert_eq!(spec["workload"]["storage"], json!({ "size": "20Gi", "mountPath": "/data" }));
    assert_eq!(spec["workload"]["overrides"]["env"], json!([{ "name": "INFERENCE_MODEL", "value": "m" }]));
}

#[tokio::test]
async fn us7_3_v1alpha2_fields_survive_v1alpha1_change() {
    let Some(ns) = TestNamespace::open("us7-3").await else { return };
    let providers = json!({ "inference": vllm() });
    ns.apply_stack(starter(json!({ "providers": providers, "networking": { "port": 8400 } }))).await;
    ns.wait_until_ready().await;
    let older = ns.object(STACK, "v1alpha1").await;
    assert_eq!(older["spec"]["server"]["distribution"], json!({ "name": "starter" }));
    assert_eq!(older["spec"]["server"]["containerSpec"]["port"], 8400);
    assert_eq!(older["status"]["phase"], "Ready");

    // A client of v1alpha1 changes a field of that version.
    let before = ns.server().await;
    let patch = json!({ "spec": { "replicas": 2 } });
    let objects = crate::env::objects(&ns.admin, ns.name(), "v1alpha1");
    objects.patch(STACK, &Default::default(), &kube::api::Patch::Merge(patch)).await.unwrap();
    let object = ns.wait_until_ready().await;
    assert_eq!(object["spec"]["providers"], providers, "fields that v1alpha1 does not have are kept");
    let after = ns.server().await;
    assert_eq!(after.0["spec"]["replicas"], 2);
    assert_eq!(after.config_map(), before.config_map());
}

/// The last writer of the spec decides whose fields the status names.
#[tokio::test]
async fn us7_4_status_names_fields_of_the_author() {
    let Some(ns) = TestNamespace::open("us7-4").await else { return };
    let manifest = json!({ "apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution",
        "metadata": { "name": STACK },
        "spec": { "server": { "distribution": { "name": "starter" }, "autoscaling": { "maxReplicas": 0 } } } });
    // Not applied as other manifests: a field manager of Steersman is no author.
    let author = PostParams { field_manager: Some("kubectl-create".to_owned()), ..PostParams::default() };
    let objects = crate::env::objects(&ns.admin, ns.name(), "v1alpha1");
    objects.create(&author, &object(manifest)).await.unwrap();
    let message = async |wanted: &str| {
        let named = async || {
            let object = ns.object(STACK, "v1alpha2").await;
            let message = condition(&object, "SpecAccepted")["message"].as_str()?.to_owned();
            message.contains(wanted).then_some(message)
        };
        wait::eventually(&format!("SpecAccepted names {wanted}"), named).await.unwrap()
    };
    let first = message("spec.server.autoscaling.maxReplicas").await;
    assert!(!first.contains("spec.workload"), "{first}");

    // The times of field managers are in seconds.
    let applied = Timestamp::now().as_second();
    wait::eventually("a later second", async || (Timestamp::now().as_second() > applied).then_some(())).await.unwrap();
    let patch = Patch::Merge(json!({ "spec": { "workload": { "autoscaling": { "minReplicas": 1 } } } }));
    let author = PatchParams { field_manager: Some("kubectl-patch".to_owned()), ..PatchParams::default() };
    crate::env::objects(&ns.admin, ns.name(), "v1alpha2").patch(STACK, &author, &patch).await.unwrap();
    let second = message("spec.workload.autoscaling.maxReplicas").await;
    assert!(!second.contains("spec.server"), "{second}");
}
