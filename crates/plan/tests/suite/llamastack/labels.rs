//! An image that is no part of the release: its labels decide, and until they are known nothing moves.

use proptest::prelude::*;
use serde_json::{Value, json};
use steersman_api::llamastack::status::Phase;
use steersman_plan::llamastack;
use steersman_plan::llamastack::config::base::{Base, LabelError};
use steersman_plan::llamastack::{LabelsWanted, Snapshot, labels_wanted, plan};
use steersman_plan::oci::LabelsSeen;
use steersman_reconcile::{Outcome, Severity};

use super::{an_object, order, settled, stored, written};

const IMAGE: &str = "quay.io/me/stack:1";
const DIGEST: &str = "sha256:5f";

fn of_an_image(labels: LabelsSeen) -> Snapshot {
    let spec = format!("{{distribution: {{image: '{IMAGE}'}}, disabled: [eval], networking: {{port: 9000}}}}");
    Snapshot { labels, ..an_object(&spec) }
}

fn base(name: &str) -> Base {
    let config = json!({ "version": 2, "distro_name": name, "apis": ["inference"], "providers": { "inference": [] } });
    Base { name: IMAGE.into(), server_version: "0.7.1".into(), config }
}

fn found(base: Result<Option<Base>, LabelError>) -> LabelsSeen {
    LabelsSeen::Found { digest: DIGEST.into(), base, remark: None }
}

fn labelled() -> LabelsSeen {
    found(Ok(Some(base("mine"))))
}

fn silent() -> LabelsSeen {
    LabelsSeen::Silent { remark: "registry quay.io answered 503".into() }
}

/// For laws.
pub fn any_labels() -> impl Strategy<Value = LabelsSeen> {
    let wrong = found(Err(LabelError::NotBase64));
    prop::sample::select(vec![LabelsSeen::NotAsked, LabelsSeen::Awaited, silent(), labelled(), found(Ok(None)), wrong])
}

fn condition(seen: &Snapshot, type_: &str) -> Value {
    let status = llamastack::status(seen, &plan(seen), &Outcome::default());
    let found = status.conditions.into_iter().flatten().find(|known| known.type_ == type_);
    json!(found)
}

#[test]
fn fr_027j_labels_configure_an_image_and_pin_what_they_were_read_from() {
    let seen = of_an_image(labelled());
    let plan = plan(&seen);
    let map = written(&plan, "ConfigMap").unwrap();
    assert!(map["data"]["config.yaml"].as_str().unwrap().contains("distro_name: mine"), "{map}");
    let deployment = written(&plan, "Deployment").unwrap();
    let pinned = format!("{IMAGE}@{DIGEST}");
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], pinned.as_str());
    let status = llamastack::status(&seen, &plan, &Outcome::default());
    let resolved = status.resolved_distribution.unwrap();
    assert_eq!((resolved.image, resolved.config_source), (Some(pinned), Some("oci-label".into())));
    assert!(resolved.config_hash.unwrap().starts_with("sha256:"));
}

/// FR-020b and FR-020c: a tag that moves takes image and configuration along in one write.
#[test]
fn fr_020b_a_tag_that_moves_changes_image_and_configuration_together() {
    let both = |labels: LabelsSeen| {
        let deployment = written(&plan(&of_an_image(labels)), "Deployment").unwrap();
        let pod = &deployment["spec"]["template"]["spec"];
        (pod["containers"][0]["image"].clone(), pod["volumes"].to_string())
    };
    let moved = LabelsSeen::Found { digest: "sha256:60".into(), base: Ok(Some(base("newer"))), remark: None };
    let (old, new) = (both(labelled()), both(moved));
    assert!(old.0 != new.0 && old.1 != new.1, "{old:?} {new:?}");
}

