//! While no operator answers: what is refused, and what nobody can be kept from doing.

use kube::api::{Patch, PatchParams};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Court, manifest, steersman};

#[tokio::test]
async fn without_an_operator_specs_cannot_change_but_objects_can_be_let_go_of() {
    let Some(mut court) = Court::open("down", &[]).await else { return };
    let mut stack = manifest("stack", json!({ "distribution": { "name": "starter" } }));
    stack["metadata"]["finalizers"] = json!(["example.com/held"]);
    court.apply(&stack, &[]).await.ok();
    court.operator.signal(Signal::TERM);
    assert_eq!(court.operator.exit_code().await, Some(0));

    let objects = court.objects("v1alpha2");
    let patch = async |change: Value| objects.patch("stack", &PatchParams::default(), &Patch::Merge(change)).await;
    let refused = patch(json!({ "spec": { "workload": { "replicas": 2 } } })).await.unwrap_err().to_string();
    assert!(refused.contains("failed calling webhook \"validate.llsd.steersman.dev\""), "{refused}");
    let refused = court.apply(&manifest("new", json!({ "distribution": { "name": "starter" } })), &[]).await.failure();
    assert!(refused.contains("failed calling webhook"), "{refused}");

    patch(json!({ "metadata": { "labels": { "team": "search" } } })).await.unwrap();
    let status = Patch::Merge(json!({ "status": { "phase": "Failed" } }));
    objects.patch_status("stack", &PatchParams::default(), &status).await.unwrap();
    court.kubectl(&["delete", "llsd", "stack", "--wait=false"]).await.ok();
    let held = objects.get("stack").await.unwrap();
    assert!(held.metadata.deletion_timestamp.is_some(), "its finalizer holds it");
    patch(json!({ "metadata": { "finalizers": null } })).await.unwrap();
    assert!(objects.get_opt("stack").await.unwrap().is_none(), "and nobody else");

    // Nothing that a new operator needs is asked about, so that it comes back by itself.
    let again = court.site.start("again", &[]).await;
    again.until_answer("/readyz", 200).await;
    court.until_asked().await;
    // And whoever leaves for good can say so.
    assert_eq!(steersman(court.cluster(), &["webhooks", "--remove", "llsd"]).await.ok(), "steersman-llsd: removed\n");
}
