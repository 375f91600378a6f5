//! Changes of requests whose profiling has begun.

use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::crds::{Options, crd};
use steersman_plan::dynamo::validate::filled;
use steersman_plan::dynamo::{asked, names};
use steersman_reconcile::{FieldPath, path};

use super::*;

/// A change of something in this phase.
#[track_caller]
fn change_is_forbidden(phase: &str) {
    let verdict = updated(&in_phase(phase, json!({})), &in_phase(phase, json!({ "model": MODEL })));
    refused(&verdict, &[&forbidden(phase)]);
    assert!(texts(&verdict)[0].ends_with("Changed is spec.model."), "{:?}", texts(&verdict));
}

/// Without automatic deployment.
fn waiting(phase: &str, more: Value) -> Value {
    let mut request = in_phase(phase, more);
    request["spec"]["autoApply"] = json!(false);
    request
}

#[test]
fn adm_14_an_unchanged_spec_is_accepted_while_profiling() {
    let old = in_phase("Profiling", json!({}));
    accepted(&updated(&old, &labelled(old.clone())));
    // Other words for the same: an empty part, and a default that an older client leaves out.
    let same = in_phase("Profiling", json!({ "sla": {}, "autoApply": null }));
    accepted(&updated(&old, &same));
    accepted(&updated(&same, &old));
}

#[test]
fn adm_15_a_change_is_forbidden_while_profiling() {
    change_is_forbidden("Profiling");
}

#[test]
fn adm_16_automatic_deployment_can_be_switched_on_at_ready() {
    let old = waiting("Ready", json!({}));
    accepted(&updated(&old, &in_phase("Ready", json!({}))));
    accepted(&updated(&old, &in_phase("Ready", json!({ "autoApply": null }))));
}

#[test]
fn adm_17_what_switches_it_on_can_bring_the_version_that_was_missing() {
    let old = waiting("Ready", json!({ "runtimeVersionOverride": null }));
    accepted(&updated(&old, &in_phase("Ready", json!({}))));
}

#[test]
fn adm_18_what_switches_it_on_must_bring_the_version_that_was_missing() {
    let old = waiting("Ready", json!({ "runtimeVersionOverride": null }));
    refused(&updated(&old, &in_phase("Ready", json!({ "runtimeVersionOverride": null }))), &[NO_VERSION]);
}

#[test]
fn adm_19_the_version_can_be_added_at_ready() {
    let old = waiting("Ready", json!({ "runtimeVersionOverride": null }));
    accepted(&updated(&old, &waiting("Ready", json!({}))));
}

#[test]
fn adm_20_the_version_can_be_changed_at_ready() {
    let new = waiting("Ready", json!({ "runtimeVersionOverride": "1.2.0" }));
    accepted(&updated(&waiting("Ready", json!({})), &new));
}

#[test]
fn adm_21_the_version_can_be_changed_while_profiling_without_automatic_deployment() {
    let new = waiting("Profiling", json!({ "runtimeVersionOverride": "1.2.0" }));
    accepted(&updated(&waiting("Profiling", json!({})), &new));
    // And nothing else: it was decided to look first, and there is nothing to look at yet.
    for new in [in_phase("Profiling", json!({})), in_phase("Profiling", json!({ "runtimeVersionOverride": "1.2.0" }))] {
        let verdict = updated(&waiting("Profiling", json!({})), &new);
        refused(&verdict, &[&forbidden("Profiling")]);
        assert!(texts(&verdict)[0].ends_with("Only spec.runtimeVersionOverride can be changed meanwhile."));
    }
    let automatic = in_phase("Profiling", json!({ "runtimeVersionOverride": "1.2.0" }));
    refused(&updated(&in_phase("Profiling", json!({})), &automatic), &[&forbidden("Profiling")]);
}

#[test]
fn adm_22_everything_else_stays_forbidden_at_ready() {
    let old = waiting("Ready", json!({}));
    let verdict = updated(&old, &waiting("Ready", json!({ "model": MODEL })));
    refused(&verdict, &[&forbidden("Ready")]);
    let told = "Changed is spec.model. Only spec.runtimeVersionOverride and spec.autoApply can be changed now.";
    assert!(texts(&verdict)[0].ends_with(told), "{:?}", texts(&verdict));
    let both = in_phase("Ready", json!({ "sla": { "ttft": 100 }, "runtimeVersionOverride": "1.2.0" }));
    let verdict = updated(&old, &both);
    refused(&verdict, &[&forbidden("Ready")]);
    assert!(texts(&verdict)[0].contains("Changed is spec.autoApply, spec.runtimeVersionOverride, spec.sla."));
}

