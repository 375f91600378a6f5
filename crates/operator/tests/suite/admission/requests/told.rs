//! What users read: refusals, warnings, and what works while nobody answers.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::super::versions::ELSEWHERE;
use super::*;

#[tokio::test]
async fn refusals_and_warnings_name_the_place_the_cause_and_what_to_do() {
    let Some(court) = open("told", &ELSEWHERE).await else { return };
    let refused =
        apply(&court, &beta("auto", json!({ "backend": "auto", "searchStrategy": "thorough" }))).await.failure();
    let expected = format!(
        "The DynamoGraphDeploymentRequest \"auto\" is invalid: {THOROUGH}. Or set spec.searchStrategy to rapid.\n"
    );
    assert_eq!(refused, expected);
    let refused = apply(&court, &alpha("old", json!({ "runtimeVersionOverride": null }))).await.failure();
    let expected = "The DynamoGraphDeploymentRequest \"old\" is invalid: spec.runtimeVersionOverride: Required value: is \
                    required when spec.profilingConfig.profilerImage has no parseable semantic-version tag. Set it to the \
                    version of Dynamo in profiler:latest, such as 1.4.0.\n";
    assert!(refused.ends_with(expected), "{refused}");

    // What is accepted is told of all the same.
    let config = json!({ "profilerImage": "profiler:latest", "configMapRef": { "name": "base" } });
    let old = alpha("old", json!({ "profilingConfig": config, "deploymentOverrides": { "name": "mine" } }));
    let told = apply(&court, &old).await;
    let warned = told.stderr.clone();
    told.ok();
    for warning in [
        "Warning: nvidia.com/v1alpha1 DynamoGraphDeploymentRequest is deprecated; use nvidia.com/v1beta1 \
         DynamoGraphDeploymentRequest\n",
        "Warning: spec.profilingConfig.configMapRef: ConfigMap base (key disagg.yaml) is mounted at /config in the \
         profiling Job, where today's profilers do not look. Put what shall differ in the generated graph into \
         spec.overrides.dgd (of v1beta1).\n",
        "Warning: Kept from v1alpha1 and without effect: spec.deploymentOverrides.name. ",
    ] {
        assert!(warned.contains(warning), "{warning:?} is not in:\n{warned}");
    }
    let told = apply(&court, &beta(&"a".repeat(30), json!({ "sla": { "ttft": -1 } }))).await;
    let warned = told.stderr.clone();
    told.ok();
    for warning in ["a name of at most 24 characters", "spec.sla.ttft: SLA 'ttft' must be positive (got -1)."] {
        assert!(warned.contains(warning), "{warning:?} is not in:\n{warned}");
    }
    let told = apply(&court, &beta("fine", json!({}))).await;
    assert_eq!(told.stderr, "");
    told.ok();
    let strict = apply(&court, &beta("typo", json!({ "modle": "x" }))).await.failure();
    assert!(strict.contains("unknown field \"spec.modle\""), "{strict}");
}

#[tokio::test]
async fn without_an_operator_requests_cannot_begin_or_change_but_be_let_go_of() {
    let Some(mut court) = open("requests-down", &ELSEWHERE).await else { return };
    let mut held = beta("held", json!({}));
    held["metadata"]["finalizers"] = json!(["nvidia.com/finalizer"]);
    apply(&court, &held).await.ok();
    court.operator.signal(Signal::TERM);
    assert_eq!(court.operator.exit_code().await, Some(0));

    let objects = court.objects("v1beta1");
    let patch = async |change: Value| objects.patch("held", &PatchParams::default(), &Patch::Merge(change)).await;
    let refused = patch(json!({ "spec": { "model": MODEL } })).await.unwrap_err().to_string();
    assert!(refused.contains("failed calling webhook \"validate.dgdr.steersman.dev\""), "{refused}");
    let refused = would_be(&court, &beta("new", json!({ "image": null }))).await.unwrap_err();
    assert!(refused.contains("failed calling webhook \"default.dgdr.steersman.dev\""), "{refused}");

    patch(json!({ "metadata": { "labels": { "team": "search" } } })).await.unwrap();
    let status = Patch::Merge(json!({ "status": { "phase": "Failed" } }));
    objects.patch_status("held", &PatchParams::default(), &status).await.unwrap();
    court.kubectl(&["delete", "dgdr", "held", "--wait=false"]).await.ok();
    assert!(objects.get("held").await.unwrap().metadata.deletion_timestamp.is_some(), "its finalizer holds it");
    patch(json!({ "metadata": { "finalizers": null } })).await.unwrap();
    assert!(objects.get_opt("held").await.unwrap().is_none(), "and nobody else");
}
