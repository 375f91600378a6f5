//! What holds for every fleet.

mod fleets;
mod rest;

use std::collections::BTreeSet;

use proptest::prelude::*;
use steersman_plan::preflight::Answer;
use steersman_plan::variant::{Key, PodSeen, Seen, Silence, Standing, TargetSeen, VariantSeen, plan};

use super::{ago, stored};
use fleets::{bad, fleet, models, silence, spoil};

/// In an order that has nothing to do with what it holds.
fn shuffled<T: Clone>(all: &[T], order: &[u16]) -> Vec<T> {
    let mut places: Vec<usize> = (0..all.len()).collect();
    places.sort_by_key(|place| order[place % order.len()]);
    places.into_iter().map(|place| all[place].clone()).collect()
}

/// What may not be undercut where nothing is known: what runs, and what was decided before.
fn least(variant: &VariantSeen) -> i32 {
    let decided = variant.previous().at.map_or(0, |_| variant.previous().replicas);
    variant.bounds().clamp(variant.current().unwrap_or_default().max(decided))
}

/// Takes from the model's metrics what the engine cannot do without: a figure of one replica that counts,
/// one replica, or all of them.
fn blind(seen: &mut Seen, model: &Key, (pod, what, kind): (usize, usize, usize), silence: Silence) {
    let before = plan(seen);
    let counts = |one: &&VariantSeen| {
        let standing = before.decisions.get(&one.key).map(|decision| &decision.standing);
        matches!(standing, Some(Standing::Decided | Standing::Held))
            && (&one.key.namespace, &one.spec.model_id) == (&model.namespace, &model.name)
    };
    let workload = |one: &VariantSeen| one.spec.scale_target_ref.clone().unwrap().name;
    let workloads: BTreeSet<String> = seen.variants.iter().filter(counts).map(workload).collect();
    let tokens = seen.config.saturation.entries["default"].analyzer_name.is_some();
    let told = seen.models.get_mut(model).unwrap();
    let mut counted: Vec<&mut PodSeen> =
        told.pods.iter_mut().flatten().filter(|pod| workloads.contains(&pod.target)).collect();
    let known = counted.len();
    if known > 0 && what == 4 {
        let unmeasured = counted[pod % known].name.clone();
        told.pods.iter_mut().for_each(|pods| pods.retain(|pod| pod.name != unmeasured));
    } else if known > 0 && (tokens || what < 2) {
        spoil(counted[pod % known], what, kind);
    } else {
        told.pods = Err(silence);
    }
    told.requests = Answer::Unknown("timeout".into());
}

proptest! {
    #[test]
    fn every_number_is_within_its_bounds(seen in fleet()) {
        let plan = plan(&seen);
        for variant in seen.variants.iter().filter(|variant| !variant.deleting) {
            let decision = &plan.decisions[&variant.key];
            match (decision.replicas, &decision.standing) {
                (Some(replicas), _) => {
                    prop_assert!(variant.bounds().allow(replicas), "{}: {replicas}", variant.key);
                    prop_assert_eq!(decision.story.granted, replicas, "{}", variant.key);
                }
                (None, Standing::Suppressed) => {}
                (None, standing) => {
                    prop_assert!(matches!(standing, Standing::Failed(_)), "{}: {standing:?}", variant.key);
                    prop_assert!(variant.previous().at.is_none(), "{} loses its number", variant.key);
                }
            }
        }
    }

    #[test]
    fn of_all_who_want_one_workload_one_decides(seen in fleet()) {
        let plan = plan(&seen);
        for variant in seen.variants.iter().filter(|variant| !variant.deleting) {
            let place = |one: &VariantSeen| (one.key.namespace.clone(), one.spec.scale_target_ref.clone().unwrap().name);
            let rivals = seen.variants.iter().filter(|one| !one.deleting && place(one) == place(variant));
            let oldest = rivals.min_by(|a, b| (a.created, &a.key).cmp(&(b.created, &b.key))).unwrap();
            let suppressed = plan.decisions[&variant.key].standing == Standing::Suppressed;
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
        seen.gpus = Answer::Unknown("forbidden".into());
        let plan = plan(&seen);
        let own = |one: &&VariantSeen| one.key.namespace == model.namespace && one.spec.model_id == model.name;
        for variant in seen.variants.iter().filter(own).filter(|one| !one.deleting) {
            let Some(replicas) = plan.decisions[&variant.key].replicas else { continue };
            prop_assert!(replicas >= least(variant), "{}: {replicas} of {}", variant.key, least(variant));
        }
    }

    #[test]
    fn one_bad_object_changes_no_other_answer(seen in fleet(), bad in bad()) {
        let (mut bad, contests) = bad;
        if contests {
            // It comes last to a workload that another one has.
            let Some(first) = seen.variants.iter().find(|one| !one.deleting) else { return Ok(()) };
            bad.key.namespace.clone_from(&first.key.namespace);
            bad.spec.scale_target_ref.clone_from(&first.spec.scale_target_ref);
            bad.created = ago(0);
        }
        let before = plan(&seen);
        let mut worse = seen;
        worse.variants.insert(0, bad);
        let after = plan(&worse);
        for (key, was) in before.decisions {
            let is = &after.decisions[&key];
            prop_assert_eq!(
                (was.replicas, &was.reason, &was.story, &was.standing, &was.metrics),
                (is.replicas, &is.reason, &is.story, &is.standing, &is.metrics),
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
            if let (Some(replicas), Answer::Known(Some(_))) = (desired, &variant.target) {
                let target = TargetSeen {
                    replicas: desired,
                    status_replicas: desired,
                    ready: replicas,
                    ..TargetSeen::default()
                };
                variant.target = Answer::Known(Some(target));
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