#[test]
fn adm_23_a_change_is_forbidden_while_deploying() {
    change_is_forbidden("Deploying");
}

#[test]
fn adm_24_a_change_is_forbidden_once_deployed() {
    change_is_forbidden("Deployed");
}

#[test]
fn adm_25_a_change_of_a_failed_request_is_accepted_and_told_where_it_has_no_effect() {
    let (old, new) = (in_phase("Failed", json!({})), in_phase("Failed", json!({ "model": MODEL })));
    let verdict = updated(&old, &new);
    accepted(&verdict);
    assert_eq!(verdict.warnings, [], "it failed before there was anything to profile with: it begins anew");
    let mut began = old;
    began["status"]["profilingJobName"] = json!("profile-test");
    let verdict = updated(&began, &new);
    accepted(&verdict);
    let [warning] = &verdict.warnings[..] else { panic!("one warning expected: {verdict:?}") };
    let warning = warning.to_string();
    assert!(warning.starts_with("spec: this request has failed after its profiling began"), "{warning}");
    assert!(warning.ends_with("Delete and recreate it."), "{warning}");
}

#[test]
fn a_pending_request_can_be_changed() {
    for old in [request(json!({})), in_phase("Pending", json!({})), in_phase("SomethingElse", json!({}))] {
        accepted(&updated(&old, &request(json!({ "model": MODEL }))));
    }
}

#[test]
fn many_changes_are_counted() {
    let new = in_phase(
        "Deployed",
        json!({ "model": MODEL, "backend": "sglang", "image": "b:1.0.0", "searchStrategy": "thorough",
            "sla": { "ttft": 1 }, "workload": { "isl": 1 }, "hardware": { "rdma": true } }),
    );
    let verdict = updated(&in_phase("Deployed", json!({})), &new);
    assert!(texts(&verdict)[0].contains("Changed is spec.backend, spec.hardware, spec.image, spec.model,"));
    assert!(texts(&verdict)[0].ends_with("and 2 more."), "{:?}", texts(&verdict));
}

/// With the mark of the spec that profiling began with.
fn marked(mut request: Value, accepted: &Value) -> Value {
    let spec = serde_json::from_value(accepted["spec"].clone()).unwrap();
    request["metadata"]["annotations"] = json!({ names::ACCEPTED_SPEC: asked::mark(&spec) });
    request
}

/// Written while nobody was asked.
#[test]
fn a_change_that_slipped_in_can_be_taken_back_as_a_whole_and_in_no_other_way() {
    for phase in ["Profiling", "Ready", "Deploying", "Deployed"] {
        let began = in_phase(phase, json!({ "sla": { "ttft": 100, "itl": 10 } }));
        let strayed = in_phase(phase, json!({ "model": MODEL, "autoApply": false }));
        let (began, strayed) = (marked(began.clone(), &began), marked(strayed, &began));
        accepted(&updated(&strayed, &began));
        accepted(&updated(&strayed, &labelled(strayed.clone())));
        let mut half = strayed.clone();
        half["spec"]["model"] = began["spec"]["model"].clone();
        let verdict = updated(&strayed, &half);
        refused(&verdict, &[&forbidden(phase)]);
        assert!(texts(&verdict)[0].ends_with("only a change back to all of that one is accepted."));
        // The mark in the new object is anybody's word.
        let own = marked(half.clone(), &half);
        refused(&updated(&strayed, &own), &[&forbidden(phase)]);
        // What never strayed has nothing to take back.
        refused(&updated(&began, &marked(half, &began)), &[&forbidden(phase)]);
    }
}

#[test]
fn automatic_deployment_that_was_switched_off_too_late_can_be_switched_on_again() {
    for phase in ["Deploying", "Deployed"] {
        accepted(&updated(&waiting(phase, json!({})), &in_phase(phase, json!({}))));
        refused(&updated(&in_phase(phase, json!({})), &waiting(phase, json!({}))), &[&forbidden(phase)]);
    }
}

#[test]
fn nothing_is_asked_of_a_request_that_is_being_deleted() {
    let mut new = in_phase("Deployed", json!({ "backend": "auto", "searchStrategy": "thorough", "model": MODEL }));
    new["metadata"]["deletionTimestamp"] = json!("2026-11-16T00:00:00Z");
    let verdict = updated(&in_phase("Deployed", json!({})), &new);
    assert_eq!(verdict, Review::default());
}

