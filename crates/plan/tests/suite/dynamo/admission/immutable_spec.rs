//! Changes to requests whose profiling has begun.

use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::crds::{Options, crd};
use steersman_plan::dynamo::validate::operator_values;
use steersman_plan::dynamo::{names, request};
use steersman_reconcile::{FieldPath, path};

use super::*;

/// Expects a change of `spec.model` to be forbidden in this phase.
#[track_caller]
fn assert_change_forbidden(phase: &str) {
    let review =
        review_update(&request_in_phase(phase, json!({})), &request_in_phase(phase, json!({ "model": MODEL })));
    assert_rejected(&review, &[&forbidden_text(phase)]);
    assert!(error_texts(&review)[0].contains("Changed fields: spec.model."), "{:?}", error_texts(&review));
}

/// A request with `autoApply: false`.
fn manual_request_in_phase(phase: &str, more: Value) -> Value {
    let mut request = request_in_phase(phase, more);
    request["spec"]["autoApply"] = json!(false);
    request
}

#[test]
fn adm_14_unchanged_spec_accepted_while_profiling() {
    let old = request_in_phase("Profiling", json!({}));
    assert_accepted(&review_update(&old, &with_label(old.clone())));
    // An empty object and a missing default do not change the spec.
    let same = request_in_phase("Profiling", json!({ "sla": {}, "autoApply": null }));
    assert_accepted(&review_update(&old, &same));
    assert_accepted(&review_update(&same, &old));
}

#[test]
fn adm_15_change_is_forbidden_while_profiling() {
    assert_change_forbidden("Profiling");
}

#[test]
fn adm_16_ready_request_may_enable_auto_apply() {
    let old = manual_request_in_phase("Ready", json!({}));
    assert_accepted(&review_update(&old, &request_in_phase("Ready", json!({}))));
    assert_accepted(&review_update(&old, &request_in_phase("Ready", json!({ "autoApply": null }))));
}

#[test]
fn adm_17_enabling_auto_apply_may_add_version() {
    let old = manual_request_in_phase("Ready", json!({ "runtimeVersionOverride": null }));
    assert_accepted(&review_update(&old, &request_in_phase("Ready", json!({}))));
}

#[test]
fn adm_18_enabling_auto_apply_requires_version() {
    let old = manual_request_in_phase("Ready", json!({ "runtimeVersionOverride": null }));
    assert_rejected(
        &review_update(&old, &request_in_phase("Ready", json!({ "runtimeVersionOverride": null }))),
        &[NO_VERSION],
    );
}

#[test]
fn adm_19_version_can_be_added_at_ready() {
    let old = manual_request_in_phase("Ready", json!({ "runtimeVersionOverride": null }));
    assert_accepted(&review_update(&old, &manual_request_in_phase("Ready", json!({}))));
}

#[test]
fn adm_20_version_can_be_changed_at_ready() {
    let new = manual_request_in_phase("Ready", json!({ "runtimeVersionOverride": "1.2.0" }));
    assert_accepted(&review_update(&manual_request_in_phase("Ready", json!({})), &new));
}

#[test]
fn adm_21_manual_apply_allows_version_while_profiling() {
    let new = manual_request_in_phase("Profiling", json!({ "runtimeVersionOverride": "1.2.0" }));
    assert_accepted(&review_update(&manual_request_in_phase("Profiling", json!({})), &new));
    // `autoApply` stays forbidden until there is a result to review.
    for new in [
        request_in_phase("Profiling", json!({})),
        request_in_phase("Profiling", json!({ "runtimeVersionOverride": "1.2.0" })),
    ] {
        let review = review_update(&manual_request_in_phase("Profiling", json!({})), &new);
        assert_rejected(&review, &[&forbidden_text("Profiling")]);
        assert!(error_texts(&review)[0].ends_with("In this phase only spec.runtimeVersionOverride can be changed."));
    }
    let automatic = request_in_phase("Profiling", json!({ "runtimeVersionOverride": "1.2.0" }));
    assert_rejected(
        &review_update(&request_in_phase("Profiling", json!({})), &automatic),
        &[&forbidden_text("Profiling")],
    );
}

#[test]
fn adm_22_other_changes_are_forbidden_at_ready() {
    let old = manual_request_in_phase("Ready", json!({}));
    let review = review_update(&old, &manual_request_in_phase("Ready", json!({ "model": MODEL })));
    assert_rejected(&review, &[&forbidden_text("Ready")]);
    let remedy = "Changed fields: spec.model. In this phase only spec.runtimeVersionOverride and spec.autoApply can \
                  be changed.";
    assert!(error_texts(&review)[0].ends_with(remedy), "{:?}", error_texts(&review));
    let both = request_in_phase("Ready", json!({ "sla": { "ttft": 100 }, "runtimeVersionOverride": "1.2.0" }));
    let review = review_update(&old, &both);
    assert_rejected(&review, &[&forbidden_text("Ready")]);
    assert!(error_texts(&review)[0].contains("Changed fields: spec.autoApply, spec.runtimeVersionOverride, spec.sla."));
}

