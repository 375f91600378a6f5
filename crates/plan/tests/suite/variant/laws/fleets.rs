//! Any fleet: two namespaces with objects and models of the same names, most of it known, some of it wrong.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use proptest::prelude::*;
use steersman_plan::variant::SchedulerQueue;
use steersman_plan::variant::config::thresholds::SaturationEntry;
use steersman_plan::variant::config::zero::{Level, ScaleToZeroConfig};
use steersman_plan::variant::{FleetSnapshot, MetricsError, ModelMetrics, ObservedTarget, ObservedVariant, PodMetrics};
use steersman_reconcile::{Lookup, NamespacedName};

use super::super::{a_fleet, a_variant, ago, decided, pods, spec};

pub const NAMESPACES: [&str; 2] = ["team-a", "team-b"];
pub const MODELS: [&str; 2] = ["meta/llama", "ibm/granite"];

/// No measurement.
pub const GARBAGE: [Option<f64>; 4] = [None, Some(f64::NAN), Some(f64::INFINITY), Some(-1.0)];

pub fn silence() -> impl Strategy<Value = MetricsError> {
    prop_oneof![
        Just(MetricsError::NotFound),
        Just(MetricsError::Stale("6m0s".into())),
        Just(MetricsError::QueryFailed("timeout".into())),
        Just(MetricsError::NotConfigured("set an address".into())),
    ]
}

fn target() -> impl Strategy<Value = Lookup<Option<ObservedTarget>>> {
    let known = (prop::option::weighted(0.9, 0..5i32), 0..3i32, any::<bool>(), 1..3i32).prop_map(
        |(replicas, pending, told, gpus)| {
            let asked = replicas.unwrap_or(1);
            let ready = (asked - pending).max(0);
            let status_replicas = told.then_some(asked);
            Lookup::Known(Some(ObservedTarget { replicas, status_replicas, ready, gpus, ..ObservedTarget::default() }))
        },
    );
    prop_oneof![10 => known, 1 => Just(Lookup::Known(None)), 1 => Just(Lookup::Unknown("forbidden".into()))]
}

/// With whether it wants the workload of the first of its namespace.
fn variant() -> impl Strategy<Value = (ObservedVariant, bool)> {
    let bounds =
        (0..4i32, prop::option::of(0..6i32)).prop_map(|(min, more)| (min, more.map(|more| (min + more).max(1))));
    let before = prop::option::of((0..6i32, 0..30i64));
    let place = (0..2usize, 0..2usize, prop::sample::select(vec![None, Some("H100"), Some("L40S")]));
    let odd = (prop::bool::weighted(0.15), prop::bool::weighted(0.05), 60..200i64);
    (place, 0..3u32, target(), bounds, before, odd).prop_map(
        |((namespace, model, accelerator), cost, target, (min, max), before, (twin, deleting, age))| {
            let mut variant = a_variant("v", &(cost * 5).to_string(), 0);
            variant.key.namespace = NAMESPACES[namespace].into();
            spec(&mut variant).model_id = MODELS[model].into();
            spec(&mut variant).accelerator = accelerator.map(str::to_owned);
            (spec(&mut variant).min_replicas, spec(&mut variant).max_replicas) = (min, max);
            variant.status = before.map(|(replicas, minutes)| decided(replicas, "Earlier", ago(minutes)));
            variant.target = target;
            (variant.deleting, variant.created) = (deleting, ago(age));
            (variant, twin)
        },
    )
}

/// Of the same names in each namespace; all who want one workload see it alike.
fn named(given: Vec<(ObservedVariant, bool)>) -> Vec<ObservedVariant> {
    let mut workloads: BTreeMap<String, Vec<Lookup<Option<ObservedTarget>>>> = BTreeMap::new();
    let name = |(mut variant, twin): (ObservedVariant, bool)| {
        let workloads = workloads.entry(variant.key.namespace.clone()).or_default();
        variant.key.name = format!("v{}", workloads.len());
        workloads.push(variant.target);
        let workload = if twin { 0 } else { workloads.len() - 1 };
        variant.target = workloads[workload].clone();
        spec(&mut variant).scale_target_ref.as_mut().unwrap().name = format!("v{workload}-decode");
        variant
    };
    given.into_iter().map(name).collect()
}

/// The pods of a model, each once, also where several objects want the same workload.
fn pods_of(variants: &[ObservedVariant], model: &NamespacedName, loads: &[(f64, f64)]) -> Vec<PodMetrics> {
    let runs = |one: &&ObservedVariant| one.target.known().is_some_and(Option::is_some);
    let own = |one: &&ObservedVariant| one.key.namespace == model.namespace && one.spec.model_id == model.name;
    let own: Vec<ObservedVariant> = variants.iter().filter(own).filter(runs).cloned().collect();
    let mut names = BTreeSet::new();
    let mut pods = pods(&own, 0.0, 0.0);
    pods.retain(|pod| names.insert(pod.name.clone()));
    for (pod, (kv, queue)) in pods.iter_mut().zip(loads.iter().cycle()) {
        (pod.kv, pod.queue) = (Some(*kv), Some(*queue));
    }
    pods
}

pub fn models() -> impl Iterator<Item = NamespacedName> {
    NAMESPACES.into_iter().flat_map(|namespace| MODELS.map(|model| NamespacedName::new(namespace, model)))
}

