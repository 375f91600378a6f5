//! What holds for every fleet.

mod fleets;
mod rest;

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use steersman_plan::variant::{
    DecisionKind, FleetSnapshot, MetricsError, ObservedTarget, ObservedVariant, PodMetrics, TargetName, plan,
};
use steersman_reconcile::{Lookup, NamespacedName};

use super::{ago, spec, stored};
use fleets::{bad, fleet, models, silence, spoil};

/// In an order that has nothing to do with what it holds.
fn shuffled<T: Clone>(all: &[T], order: &[u16]) -> Vec<T> {
    let mut places: Vec<usize> = (0..all.len()).collect();
    places.sort_by_key(|place| order[place % order.len()]);
    places.into_iter().map(|place| all[place].clone()).collect()
}

/// What may not be undercut where nothing is known: what runs, and what was decided before.
fn least(variant: &ObservedVariant) -> i32 {
    let decided = variant.previous().at.map_or(0, |_| variant.previous().replicas);
    variant.bounds().clamp(variant.current().unwrap_or_default().max(decided))
}

/// Takes from the model's metrics what the engine cannot do without: a figure of one replica that counts,
/// one replica, or all of them.
fn blind(
    seen: &mut FleetSnapshot,
    model: &NamespacedName,
    (pod, what, kind): (usize, usize, usize),
    silence: MetricsError,
) {
    let before = plan(seen);
    let counts = |one: &&ObservedVariant| {
        let standing = before.decisions.get(&one.key).map(|decision| &decision.kind);
        matches!(standing, Some(DecisionKind::Decided | DecisionKind::Held))
            && (&one.key.namespace, &one.spec.model_id) == (&model.namespace, &model.name)
    };
    let workload = |one: &ObservedVariant| TargetName::from(one.spec.scale_target_ref.as_ref().unwrap());
    let workloads: BTreeSet<TargetName> = seen.variants.iter().filter(counts).map(workload).collect();
    let tokens = seen.config.saturation.entries["default"].analyzer_name.is_some();
    let told = seen.models.get_mut(model).unwrap();
    let mut counted: Vec<&mut PodMetrics> =
        told.pods.iter_mut().flatten().filter(|pod| workloads.contains(&*pod.target)).collect();
    let known = counted.len();
    if known > 0 && what == 4 {
        let unmeasured = counted[pod % known].name.clone();
        told.pods.iter_mut().for_each(|pods| pods.retain(|pod| pod.name != unmeasured));
    } else if known > 0 && (tokens || what < 2) {
        spoil(counted[pod % known], what, kind);
    } else {
        told.pods = Err(silence);
    }
    told.requests = Lookup::Unknown("timeout".into());
}

/// Nobody asks for anything, and no bound and no setting stands against fewer replicas but that the model may not sleep.
fn rest(seen: &mut FleetSnapshot) {
    seen.variants.iter_mut().for_each(|variant| spec(variant).min_replicas = 0);
    seen.config.local_zero.clear();
    seen.config.zero.defaults.enabled = Some(false);
    for model in seen.models.values_mut() {
        model.queue = Lookup::Known(None);
        model.pods.iter_mut().flatten().for_each(|pod| (pod.kv, pod.queue) = (Some(0.0), Some(0.0)));
    }
}

