//! Accelerators of real nodes, and owners.

use http::{Method, Request};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::client::Body;
use steersman_testkit::cut::{Fate, fated};

use super::*;

/// Nodes that only this scene counts.
async fn nodes(scene: &Scene, products: &[(&str, &str)]) {
    let nodes: Api<Node> = Api::all(scene.admin.clone());
    for (number, (product, gpus)) in products.iter().enumerate() {
        let name = format!("{}-{number}", scene.namespace.name());
        let labels = json!({ "scene": scene.namespace.name(), "nvidia.com/gpu.product": product });
        let node: Node = object(json!({ "metadata": { "name": name, "labels": labels } }));
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let status =
            json!({ "status": { "capacity": { "nvidia.com/gpu": gpus }, "allocatable": { "nvidia.com/gpu": gpus } } });
        nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }
}

#[tokio::test]
async fn accelerators_that_no_node_has_are_not_promised() {
    let Some(scene) = Scene::new("short").await else { return };
    nodes(&scene, &[("NVIDIA-A100-PCIE-80GB", "2"), ("NVIDIA-A100-SXM4-80GB", "2"), ("NVIDIA-L40S", "8")]).await;
    scene.set("wva-saturation-scaling-config", json!({ "default": "enableLimiter: true" })).await;
    let wanted = json!({ "desiredOptimizedAlloc": { "numReplicas": 7, "lastRunTime": "2026-11-16T06:00:00Z",
        "lastUpdate": { "updateTime": "2026-11-16T06:00:00Z", "numReplicasChanged": 5, "reason": "earlier" } } });
    for (name, accelerator) in [("v", "A100"), ("w", "H100")] {
        scene.deploy(name, 2).await;
        let mut spec = spec(name);
        (spec["accelerator"], spec["modelID"]) = (accelerator.into(), name.into());
        scene.create(name, spec).await;
        let patch = Patch::Merge(json!({ "status": wanted }));
        scene.objects().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }
    let scope = || Scope::Namespace(scene.namespace.name().to_owned());
    let selector = format!("scene={}", scene.namespace.name());
    let only = [("WVA_NODE_SELECTOR", selector.as_str())];
    let given = given(scene.cluster, scene.admin.clone(), scope(), scene.settings.name(), &only);
    pass(&FleetController::new(&given, DebounceConfig::default())).await.unwrap();
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
        assert_eq!(scene.desired(name).await, Some(replicas), "{name}");
        let (_, _, message) = condition(&scene.status(name).await, "OptimizationReady");
        assert!(message.ends_with(words), "{message}");
    }
    // Where the limiter is off, nodes do not matter.
    scene.set("wva-saturation-scaling-config", json!({ "default": "enableLimiter: false" })).await;
    let patch = Patch::Merge(json!({ "status": wanted }));
    scene.objects().patch_status("v", &PatchParams::default(), &patch).await.unwrap();
    scene.pass().await;
    assert_eq!(scene.desired("v").await, Some(7));
}

async fn owners(scene: &Scene) -> Vec<Value> {
    let metadata = scene.objects().get("v").await.unwrap().metadata;
    metadata.owner_references.into_iter().flatten().map(|one| serde_json::to_value(one).unwrap()).collect()
}

#[tokio::test]
async fn an_object_goes_with_its_workload_only_where_it_asks_for_it() {
    let Some(scene) = Scene::new("owner").await else { return };
    scene.deploy("decode", 2).await;
    scene.create("v", spec("decode")).await;
    scene.pass().await;
    assert_eq!(owners(&scene).await, Vec::<Value>::new(), "whoever deletes a Deployment seldom means its object");

    let asks = Patch::Merge(json!({ "metadata": { "annotations": { "steersman.dev/owner-reference": "true" } } }));
    scene.objects().patch("v", &PatchParams::default(), &asks).await.unwrap();
    scene.pass().await;
    let uid = async || scene.namespace.all::<Deployment>().get("decode").await.unwrap().metadata.uid.unwrap();
    let tied = |uid: String| {
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "decode", "uid": uid, "controller": true,
            "blockOwnerDeletion": false })
    };
    assert_eq!(owners(&scene).await, [tied(uid().await)]);
    scene.assert_silent().await;

    // Made anew before anybody collected the object.
    let now = kube::api::DeleteParams::default();
    scene.namespace.all::<Deployment>().delete("decode", &now).await.unwrap();
    scene.pass().await;
    scene.deploy("decode", 2).await;
    scene.pass().await;
    assert_eq!(owners(&scene).await, [tied(uid().await)]);

    // What another one controls is left to it.
    let other = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "uid": "u-1", "controller": true });
    let theirs = Patch::Merge(json!({ "metadata": { "ownerReferences": [other] } }));
    scene.objects().patch("v", &PatchParams::default(), &theirs).await.unwrap();
    scene.pass().await;
    assert_eq!(owners(&scene).await, [other]);
    scene.assert_silent().await;
}

#[tokio::test]
async fn an_owner_that_is_refused_is_told_once_and_fails_no_pass() {
    let Some(scene) = Scene::new("disowned").await else { return };
    scene.deploy("decode", 2).await;
    scene.create("v", spec("decode")).await;
    let asks = Patch::Merge(json!({ "metadata": { "annotations": { "steersman.dev/owner-reference": "true" } } }));
    scene.objects().patch("v", &PatchParams::default(), &asks).await.unwrap();
    let ties = |request: &Request<Body>| {
        let ties = request.method() == Method::PATCH && request.uri().path().contains("/variantautoscalings/");
        ties.then_some(Fate::Answered(403))
    };
    let variants = scene.controller(fated(&scene.admin, ties));
    for _ in 0..2 {
        pass(&variants).await.unwrap();
    }
    assert_eq!(owners(&scene).await, Vec::<Value>::new());
    let (kind, message) = scene.namespace.event("OwnerReferenceRefused").await.unwrap();
    assert_eq!(kind, "Warning");
    let asked = "The API server refuses the owner reference that annotation steersman.dev/owner-reference requests: ";
    assert!(message.starts_with(asked) && message.ends_with("or remove the annotation"), "{message}");
    let told = scene.namespace.all::<Event>().list(&ListParams::default()).await.unwrap().items;
    let told = told.iter().filter(|event| event.reason.as_deref() == Some("OwnerReferenceRefused"));
    let counts: Vec<Option<i32>> = told.map(|event| event.series.as_ref().and_then(|series| series.count)).collect();
    assert_eq!(counts, [None], "once");
}
