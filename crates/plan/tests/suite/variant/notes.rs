//! What is worth an event.

use std::sync::Arc;

use steersman_plan::variant::{FleetSnapshot, MetricsError, event, hints, plan, status};
use steersman_reconcile::{Event, EventType, Lookup, NamespacedName};

use super::{a_fleet, a_variant, ago, by_tokens, decision, later, now, settle, spec, stored, the_model};

/// Of the first object.
pub fn told(seen: &FleetSnapshot) -> Option<Event> {
    let variant = &seen.variants[0];
    let plan = plan(seen);
    let decision = &plan.decisions[&variant.key];
    event(variant, decision, &status(variant, decision, true, seen.now))
}

fn reason(seen: &FleetSnapshot) -> &'static str {
    told(seen).map_or("", |note| note.reason)
}

#[test]
fn a_change_of_the_number_is_told_with_both_numbers_and_the_reason() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.75, 2.0);
    let message = "From 2 to 3 replicas: saturation-only mode: scale-up: KV spare Saturation low (0.050 < 0.100)";
    let expected = Event { type_: EventType::Normal, reason: "ScaledUp", message: message.into() };
    assert_eq!(told(&seen), Some(expected));
    settle(&mut seen);
    assert_eq!(told(&seen), None, "settled means silent");
    let seen = a_fleet(vec![a_variant("v", "5", 4)], 0.05, 0.0);
    assert_eq!((decision(&seen, "v").replicas, reason(&seen)), (Some(3), "ScaledDown"));
}

#[test]
fn a_first_number_is_no_news() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.75, 2.0);
    seen.variants[0].status = None;
    assert_eq!(told(&seen), None);
}

#[test]
fn metrics_are_missed_only_once_they_were_there() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.4, 1.0);
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    assert_eq!(told(&seen), None, "they are awaited");
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.4, 1.0);
    settle(&mut seen);
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    assert_eq!(reason(&seen), "MetricsUnavailable");
    settle(&mut seen);
    assert_eq!(told(&seen), None);
}

#[test]
fn nobody_misses_the_metrics_of_a_model_that_sleeps() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.0, 0.0);
    seen.config.zero.defaults.enabled = Some(true);
    the_model(&mut seen).requests = Lookup::Known(0.0);
    assert_eq!(reason(&seen), "ScaledToZero");
    settle(&mut seen);
    seen.variants[0].target = a_variant("v", "5", 0).target;
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    assert_eq!(told(&seen), None);
}

#[test]
fn metrics_of_replicas_that_were_just_asked_for_are_awaited_and_those_of_old_ones_missed() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.75, 2.0);
    settle(&mut seen);
    seen.variants[0].target = a_variant("v", "5", 3).target;
    seen.now = now() + jiff::SignedDuration::from_mins(3);
    assert_eq!(told(&seen), None, "the third one is on its way");
    seen.now = now() + jiff::SignedDuration::from_mins(11);
    assert_eq!(reason(&seen), "MetricsUnavailable");
}

#[test]
fn a_workload_that_is_not_there_is_told_once() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.4, 1.0);
    seen.variants[0].target = Lookup::Known(None);
    let expected =
        Event { type_: EventType::Warning, reason: "OptimizationFailed", message: super::NO_WORKLOAD.into() };
    assert_eq!(told(&seen), Some(expected));
    settle(&mut seen);
    assert_eq!(told(&seen), None);
}

#[test]
fn rivals_for_one_workload_are_told_on_both_sides() {
    let mut late = a_variant("late", "5", 2);
    late.created = ago(5);
    late.status = Some(Arc::default());
    spec(&mut late).scale_target_ref = a_variant("v", "5", 2).spec.scale_target_ref.clone();
    let mut seen = a_fleet(vec![late, a_variant("v", "5", 2)], 0.4, 1.0);
    assert_eq!(reason(&seen), "DeploymentTargetConflict");
    seen.variants.swap(0, 1);
    assert_eq!(reason(&seen), "DeploymentTargetConflict");
    settle(&mut seen);
    assert_eq!(told(&seen), None);
}

