//! What was wrong before a change, and what the change makes wrong.

use serde_json::json;
use steersman_plan::dynamo::validate::validate;

use super::*;

#[test]
fn adm_26_thorough_with_auto_that_was_there_before_does_not_stand_against_a_change() {
    let wrong = json!({ "backend": "auto", "searchStrategy": "thorough" });
    let old = request(wrong.clone());
    assert_eq!(updated(&old, &labelled(old.clone())), Review::default());
    let mut new = old.clone();
    new["spec"]["model"] = json!(MODEL);
    let verdict = updated(&old, &new);
    accepted(&verdict);
    assert!(verdict.warnings[0].to_string().starts_with(THOROUGH), "{:?}", verdict.warnings);
}

#[test]
fn adm_27_a_missing_version_that_was_there_before_does_not_stand_against_a_change() {
    let old = in_phase("Deployed", json!({ "runtimeVersionOverride": null }));
    assert_eq!(updated(&old, &labelled(old.clone())), Review::default());
    let old = request(json!({ "runtimeVersionOverride": null }));
    let verdict = updated(&old, &request(json!({ "runtimeVersionOverride": null, "model": MODEL })));
    accepted(&verdict);
    assert!(verdict.warnings[0].to_string().starts_with(NO_VERSION), "{:?}", verdict.warnings);
}

#[test]
fn adm_28_the_version_cannot_be_added_once_deployed() {
    let old = in_phase("Deployed", json!({ "runtimeVersionOverride": null }));
    refused(&updated(&old, &labelled(in_phase("Deployed", json!({})))), &[&forbidden("Deployed")]);
}

#[test]
fn adm_29_a_change_to_an_image_without_a_version_is_refused() {
    let old = request(json!({ "image": "test-profiler:1.1.0", "runtimeVersionOverride": null }));
    refused(&updated(&old, &request(json!({ "runtimeVersionOverride": null }))), &[NO_VERSION]);
}

#[test]
fn adm_30_another_image_without_a_version_is_refused_though_the_old_one_had_none() {
    let old = request(json!({ "runtimeVersionOverride": null }));
    let new = request(json!({ "runtimeVersionOverride": null, "image": "test-profiler:other" }));
    refused(&updated(&old, &new), &[NO_VERSION]);
    // Nor can the version be taken away.
    refused(&updated(&request(json!({})), &request(json!({ "runtimeVersionOverride": null }))), &[NO_VERSION]);
}

#[test]
fn adm_31_missing_hardware_does_not_stand_against_a_change_when_discovery_is_switched_off() {
    let old = request(json!({}));
    assert_eq!(validate(&labelled(old.clone()), Some(&old), &facts(false)), Review::default());
    let verdict = validate(&request(json!({ "model": MODEL })), Some(&old), &facts(false));
    accepted(&verdict);
    assert!(verdict.warnings[0].to_string().starts_with(NO_HARDWARE), "{:?}", verdict.warnings);
}

#[test]
fn adm_32_hardware_cannot_be_taken_away_without_discovery() {
    let old = request(json!({ "hardware": { "gpuSku": "h100_sxm" } }));
    refused(&validate(&request(json!({})), Some(&old), &facts(false)), &[NO_HARDWARE]);
}

#[test]
fn adm_33_thorough_with_auto_that_a_change_brings_is_refused() {
    let new = request(json!({ "backend": "auto", "searchStrategy": "thorough" }));
    refused(&updated(&request(json!({})), &new), &[THOROUGH]);
}

#[test]
fn a_wrong_override_stays_and_another_one_is_refused() {
    let with = |more: Value| {
        let mut dgd = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment" });
        dgd.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "overrides": { "dgd": dgd } })
    };
    let (status, null) = (with(json!({ "status": {} })), with(json!({ "spec": { "a": null } })));
    let mut other = request(status.clone());
    other["spec"]["model"] = json!(MODEL);
    accepted(&updated(&request(status.clone()), &other));
    assert_eq!(updated(&request(status), &request(null)).errors.len(), 1);
}
