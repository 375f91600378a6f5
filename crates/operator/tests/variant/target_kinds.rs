//! Scale targets other than Deployments. Their pods are found by owner reference, or by the selector of the scale
//! subresource.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use steersman::installation;
use steersman_testkit::wait;

use crate::load_generator::LoadGenerator;
use crate::test_namespace::{MODEL_LABEL, TestNamespace, condition, desired, spec};

const GROUP: &str = "serving.example.com";

/// Grants the operator the right to get the scale subresource, as the condition advises.
async fn grant_scale_access(ns: &TestNamespace, group: &str, plural: &str) {
    let name = format!("scale-of-{plural}");
    let rule = json!({ "apiGroups": [group], "resources": [format!("{plural}/scale")], "verbs": ["get"] });
    let account = json!({ "kind": "ServiceAccount", "name": installation::NAME, "namespace": installation::NAMESPACE });
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name });
    ns.apply(json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": name }, "rules": [rule] }))
        .await;
    ns.apply(json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": name }, "subjects": [account], "roleRef": role }))
        .await;
}

fn spec_for(api_version: &str, kind: &str, name: &str) -> Value {
    let target = json!({ "apiVersion": api_version, "kind": kind, "name": name });
    spec(name, "llama", json!({ "scaleTargetRef": target }))
}

fn template(app: &str) -> Value {
    json!({ "metadata": { "labels": { "app": app, MODEL_LABEL: "llama" } },
        "spec": { "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "vllm", "image": "example.com/vllm:1" }] } })
}

#[tokio::test]
async fn standalone_replica_set_owns_its_pods() {
    let Some(ns) = TestNamespace::open("alone").await else { return };
    let set = json!({ "replicas": 2, "selector": { "matchLabels": { "app": "a" } }, "template": template("a") });
    ns.apply(json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "a-b" }, "spec": set }))
        .await;
    ns.apply_variant("llama", spec_for("apps/v1", "ReplicaSet", "a-b")).await;
    let refused =
        ["Unknown", "TargetUnknown", "allow Steersman's service account to get replicasets/scale of group \"apps\""];
    ns.wait_for_condition("llama", "TargetResolved", refused).await;
    grant_scale_access(&ns, "apps", "replicasets").await;
    let load = LoadGenerator::new(&ns, "llama").await;
    load.start_load(2, 36).await;
    ns.wait_until_settled("llama", 2).await;
}

/// Creates a custom resource with a scale subresource, whose pods belong to a Deployment of another name.
async fn create_server_kind(ns: &TestNamespace) -> Api<DynamicObject> {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let scale = json!({ "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector" });
    let crd = format!("servers.{GROUP}");
    ns.apply(json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": crd },
            "spec": { "group": GROUP, "scope": "Namespaced",
                "names": { "kind": "Server", "plural": "servers", "singular": "server" },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema,
                    "subresources": { "status": {}, "scale": scale } }] } }))
        .await;
    let crds: Api<CustomResourceDefinition> = Api::all(ns.admin.clone());
    let established = async || {
        let known = json!(crds.get(&crd).await.ok()?);
        let conditions = known["status"]["conditions"].as_array()?.clone();
        let is = conditions.iter().any(|known| known["type"] == "Established" && known["status"] == "True");
        is.then_some(())
    };
    wait::eventually("the CRD is established", established).await.unwrap();
    let kind = GroupVersionKind::gvk(GROUP, "v1", "Server");
    let resource = kube::api::ApiResource::from_gvk_with_plural(&kind, "servers");
    let servers: Api<DynamicObject> = Api::namespaced_with(ns.admin.clone(), ns.name(), &resource);
    let server = json!({ "apiVersion": format!("{GROUP}/v1"), "kind": "Server", "metadata": { "name": "front" },
        "spec": { "replicas": 2 } });
    let create = async || {
        let object: DynamicObject = serde_json::from_value(server.clone()).unwrap();
        servers.create(&Default::default(), &object).await.ok()
    };
    wait::eventually("the server is created", create).await.unwrap();
    servers
}

#[tokio::test]
async fn unknown_kind_finds_pods_by_scale_selector() {
    let Some(ns) = TestNamespace::open("front").await else { return };
    let servers = create_server_kind(&ns).await;
    grant_scale_access(&ns, GROUP, "servers").await;
    let set_selector = async |selector: &str| {
        let patch = Patch::Merge(json!({ "status": { "replicas": 2, "selector": selector } }));
        servers.patch_status("front", &PatchParams::default(), &patch).await.unwrap();
    };
    ns.deploy("behind", "llama", 2).await;
    ns.deploy("bystander", "other", 1).await;
    set_selector("").await;
    ns.apply_variant("llama", spec_for(&format!("{GROUP}/v1"), "Server", "front")).await;
    let load = LoadGenerator::new(&ns, "llama").await;
    load.start_load(2, 36).await;
    let message = "cannot find the pods of Server front: it does not control them, and its scale has no status.selector. Set \
                 scale.labelSelectorPath in its CRD";
    let object = ns.wait_for_condition("llama", "MetricsAvailable", ["False", "MetricsMissing", message]).await;
    assert_eq!(desired(&object), Some(2), "the desired replicas are unchanged");
    ns.record_kubectl_output("llama", "pods-unknown").await;

    set_selector("app=behind").await;
    ns.wait_until_settled("llama", 2).await;
    ns.assert_unchanged_for(2, &["llama"]).await;

    set_selector("app=nobody").await;
    let message = "Server front has replicas, but no running pod matches its selector app=nobody";
    ns.wait_for_condition("llama", "MetricsAvailable", ["False", "MetricsMissing", message]).await;

    // Owner references take precedence over a selector.
    set_selector("app").await;
    ns.apply_variant("owner", spec("behind", "llama", json!({}))).await;
    ns.apply_variant("bystander", spec("bystander", "other", json!({}))).await;
    let message = "the pods of Server front already count for another scale target that has a VariantAutoscaling";
    let object = ns.wait_for_condition("llama", "TargetResolved", ["Unknown", "TargetUnknown", message]).await;
    assert!(condition(&object, "TargetResolved").2.contains("delete one of the two"), "{object:#}");
    assert_eq!(desired(&object), Some(2), "the desired replicas are unchanged");
    // Other objects are not affected.
    ns.wait_until_settled("owner", 2).await;
    ns.delete_variant("llama").await;
    ns.wait_until_settled("owner", 2).await;
}

#[tokio::test]
async fn same_named_workloads_keep_separate_pods() {
    let Some(ns) = TestNamespace::open("namesakes").await else { return };
    let workload = |app: &str| {
        json!({ "replicas": 1, "selector": { "matchLabels": { "app": app } }, "template": template(app),
            "serviceName": "decode" })
    };
    let mut deployment = workload("d");
    deployment.as_object_mut().unwrap().remove("serviceName");
    for (kind, spec) in [("Deployment", deployment), ("StatefulSet", workload("s"))] {
        ns.apply(json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": "decode" }, "spec": spec }))
            .await;
        ns.apply_variant(&kind.to_lowercase(), spec_for("apps/v1", kind, "decode")).await;
    }
    let load = LoadGenerator::new(&ns, "llama").await;
    load.start_load(2, 36).await;
    for name in ["deployment", "statefulset"] {
        let object = ns.wait_until_settled(name, 1).await;
        assert_eq!(condition(&object, "DeploymentTargetConflict").0, "", "{object:#}");
    }
}
