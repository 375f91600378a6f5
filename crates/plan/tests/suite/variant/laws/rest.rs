//! A load that does not change, and pods that take their time to start: numbers come to rest and stay there, and so does what
//! is said of them.

use std::collections::VecDeque;

use jiff::SignedDuration;
use proptest::prelude::*;
use steersman_plan::variant::config::thresholds::SaturationEntry;
use steersman_plan::variant::config::zero::Level;
use steersman_plan::variant::{FleetSnapshot, ObservedTarget, ObservedVariant, PodMetrics, plan};
use steersman_reconcile::Lookup;

use super::super::{a_fleet, a_variant, pods, spec, stored, the_model};

/// Pods that share a load that does not change, as a fair router would.
fn share(seen: &mut FleetSnapshot, kv: f64, queue: f64) {
    let mut pods = pods(&seen.variants, 0.0, 0.0);
    let count = f64::from(u32::try_from(pods.len()).unwrap().max(1));
    let of = |pod: &mut PodMetrics| (pod.kv, pod.queue) = (Some((kv / count).min(1.0)), Some(queue / count));
    pods.iter_mut().for_each(of);
    the_model(seen).pods = Ok(pods);
}

/// Workloads that have the number at once, and the replicas once they have started.
struct Followers {
    delay: usize,
    history: Vec<VecDeque<i32>>,
}

impl Followers {
    fn new(variants: &[ObservedVariant], delay: usize) -> Self {
        let history = variants.iter().map(|one| VecDeque::from(vec![one.current().unwrap(); delay + 1])).collect();
        Self { delay, history }
    }

    fn follow(&mut self, at: usize, replicas: i32) -> ObservedTarget {
        let history = &mut self.history[at];
        history.push_back(replicas);
        while history.len() > self.delay + 1 {
            history.pop_front();
        }
        let ready = history.iter().copied().min().unwrap_or(replicas);
        ObservedTarget {
            replicas: Some(replicas),
            status_replicas: Some(replicas),
            ready,
            gpus: 1,
            ..ObservedTarget::default()
        }
    }
}

#[derive(Clone, Debug)]
struct Scene {
    /// Price, bounds and replicas at the beginning.
    variants: Vec<(u32, i32, Option<i32>, i32)>,
    kv: f64,
    queue: f64,
    /// Passes that a pod takes to start.
    delay: usize,
    tokens: bool,
    zero: bool,
    /// Accelerators, where they are limited.
    gpus: Option<i32>,
}

fn scene() -> impl Strategy<Value = Scene> {
    let variants = prop::collection::vec((0..4u32, 0..3i32, prop::option::of(3..9i32), 1..8i32), 1..4);
    let load = prop_oneof![4 => (0.0..12.0f64, 0.0..20.0f64), 1 => Just((0.0, 0.0))];
    let gpus = prop::option::weighted(0.3, 4..20i32);
    (variants, load, 0..4usize, any::<[bool; 2]>(), gpus).prop_map(|(variants, (kv, queue), delay, switches, gpus)| {
        let [tokens, zero] = switches;
        Scene { variants, kv, queue, delay, tokens, zero, gpus }
    })
}

impl Scene {
    fn fleet(&self) -> FleetSnapshot {
        let variants = self.variants.iter().enumerate().map(|(number, (cost, min, max, replicas))| {
            let mut variant = a_variant(&format!("v{number}"), &(cost * 5 + 1).to_string(), *replicas);
            (spec(&mut variant).min_replicas, spec(&mut variant).max_replicas) = (*min, *max);
            variant
        });
        let mut seen = a_fleet(variants.collect(), 0.0, 0.0);
        let analyzer_name = self.tokens.then(|| "saturation".to_owned());
        let entry =
            SaturationEntry { analyzer_name, enable_limiter: Some(self.gpus.is_some()), ..SaturationEntry::default() };
        seen.config.saturation.entries.insert("default".into(), entry);
        seen.config.zero.defaults = Level { enabled: Some(self.zero), retention: None };
        seen.gpus = Lookup::Known([("H100".to_owned(), self.gpus.unwrap_or_default())].into());
        if self.kv + self.queue == 0.0 {
            the_model(&mut seen).requests = Lookup::Known(0.0);
        }
        seen
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn a_model_under_constant_load_comes_to_rest(scene in scene()) {
        let mut seen = scene.fleet();
        let mut followers = Followers::new(&seen.variants, scene.delay);
        let mut last = Vec::new();
        let rest = 40 + 30 * scene.delay;
        for round in 0..rest + 20 {
            // The engine that counts tokens learns from queues how much a replica can take, which is not the same load any more.
            share(&mut seen, scene.kv, if scene.tokens { 0.0 } else { scene.queue });
            let plan = plan(&seen);
            let statuses = stored(&seen);
            let numbers: Vec<i32> = seen.variants.iter().map(|one| plan.decisions[&one.key].replicas.unwrap()).collect();
            prop_assert!(round < rest || numbers == last, "round {round}: {last:?}, then {numbers:?}");
            for (at, (variant, replicas)) in seen.variants.iter_mut().zip(&numbers).enumerate() {
                let status = statuses.get(&variant.key).cloned();
                prop_assert!(round <= rest || status == variant.status, "{}: {status:?}", variant.key);
                variant.status = status;
                variant.target = Lookup::Known(Some(followers.follow(at, *replicas)));
            }
            seen.memory = plan.memory;
            seen.now += SignedDuration::from_mins(1);
            last = numbers;
        }
    }
}
