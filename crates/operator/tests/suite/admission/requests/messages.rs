//! Refusals and warnings as users read them, and requests while no operator runs.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::super::versions::OTHER_NAMESPACE;
use super::*;

#[tokio::test]
async fn messages_name_field_cause_and_remedy() {
    let Some(env) = start("messages", &OTHER_NAMESPACE).await else { return };
    let refused =
        apply(&env, &beta("auto", json!({ "backend": "auto", "searchStrategy": "thorough" }))).await.failure();
    let expected = format!(
        "The DynamoGraphDeploymentRequest \"auto\" is invalid: {THOROUGH}. Or set spec.searchStrategy to rapid.\n"
    );
    assert_eq!(refused, expected);
    let refused = apply(&env, &alpha("old", json!({ "runtimeVersionOverride": null }))).await.failure();
    let expected = "The DynamoGraphDeploymentRequest \"old\" is invalid: spec.runtimeVersionOverride: Required value: is \
                    required when spec.profilingConfig.profilerImage has no parseable semantic-version tag. Set the field \
                    to the version of Dynamo in profiler:latest, such as 1.4.0.\n";
    assert!(refused.ends_with(expected), "{refused}");

    // Accepted requests may have warnings.
    let config = json!({ "profilerImage": "profiler:latest", "configMapRef": { "name": "base" } });
    let old = alpha("old", json!({ "profilingConfig": config, "deploymentOverrides": { "name": "mine" } }));
    let output = apply(&env, &old).await;
    let stderr = output.stderr.clone();
    output.ok();
    for warning in [
        "Warning: nvidia.com/v1alpha1 DynamoGraphDeploymentRequest is deprecated; use nvidia.com/v1beta1 \
         DynamoGraphDeploymentRequest\n",
        "Warning: spec.profilingConfig.configMapRef: ConfigMap base (key disagg.yaml) is mounted at /config in the \
         profiling Job, but current profilers do not read it. To change the generated graph, set spec.overrides.dgd \
         (of v1beta1).\n",
        "Warning: Fields of v1alpha1 without effect: spec.deploymentOverrides.name. ",
    ] {
        assert!(stderr.contains(warning), "{warning:?} is not in:\n{stderr}");
    }
    let output = apply(&env, &beta(&"a".repeat(30), json!({ "sla": { "ttft": -1 } }))).await;
    let stderr = output.stderr.clone();
    output.ok();
    for warning in ["a name of at most 24 characters", "spec.sla.ttft: SLA 'ttft' must be positive (got -1)."] {
        assert!(stderr.contains(warning), "{warning:?} is not in:\n{stderr}");
    }
    let output = apply(&env, &beta("fine", json!({}))).await;
    assert_eq!(output.stderr, "");
    output.ok();
    let strict = apply(&env, &beta("typo", json!({ "modle": "x" }))).await.failure();
    assert!(strict.contains("unknown field \"spec.modle\""), "{strict}");
}

#[tokio::test]
async fn stopped_operator_blocks_changed_requests_not_deletion() {
    let Some(mut env) = start("requests-down", &OTHER_NAMESPACE).await else { return };
    let mut held = beta("held", json!({}));
    held["metadata"]["finalizers"] = json!(["nvidia.com/finalizer"]);
    apply(&env, &held).await.ok();
    env.operator.signal(Signal::TERM);
    assert_eq!(env.operator.exit_code().await, Some(0));

    let objects = env.objects("v1beta1");
    let patch = async |change: Value| objects.patch("held", &PatchParams::default(), &Patch::Merge(change)).await;
    let refused = patch(json!({ "spec": { "model": MODEL } })).await.unwrap_err().to_string();
    assert!(refused.contains("failed calling webhook \"validate.dgdr.steersman.dev\""), "{refused}");
    let refused = dry_run_create(&env, &beta("new", json!({ "image": null }))).await.unwrap_err();
    assert!(refused.contains("failed calling webhook \"default.dgdr.steersman.dev\""), "{refused}");

    patch(json!({ "metadata": { "labels": { "team": "search" } } })).await.unwrap();
    let status = Patch::Merge(json!({ "status": { "phase": "Failed" } }));
    objects.patch_status("held", &PatchParams::default(), &status).await.unwrap();
    env.kubectl(&["delete", "dgdr", "held", "--wait=false"]).await.ok();
    assert!(objects.get("held").await.unwrap().metadata.deletion_timestamp.is_some(), "its finalizer holds it");
    patch(json!({ "metadata": { "finalizers": null } })).await.unwrap();
    assert!(objects.get_opt("held").await.unwrap().is_none(), "only its finalizer held it");
}
