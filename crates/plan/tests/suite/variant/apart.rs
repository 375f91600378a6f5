//! Objects that take no part for a while, and their siblings.

use std::sync::Arc;

use steersman_plan::variant::{FleetSnapshot, MetricsError, event, plan};
use steersman_reconcile::{Lookup, NamespacedName};

use super::{NAMESPACE, a_fleet, a_variant, ago, decided, decision, now, replicas, spec, stored, the_model};

/// `dear` serves the model with two replicas, `cheap` is at rest.
fn a_pair() -> FleetSnapshot {
    a_fleet(vec![a_variant("dear", "20", 2), a_variant("cheap", "5", 0)], 0.5, 1.0)
}

fn store(seen: &mut FleetSnapshot) {
    let all = stored(seen);
    seen.variants.iter_mut().for_each(|variant| variant.status = all.get(&variant.key).cloned());
}

#[test]
fn nobody_is_started_for_a_variant_that_could_not_be_looked_at() {
    let mut seen = a_pair();
    assert_eq!(replicas(&seen, "cheap"), 0);
    store(&mut seen);
    seen.variants[0].target = Lookup::Unknown("forbidden".into());
    assert_eq!((replicas(&seen, "dear"), replicas(&seen, "cheap")), (2, 0));
    // Not even after an hour: its replicas are where they were.
    seen.now += jiff::SignedDuration::from_hours(1);
    assert_eq!(replicas(&seen, "cheap"), 0);
    seen.variants[0].status = Some(decided(0, "Earlier", ago(60)));
    assert_eq!(replicas(&seen, "cheap"), 1, "nothing ran there");
}

#[test]
fn a_workload_that_is_gone_is_awaited_for_a_while_and_then_replaced() {
    let mut seen = a_pair();
    store(&mut seen);
    seen.variants[0].target = Lookup::Known(None);
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    assert_eq!(replicas(&seen, "cheap"), 0, "it may be made anew");
    store(&mut seen);
    seen.now += jiff::SignedDuration::from_mins(9);
    assert_eq!(replicas(&seen, "cheap"), 0);
    seen.now += jiff::SignedDuration::from_mins(2);
    assert_eq!(replicas(&seen, "cheap"), 1, "the model is not to stay without any");
}

#[test]
fn a_number_from_before_a_conflict_is_not_published_after_it() {
    let old = a_variant("old", "5", 2);
    let mut young = a_variant("young", "5", 2);
    spec(&mut young).scale_target_ref = old.spec.scale_target_ref.clone();
    young.created = ago(1);
    young.status = Some(decided(9, "Long ago", ago(600)));
    let mut seen = a_fleet(vec![old], 0.5, 1.0);
    seen.variants.push(young);
    let mut suppressed = stored(&seen).remove(&NamespacedName::new(NAMESPACE, "young")).unwrap();
    assert_eq!(suppressed.desired_optimized_alloc, None, "another decides");
    // As an earlier version left it.
    let earlier = decided(9, "Long ago", ago(600)).desired_optimized_alloc.clone();
    Arc::make_mut(&mut suppressed).desired_optimized_alloc = earlier;
    seen.variants.remove(0);
    seen.variants[0].status = Some(suppressed);
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    let freed = decision(&seen, "young");
    assert_eq!(freed.replicas, Some(2), "what runs: {}", freed.reason);
    let status = stored(&seen).remove(&NamespacedName::new(NAMESPACE, "young")).unwrap();
    assert_eq!(event(&seen.variants[0], &freed, &status), None, "nothing was scaled");
    let desired = status.desired_optimized_alloc.clone().unwrap();
    assert_eq!((desired.num_replicas, desired.last_update.unwrap().update_time.unwrap().0), (Some(2), now()));
    seen.variants[0].status = Some(status);
    assert_eq!(plan(&seen).decisions[&seen.variants[0].key].replicas, Some(2), "from then on it is its own");
}
