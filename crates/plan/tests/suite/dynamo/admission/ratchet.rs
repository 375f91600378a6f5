//! Validation of changes: errors that existed before become warnings, new errors are rejected.

use serde_json::json;
use steersman_plan::dynamo::validate::validate;

use super::*;

#[test]
fn adm_26_existing_thorough_conflict_becomes_warning() {
    let wrong = json!({ "backend": "auto", "searchStrategy": "thorough" });
    let old = request(wrong.clone());
    assert_eq!(review_update(&old, &with_label(old.clone())), Review::default());
    let mut new = old.clone();
    new["spec"]["model"] = json!(MODEL);
    let review = review_update(&old, &new);
    assert_accepted(&review);
    assert!(review.warnings[0].to_string().starts_with(THOROUGH), "{:?}", review.warnings);
}

#[test]
fn adm_27_existing_missing_version_becomes_warning() {
    let old = request_in_phase("Deployed", json!({ "runtimeVersionOverride": null }));
    assert_eq!(review_update(&old, &with_label(old.clone())), Review::default());
    let old = request(json!({ "runtimeVersionOverride": null }));
    let review = review_update(&old, &request(json!({ "runtimeVersionOverride": null, "model": MODEL })));
    assert_accepted(&review);
    assert!(review.warnings[0].to_string().starts_with(NO_VERSION), "{:?}", review.warnings);
}

#[test]
fn adm_28_version_cannot_be_added_once_deployed() {
    let old = request_in_phase("Deployed", json!({ "runtimeVersionOverride": null }));
    assert_rejected(
        &review_update(&old, &with_label(request_in_phase("Deployed", json!({})))),
        &[&forbidden_text("Deployed")],
    );
}

#[test]
fn adm_29_change_to_unversioned_image_is_rejected() {
    let old = request(json!({ "image": "test-profiler:1.1.0", "runtimeVersionOverride": null }));
    assert_rejected(&review_update(&old, &request(json!({ "runtimeVersionOverride": null }))), &[NO_VERSION]);
}

#[test]
fn adm_30_other_unversioned_image_is_rejected() {
    let old = request(json!({ "runtimeVersionOverride": null }));
    let new = request(json!({ "runtimeVersionOverride": null, "image": "test-profiler:other" }));
    assert_rejected(&review_update(&old, &new), &[NO_VERSION]);
    // Removing the version is rejected as well.
    assert_rejected(
        &review_update(&request(json!({})), &request(json!({ "runtimeVersionOverride": null }))),
        &[NO_VERSION],
    );
}

#[test]
fn adm_31_missing_hardware_becomes_warning_without_discovery() {
    let old = request(json!({}));
    assert_eq!(validate(&with_label(old.clone()), Some(&old), &facts(false)), Review::default());
    let review = validate(&request(json!({ "model": MODEL })), Some(&old), &facts(false));
    assert_accepted(&review);
    assert!(review.warnings[0].to_string().starts_with(NO_HARDWARE), "{:?}", review.warnings);
}

#[test]
fn adm_32_hardware_cannot_be_removed_without_discovery() {
    let old = request(json!({ "hardware": { "gpuSku": "h100_sxm" } }));
    assert_rejected(&validate(&request(json!({})), Some(&old), &facts(false)), &[NO_HARDWARE]);
}

#[test]
fn adm_33_new_thorough_conflict_is_rejected() {
    let new = request(json!({ "backend": "auto", "searchStrategy": "thorough" }));
    assert_rejected(&review_update(&request(json!({})), &new), &[THOROUGH]);
}

#[test]
fn invalid_override_may_stay_but_not_change() {
    let with = |more: Value| {
        let mut dgd = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment" });
        dgd.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "overrides": { "dgd": dgd } })
    };
    let (status, null) = (with(json!({ "status": {} })), with(json!({ "spec": { "a": null } })));
    let mut other = request(status.clone());
    other["spec"]["model"] = json!(MODEL);
    assert_accepted(&review_update(&request(status.clone()), &other));
    assert_eq!(review_update(&request(status), &request(null)).errors.len(), 1);
}
