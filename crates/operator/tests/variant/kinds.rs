//! Workloads of other kinds, and of the same name: pods are found by their controllers, or by the labels that a scale names.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use steersman::installation;
use steersman_testkit::wait;

use crate::player::Player;
use crate::scene::{MODEL_LABEL, Scene, condition, desired, spec};

const GROUP: &str = "serving.example.com";

/// The operator is given the right to read the scale of these, as the condition says.
async fn grant(scene: &Scene, group: &str, plural: &str) {
    let name = format!("scale-of-{plural}");
    let rule = json!({ "apiGroups": [group], "resources": [format!("{plural}/scale")], "verbs": ["get"] });
    let account = json!({ "kind": "ServiceAccount", "name": installation::NAME, "namespace": installation::NAMESPACE });
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name });
    scene
        .apply(json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": name }, "rules": [rule] }))
        .await;
    scene
        .apply(json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": name }, "subjects": [account], "roleRef": role }))
        .await;
}

fn on(api_version: &str, kind: &str, name: &str) -> Value {
    let target = json!({ "apiVersion": api_version, "kind": kind, "name": name });
    spec(name, "llama", json!({ "scaleTargetRef": target }))
}

fn template(app: &str) -> Value {
    json!({ "metadata": { "labels": { "app": app, MODEL_LABEL: "llama" } },
        "spec": { "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "vllm", "image": "example.com/vllm:1" }] } })
}

#[tokio::test]
async fn a_replica_set_that_nobody_made_has_pods_of_its_own() {
    let Some(scene) = Scene::open("alone").await else { return };
    let set = json!({ "replicas": 2, "selector": { "matchLabels": { "app": "a" } }, "template": template("a") });
    scene
        .apply(json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "a-b" }, "spec": set }))
        .await;
    scene.variant("llama", on("apps/v1", "ReplicaSet", "a-b")).await;
    let refused = ["Unknown", "TargetUnknown", "right to get replicasets/scale of group \"apps\""];
    scene.until_condition("llama", "TargetResolved", refused).await;
    grant(&scene, "apps", "replicasets").await;
    let player = Player::quiet(&scene, "llama").await;
    player.begin(2, 36).await;
    scene.until_settled("llama", 2).await;
}

/// A kind of which nobody knows how it makes pods: here by a Deployment of another name.
async fn servers(scene: &Scene) -> Api<DynamicObject> {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let scale = json!({ "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector" });
    let crd = format!("servers.{GROUP}");
    scene
        .apply(json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": crd },
            "spec": { "group": GROUP, "scope": "Namespaced",
                "names": { "kind": "Server", "plural": "servers", "singular": "server" },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema,
                    "subresources": { "status": {}, "scale": scale } }] } }))
        .await;
    let crds: Api<CustomResourceDefinition> = Api::all(scene.admin.clone());
    let served = async || {
        let known = json!(crds.get(&crd).await.ok()?);
        let conditions = known["status"]["conditions"].as_array()?.clone();
        let is = conditions.iter().any(|known| known["type"] == "Established" && known["status"] == "True");
        is.then_some(())
    };
    wait::eventually("the kind is served", served).await.unwrap();
    let kind = GroupVersionKind::gvk(GROUP, "v1", "Server");
    let resource = kube::api::ApiResource::from_gvk_with_plural(&kind, "servers");
    let servers: Api<DynamicObject> = Api::namespaced_with(scene.admin.clone(), scene.name(), &resource);
    let server = json!({ "apiVersion": format!("{GROUP}/v1"), "kind": "Server", "metadata": { "name": "front" },
        "spec": { "replicas": 2 } });
    let made = async || {
        let wish: DynamicObject = serde_json::from_value(server.clone()).unwrap();
        servers.create(&Default::default(), &wish).await.ok()
    };
    wait::eventually("a server", made).await.unwrap();
    servers
}

#[tokio::test]
async fn pods_of_a_kind_that_nobody_knows_are_those_that_its_scale_names() {
    let Some(scene) = Scene::open("front").await else { return };
    let servers = servers(&scene).await;
    grant(&scene, GROUP, "servers").await;
    let state = async |selector: &str| {
        let patch = Patch::Merge(json!({ "status": { "replicas": 2, "selector": selector } }));
        servers.patch_status("front", &PatchParams::default(), &patch).await.unwrap();
    };
    scene.deploy("behind", "llama", 2).await;
    scene.deploy("bystander", "other", 1).await;
    state("").await;
    scene.variant("llama", on(&format!("{GROUP}/v1"), "Server", "front")).await;
    let player = Player::quiet(&scene, "llama").await;
    player.begin(2, 36).await;
    let words = "cannot find the pods of Server front: it does not control them, and its scale has no status.selector. Set \
                 scale.labelSelectorPath in its CRD";
    let seen = scene.until_condition("llama", "MetricsAvailable", ["False", "MetricsMissing", words]).await;
    assert_eq!(desired(&seen), Some(2), "frozen");
    scene.shown("llama", "pods-unknown").await;

    state("app=behind").await;
    scene.until_settled("llama", 2).await;
    scene.assert_silent_for(2, &["llama"]).await;

    state("app=nobody").await;
    let words = "Server front has replicas, but no running pod matches its selector app=nobody";
    scene.until_condition("llama", "MetricsAvailable", ["False", "MetricsMissing", words]).await;

    // Who owns them goes first, however wide a selector is.
    state("app").await;
    scene.variant("owner", spec("behind", "llama", json!({}))).await;
    scene.variant("bystander", spec("bystander", "other", json!({}))).await;
    let words = "the pods of Server front already count for another scale target that has a VariantAutoscaling";
    let seen = scene.until_condition("llama", "TargetResolved", ["Unknown", "TargetUnknown", words]).await;
    assert!(condition(&seen, "TargetResolved").2.contains("delete one of the two"), "{seen:#}");
    assert_eq!(desired(&seen), Some(2), "it is left where it is");
    // Nobody else is held up by it.
    scene.until_settled("owner", 2).await;
    scene.delete("llama").await;
    scene.until_settled("owner", 2).await;
}

#[tokio::test]
async fn kinds_of_the_same_name_have_pods_of_their_own() {
    let Some(scene) = Scene::open("namesakes").await else { return };
    let workload = |app: &str| {
        json!({ "replicas": 1, "selector": { "matchLabels": { "app": app } }, "template": template(app),
            "serviceName": "decode" })
    };
    let mut deployment = workload("d");
    deployment.as_object_mut().unwrap().remove("serviceName");
    for (kind, spec) in [("Deployment", deployment), ("StatefulSet", workload("s"))] {
        scene
            .apply(json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": "decode" }, "spec": spec }))
            .await;
        scene.variant(&kind.to_lowercase(), on("apps/v1", kind, "decode")).await;
    }
    let player = Player::quiet(&scene, "llama").await;
    player.begin(2, 36).await;
    for name in ["deployment", "statefulset"] {
        let seen = scene.until_settled(name, 1).await;
        assert_eq!(condition(&seen, "DeploymentTargetConflict").0, "", "{seen:#}");
    }
}
