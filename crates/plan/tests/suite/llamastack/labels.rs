//! Images outside of the release: their labels hold the configuration, and nothing changes until the labels are known.

use proptest::prelude::*;
use serde_json::{Value, json};
use steersman_api::llamastack::status::Phase;
use steersman_plan::llamastack;
use steersman_plan::llamastack::config::base::{Base, LabelError};
use steersman_plan::llamastack::{LabelsWanted, Snapshot, labels_wanted, plan};
use steersman_plan::oci::ObservedLabels;
use steersman_reconcile::{Outcome, Severity};

use super::{planned_object, settle, stored_status, v1alpha2_snapshot, write_order};

const IMAGE: &str = "quay.io/me/stack:1";
const DIGEST: &str = "sha256:5f";

pub fn image_snapshot(labels: ObservedLabels) -> Snapshot {
    let spec = format!("{{distribution: {{image: '{IMAGE}'}}, disabled: [eval], networking: {{port: 9000}}}}");
    Snapshot { labels, ..v1alpha2_snapshot(&spec) }
}

pub fn base(name: &str) -> Base {
    let config = json!({ "version": 2, "distro_name": name, "apis": ["inference"], "providers": { "inference": [] } });
    Base { name: IMAGE.into(), server_version: "0.7.1".into(), config }
}

pub fn read_labels(base: Result<Option<Base>, LabelError>) -> ObservedLabels {
    ObservedLabels::Found { digest: DIGEST.into(), base, remark: None }
}

fn valid_labels() -> ObservedLabels {
    read_labels(Ok(Some(base("mine"))))
}

fn unreachable_registry() -> ObservedLabels {
    ObservedLabels::Unavailable { remark: "registry quay.io answered 503".into() }
}

/// Any state of the labels, for property tests.
pub fn any_labels() -> impl Strategy<Value = ObservedLabels> {
    let wrong = read_labels(Err(LabelError::NotBase64));
    prop::sample::select(vec![
        ObservedLabels::NotRead,
        ObservedLabels::Pending,
        unreachable_registry(),
        valid_labels(),
        read_labels(Ok(None)),
        wrong,
    ])
}

fn condition(snapshot: &Snapshot, type_: &str) -> Value {
    let status = llamastack::status(snapshot, &plan(snapshot), &Outcome::default());
    let found = status.conditions.into_iter().flatten().find(|known| known.type_ == type_);
    json!(found)
}

#[test]
fn fr_027j_labels_configure_and_pin_image() {
    let snapshot = image_snapshot(valid_labels());
    let plan = plan(&snapshot);
    let map = planned_object(&plan, "ConfigMap").unwrap();
    assert!(map["data"]["config.yaml"].as_str().unwrap().contains("distro_name: mine"), "{map}");
    let deployment = planned_object(&plan, "Deployment").unwrap();
    let pinned = format!("{IMAGE}@{DIGEST}");
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], pinned.as_str());
    let status = llamastack::status(&snapshot, &plan, &Outcome::default());
    let resolved = status.resolved_distribution.unwrap();
    assert_eq!((resolved.image, resolved.config_source), (Some(pinned), Some("oci-label".into())));
    assert!(resolved.config_hash.unwrap().starts_with("sha256:"));
}

/// FR-020b and FR-020c: a moved tag changes image and configuration in one write.
#[test]
fn fr_020b_moved_tag_updates_image_and_configuration() {
    let image_and_volumes = |labels: ObservedLabels| {
        let deployment = planned_object(&plan(&image_snapshot(labels)), "Deployment").unwrap();
        let pod = &deployment["spec"]["template"]["spec"];
        (pod["containers"][0]["image"].clone(), pod["volumes"].to_string())
    };
    let moved = ObservedLabels::Found { digest: "sha256:60".into(), base: Ok(Some(base("newer"))), remark: None };
    let (old, new) = (image_and_volumes(valid_labels()), image_and_volumes(moved));
    assert!(old.0 != new.0 && old.1 != new.1, "{old:?} {new:?}");
}

