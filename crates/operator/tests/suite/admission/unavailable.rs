//! Admission while no operator runs: spec changes are refused, and everything that deletes an object still works.

use kube::api::{Patch, PatchParams};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{AdmissionEnv, manifest, steersman};

#[tokio::test]
async fn stopped_operator_blocks_spec_changes_not_deletion() {
    let Some(mut env) = AdmissionEnv::start("down", &[]).await else { return };
    let mut stack = manifest("stack", json!({ "distribution": { "name": "starter" } }));
    stack["metadata"]["finalizers"] = json!(["example.com/held"]);
    env.apply(&stack, &[]).await.ok();
    env.operator.signal(Signal::TERM);
    assert_eq!(env.operator.exit_code().await, Some(0));

    let objects = env.objects("v1alpha2");
    let patch = async |change: Value| objects.patch("stack", &PatchParams::default(), &Patch::Merge(change)).await;
    let refused = patch(json!({ "spec": { "workload": { "replicas": 2 } } })).await.unwrap_err().to_string();
    assert!(refused.contains("failed calling webhook \"validate.llsd.steersman.dev\""), "{refused}");
    let refused = env.apply(&manifest("new", json!({ "distribution": { "name": "starter" } })), &[]).await.failure();
    assert!(refused.contains("failed calling webhook"), "{refused}");

    patch(json!({ "metadata": { "labels": { "team": "search" } } })).await.unwrap();
    let status = Patch::Merge(json!({ "status": { "phase": "Failed" } }));
    objects.patch_status("stack", &PatchParams::default(), &status).await.unwrap();
    env.kubectl(&["delete", "llsd", "stack", "--wait=false"]).await.ok();
    let held = objects.get("stack").await.unwrap();
    assert!(held.metadata.deletion_timestamp.is_some(), "its finalizer holds it");
    patch(json!({ "metadata": { "finalizers": null } })).await.unwrap();
    assert!(objects.get_opt("stack").await.unwrap().is_none(), "only its finalizer held it");

    // The webhooks match no object that an operator needs to start, so a new one becomes ready.
    let restarted = env.webhook.start("again", &[]).await;
    restarted.until_answer("/readyz", 200).await;
    env.wait_until_called().await;
    // A user who uninstalls the operator can remove the configuration.
    assert_eq!(steersman(env.cluster(), &["webhooks", "--remove", "llsd"]).await.ok(), "steersman-llsd: removed\n");
}
