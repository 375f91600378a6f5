//! `crds --detach` on a real API server: what a user keeps when the operator goes.

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;
use steersman_api::Family;
use steersman_testkit::object;

use super::place::Place;

const NAMES: [&str; 3] = ["a", "b", "c"];

async fn with_old_requests(place: &Place, namespace: &str) {
    place.install_old(Family::Dgdr).await;
    for name in NAMES {
        place.create_request(namespace, name, json!({})).await;
    }
    place.attach(&["dgdr"]).ok_without_stderr();
}

#[tokio::test]
async fn detached_objects_can_be_read_and_deleted_without_an_operator() {
    let Some(place) = Place::take().await else { return };
    let namespace = place.cluster.namespace("detached").await.unwrap();
    with_old_requests(&place, namespace.name()).await;
    // NVIDIA's operator has marked one of them.
    let marked = json!({ "metadata": { "finalizers": ["nvidia.com/finalizer", "example.com/own"] } });
    let newest = place.objects(Family::Dgdr, "v1beta1", namespace.name());
    newest.patch("b", &PatchParams::default(), &Patch::Merge(marked)).await.unwrap();
    place.attach(&["llsd", "va"]).ok_without_stderr();
    let llsd: DynamicObject = object(json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution",
        "metadata": { "name": "stack" }, "spec": { "distribution": { "name": "starter" } } }));
    place.objects(Family::Llsd, "v1alpha2", namespace.name()).create(&PostParams::default(), &llsd).await.unwrap();

    let said = place.steersman(&["--detach"]).ok_without_stderr();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "variantautoscalings.llmd.ai: needs no operator; nothing to detach",
            "dynamographdeploymentrequests.nvidia.com: 3 objects stored as v1beta1, none as v1alpha1 any more",
            "dynamographdeploymentrequests.nvidia.com: took nvidia.com/finalizer off 1 objects",
            "dynamographdeploymentrequests.nvidia.com: detached; served as v1beta1 only, no more as v1alpha1",
            "llamastackdistributions.llamastack.io: detached; served as v1alpha2 only, no more as v1alpha1",
        ]
    );
    place.converter.set_down(true);
    let again = place.steersman(&["--detach"]).ok_without_stderr();
    assert_eq!(again.matches("needs no operator; nothing to detach").count(), 3, "{again}");
    let crd = place.crd(Family::Dgdr).await;
    assert_eq!(crd["spec"]["conversion"], json!({ "strategy": "None" }));
    assert_eq!(crd["status"]["storedVersions"], json!(["v1beta1"]));

    let seen = place.kubectl(&["get", "dgdr,llsd", "-n", namespace.name(), "-o", "name"]).ok_without_stderr();
    assert_eq!(seen.lines().count(), 4, "{seen}");
    let kept = newest.get("b").await.unwrap();
    assert_eq!(kept.metadata.finalizers, Some(vec!["example.com/own".to_owned()]), "only the one that nobody removes");
    let own = json!({ "metadata": { "finalizers": null } });
    newest.patch("b", &PatchParams::default(), &Patch::Merge(own)).await.unwrap();
    let deleted =
        place.kubectl(&["delete", "dgdr,llsd", "--all", "-n", namespace.name(), "--timeout=30s"]).ok_without_stderr();
    assert_eq!(deleted.lines().count(), 4, "{deleted}");

    place.converter.set_down(false);
    let said = place.attach(&["dgdr"]).ok_without_stderr();
    assert!(said.contains("changed, converted by https://127.0.0.1:"), "{said}");
    place.create_request(namespace.name(), "again", json!({})).await;
    assert_eq!(
        place.objects(Family::Dgdr, "v1beta1", namespace.name()).get("again").await.unwrap().data["spec"]["model"],
        "m"
    );
    place.clear().await;
}

#[tokio::test]
async fn while_nobody_converts_nothing_is_detached() {
    let Some(place) = Place::take().await else { return };
    let namespace = place.cluster.namespace("down").await.unwrap();
    with_old_requests(&place, namespace.name()).await;
    place.attach(&["llsd"]).ok_without_stderr();
    place.converter.set_down(true);
    let before = [place.crd(Family::Dgdr).await, place.crd(Family::Llsd).await];
    let said = place.steersman(&["--detach"]).one_line_failure();
    assert!(said.contains("the converter is down"), "{said}");
    assert!(said.contains("start it, wait until it is ready, and run this again; no CRD was detached"), "{said}");
    assert_eq!([place.crd(Family::Dgdr).await, place.crd(Family::Llsd).await], before);
    // In the version in which they are stored, they can be read all the while.
    let old = "dynamographdeploymentrequests.v1alpha1.nvidia.com";
    let seen = place.kubectl(&["get", old, "-n", namespace.name(), "-o", "name"]);
    assert_eq!(seen.stdout.lines().count(), NAMES.len(), "{}{}", seen.stdout, seen.stderr);

    place.converter.set_down(false);
    assert!(place.steersman(&["--detach", "dgdr"]).ok_without_stderr().contains("detached; served as v1beta1 only"));
    place.clear().await;
}

#[tokio::test]
async fn a_crd_that_somebody_else_converts_is_left_alone() {
    let Some(place) = Place::take().await else { return };
    place.steersman(&["dgdr", "--apply"]).ok_without_stderr();
    let theirs = json!({ "spec": { "conversion": { "webhook": { "clientConfig":
        { "service": { "namespace": "dynamo-system", "name": "dynamo-operator-webhook-service" } } } } } });
    let helm = PatchParams { field_manager: Some("helm".to_owned()), ..PatchParams::default() };
    place.crds().patch(Family::Dgdr.crd_name(), &helm, &Patch::Merge(theirs)).await.unwrap();
    let before = place.crd(Family::Dgdr).await;
    let said = place.steersman(&["dgdr", "--detach"]).ok_without_stderr();
    assert!(
        said.contains("left alone: it is converted by Service dynamo-system/dynamo-operator-webhook-service"),
        "{said}"
    );
    assert_eq!(place.crd(Family::Dgdr).await, before);
    let back = place.steersman(&["dgdr", "--apply"]).ok_without_stderr();
    assert!(
        back.contains("converted by Service steersman-system/steersman-webhook, before by Service dynamo-system"),
        "{back}"
    );
    place.clear().await;
}