#[test]
fn fr_027c_an_image_without_labels_says_what_it_needs() {
    let text = "Direct image references require either overrideConfig.configMapName or OCI config labels on the image. See \
                docs/configuration.md for details.";
    for labels in [found(Ok(None)), LabelsSeen::NotAsked] {
        let seen = of_an_image(labels);
        let told = condition(&seen, "ConfigGenerated");
        assert_eq!((&told["status"], &told["reason"]), (&json!("False"), &json!("BaseConfigRequired")));
        assert_eq!(told["message"], text);
        assert!(plan(&seen).writes.is_empty());
    }
    let half = LabelError::HalfGiven { given: "a", missing: "b" };
    let told = condition(&of_an_image(found(Err(half))), "ConfigGenerated");
    assert_eq!(told["reason"], "BaseConfigRequired");
    assert_eq!(
        told["message"],
        format!(
            "{text} The labels of this image cannot be used: label a is set without b; set both, or \
             io.llamastack.config.base64 alone."
        )
    );
}

#[test]
fn what_is_new_waits_with_nothing_but_the_account_that_pull_secrets_go_to() {
    for (labels, said) in [
        (LabelsSeen::Awaited, "the labels of the image are being read from its registry"),
        (silent(), "registry quay.io answered 503. Nothing can be generated until the registry answers"),
    ] {
        let seen = of_an_image(labels);
        let plan = plan(&seen);
        assert_eq!(order(&plan), ["apply ServiceAccount starter-sa"]);
        assert!(plan.prune.is_empty());
        assert!(plan.findings.iter().all(|finding| finding.severity == Severity::Warning), "{:?}", plan.findings);
        assert_eq!(plan.findings.is_empty(), seen.labels == LabelsSeen::Awaited, "a failure is told");
        let status = llamastack::status(&seen, &plan, &Outcome { written: 1, failure: None });
        assert_eq!(status.phase, Some(Phase::Pending));
        let told = condition(&seen, "ConfigGenerated");
        assert_eq!((&told["status"], &told["reason"]), (&json!("Unknown"), &json!("ImageLabelsAwaited")));
        assert!(told["message"].as_str().unwrap().starts_with(said), "{told}");
        assert!(condition(&seen, "DeploymentReady")["message"].as_str().unwrap().contains(said));
        // Told once, and the same as long as nothing else is known.
        let mut later = seen;
        later.object.status = Some(stored(&status));
        let again = super::plan(&later);
        assert_eq!(again.events, []);
        assert_eq!(stored(&llamastack::status(&later, &again, &Outcome::default())), stored(&status));
    }
}

/// As after each start of the operator.
#[test]
fn what_runs_stays_as_it_is_and_is_not_spoken_of_while_the_registry_is_asked() {
    let mut seen = settled(of_an_image(labelled()));
    assert_eq!(seen.object.status.as_ref().unwrap().phase, Some(Phase::Ready));
    seen.labels = LabelsSeen::Awaited;
    let plan = plan(&seen);
    assert_eq!(order(&plan), ["apply ServiceAccount starter-sa"]);
    assert_eq!((plan.events.len(), plan.findings.len()), (0, 0));
    assert_eq!(Some(llamastack::status(&seen, &plan, &Outcome::default())), seen.object.status, "nothing is written");
}

#[test]
fn a_registry_that_is_down_moves_nothing_that_runs_and_is_told() {
    let mut seen = settled(of_an_image(labelled()));
    seen.labels = silent();
    assert_eq!(order(&plan(&seen)), ["apply ServiceAccount starter-sa"]);
    let status = llamastack::status(&seen, &plan(&seen), &Outcome::default());
    assert_eq!(status.phase, Some(Phase::Ready));
    assert_eq!(status.resolved_distribution, seen.object.status.as_ref().unwrap().resolved_distribution);
    assert_eq!(condition(&seen, "ConfigGenerated")["status"], "True");
    let told = condition(&seen, "SpecAccepted");
    assert_eq!((&told["status"], &told["reason"]), (&json!("True"), &json!("ImageLabelsUnusable")));
    assert!(told["message"].as_str().unwrap().contains("keeps the configuration that it has"), "{told}");
}

