//! Limits by the GPUs of nodes, and owner references to scale targets.

use http::{Method, Request};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::client::Body;
use steersman_testkit::fault_injection::{RequestFault, inject_by_request};

use super::*;

/// Creates nodes with a label that only this test selects.
async fn create_nodes(test: &TestNamespace, products: &[(&str, &str)]) {
    let nodes: Api<Node> = Api::all(test.admin.clone());
    for (number, (product, gpus)) in products.iter().enumerate() {
        let name = format!("{}-{number}", test.namespace.name());
        let labels = json!({ "test": test.namespace.name(), "nvidia.com/gpu.product": product });
        let node: Node = object(json!({ "metadata": { "name": name, "labels": labels } }));
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let status =
            json!({ "status": { "capacity": { "nvidia.com/gpu": gpus }, "allocatable": { "nvidia.com/gpu": gpus } } });
        nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }
}

#[tokio::test]
async fn gpu_limiter_caps_replicas_at_node_capacity() {
    let Some(test) = TestNamespace::new("short").await else { return };
    create_nodes(&test, &[("NVIDIA-A100-PCIE-80GB", "2"), ("NVIDIA-A100-SXM4-80GB", "2"), ("NVIDIA-L40S", "8")]).await;
    test.set_config("wva-saturation-scaling-config", json!({ "default": "enableLimiter: true" })).await;
    let last_decision = json!({ "desiredOptimizedAlloc": { "numReplicas": 7, "lastRunTime": "2026-11-16T06:00:00Z",
        "lastUpdate": { "updateTime": "2026-11-16T06:00:00Z", "numReplicasChanged": 5, "reason": "earlier" } } });
    for (name, accelerator) in [("v", "A100"), ("w", "H100")] {
        test.deploy(name, 2).await;
        let mut spec = spec(name);
        (spec["accelerator"], spec["modelID"]) = (accelerator.into(), name.into());
        test.create(name, spec).await;
        let patch = Patch::Merge(json!({ "status": last_decision }));
        test.objects().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }
    let scope = || Scope::Namespace(test.namespace.name().to_owned());
    let selector = format!("test={}", test.namespace.name());
    let variables = [("WVA_NODE_SELECTOR", selector.as_str())];
    let context = fleet_context(test.cluster, test.admin.clone(), scope(), test.settings.name(), &variables);
    reconcile_fleet(&FleetController::new(&context, DebounceConfig::default())).await.unwrap();
    for (name, replicas, words) in [
        (
            "v",
            4,
            "wanted 7, limited by gpu-limiter: limited: allocated 2 GPUs for +2 replicas; the nodes have 4 A100 in total",
        ),
        (
            "w",
            2,
            "wanted 7, limited by gpu-limiter: no scale-up (target=2, current=2); no node has H100; available: A100, L40S",
        ),
    ] {
        assert_eq!(test.desired(name).await, Some(replicas), "{name}");
        let (_, _, message) = condition(&test.status(name).await, "OptimizationReady");
        assert!(message.ends_with(words), "{message}");
    }
    // Without the limiter, the capacity of nodes is ignored.
    test.set_config("wva-saturation-scaling-config", json!({ "default": "enableLimiter: false" })).await;
    let patch = Patch::Merge(json!({ "status": last_decision }));
    test.objects().patch_status("v", &PatchParams::default(), &patch).await.unwrap();
    test.reconcile().await;
    assert_eq!(test.desired("v").await, Some(7));
}

async fn owners(test: &TestNamespace) -> Vec<Value> {
    let metadata = test.objects().get("v").await.unwrap().metadata;
    metadata.owner_references.into_iter().flatten().map(|one| serde_json::to_value(one).unwrap()).collect()
}

#[tokio::test]
async fn owner_reference_is_set_only_on_request() {
    let Some(test) = TestNamespace::new("owner").await else { return };
    test.deploy("decode", 2).await;
    test.create("v", spec("decode")).await;
    test.reconcile().await;
    assert_eq!(owners(&test).await, Vec::<Value>::new(), "deleting a Deployment must not delete its object by default");

    let request = Patch::Merge(json!({ "metadata": { "annotations": { "steersman.dev/owner-reference": "true" } } }));
    test.objects().patch("v", &PatchParams::default(), &request).await.unwrap();
    test.reconcile().await;
    let uid = async || test.namespace.api::<Deployment>().get("decode").await.unwrap().metadata.uid.unwrap();
    let owner = |uid: String| {
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "decode", "uid": uid, "controller": true,
            "blockOwnerDeletion": false })
    };
    assert_eq!(owners(&test).await, [owner(uid().await)]);
    test.assert_no_writes().await;

    // The Deployment is recreated before garbage collection deletes the object.
    let now = kube::api::DeleteParams::default();
    test.namespace.api::<Deployment>().delete("decode", &now).await.unwrap();
    test.reconcile().await;
    test.deploy("decode", 2).await;
    test.reconcile().await;
    assert_eq!(owners(&test).await, [owner(uid().await)]);

    // An object with another controller keeps it.
    let other = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "uid": "u-1", "controller": true });
    let theirs = Patch::Merge(json!({ "metadata": { "ownerReferences": [other] } }));
    test.objects().patch("v", &PatchParams::default(), &theirs).await.unwrap();
    test.reconcile().await;
    assert_eq!(owners(&test).await, [other]);
    test.assert_no_writes().await;
}

#[tokio::test]
async fn refused_owner_reference_is_reported_once() {
    let Some(test) = TestNamespace::new("disowned").await else { return };
    test.deploy("decode", 2).await;
    test.create("v", spec("decode")).await;
    let request = Patch::Merge(json!({ "metadata": { "annotations": { "steersman.dev/owner-reference": "true" } } }));
    test.objects().patch("v", &PatchParams::default(), &request).await.unwrap();
    let refuse_owner = |request: &Request<Body>| {
        let sets_owner = request.method() == Method::PATCH && request.uri().path().contains("/variantautoscalings/");
        sets_owner.then_some(RequestFault::Status(403))
    };
    let variants = test.controller(inject_by_request(&test.admin, refuse_owner));
    for _ in 0..2 {
        reconcile_fleet(&variants).await.unwrap();
    }
    assert_eq!(owners(&test).await, Vec::<Value>::new());
    let (kind, message) = test.namespace.wait_for_event("OwnerReferenceRefused").await.unwrap();
    assert_eq!(kind, "Warning");
    let expected =
        "The API server refuses the owner reference that annotation steersman.dev/owner-reference requests: ";
    assert!(message.starts_with(expected) && message.ends_with("or remove the annotation"), "{message}");
    let events = test.namespace.api::<Event>().list(&ListParams::default()).await.unwrap().items;
    let refusals = events.iter().filter(|event| event.reason.as_deref() == Some("OwnerReferenceRefused"));
    let counts: Vec<Option<i32>> =
        refusals.map(|event| event.series.as_ref().and_then(|series| series.count)).collect();
    assert_eq!(counts, [None], "the event must be published once");
}
