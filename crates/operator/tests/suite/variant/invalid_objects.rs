//! Objects that were valid before and cannot be decoded now.

use http::Request;
use kube::api::DeleteParams;
use kube::client::Body;
use steersman_testkit::fault_injection::{RequestFault, inject_by_request};
use steersman_testkit::wait;

use super::*;

#[tokio::test]
async fn invalid_object_keeps_exporting_last_decision() {
    let Some(test) = TestNamespace::new("unreadable").await else { return };
    let label = json!({ "metadata": { "labels": { "wva.llmd.ai/controller-instance": "unreadable-test" } } });
    for name in ["v", "w"] {
        test.deploy(name, 2).await;
        test.create(name, spec(name)).await;
        test.objects().patch(name, &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    }
    let variables = [("CONTROLLER_INSTANCE", "unreadable-test")];
    let scope = Scope::Namespace(test.namespace.name().to_owned());
    let context = fleet_context(test.cluster, test.admin.clone(), scope, test.settings.name(), &variables);
    let variants = FleetController::new(&context, DebounceConfig::default());
    assert_eq!(reconcile_fleet(&variants).await.unwrap().decided, 2);
    let is_exported = |name: &str| {
        let text = context.controller.metrics.text().unwrap();
        let own = format!("variant_name=\"{name}\"");
        text.lines().any(|line| line.starts_with("wva_desired_replicas{") && line.contains(&own))
    };
    assert!(is_exported("v") && is_exported("w"));

    // The schema accepts an object without a spec.
    let no_spec = Patch::Merge(json!({ "spec": null }));
    test.objects().patch("v", &PatchParams::default(), &no_spec).await.unwrap();
    assert_eq!(reconcile_fleet(&variants).await.unwrap().decided, 1);
    assert!(is_exported("v") && is_exported("w"), "an HPA must still find the last decision");

    // The only valid object is being deleted, so there is no decision.
    let add_finalizer = Patch::Merge(json!({ "metadata": { "finalizers": ["example.com/stays"] } }));
    test.objects().patch("w", &PatchParams::default(), &add_finalizer).await.unwrap();
    test.objects().delete("w", &DeleteParams::default()).await.unwrap();
    assert_eq!(reconcile_fleet(&variants).await.unwrap().decided, 0);
    assert!(is_exported("v") && !is_exported("w"));
    let remove_finalizer = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    test.objects().patch("w", &PatchParams::default(), &remove_finalizer).await.unwrap();
    test.objects().delete("v", &DeleteParams::default()).await.unwrap();
    assert_eq!(reconcile_fleet(&variants).await.unwrap().decided, 0);
    assert!(!is_exported("v"), "a deleted object must not be exported");
}

#[tokio::test]
async fn hanging_events_do_not_delay_decisions() {
    let Some(test) = TestNamespace::new("mute").await else { return };
    test.deploy("decode", 2).await;
    test.create("v", spec("decode")).await;
    for name in ["a", "w"] {
        test.create(name, spec(name)).await;
        let no_spec = Patch::Merge(json!({ "spec": null }));
        test.objects().patch(name, &PatchParams::default(), &no_spec).await.unwrap();
    }
    let hang_events =
        |request: &Request<Body>| request.uri().path().ends_with("/events").then_some(RequestFault::NoResponse);
    let variants = test.controller(inject_by_request(&test.admin, hang_events));
    let outcome = tokio::time::timeout(wait::TIMEOUT / 2, reconcile_fleet(&variants))
        .await
        .expect("the reconcile must end")
        .unwrap();
    assert_eq!((outcome.decided, outcome.written), (1, 1), "{outcome:?}");
    assert_eq!(test.desired("v").await, Some(2));
    // The events are published once the API server accepts them again.
    test.reconcile().await;
    let (kind, message) = test.namespace.wait_for_event("SpecUnreadable").await.unwrap();
    assert_eq!(kind, "Warning");
    assert!(message.starts_with("Cannot decode spec: "), "{message}");
}