#[test]
fn adm_23_change_is_forbidden_while_deploying() {
    assert_change_forbidden("Deploying");
}

#[test]
fn adm_24_change_is_forbidden_once_deployed() {
    assert_change_forbidden("Deployed");
}

#[test]
fn adm_25_failed_request_accepts_change_with_warning() {
    let (old, new) = (request_in_phase("Failed", json!({})), request_in_phase("Failed", json!({ "model": MODEL })));
    let review = review_update(&old, &new);
    assert_accepted(&review);
    assert_eq!(review.warnings, [], "the request failed before profiling, so that the change restarts it");
    let mut old_with_job = old;
    old_with_job["status"]["profilingJobName"] = json!("profile-test");
    let review = review_update(&old_with_job, &new);
    assert_accepted(&review);
    let [warning] = &review.warnings[..] else { panic!("one warning expected: {review:?}") };
    let warning = warning.to_string();
    assert!(warning.starts_with("spec: this request failed after profiling started"), "{warning}");
    assert!(warning.ends_with("only if annotation steersman.dev/retry gets a new value."), "{warning}");
}

#[test]
fn pending_request_can_be_changed() {
    for old in
        [request(json!({})), request_in_phase("Pending", json!({})), request_in_phase("SomethingElse", json!({}))]
    {
        assert_accepted(&review_update(&old, &request(json!({ "model": MODEL }))));
    }
}

#[test]
fn many_changes_are_counted() {
    let new = request_in_phase(
        "Deployed",
        json!({ "model": MODEL, "backend": "sglang", "image": "b:1.0.0", "searchStrategy": "thorough",
            "sla": { "ttft": 1 }, "workload": { "isl": 1 }, "hardware": { "rdma": true } }),
    );
    let review = review_update(&request_in_phase("Deployed", json!({})), &new);
    assert!(error_texts(&review)[0].contains("Changed fields: spec.backend, spec.hardware, spec.image, spec.model,"));
    assert!(error_texts(&review)[0].ends_with("and 2 more."), "{:?}", error_texts(&review));
}

/// Adds the annotation with the hash of the spec that profiling began with.
fn with_accepted_spec(mut request: Value, accepted: &Value) -> Value {
    let spec = serde_json::from_value(accepted["spec"].clone()).unwrap();
    request["metadata"]["annotations"] = json!({ names::ACCEPTED_SPEC: request::spec_hash(&spec) });
    request
}

/// Changes that were written while the webhook was not called.
#[test]
fn unreviewed_change_can_only_be_reverted_fully() {
    for phase in ["Profiling", "Ready", "Deploying", "Deployed"] {
        let accepted_request = request_in_phase(phase, json!({ "sla": { "ttft": 100, "itl": 10 } }));
        let unreviewed = request_in_phase(phase, json!({ "model": MODEL, "autoApply": false }));
        let (accepted_request, unreviewed) = (
            with_accepted_spec(accepted_request.clone(), &accepted_request),
            with_accepted_spec(unreviewed, &accepted_request),
        );
        assert_accepted(&review_update(&unreviewed, &accepted_request));
        assert_accepted(&review_update(&unreviewed, &with_label(unreviewed.clone())));
        let mut half = unreviewed.clone();
        half["spec"]["model"] = accepted_request["spec"]["model"].clone();
        let review = review_update(&unreviewed, &half);
        assert_rejected(&review, &[&forbidden_text(phase)]);
        assert!(error_texts(&review)[0].ends_with("Only a change back to that spec is accepted."));
        // The hash in the new object is not trusted.
        let own = with_accepted_spec(half.clone(), &half);
        assert_rejected(&review_update(&unreviewed, &own), &[&forbidden_text(phase)]);
        // A spec that still matches its hash cannot be changed.
        assert_rejected(
            &review_update(&accepted_request, &with_accepted_spec(half, &accepted_request)),
            &[&forbidden_text(phase)],
        );
    }
}

#[test]
fn late_disabled_auto_apply_can_be_reenabled() {
    for phase in ["Deploying", "Deployed"] {
        assert_accepted(&review_update(
            &manual_request_in_phase(phase, json!({})),
            &request_in_phase(phase, json!({})),
        ));
    }
    assert_rejected(
        &review_update(&request_in_phase("Deployed", json!({})), &manual_request_in_phase("Deployed", json!({}))),
        &[&forbidden_text("Deployed")],
    );
}

#[test]
fn item_2_8_deploying_request_may_disable_auto_apply() {
    let old = request_in_phase("Deploying", json!({}));
    assert_accepted(&review_update(&old, &manual_request_in_phase("Deploying", json!({}))));
    let review = review_update(&old, &manual_request_in_phase("Deploying", json!({ "model": MODEL })));
    assert_rejected(&review, &[&forbidden_text("Deploying")]);
    assert!(error_texts(&review)[0].ends_with("In this phase only spec.autoApply can be changed."));
}

