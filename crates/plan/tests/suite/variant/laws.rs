//! What holds for every fleet.

use proptest::prelude::*;
use steersman_plan::preflight::Answer;
use steersman_plan::variant::config::thresholds::Entry;
use steersman_plan::variant::config::zero::Level;
use steersman_plan::variant::saturation::tokens::SchedulerQueue;
use steersman_plan::variant::{Key, ModelSeen, PodSeen, Seen, Silence, TargetSeen, VariantSeen, plan};

use super::{NAMESPACE, a_fleet, a_variant, ago, decided, pods, stored, the_model};

const MODELS: [&str; 2] = ["meta/llama", "ibm/granite"];

fn variant() -> impl Strategy<Value = VariantSeen> {
    let bounds =
        (0..4i32, prop::option::of(0..6i32)).prop_map(|(min, more)| (min, more.map(|more| (min + more).max(1))));
    let before = prop::option::of((0..6i32, 0..30i64));
    (0..2usize, 0..3u32, 0..5i32, 0..3i32, bounds, before).prop_map(
        |(model, cost, replicas, pending, (min, max), before)| {
            let mut variant = a_variant("v", &(cost * 5).to_string(), replicas);
            variant.spec.model_id = MODELS[model].into();
            (variant.spec.min_replicas, variant.spec.max_replicas) = (min, max);
            variant.status = before.map(|(replicas, minutes)| decided(replicas, "Earlier", ago(minutes)));
            let ready = (replicas - pending).max(0);
            let target = TargetSeen {
                replicas: Some(replicas),
                status_replicas: Some(replicas),
                ready,
                ..TargetSeen::default()
            };
            variant.target = Answer::Known(Some(target));
            variant
        },
    )
}

fn load() -> impl Strategy<Value = (Option<f64>, Option<f64>)> {
    let known = |most: f64| prop_oneof![9 => (0.0..most).prop_map(Some), 1 => Just(None)];
    (known(1.0), known(9.0))
}

/// Any fleet of two models, most of it known.
fn fleet() -> impl Strategy<Value = Seen> {
    let variants = prop::collection::vec(variant(), 1..6);
    let loads = prop::collection::vec(load(), 24);
    let silence = prop::option::weighted(
        0.2,
        prop_oneof![
            Just(Silence::Missing),
            Just(Silence::Stale("6m0s".into())),
            Just(Silence::Failed("timeout".into()))
        ],
    );
    let requests =
        prop_oneof![Just(Answer::Known(0.0)), Just(Answer::Known(3.0)), Just(Answer::Unknown("timeout".into()))];
    let queue = prop::option::weighted(0.3, (0.0..50.0).prop_map(|requests| SchedulerQueue { requests, bytes: 0.0 }));
    let gpus = prop_oneof![
        Just(Answer::Unknown("forbidden".into())),
        (0..12i32).prop_map(|count| Answer::Known([("H100".to_owned(), count)].into()))
    ];
    (variants, loads, silence, requests, queue, gpus, any::<[bool; 3]>()).prop_map(
        |(mut variants, loads, silence, requests, queue, gpus, [tokens, zero, limiter])| {
            for (number, variant) in variants.iter_mut().enumerate() {
                variant.key = Key::new(NAMESPACE, &format!("v{number}"));
                variant.spec.scale_target_ref.as_mut().unwrap().name = format!("v{number}-decode");
            }
            let mut seen = a_fleet(vec![], 0.0, 0.0);
            seen.models.clear();
            for model in MODELS {
                let own: Vec<VariantSeen> = variants.iter().filter(|one| one.spec.model_id == model).cloned().collect();
                let mut pods = pods(&own, 0.0, 0.0);
                pods.iter_mut()
                    .zip(loads.iter().cycle())
                    .for_each(|(pod, (kv, queue))| (pod.kv, pod.queue) = (*kv, *queue));
                let silent = silence.clone().filter(|_| model == MODELS[0]);
                let pods = silent.map_or(Ok(pods), Err);
                let told = ModelSeen { pods, requests: requests.clone(), queue: Answer::Known(queue) };
                seen.models.insert(Key::new(NAMESPACE, model), told);
            }
            seen.variants = variants;
            seen.gpus = gpus;
            seen.config.zero.defaults = Level { enabled: Some(zero), retention: None };
            let analyzer_name = tokens.then(|| "saturation".to_owned());
            let entry = Entry { analyzer_name, enable_limiter: Some(limiter), ..Entry::default() };
            seen.config.saturation.entries.insert("default".into(), entry);
            seen
        },
    )
}

/// An object that cannot be decided, or that is no business of the others.
fn bad() -> impl Strategy<Value = VariantSeen> {
    (0..5usize).prop_map(|kind| {
        let mut bad = a_variant("a-bad-one", "0", 3);
        match kind {
            0 => bad.spec.model_id.clear(),
            1 => bad.target = Answer::Known(None),
            2 => bad.target = Answer::Unknown("forbidden".into()),
            3 => {
                bad.spec.model_id = "a-model/nobody-knows".into();
                // What it runs on is taken, which is the business of all who want the same accelerators.
                bad.spec.accelerator = Some("L40S".into());
            }
            _ => {
                bad.created = ago(1);
                bad.spec.scale_target_ref.as_mut().unwrap().name = "v0-decode".into();
            }
        }
        bad
    })
}

