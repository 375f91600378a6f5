//! Objects of a namespace that is left alone from now on.

use std::sync::Arc;

use steersman_api::meta::conditions;
use steersman_api::variant::v1alpha1::VariantAutoscalingStatus;
use steersman_plan::variant::{excluded_status, names};

use super::{a_fleet, a_variant, decision, now, replicas, spec, stored};

fn said<'a>(status: &'a VariantAutoscalingStatus, type_: &str) -> [&'a str; 3] {
    let found = conditions::find(&status.conditions, type_);
    found.map_or([""; 3], |known| [&known.status, &known.reason, &known.message])
}

#[test]
fn they_are_told_once_keep_their_number_and_begin_again_when_they_are_back() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.75, 2.0);
    seen.variants[0].status = stored(&seen).into_values().next();
    assert_eq!(replicas(&seen, "v"), 3);
    let (status, note) = excluded_status(&seen.variants[0], now()).unwrap();
    let [truth, reason, message] = said(&status, names::OPTIMIZATION);
    assert_eq!((truth, reason, note.reason), ("False", "NamespaceExcluded", "NamespaceExcluded"));
    assert_eq!(message, note.message);
    let begin = "No replicas are decided: namespace team-a has annotation wva.llmd.ai/exclude=true.";
    let end = "Remove the annotation to resume";
    assert!(message.starts_with(begin) && message.ends_with(end), "{message}");
    assert_eq!(said(&status, names::METRICS)[..2], ["False", "SkippedProcessing"]);
    assert_eq!(status.desired_optimized_alloc.as_ref().unwrap().num_replicas, Some(3), "for whoever comes next");
    assert_eq!(status.actuation.as_ref().map(|acted| acted.applied), Some(false), "it is published no more");
    assert_eq!(status.decision.as_ref().unwrap().hold.as_deref(), Some("the namespace is excluded"));

    seen.variants[0].status = Some(Arc::new(status));
    assert_eq!(excluded_status(&seen.variants[0], now()), None, "once");
    let again = steersman_plan::variant::status(&seen.variants[0], &decision(&seen, "v"), true, now());
    assert_eq!(said(&again, names::OPTIMIZATION)[..2], ["True", "OptimizationSucceeded"]);
    assert_eq!(said(&again, names::METRICS)[..2], ["True", "MetricsFound"]);
    assert_eq!(again.desired_optimized_alloc.unwrap().num_replicas, Some(3));
    let hold = again.decision.unwrap().hold.unwrap();
    assert!(hold.starts_with("waiting for an earlier decision to be carried out"), "{hold}");
}

#[test]
fn who_was_never_decided_on_or_goes_anyway_is_told_nothing() {
    let mut variant = a_variant("v", "5", 2);
    variant.deleting = true;
    assert_eq!(excluded_status(&variant, now()), None);
    variant.deleting = false;
    variant.status = None;
    assert_eq!(excluded_status(&variant, now()), None, "another operator may look after this namespace");
}

#[test]
fn trouble_with_others_is_not_mentioned_any_more() {
    let old = a_variant("old", "5", 2);
    let mut young = a_variant("young", "5", 2);
    spec(&mut young).scale_target_ref = old.spec.scale_target_ref.clone();
    let mut seen = a_fleet(vec![old, young], 0.5, 1.0);
    let told = stored(&seen);
    for variant in &mut seen.variants {
        variant.status = told.get(&variant.key).cloned();
    }
    let before = seen.variants[1].status.as_deref().unwrap();
    assert_eq!((said(before, names::CONFLICT)[0], said(before, names::READY)[0]), ("True", "False"));
    let (status, _) = excluded_status(&seen.variants[1], now()).unwrap();
    assert_eq!((said(&status, names::CONFLICT), said(&status, names::READY)), ([""; 3], [""; 3]));
}