#[test]
fn deleting_request_skips_validation() {
    let mut new =
        request_in_phase("Deployed", json!({ "backend": "auto", "searchStrategy": "thorough", "model": MODEL }));
    new["metadata"]["deletionTimestamp"] = json!("2026-11-16T00:00:00Z");
    let review = review_update(&request_in_phase("Deployed", json!({})), &new);
    assert_eq!(review, Review::default());
}

/// The author's manifest has neither the hash nor the fields that the operator filled in.
#[test]
fn original_manifest_can_be_reapplied_without_defaults() {
    let discovered = json!({ "gpuSku": "h100_sxm", "numGpusPerNode": 8, "rdma": false });
    let fields = json!({ "f:spec": { "f:hardware": { "f:gpuSku": {}, "f:numGpusPerNode": {}, "f:rdma": {} } } });
    let operator_entry = json!({ "manager": names::MANAGER, "operation": "Update", "fieldsV1": fields });
    let completed = json!({ "image": "planner:1.4.0", "runtimeVersionOverride": null, "hardware": discovered,
        "workload": { "isl": 4000, "osl": 1000, "requestRate": 2.0 } });
    let author_spec = json!({ "image": null, "runtimeVersionOverride": null, "searchStrategy": null, "autoApply": null,
        "workload": { "requestRate": 2.0 } });
    for phase in ["Profiling", "Ready", "Deploying", "Deployed"] {
        let mut old = request_in_phase(phase, completed.clone());
        old = with_accepted_spec(old.clone(), &old);
        old["metadata"]["managedFields"] = json!([operator_entry]);
        let new = request_in_phase(phase, author_spec.clone());
        assert_accepted(&review_update(&old, &new));
        let mut other = new.clone();
        other["spec"]["model"] = json!(MODEL);
        let review = review_update(&old, &other);
        assert_rejected(&review, &[&forbidden_text(phase)]);
        assert!(error_texts(&review)[0].contains("Changed fields: spec.model."), "{:?}", error_texts(&review));
        // An object with the hash was read from the cluster, so that its author has removed the filled-in fields on
        // purpose.
        let review = review_update(&old, &with_accepted_spec(new.clone(), &old));
        assert_rejected(&review, &[&forbidden_text(phase)]);
        assert!(
            error_texts(&review)[0].contains("Changed fields: spec.hardware, spec.image."),
            "{:?}",
            error_texts(&review)
        );
        // Removing a field that the author had set is a change.
        let author_entry = json!({ "manager": "kubectl", "operation": "Update",
            "fieldsV1": { "f:spec": { "f:hardware": { "f:numGpusPerNode": {} } } } });
        old["metadata"]["managedFields"] = json!([author_entry, operator_entry]);
        let review = review_update(&old, &new);
        assert_rejected(&review, &[&forbidden_text(phase)]);
        assert!(error_texts(&review)[0].contains("Changed fields: spec.hardware."), "{:?}", error_texts(&review));
    }
}

#[test]
fn removing_a_chosen_image_is_forbidden() {
    let old = request_in_phase("Profiling", json!({ "image": "other:1.4.0", "runtimeVersionOverride": null }));
    let review =
        review_update(&old, &request_in_phase("Profiling", json!({ "image": null, "runtimeVersionOverride": null })));
    assert_rejected(&review, &[&forbidden_text("Profiling")]);
}

#[test]
fn embedded_objects_are_compared_exactly() {
    let job = |part: Value| json!({ "overrides": { "dgd": { "apiVersion": "nvidia.com/v1beta1", "spec": part } } });
    let old = request_in_phase("Profiling", job(json!({ "components": [], "envs": {} })));
    let review = review_update(&old, &request_in_phase("Profiling", job(json!({ "components": [] }))));
    assert_rejected(&review, &[&forbidden_text("Profiling")]);
    assert!(
        error_texts(&review)[0].contains("Changed fields: spec.overrides.dgd.spec.envs."),
        "{:?}",
        error_texts(&review)
    );
}

/// The validator's list of defaults must match the schema.
#[test]
fn known_defaults_match_schema_defaults() {
    let crd = json!(crd(Family::Dgdr, &Options::default()).unwrap());
    let versions = crd["spec"]["versions"].as_array().unwrap();
    let beta = versions.iter().find(|version| version["name"] == "v1beta1").unwrap();
    let mut found = Vec::new();
    collect_defaults(&beta["schema"]["openAPIV3Schema"]["properties"]["spec"], &path!(spec), &mut found);
    assert_eq!(found.len(), 6, "{found:?}");
    for (path, value) in found {
        assert_eq!(operator_values::default(&path), Some(value), "{path}");
    }
    assert_eq!(operator_values::default(&path!(spec.model)), None);
}

/// Collects the defaults below a node, except in overrides, which contain parts of other objects.
fn collect_defaults(schema: &Value, path: &FieldPath, found: &mut Vec<(FieldPath, Value)>) {
    if *path == path!(spec.overrides) {
        return;
    }
    found.extend(schema.get("default").map(|value| (path.clone(), value.clone())));
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        collect_defaults(inner, &path.field(name.clone()), found);
    }
}