/// Pods that share a load that does not change, as a fair router would.
fn share(seen: &mut Seen, kv: f64, queue: f64) {
    let mut pods = pods(&seen.variants, 0.0, 0.0);
    let count = f64::from(u32::try_from(pods.len()).unwrap().max(1));
    let of = |pod: &mut PodSeen| (pod.kv, pod.queue) = (Some((kv / count).min(1.0)), Some(queue / count));
    pods.iter_mut().for_each(of);
    the_model(seen).pods = Ok(pods);
}

proptest! {
    #[test]
    fn every_number_is_within_its_bounds(seen in fleet()) {
        let plan = plan(&seen);
        for variant in &seen.variants {
            let replicas = plan.decisions[&variant.key].replicas.unwrap();
            prop_assert!(variant.bounds().allow(replicas), "{}: {replicas}", variant.key);
        }
    }

    #[test]
    fn the_same_fleet_gets_the_same_answer_in_any_order(seen in fleet()) {
        let first = plan(&seen);
        prop_assert_eq!(&first, &plan(&seen.clone()));
        let mut turned = seen;
        turned.variants.reverse();
        for model in turned.models.values_mut() {
            model.pods.iter_mut().for_each(|pods| pods.reverse());
        }
        prop_assert_eq!(first, plan(&turned));
    }

    #[test]
    fn what_is_not_known_lowers_nothing(mut seen in fleet(), pod in any::<prop::sample::Index>(), silent in any::<bool>()) {
        let model = seen.models.get_mut(&Key::new(NAMESPACE, MODELS[0])).unwrap();
        match model.pods.as_mut() {
            Ok(pods) if !silent && !pods.is_empty() => {
                let at = pod.index(pods.len());
                pods[at].kv = None;
            }
            _ => model.pods = Err(Silence::Missing),
        }
        seen.gpus = Answer::Unknown("forbidden".into());
        model.requests = Answer::Unknown("timeout".into());
        let plan = plan(&seen);
        for variant in seen.variants.iter().filter(|variant| variant.spec.model_id == MODELS[0]) {
            let decided = variant.previous().at.map_or(0, |_| variant.previous().replicas);
            let least = variant.bounds().clamp(variant.current().unwrap().max(decided));
            let replicas = plan.decisions[&variant.key].replicas.unwrap();
            prop_assert!(replicas >= least, "{}: {replicas} of {least}", variant.key);
        }
    }

    #[test]
    fn one_bad_object_changes_no_other_answer(seen in fleet(), bad in bad()) {
        let before = plan(&seen);
        let mut worse = seen;
        worse.variants.insert(0, bad);
        let after = plan(&worse);
        for (key, was) in before.decisions {
            let is = &after.decisions[&key];
            prop_assert_eq!((was.replicas, &was.reason, &was.story), (is.replicas, &is.reason, &is.story), "{}", key);
        }
    }

    #[test]
    fn a_model_under_constant_load_comes_to_rest(
        costs in prop::collection::vec((0..4u32, 0..3i32, prop::option::of(3..9i32), 1..8i32), 1..4),
        kv in 0.0..12.0f64,
        queue in 0.0..20.0f64,
        tokens in any::<bool>(),
    ) {
        let variants = costs.iter().enumerate().map(|(number, (cost, min, max, replicas))| {
            let mut variant = a_variant(&format!("v{number}"), &(cost * 5 + 1).to_string(), *replicas);
            (variant.spec.min_replicas, variant.spec.max_replicas) = (*min, *max);
            variant
        });
        let mut seen = a_fleet(variants.collect(), 0.0, 0.0);
        if tokens {
            super::by_tokens(&mut seen);
        }
        let mut last = Vec::new();
        for round in 0..60 {
            share(&mut seen, kv, if tokens { 0.0 } else { queue });
            let plan = plan(&seen);
            let statuses = stored(&seen);
            let numbers: Vec<i32> = seen.variants.iter().map(|one| plan.decisions[&one.key].replicas.unwrap()).collect();
            prop_assert!(round < 45 || numbers == last, "round {round}: {last:?}, then {numbers:?}");
            for (variant, replicas) in seen.variants.iter_mut().zip(&numbers) {
                variant.status = statuses.get(&variant.key).cloned();
                let target = TargetSeen { replicas: Some(*replicas), status_replicas: Some(*replicas), ready: *replicas, ..TargetSeen::default() };
                variant.target = Answer::Known(Some(target));
            }
            seen.memory = plan.memory;
            seen.now += jiff::SignedDuration::from_mins(1);
            last = numbers;
        }
    }

    #[test]
    fn a_status_that_was_stored_is_said_again_word_for_word(mut seen in fleet()) {
        for (key, status) in stored(&seen) {
            let variant = seen.variants.iter_mut().find(|variant| variant.key == key).unwrap();
            let replicas = status.desired_optimized_alloc.as_ref().unwrap().num_replicas;
            let target = TargetSeen { replicas, status_replicas: replicas, ready: replicas.unwrap(), ..TargetSeen::default() };
            variant.target = Answer::Known(Some(target));
            variant.status = Some(status);
        }
        // Nothing is known any more: whatever was decided stays.
        seen.models.clear();
        let first = stored(&seen);
        seen.variants.iter_mut().for_each(|variant| variant.status = first.get(&variant.key).cloned());
        seen.now += jiff::SignedDuration::from_mins(1);
        prop_assert_eq!(first, stored(&seen));
    }
}
