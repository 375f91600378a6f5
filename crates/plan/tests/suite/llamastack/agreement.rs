//! Admission and the controller accept the same objects.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;
use steersman_plan::llamastack::config::base;
use steersman_plan::llamastack::validate::{Facts, Missing, validate};
use steersman_plan::llamastack::{Snapshot, plan};
use steersman_reconcile::Severity;
use steersman_testkit::llamastack_specs::{BUNDLE_KEYS, Part, groups, names, needs_labels, object};

use super::configuration::with_references;
use super::snapshot_from_stored;
use super::trust::CERTIFICATE;

fn admission_errors(object: &Value) -> Vec<String> {
    let name = object["spec"]["distribution"]["name"].as_str();
    let distributions: Vec<&str> = base::names().collect();
    let resolved = base::resolve(name, Ok(None)).ok();
    let facts = Facts {
        namespace: "team-a",
        distributions: &distributions,
        base: resolved.as_ref().map(|resolved| &*resolved.base),
        always_mounted: name.and_then(base::distribution).is_some_and(|known| known.mounts_always),
        config_namespace: None,
        found: &BTreeMap::new(),
        missing: Missing::Refuse,
    };
    validate(object, None, &facts).errors.iter().map(|error| error.text().to_string()).collect()
}

/// The object in a cluster that has everything it refers to.
fn snapshot(object: &Value) -> Snapshot {
    let mut snapshot = with_references(snapshot_from_stored(object.clone()));
    snapshot.object.name = object["metadata"]["name"].as_str().unwrap().to_owned();
    snapshot.settings.distributions = base::images();
    snapshot.trust.named = Some(BUNDLE_KEYS.map(|key| (key.to_owned(), CERTIFICATE.to_owned())).into());
    snapshot
}

fn blockers(snapshot: &Snapshot) -> Vec<String> {
    let findings = plan(snapshot).findings;
    findings.iter().filter(|found| found.severity == Severity::Blocker).map(ToString::to_string).collect()
}

fn judgements(object: &Value) -> ([bool; 2], String) {
    let (admission, controller) = (admission_errors(object), blockers(&snapshot(object)));
    ([admission.is_empty(), controller.is_empty()], format!("{object:#}\n{admission:#?}\n{controller:#?}"))
}

#[test]
fn each_part_is_judged_alike() {
    for part in groups().concat() {
        let (found, texts) = judgements(&object("starter", [&part]));
        assert_eq!(found, [part.valid; 2], "{texts}");
    }
    for (name, valid) in names() {
        let (found, texts) = judgements(&object(&name, []));
        assert_eq!(found, [valid; 2], "{texts}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn generated_objects_are_judged_alike(
        parts in groups().into_iter().map(prop::sample::select).collect::<Vec<_>>(),
        kept in prop::collection::vec(prop::bool::weighted(0.35), groups().len()),
        (name, _) in prop::sample::select(names().to_vec()),
    ) {
        let parts: Vec<Part> = parts.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(part, _)| part).collect();
        let object = object(&name, &parts);
        prop_assume!(!needs_labels(&object));
        let ([admission, controller], texts) = judgements(&object);
        prop_assert_eq!(admission, controller, "{}", texts);
    }
}
