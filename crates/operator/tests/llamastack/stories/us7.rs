//! User story 7: manifests of v1alpha1 keep working.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use serde_json::json;

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