#[test]
fn fr_027c_image_without_labels_names_requirements() {
    let text = "Direct image references require either overrideConfig.configMapName or OCI config labels on the image. See \
                docs/configuration.md for details.";
    for labels in [read_labels(Ok(None)), ObservedLabels::NotRead] {
        let snapshot = image_snapshot(labels);
        let condition_json = condition(&snapshot, "ConfigGenerated");
        assert_eq!(
            (&condition_json["status"], &condition_json["reason"]),
            (&json!("False"), &json!("BaseConfigRequired"))
        );
        assert_eq!(condition_json["message"], text);
        assert!(plan(&snapshot).writes.is_empty());
    }
    let half_pair = LabelError::HalfGiven { given: "a", missing: "b" };
    let condition_json = condition(&image_snapshot(read_labels(Err(half_pair))), "ConfigGenerated");
    assert_eq!(condition_json["reason"], "BaseConfigRequired");
    assert_eq!(
        condition_json["message"],
        format!(
            "{text} The labels of this image cannot be used: label a is set without b; set both, or \
             io.llamastack.config.base64 alone."
        )
    );
}

#[test]
fn new_object_awaits_labels_with_account_only() {
    for (labels, expected_text) in [
        (ObservedLabels::Pending, "the labels of the image are being read from its registry"),
        (
            unreachable_registry(),
            "registry quay.io answered 503. No configuration can be generated until the registry answers",
        ),
    ] {
        let snapshot = image_snapshot(labels);
        let plan = plan(&snapshot);
        assert_eq!(write_order(&plan), ["apply ServiceAccount starter-sa"]);
        assert!(plan.prune.is_empty());
        assert!(plan.findings.iter().all(|finding| finding.severity == Severity::Warning), "{:?}", plan.findings);
        assert_eq!(plan.findings.is_empty(), snapshot.labels == ObservedLabels::Pending, "only a failure is reported");
        let status = llamastack::status(&snapshot, &plan, &Outcome { written: 1, failure: None });
        assert_eq!(status.phase, Some(Phase::Pending));
        let condition_json = condition(&snapshot, "ConfigGenerated");
        assert_eq!(
            (&condition_json["status"], &condition_json["reason"]),
            (&json!("Unknown"), &json!("ImageLabelsAwaited"))
        );
        assert!(condition_json["message"].as_str().unwrap().starts_with(expected_text), "{condition_json}");
        assert!(condition(&snapshot, "DeploymentReady")["message"].as_str().unwrap().contains(expected_text));
        // The status and events do not change until the registry answers.
        let mut later = snapshot;
        later.object.status = Some(stored_status(&status));
        let next_plan = super::plan(&later);
        assert_eq!(next_plan.events, []);
        assert_eq!(stored_status(&llamastack::status(&later, &next_plan, &Outcome::default())), stored_status(&status));
    }
}

/// The labels are awaited after every start of the operator.
#[test]
fn awaited_labels_leave_running_server_unchanged() {
    let mut snapshot = settle(image_snapshot(valid_labels()));
    assert_eq!(snapshot.object.status.as_ref().unwrap().phase, Some(Phase::Ready));
    snapshot.labels = ObservedLabels::Pending;
    let plan = plan(&snapshot);
    assert_eq!(write_order(&plan), ["apply ServiceAccount starter-sa"]);
    assert_eq!((plan.events.len(), plan.findings.len()), (0, 0));
    assert_eq!(
        Some(llamastack::status(&snapshot, &plan, &Outcome::default())),
        snapshot.object.status,
        "the status does not change"
    );
}

#[test]
fn unreachable_registry_is_reported_without_changes() {
    let mut snapshot = settle(image_snapshot(valid_labels()));
    snapshot.labels = unreachable_registry();
    assert_eq!(write_order(&plan(&snapshot)), ["apply ServiceAccount starter-sa"]);
    let status = llamastack::status(&snapshot, &plan(&snapshot), &Outcome::default());
    assert_eq!(status.phase, Some(Phase::Ready));
    assert_eq!(status.resolved_distribution, snapshot.object.status.as_ref().unwrap().resolved_distribution);
    assert_eq!(condition(&snapshot, "ConfigGenerated")["status"], "True");
    let condition_json = condition(&snapshot, "SpecAccepted");
    assert_eq!((&condition_json["status"], &condition_json["reason"]), (&json!("True"), &json!("ImageLabelsUnusable")));
    assert!(
        condition_json["message"].as_str().unwrap().contains("keeps its current configuration"),
        "{condition_json}"
    );
}