proptest! {
    #[test]
    fn every_number_is_within_its_bounds(seen in fleet()) {
        let plan = plan(&seen);
        for variant in seen.variants.iter().filter(|variant| !variant.deleting) {
            let decision = &plan.decisions[&variant.key];
            match (decision.replicas, &decision.kind) {
                (Some(replicas), _) => {
                    // Read from the spec, so that a wrong `bounds` is noticed.
                    let most = variant.spec.max_replicas.filter(|max| *max >= 1).unwrap_or(i32::MAX);
                    let least = variant.spec.min_replicas.clamp(0, most);
                    prop_assert!((least..=most).contains(&replicas), "{}: {replicas}", variant.key);
                    prop_assert_eq!(decision.trace.granted, replicas, "{}", variant.key);
                }
                (None, DecisionKind::Suppressed) => {}
                (None, standing) => {
                    prop_assert!(matches!(standing, DecisionKind::Failed(_)), "{}: {standing:?}", variant.key);
                    prop_assert!(variant.previous().at.is_none(), "{} loses its number", variant.key);
                }
            }
        }
    }

    #[test]
    fn of_all_who_want_one_workload_one_decides(seen in fleet()) {
        let plan = plan(&seen);
        for variant in seen.variants.iter().filter(|variant| !variant.deleting) {
            let place = |one: &ObservedVariant| (one.key.namespace.clone(), one.spec.scale_target_ref.clone().unwrap().name);
            let rivals = seen.variants.iter().filter(|one| !one.deleting && place(one) == place(variant));
            let oldest = rivals.min_by(|a, b| (a.created, &a.key).cmp(&(b.created, &b.key))).unwrap();
            let suppressed = plan.decisions[&variant.key].kind == DecisionKind::Suppressed;
            prop_assert_eq!(suppressed, oldest.key != variant.key, "{}", variant.key);
        }
    }

    #[test]
    fn the_same_fleet_gets_the_same_answer_in_any_order(
        seen in fleet(),
        order in prop::collection::vec(any::<u16>(), 32),
    ) {
        let first = plan(&seen);
        prop_assert_eq!(&first, &plan(&seen.clone()));
        let mut turned = seen;
        turned.variants = shuffled(&turned.variants, &order);
        for model in turned.models.values_mut() {
            model.pods.iter_mut().for_each(|pods| *pods = shuffled(pods, &order));
        }
        prop_assert_eq!(first, plan(&turned));
    }

    #[test]
    fn what_is_not_known_lowers_nothing(
        mut seen in fleet(),
        model in 0..4usize,
        what in (0..24usize, 0..5usize, 0..4usize),
        silence in silence(),
    ) {
        let model = models().nth(model).unwrap();
        blind(&mut seen, &model, what, silence);
        seen.gpus = Lookup::Unknown("forbidden".into());
        let plan = plan(&seen);
        let own = |one: &&ObservedVariant| one.key.namespace == model.namespace && one.spec.model_id == model.name;
        for variant in seen.variants.iter().filter(own).filter(|one| !one.deleting) {
            let Some(replicas) = plan.decisions[&variant.key].replicas else { continue };
            prop_assert!(replicas >= least(variant), "{}: {replicas} of {}", variant.key, least(variant));
        }
    }

    #[test]
    fn a_pod_that_is_not_ready_and_empty_changes_nothing(seen in fleet(), count in 1..3usize) {
        let before = plan(&seen);
        let mut more = seen;
        for model in more.models.values_mut() {
            let Ok(pods) = &mut model.pods else { continue };
            let targets: BTreeSet<Arc<TargetName>> = pods.iter().map(|pod| pod.target.clone()).collect();
            for (target, number) in targets.into_iter().flat_map(|target| (0..count).map(move |it| (target.clone(), it))) {
                let (name, full) = (format!("{}-new-{number}", target.name), (Some(0.0), Some(0.0)));
                let (kv, queue) = full;
                pods.push(PodMetrics { name: name.into(), target, kv, queue, total_kv: Some(16_000), ..PodMetrics::default() });
            }
        }
        let after = plan(&more);
        for (key, was) in before.decisions {
            let is = &after.decisions[&key];
            prop_assert_eq!((was.replicas, &was.trace), (is.replicas, &is.trace), "{}", key);
        }
    }

    #[test]
    fn where_sleep_is_forbidden_somebody_who_serves_stays(mut seen in fleet(), idle in any::<bool>()) {
        if idle {
            rest(&mut seen);
        }
        let plan = plan(&seen);
        for model in models().filter(|model| !seen.config.zero(&model.namespace).enabled(&model.namespace, &model.name)) {
            let own = |one: &&ObservedVariant| (&one.key.namespace, &one.spec.model_id) == (&model.namespace, &model.name);
            let takes_part = |one: &&ObservedVariant| {
                let standing = plan.decisions.get(&one.key).map(|decision| &decision.kind);
                matches!(standing, Some(DecisionKind::Decided | DecisionKind::Held))
            };
            let serves = |one: &&ObservedVariant| {
                let target = one.target.known().and_then(Option::as_ref);
                target.is_some_and(|target| target.ready > 0)
            };
            let serving: Vec<_> = seen.variants.iter().filter(own).filter(takes_part).filter(serves).collect();
            let stays = serving.iter().any(|one| plan.decisions[&one.key].replicas > Some(0));
            prop_assert!(serving.is_empty() || stays, "{}", model);
        }
    }

    #[test]
    fn nobody_is_started_in_place_of_one_that_cannot_be_looked_at(mut seen in fleet(), at in any::<prop::sample::Index>()) {
        let lost = at.index(seen.variants.len());
        seen.variants[lost].target = Lookup::Unknown("forbidden".into());
        let lost = seen.variants[lost].clone();
        let plan = plan(&seen);
        let failed = plan.decisions.get(&lost.key).is_some_and(|one| matches!(one.kind, DecisionKind::Failed(_)));
        let ran = failed && lost.previous().at.is_some() && lost.previous().replicas > 0;
        for one in seen.variants.iter().filter(|one| ran && one.key.namespace == lost.key.namespace) {
            let Some(decision) = plan.decisions.get(&one.key).filter(|_| one.spec.model_id == lost.spec.model_id) else {
                continue;
            };
            prop_assert!(!decision.reason.contains("keeps 1 replica"), "{}: {}", one.key, decision.reason);
            prop_assert!(!decision.reason.contains("bootstrapping"), "{}: {}", one.key, decision.reason);
        }
    }

    #[test]
    fn one_bad_object_changes_no_other_answer(seen in fleet(), bad in bad()) {
        let (mut bad, contests) = bad;
        if contests {
            // It comes last to a workload that another one has.
            let Some(first) = seen.variants.iter().find(|one| !one.deleting) else { return Ok(()) };
            bad.key.namespace.clone_from(&first.key.namespace);
            spec(&mut bad).scale_target_ref.clone_from(&first.spec.scale_target_ref);
            bad.created = ago(0);
        }
        let before = plan(&seen);
        let mut worse = seen;
        worse.variants.insert(0, bad);
        let after = plan(&worse);
        for (key, was) in before.decisions {
            let is = &after.decisions[&key];
            prop_assert_eq!(
                (was.replicas, &was.reason, &was.trace, &was.kind, &was.metrics),
                (is.replicas, &is.reason, &is.trace, &is.kind, &is.metrics),
                "{}", key
            );
        }
    }

    #[test]
    fn a_status_that_was_stored_is_said_again_word_for_word(mut seen in fleet()) {
        seen.variants.retain(|variant| !variant.deleting);
        for (key, status) in stored(&seen) {
            let variant = seen.variants.iter_mut().find(|variant| variant.key == key).unwrap();
            let desired = status.desired_optimized_alloc.as_ref().and_then(|desired| desired.num_replicas);
            if let (Some(replicas), Lookup::Known(Some(_))) = (desired, &variant.target) {
                let target = ObservedTarget {
                    replicas: desired,
                    status_replicas: desired,
                    ready: replicas,
                    ..ObservedTarget::default()
                };
                variant.target = Lookup::Known(Some(target));
            }
            variant.status = Some(status);
        }
        // Nothing is known any more: whatever was decided stays. The first pass may still have something new to say of it.
        seen.models.clear();
        let mut last = stored(&seen);
        for pass in 0..3 {
            seen.variants.iter_mut().for_each(|variant| variant.status = last.get(&variant.key).cloned());
            seen.now += jiff::SignedDuration::from_mins(1);
            let said = stored(&seen);
            prop_assert!(pass == 0 || said == last, "{said:?}");
            last = said;
        }
    }
}