/// A request without the mark, as its author's file has none.
#[test]
fn the_authors_own_file_can_be_sent_again_without_what_was_filled_in() {
    let discovered = json!({ "gpuSku": "h100_sxm", "numGpusPerNode": 8, "rdma": false });
    let fields = json!({ "f:spec": { "f:hardware": { "f:gpuSku": {}, "f:numGpusPerNode": {}, "f:rdma": {} } } });
    let ours = json!({ "manager": names::MANAGER, "operation": "Update", "fieldsV1": fields });
    let completed = json!({ "image": "planner:1.4.0", "runtimeVersionOverride": null, "hardware": discovered,
        "workload": { "isl": 4000, "osl": 1000, "requestRate": 2.0 } });
    let written = json!({ "image": null, "runtimeVersionOverride": null, "searchStrategy": null, "autoApply": null,
        "workload": { "requestRate": 2.0 } });
    for phase in ["Profiling", "Ready", "Deploying", "Deployed"] {
        let mut old = in_phase(phase, completed.clone());
        old = marked(old.clone(), &old);
        old["metadata"]["managedFields"] = json!([ours]);
        let new = in_phase(phase, written.clone());
        accepted(&updated(&old, &new));
        let mut other = new.clone();
        other["spec"]["model"] = json!(MODEL);
        let verdict = updated(&old, &other);
        refused(&verdict, &[&forbidden(phase)]);
        assert!(texts(&verdict)[0].contains("Changed is spec.model."), "{:?}", texts(&verdict));
        // Whoever has the mark has read the request, and has seen what was filled in.
        let verdict = updated(&old, &marked(new.clone(), &old));
        refused(&verdict, &[&forbidden(phase)]);
        assert!(texts(&verdict)[0].contains("Changed is spec.hardware, spec.image."), "{:?}", texts(&verdict));
        // What its author wrote is not left out by mistake.
        let author = json!({ "manager": "kubectl", "operation": "Update",
            "fieldsV1": { "f:spec": { "f:hardware": { "f:numGpusPerNode": {} } } } });
        old["metadata"]["managedFields"] = json!([author, ours]);
        let verdict = updated(&old, &new);
        refused(&verdict, &[&forbidden(phase)]);
        assert!(texts(&verdict)[0].contains("Changed is spec.hardware."), "{:?}", texts(&verdict));
    }
}

#[test]
fn an_image_that_was_chosen_is_not_left_out_by_mistake() {
    let old = in_phase("Profiling", json!({ "image": "other:1.4.0", "runtimeVersionOverride": null }));
    let verdict = updated(&old, &in_phase("Profiling", json!({ "image": null, "runtimeVersionOverride": null })));
    refused(&verdict, &[&forbidden("Profiling")]);
}

#[test]
fn parts_of_other_objects_are_compared_to_the_letter() {
    let job = |part: Value| json!({ "overrides": { "dgd": { "apiVersion": "nvidia.com/v1beta1", "spec": part } } });
    let old = in_phase("Profiling", job(json!({ "components": [], "envs": {} })));
    let verdict = updated(&old, &in_phase("Profiling", job(json!({ "components": [] }))));
    refused(&verdict, &[&forbidden("Profiling")]);
    assert!(texts(&verdict)[0].contains("Changed is spec.overrides.dgd.spec.envs."), "{:?}", texts(&verdict));
}

/// The defaults that count are those that the schema sets.
#[test]
fn every_default_of_the_schema_is_known_and_no_other() {
    let crd = json!(crd(Family::Dgdr, &Options::default()).unwrap());
    let versions = crd["spec"]["versions"].as_array().unwrap();
    let beta = versions.iter().find(|version| version["name"] == "v1beta1").unwrap();
    let mut found = Vec::new();
    defaults(&beta["schema"]["openAPIV3Schema"]["properties"]["spec"], &path!(spec), &mut found);
    assert_eq!(found.len(), 6, "{found:?}");
    for (path, value) in found {
        assert_eq!(filled::default(&path), Some(value), "{path}");
    }
    assert_eq!(filled::default(&path!(spec.model)), None);
}

/// Overrides hold parts of other objects.
fn defaults(schema: &Value, path: &FieldPath, found: &mut Vec<(FieldPath, Value)>) {
    if *path == path!(spec.overrides) {
        return;
    }
    found.extend(schema.get("default").map(|value| (path.clone(), value.clone())));
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        defaults(inner, &path.field(name.clone()), found);
    }
}