#[test]
fn a_new_spec_waits_without_the_old_pods_being_called_its_own() {
    let mut seen = settled(of_an_image(labelled()));
    seen.object.generation = Some(2);
    seen.labels = silent();
    let status = llamastack::status(&seen, &plan(&seen), &Outcome::default());
    assert_eq!(status.phase, Some(Phase::Initializing));
    assert_eq!(condition(&seen, "ConfigGenerated")["status"], "Unknown");
    assert_eq!(condition(&seen, "Available")["status"], "True", "the pods of the spec before answer");
    // The pass that finally writes has only seen the old pods.
    seen.object.status = Some(stored(&status));
    seen.labels = labelled();
    let status = llamastack::status(&seen, &plan(&seen), &Outcome { written: 2, failure: None });
    assert_eq!(status.phase, Some(Phase::Initializing));
}

#[test]
fn what_is_wrong_with_a_spec_is_told_before_any_registry_answers() {
    let spec = format!(
        "{{distribution: {{image: '{IMAGE}'}}, disabled: [inference], providers: {{inference: {{provider: vllm}}}}}}"
    );
    let seen = Snapshot { labels: LabelsSeen::Awaited, ..an_object(&spec) };
    let plan = plan(&seen);
    assert!(plan.findings.iter().any(|finding| finding.severity == Severity::Blocker), "{:?}", plan.findings);
    assert!(plan.writes.is_empty());
    assert_eq!(condition(&seen, "ConfigGenerated")["status"], "False");
}

#[test]
fn a_name_whose_image_is_another_has_our_base_with_a_remark_until_its_labels_are_read() {
    let of_a_name = |labels: LabelsSeen| {
        let mut seen = an_object("{distribution: {name: starter}, disabled: [eval]}");
        seen.settings.distributions.insert("starter".into(), IMAGE.into());
        Snapshot { labels, ..seen }
    };
    let image = |seen: &Snapshot| {
        let deployment = written(&plan(seen), "Deployment").unwrap();
        deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
    };
    let pinned = format!("{IMAGE}@{DIGEST}");
    assert_eq!(image(&of_a_name(labelled())), pinned);
    let wrong = found(Err(LabelError::NotBase64));
    for (labels, said) in [(found(Ok(None)), ""), (wrong, "cannot be used: label"), (silent(), "503")] {
        let seen = of_a_name(labels);
        assert_eq!(image(&seen), IMAGE, "our base is for no digest");
        let status = llamastack::status(&seen, &plan(&seen), &Outcome::default()).resolved_distribution.unwrap();
        assert_eq!((status.image.as_deref(), status.config_source.as_deref()), (Some(IMAGE), Some("embedded")));
        let told = condition(&seen, "SpecAccepted")["message"].to_string();
        assert!(told.contains(said), "{told}");
        assert_eq!(told.contains("Steersman's own base for this name is used meanwhile"), !said.is_empty(), "{told}");
    }
}

#[test]
fn fr_027e_registries_are_asked_only_where_their_answer_decides() {
    let wanted = |spec: &str, overridden: bool| {
        let mut seen = an_object(spec);
        if overridden {
            seen.settings.distributions.insert("starter".into(), IMAGE.into());
        }
        labels_wanted(&seen.settings, &seen.object)
    };
    let asks = |account: &str| Some(LabelsWanted { image: IMAGE.into(), service_account: account.into() });
    let image = format!("distribution: {{image: '{IMAGE}'}}");
    for (spec, overridden, expected) in [
        ("{distribution: {name: starter}, disabled: [eval]}", false, None),
        ("{distribution: {name: starter}, disabled: [eval]}", true, asks("starter-sa")),
        ("{distribution: {name: starter}}", true, None),
        (&format!("{{{image}}}"), false, None),
        (&format!("{{{image}, overrideConfig: {{configMapName: mine}}}}"), false, None),
        (&format!("{{{image}, disabled: [eval]}}"), false, asks("starter-sa")),
        (
            &format!("{{{image}, disabled: [eval], workload: {{overrides: {{serviceAccountName: puller}}}}}}"),
            false,
            asks("puller"),
        ),
        ("{distribution: {name: nobody}, disabled: [eval]}", false, None),
    ] {
        assert_eq!(wanted(spec, overridden), expected, "{spec} {overridden}");
    }
}
