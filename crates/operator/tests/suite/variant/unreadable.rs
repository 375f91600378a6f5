//! Objects that could be read before and cannot be read now.

use http::Request;
use kube::api::DeleteParams;
use kube::client::Body;
use steersman_testkit::cut::{Fate, fated};
use steersman_testkit::wait;

use super::*;

#[tokio::test]
async fn what_an_object_said_before_it_could_not_be_read_is_still_shown() {
    let Some(scene) = Scene::new("unreadable").await else { return };
    let label = json!({ "metadata": { "labels": { "wva.llmd.ai/controller-instance": "unreadable-test" } } });
    for name in ["v", "w"] {
        scene.deploy(name, 2).await;
        scene.create(name, spec(name)).await;
        scene.objects().patch(name, &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    }
    let ours = [("CONTROLLER_INSTANCE", "unreadable-test")];
    let scope = Scope::Namespace(scene.namespace.name().to_owned());
    let given = given(scene.cluster, scene.admin.clone(), scope, scene.settings.name(), &ours);
    let variants = FleetController::new(&given, DebounceConfig::default());
    assert_eq!(pass(&variants).await.unwrap().decided, 2);
    let desired = |name: &str| {
        let text = given.controller.metrics.text().unwrap();
        let own = format!("variant_name=\"{name}\"");
        text.lines().any(|line| line.starts_with("wva_desired_replicas{") && line.contains(&own))
    };
    assert!(desired("v") && desired("w"));

    // The schema lets an object be without a spec.
    let nothing = Patch::Merge(json!({ "spec": null }));
    scene.objects().patch("v", &PatchParams::default(), &nothing).await.unwrap();
    assert_eq!(pass(&variants).await.unwrap().decided, 1);
    assert!(desired("v") && desired("w"), "an HPA follows what it said last");

    // With nobody left who can be decided on.
    let stays = Patch::Merge(json!({ "metadata": { "finalizers": ["example.com/stays"] } }));
    scene.objects().patch("w", &PatchParams::default(), &stays).await.unwrap();
    scene.objects().delete("w", &DeleteParams::default()).await.unwrap();
    assert_eq!(pass(&variants).await.unwrap().decided, 0);
    assert!(desired("v") && !desired("w"));
    let gone = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    scene.objects().patch("w", &PatchParams::default(), &gone).await.unwrap();
    scene.objects().delete("v", &DeleteParams::default()).await.unwrap();
    assert_eq!(pass(&variants).await.unwrap().decided, 0);
    assert!(!desired("v"), "who is gone is not shown");
}

#[tokio::test]
async fn events_that_nobody_takes_hold_up_no_decision() {
    let Some(scene) = Scene::new("mute").await else { return };
    scene.deploy("decode", 2).await;
    scene.create("v", spec("decode")).await;
    for name in ["a", "w"] {
        scene.create(name, spec(name)).await;
        let nothing = Patch::Merge(json!({ "spec": null }));
        scene.objects().patch(name, &PatchParams::default(), &nothing).await.unwrap();
    }
    let mute = |request: &Request<Body>| request.uri().path().ends_with("/events").then_some(Fate::Hangs);
    let variants = scene.controller(fated(&scene.admin, mute));
    let passed = tokio::time::timeout(wait::LIMIT / 2, pass(&variants)).await.expect("it ends").unwrap();
    assert_eq!((passed.decided, passed.written), (1, 1), "{passed:?}");
    assert_eq!(scene.desired("v").await, Some(2));
    // Once they are taken again, they are told.
    scene.pass().await;
    let (kind, message) = scene.namespace.event("SpecUnreadable").await.unwrap();
    assert_eq!(kind, "Warning");
    assert!(message.starts_with("The spec cannot be read, so that nothing is done: spec: "), "{message}");
}