pub fn fleet() -> impl Strategy<Value = FleetSnapshot> {
    let variants = prop::collection::vec(variant(), 1..7).prop_map(named);
    let loads = prop::collection::vec((0.0..1.0f64, 0.0..9.0f64), 24);
    let silences = prop::collection::vec(prop::option::weighted(0.15, silence()), 4);
    // What one pod of each model lacks, if any.
    let lacks = prop::collection::vec(prop::option::weighted(0.2, (0..5usize, 0..4usize)), 4);
    let requests = prop_oneof![
        2 => Just(Lookup::Known(0.0)),
        2 => Just(Lookup::Known(3.0)),
        1 => Just(Lookup::Known(f64::NAN)),
        1 => Just(Lookup::Unknown("timeout".into())),
    ];
    let waiting = (0.0..50.0).prop_map(|requests| Lookup::Known(Some(SchedulerQueue { requests, bytes: 0.0 })));
    let queue = prop_oneof![4 => Just(Lookup::Known(None)), 2 => waiting, 1 => Just(Lookup::Unknown("timeout".into()))];
    let counted = (0..12i32, 0..4i32)
        .prop_map(|(many, few)| Lookup::Known([("H100".to_owned(), many), ("L40S".to_owned(), few)].into()));
    let gpus = prop_oneof![1 => Just(Lookup::Unknown("forbidden".into())), 2 => counted];
    let switches = (any::<[bool; 4]>(), prop::option::of(any::<bool>()), prop::sample::select(vec![0i64, 10]));
    (variants, loads, silences, lacks, requests, queue, gpus, switches).prop_map(
        |(
            variants,
            loads,
            silences,
            lacks,
            requests,
            queue,
            gpus,
            ([tokens, zero, limiter, counted], elsewhere, settle),
        )| {
            let mut seen = a_fleet(vec![], 0.0, 0.0);
            seen.models.clear();
            for (model, (silent, lack)) in models().zip(silences.into_iter().zip(lacks)) {
                let mut pods = pods_of(&variants, &model, &loads);
                if counted {
                    pods.iter_mut().for_each(count_requests);
                }
                match (lack, pods.first_mut()) {
                    // Each workload has a replica without metrics.
                    (Some((4, _)), _) => pods.retain(|pod| !pod.name.ends_with("-0")),
                    (Some((what, kind)), Some(pod)) => spoil(pod, what, kind),
                    _ => {}
                }
                let pods = silent.map_or(Ok(pods), Err);
                seen.models.insert(model, ModelMetrics { pods, requests: requests.clone(), queue: queue.clone() });
            }
            (seen.variants, seen.gpus) = (variants, gpus);
            seen.settings.settle = SignedDuration::from_mins(settle);
            seen.config.zero.defaults = Level { enabled: Some(zero), retention: None };
            if let Some(enabled) = elsewhere {
                let defaults = Level { enabled: Some(enabled), retention: None };
                seen.config
                    .local_zero
                    .insert(NAMESPACES[1].into(), ScaleToZeroConfig { defaults, ..ScaleToZeroConfig::default() });
            }
            let analyzer_name = tokens.then(|| "saturation".to_owned());
            let entry = SaturationEntry { analyzer_name, enable_limiter: Some(limiter), ..SaturationEntry::default() };
            seen.config.saturation.entries.insert("default".into(), entry);
            seen
        },
    )
}

/// Adds what the default engine computes the request rate from.
fn count_requests(pod: &mut PodMetrics) {
    (pod.waiting, pod.running, pod.completed) = (pod.queue.map(f64::floor), Some(4.0), Some(90.0));
    pod.completed_per_second = Some(0.5);
}

/// Takes one figure from a pod; the last two only the engine that counts tokens needs.
pub fn spoil(pod: &mut PodMetrics, what: usize, kind: usize) {
    match what {
        0 => pod.kv = GARBAGE[kind],
        1 => (pod.queue, pod.waiting) = (GARBAGE[kind], GARBAGE[kind]),
        2 => pod.total_kv = [None, Some(0), Some(-1), None][kind],
        _ => (pod.input, pod.queue) = (GARBAGE[kind], Some(2.0)),
    }
}

/// An object that cannot be decided, or that is no business of the others.
pub fn bad() -> impl Strategy<Value = (ObservedVariant, bool)> {
    (0..8usize).prop_map(|kind| {
        let mut bad = a_variant("a-bad-one", "0", 3);
        // What it runs on is taken, which is the business of all who want the same accelerators.
        spec(&mut bad).accelerator = Some("MI300X".into());
        match kind {
            0 => spec(&mut bad).model_id.clear(),
            // An object with a number may run, so no other is started in its place.
            1 => (bad.target, bad.status) = (Lookup::Known(None), None),
            2 => (bad.target, bad.status) = (Lookup::Unknown("forbidden".into()), None),
            3 => spec(&mut bad).model_id = "a-model/nobody-knows".into(),
            4 => bad.deleting = true,
            5 => {
                bad.key = NamespacedName::new("team-c", "v0");
                spec(&mut bad).scale_target_ref.as_mut().unwrap().name = "v0-decode".into();
            }
            6 => {
                spec(&mut bad).scale_target_ref = None;
                // An object without a workload has no target to read.
                (bad.target, bad.status) = (Lookup::Known(None), None);
            }
            _ => {}
        }
        (bad, kind == 7)
    })
}