#[test]
fn a_wish_that_is_not_granted_is_told_once() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.75, 2.0);
    spec(&mut seen.variants[0]).max_replicas = Some(2);
    let message = "Optimization completed: 2 replicas on H100; wanted 3, limited by maxReplicas=2";
    let expected = Event { type_: EventType::Warning, reason: "ResourceConstrained", message: message.into() };
    assert_eq!(told(&seen), Some(expected));
    settle(&mut seen);
    seen.now = now() + jiff::SignedDuration::from_mins(1);
    assert_eq!(told(&seen), None);
}

#[test]
fn a_workload_that_does_not_follow_is_told_once() {
    for tokens in [false, true] {
        let mut seen = a_fleet(vec![a_variant("v", "5", 10)], 0.95, 2.0);
        if tokens {
            by_tokens(&mut seen);
        }
        settle(&mut seen);
        later(&mut seen, 1);
        assert_eq!(told(&seen), None, "tokens {tokens}: it is waited for");
        later(&mut seen, 10);
        let note = told(&seen).unwrap();
        assert_eq!((note.type_, note.reason), (EventType::Warning, "ResourceConstrained"), "tokens {tokens}");
        assert!(note.message.contains("the scale target, which stays at 10 replicas instead of"), "{}", note.message);
        settle(&mut seen);
        later(&mut seen, 1);
        assert_eq!(told(&seen), None, "tokens {tokens}");
    }
}

#[test]
fn a_wish_that_moves_with_the_load_is_neither_told_nor_stored_again() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 1.0, 0.0);
    by_tokens(&mut seen);
    spec(&mut seen.variants[0]).max_replicas = Some(2);
    let wish = |seen: &FleetSnapshot| decision(seen, "v").trace.wanted;
    let load = |seen: &mut FleetSnapshot, queue: f64| {
        seen.now += jiff::SignedDuration::from_mins(1);
        the_model(seen).pods.as_mut().unwrap().iter_mut().for_each(|pod| pod.queue = Some(queue));
        stored(seen).into_values().next()
    };
    let first = load(&mut seen, 100.0);
    assert_eq!((wish(&seen), reason(&seen)), (5, "ResourceConstrained"));
    settle(&mut seen);
    for (queue, wanted) in [(200.0, 7), (100.0, 5), (150.0, 6)] {
        assert_eq!((load(&mut seen, queue), told(&seen)), (first.clone(), None), "queue {queue}");
        assert_eq!(wish(&seen), wanted);
        settle(&mut seen);
    }
    // Twice as much is worth being stored, and still no event.
    let much = load(&mut seen, 1000.0).unwrap();
    let wanted = much.decision.as_ref().unwrap().wanted;
    assert_eq!((wanted, told(&seen)), (Some(wish(&seen)), None));
    let message = &much.conditions.iter().find(|known| known.type_ == "OptimizationReady").unwrap().message;
    assert!(message.contains(&format!("; wanted {}, limited by maxReplicas=2", wish(&seen))), "{message}");
}

#[test]
fn what_is_seldom_meant_is_hinted_at_for_the_whole_fleet() {
    let mut seen = a_fleet(vec![a_variant("b", "10", 2), a_variant("a", "10", 2)], 0.4, 1.0);
    let told =
        |seen: &FleetSnapshot| hints(seen).into_iter().map(|hint| (hint.message, hint.variants)).collect::<Vec<_>>();
    let key = |name: &str| NamespacedName::new("team-a", name);
    let costs = "Warning: Multiple variants detected with some using default variantCost";
    assert_eq!(told(&seen), [(costs, vec![key("a"), key("b")])]);
    spec(&mut seen.variants[1]).variant_cost = "12".into();
    assert_eq!(told(&seen), [(costs, vec![key("b")])]);
    spec(&mut seen.variants[0]).variant_cost = "5".into();
    assert_eq!(told(&seen), []);
    seen.variants.iter_mut().for_each(|variant| spec(variant).min_replicas = 1);
    let minima = "Multiple variants with minReplicas > 0 may lead to unnecessary GPU utilization";
    assert_eq!(told(&seen), [(minima, vec![key("a"), key("b")])]);
    spec(&mut seen.variants[1]).model_id = "ibm/granite".into();
    assert_eq!(told(&seen), [], "of different models");
    seen.variants.truncate(1);
    spec(&mut seen.variants[0]).variant_cost = "10".into();
    assert_eq!(told(&seen), [], "alone it is compared with nothing");
}