#[test]
fn new_spec_awaiting_labels_is_not_ready() {
    let mut snapshot = settle(image_snapshot(valid_labels()));
    snapshot.object.generation = Some(2);
    snapshot.labels = unreachable_registry();
    let status = llamastack::status(&snapshot, &plan(&snapshot), &Outcome::default());
    assert_eq!(status.phase, Some(Phase::Initializing));
    assert_eq!(condition(&snapshot, "ConfigGenerated")["status"], "Unknown");
    assert_eq!(condition(&snapshot, "Available")["status"], "True", "pods of the previous spec still answer");
    // The reconcile that writes the new spec has observed only old pods.
    snapshot.object.status = Some(stored_status(&status));
    snapshot.labels = valid_labels();
    let status = llamastack::status(&snapshot, &plan(&snapshot), &Outcome { written: 2, failure: None });
    assert_eq!(status.phase, Some(Phase::Initializing));
}

#[test]
fn spec_errors_precede_registry_answers() {
    let spec = format!(
        "{{distribution: {{image: '{IMAGE}'}}, disabled: [inference], providers: {{inference: {{provider: vllm}}}}}}"
    );
    let snapshot = Snapshot { labels: ObservedLabels::Pending, ..v1alpha2_snapshot(&spec) };
    let plan = plan(&snapshot);
    assert!(plan.findings.iter().any(|finding| finding.severity == Severity::Blocker), "{:?}", plan.findings);
    assert!(plan.writes.is_empty());
    assert_eq!(condition(&snapshot, "ConfigGenerated")["status"], "False");
}

#[test]
fn overridden_image_uses_embedded_base_without_labels() {
    let named_snapshot = |labels: ObservedLabels| {
        let mut snapshot = v1alpha2_snapshot("{distribution: {name: starter}, disabled: [eval]}");
        snapshot.settings.distributions.insert("starter".into(), IMAGE.into());
        Snapshot { labels, ..snapshot }
    };
    let image = |snapshot: &Snapshot| {
        let deployment = planned_object(&plan(snapshot), "Deployment").unwrap();
        deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
    };
    let pinned = format!("{IMAGE}@{DIGEST}");
    assert_eq!(image(&named_snapshot(valid_labels())), pinned);
    let wrong = read_labels(Err(LabelError::NotBase64));
    for (labels, expected_text) in
        [(read_labels(Ok(None)), ""), (wrong, "cannot be used: label"), (unreachable_registry(), "503")]
    {
        let snapshot = named_snapshot(labels);
        assert_eq!(image(&snapshot), IMAGE, "the embedded base belongs to no digest");
        let status =
            llamastack::status(&snapshot, &plan(&snapshot), &Outcome::default()).resolved_distribution.unwrap();
        assert_eq!((status.image.as_deref(), status.config_source.as_deref()), (Some(IMAGE), Some("embedded")));
        let condition_json = condition(&snapshot, "SpecAccepted")["message"].to_string();
        assert!(condition_json.contains(expected_text), "{condition_json}");
        assert_eq!(
            condition_json.contains("Steersman uses the base configuration of this release instead"),
            !expected_text.is_empty(),
            "{condition_json}"
        );
    }
}

#[test]
fn fr_027e_labels_are_read_only_when_needed() {
    let wanted_labels = |spec: &str, overridden: bool| {
        let mut snapshot = v1alpha2_snapshot(spec);
        if overridden {
            snapshot.settings.distributions.insert("starter".into(), IMAGE.into());
        }
        labels_wanted(&snapshot.settings, &snapshot.object)
    };
    let expected_request = |account: &str| Some(LabelsWanted { image: IMAGE.into(), service_account: account.into() });
    let image = format!("distribution: {{image: '{IMAGE}'}}");
    for (spec, overridden, expected) in [
        ("{distribution: {name: starter}, disabled: [eval]}", false, None),
        ("{distribution: {name: starter}, disabled: [eval]}", true, expected_request("starter-sa")),
        ("{distribution: {name: starter}}", true, None),
        (&format!("{{{image}}}"), false, None),
        (&format!("{{{image}, overrideConfig: {{configMapName: mine}}}}"), false, None),
        (&format!("{{{image}, disabled: [eval]}}"), false, expected_request("starter-sa")),
        (
            &format!("{{{image}, disabled: [eval], workload: {{overrides: {{serviceAccountName: puller}}}}}}"),
            false,
            expected_request("puller"),
        ),
        ("{distribution: {name: nobody}, disabled: [eval]}", false, None),
    ] {
        assert_eq!(wanted_labels(spec, overridden), expected, "{spec} {overridden}");
    }
}
