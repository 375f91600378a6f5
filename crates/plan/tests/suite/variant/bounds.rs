//! Bounds that change while nothing can be decided.

use steersman_plan::variant::{DecisionKind, Explanation, FactorCode, MetricsError};
use steersman_reconcile::Lookup;

use super::{a_fleet, a_variant, decision, replicas, spec, stored, the_model};

#[test]
fn bounds_that_change_often_do_not_make_the_reason_longer() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 4)], 0.4, 1.0);
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    for (max, expected) in [
        (3, "Earlier (clamped from 4 to 3 for bounds)"),
        (2, "Earlier (clamped from 3 to 2 for bounds)"),
        (1, "Earlier (clamped from 2 to 1 for bounds)"),
    ] {
        spec(&mut seen.variants[0]).max_replicas = Some(max);
        seen.variants[0].target = a_variant("v", "5", max).target;
        assert_eq!(decision(&seen, "v").reason, expected);
        seen.variants[0].status = stored(&seen).into_values().next();
    }
}

#[test]
fn a_number_that_new_bounds_lower_while_its_workload_is_away_says_so() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 5)], 0.4, 1.0);
    seen.variants[0].target = Lookup::Known(None);
    assert_eq!(decision(&seen, "v").reason, "Earlier");
    spec(&mut seen.variants[0]).max_replicas = Some(3);
    let kept = decision(&seen, "v");
    assert_eq!((kept.replicas, kept.reason.as_str()), (Some(3), "Earlier (clamped from 5 to 3 for bounds)"));
    seen.variants[0].status = stored(&seen).into_values().next();
    assert_eq!(stored(&seen).into_values().next(), seen.variants[0].status, "once");
}

/// Schemas of other generations let them pass.
#[test]
fn bounds_that_contradict_each_other_are_told_and_the_upper_one_holds() {
    let told = |min: i32, max: Option<i32>| {
        let mut seen = a_fleet(vec![a_variant("v", "5", 4)], 0.75, 2.0);
        (spec(&mut seen.variants[0]).min_replicas, spec(&mut seen.variants[0]).max_replicas) = (min, max);
        let findings = decision(&seen, "v").findings;
        (replicas(&seen, "v"), findings.into_iter().map(|found| found.message).collect::<Vec<_>>())
    };
    assert_eq!(told(0, Some(9)), (5, vec![]));
    assert_eq!(told(6, Some(2)), (2, vec!["spec.maxReplicas=2 is below spec.minReplicas=6; 2 is used.".to_owned()]));
    assert_eq!(told(-6, None), (5, vec!["spec.minReplicas=-6 is below 0; 0 is used.".to_owned()]));
}

#[test]
fn while_a_new_maximum_takes_replicas_away_no_other_variant_gives_one_up() {
    let mut seen = a_fleet(vec![a_variant("cheap", "5", 4), a_variant("dear", "20", 2)], 0.2, 0.0);
    assert_eq!((replicas(&seen, "cheap"), replicas(&seen, "dear")), (4, 1));
    spec(&mut seen.variants[0]).max_replicas = Some(2);
    assert_eq!((replicas(&seen, "cheap"), replicas(&seen, "dear")), (2, 2));
}

#[test]
fn a_maximum_that_allows_nothing_ends_nothing() {
    for max in [0, -2] {
        let variants = vec![a_variant("v", "5", 2), a_variant("other", "20", 0)];
        let mut seen = a_fleet(variants, 0.75, 2.0);
        spec(&mut seen.variants[0]).max_replicas = Some(max);
        let kept = decision(&seen, "v");
        let why =
            format!("spec.maxReplicas={max} allows no replicas - cannot optimize: set it to 1 or more, or remove it");
        assert_eq!(
            (kept.replicas, kept.kind),
            (Some(2), DecisionKind::Failed(Explanation::new(FactorCode::MaxReplicasBelowOne, why)))
        );
        assert_eq!(replicas(&seen, "other"), 0, "it may serve, so that nobody has to be started in its place");
    }
}
