//! Manifests of the older version go on as they are.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use serde_json::json;

use crate::scene::{STACK, Scene, condition, starter, vllm};

/// As users of the older version have it.
const OLDER: &str = r#"
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
async fn us7_1_an_object_of_the_older_version_runs() {
    let Some(scene) = Scene::open("us7-1").await else { return };
    scene.apply(OLDER).await;
    let object = scene.ready().await;
    let server = scene.server().await;
    assert_eq!(server.0["spec"]["replicas"], 2);
    assert_eq!(server.0["spec"]["strategy"]["type"], "Recreate", "its volume can be mounted once");
    assert_eq!((&server.container()["name"], &server.env("LLS_PORT")["value"]), (&json!("own-name"), &json!("8400")));
    assert_eq!(server.mount("lls-storage")["mountPath"], "/data");
    assert!(server.config_map().is_none(), "it asks for nothing that only the newer version can say");
    let claim = scene.get::<PersistentVolumeClaim>("stack-pvc").await.unwrap();
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "20Gi");
    let service = scene.get::<Service>("stack-service").await.unwrap();
    assert_eq!(service["spec"]["ports"][0]["port"], 8400);
    for type_ in ["DeploymentReady", "StorageReady", "ServiceReady"] {
        assert_eq!(condition(&object, type_)["status"], "True", "{object:#}");
    }
}

#[tokio::test]
async fn us7_2_it_is_read_in_the_newer_version() {
    let Some(scene) = Scene::open("us7-2").await else { return };
    scene.apply(OLDER).await;
    let spec = scene.object(STACK, "v1alpha2").await["spec"].clone();
    assert_eq!(spec["distribution"], json!({ "name": "starter" }));
    assert_eq!(spec["networking"]["port"], 8400);
    assert_eq!(spec["networking"]["expose"], true);
    assert_eq!(spec["networking"]["allowedFrom"], json!({ "namespaces": ["apps"] }));
    assert_eq!(spec["workload"]["replicas"], 2);
    assert_eq!(spec["workload"]["storage"], json!({ "size": "20Gi", "mountPath": "/data" }));
    assert_eq!(spec["workload"]["overrides"]["env"], json!([{ "name": "INFERENCE_MODEL", "value": "m" }]));
}

#[tokio::test]
async fn us7_3_one_of_the_newer_version_is_read_in_the_older_and_survives_a_change_there() {
    let Some(scene) = Scene::open("us7-3").await else { return };
    let providers = json!({ "inference": vllm() });
    scene.stack(starter(json!({ "providers": providers, "networking": { "port": 8400 } }))).await;
    scene.ready().await;
    let older = scene.object(STACK, "v1alpha1").await;
    assert_eq!(older["spec"]["server"]["distribution"], json!({ "name": "starter" }));
    assert_eq!(older["spec"]["server"]["containerSpec"]["port"], 8400);
    assert_eq!(older["status"]["phase"], "Ready");

    // A client that knows the older version alone changes what it knows of.
    let before = scene.server().await;
    let patch = json!({ "spec": { "replicas": 2 } });
    let objects = crate::world::objects(&scene.admin, scene.name(), "v1alpha1");
    objects.patch(STACK, &Default::default(), &kube::api::Patch::Merge(patch)).await.unwrap();
    let object = scene.ready().await;
    assert_eq!(object["spec"]["providers"], providers, "what it has no field for stays");
    let after = scene.server().await;
    assert_eq!(after.0["spec"]["replicas"], 2);
    assert_eq!(after.config_map(), before.config_map());
}
