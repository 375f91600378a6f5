//! Decisions of the queueing engine: latency targets, profiles, prices and priorities.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::json;
use steersman_api::variant::v1alpha1::{DecisionStatus, SloClassRef};
use steersman_plan::variant::analyze::queueing::{LatencyTargets, Profile, RequestShape};
use steersman_plan::variant::config::classes::{Class, Target};
use steersman_plan::variant::gpu_limit::{GpuRequest, limit};
use steersman_plan::variant::{Decision, DecisionKind, FactorCode, FleetSnapshot, MetricsState, ObservedVariant, plan};
use steersman_reconcile::{Lookup, NamespacedName};

use super::{MODEL, NAMESPACE, a_fleet, a_variant, pods, spec, stored, target, the_model};

const INTERVAL_SECONDS: i64 = 30;
const SHAPE: RequestShape = RequestShape { input: 256.0, output: 128.0 };
const TTFT: f64 = 500.0;
const TPOT: f64 = 24.0;

/// Service times of a replica in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Speed {
    alpha: f64,
    beta: f64,
    gamma: f64,
    delta: f64,
    batch: i64,
}

const FAST: Speed = Speed { alpha: 7.0, beta: 0.1, gamma: 5.0, delta: 0.02, batch: 32 };
const SLOW: Speed = Speed { alpha: 12.0, beta: 0.3, gamma: 9.0, delta: 0.05, batch: 16 };

fn profiled(name: &str, cost: &str, replicas: i32, speed: Speed) -> ObservedVariant {
    let mut variant = a_variant(name, cost, replicas);
    let Speed { alpha, beta, gamma, delta, batch } = speed;
    let profile = json!({
        "maxBatchSize": batch,
        "perfParms": {
            "decodeParms": { "alpha": alpha.to_string(), "beta": beta.to_string() },
            "prefillParms": { "gamma": gamma.to_string(), "delta": delta.to_string() },
        },
    });
    spec(&mut variant).variant_profile = Some(serde_json::from_value(profile).unwrap());
    variant
}

/// Requests per second that a replica serves within the targets.
fn rate_of(variant: &ObservedVariant, ttft: f64, tpot: f64) -> f64 {
    let profile = Profile::read(variant.spec.variant_profile.as_ref().unwrap()).unwrap();
    let targets = LatencyTargets { ttft_ms: Some(ttft), itl_ms: Some(tpot), tps: None };
    profile.server(SHAPE).unwrap().size(&targets).unwrap().throughput
}

fn add_class(seen: &mut FleetSnapshot, key: &str, priority: i64, model: &str, (ttft, tpot): (f64, f64)) {
    let target = Target { namespace: String::new(), model: model.to_owned(), tpot, ttft };
    let class = Class { name: key.to_owned(), priority, data: vec![target] };
    seen.config.classes.by_key.insert(key.to_owned(), class);
}

/// A fleet whose workloads follow each decision at once, under a load that all pods share.
struct Fleet {
    seen: FleetSnapshot,
    completed: BTreeMap<Arc<str>, f64>,
    latency: (f64, f64),
}

impl Fleet {
    fn new(variants: Vec<ObservedVariant>) -> Self {
        let mut seen = a_fleet(variants, 0.2, 0.0);
        // No engine is selected.
        seen.config.saturation.entries.clear();
        add_class(&mut seen, "premium.yaml", 1, MODEL, (TTFT, TPOT));
        let mut fleet = Self { seen, completed: BTreeMap::new(), latency: (0.1, 0.01) };
        fleet.measure(0.0);
        fleet
    }

    fn measure(&mut self, rate: f64) {
        let mut pods = pods(&self.seen.variants, 0.2, 0.0);
        let share = rate / f64::from(u32::try_from(pods.len().max(1)).unwrap());
        for pod in &mut pods {
            let completed = self.completed.entry(pod.name.clone()).or_default();
            *completed += share * f64::from(i32::try_from(INTERVAL_SECONDS).unwrap());
            pod.completed = Some(*completed);
            pod.completed_per_second = Some(share);
            (pod.waiting, pod.running) = (Some(0.0), Some(0.0));
            (pod.input, pod.output) = (Some(SHAPE.input), Some(SHAPE.output));
            (pod.ttft_seconds, pod.itl_seconds) = (Some(self.latency.0), Some(self.latency.1));
        }
        self.completed.retain(|name, _| pods.iter().any(|pod| pod.name == *name));
        the_model(&mut self.seen).pods = Ok(pods);
    }

    /// Decides, lets the workloads follow, and passes the time until the next reconcile under this load.
    fn step(&mut self, rate: f64) -> BTreeMap<String, Decision> {
        let all = stored(&self.seen);
        let plan = plan(&self.seen);
        self.seen.memory = plan.memory;
        for variant in &mut self.seen.variants {
            variant.status = all.get(&variant.key).cloned();
            let replicas = plan.decisions[&variant.key].replicas;
            if let Lookup::Known(Some(target)) = &mut variant.target {
                let replicas = replicas.unwrap_or_default();
                (target.replicas, target.status_replicas, target.ready) = (Some(replicas), Some(replicas), replicas);
            }
        }
        self.seen.now += SignedDuration::from_secs(INTERVAL_SECONDS);
        self.measure(rate);
        plan.decisions.into_iter().map(|(key, decision)| (key.name, decision)).collect()
    }

    /// Repeats the load until the numbers are settled: longer than the stabilization window.
    fn settle(&mut self, rate: f64) -> BTreeMap<String, Decision> {
        (0..40).for_each(|_| drop(self.step(rate)));
        self.step(rate)
    }

    fn replicas(&self) -> Vec<i32> {
        self.seen.variants.iter().map(|variant| variant.current().unwrap()).collect()
    }

    fn capacity(&self, ttft: f64, tpot: f64) -> f64 {
        self.seen.variants.iter().map(|one| f64::from(one.current().unwrap()) * rate_of(one, ttft, tpot)).sum()
    }

    fn status(&self, name: &str) -> DecisionStatus {
        let all = stored(&self.seen);
        all[&NamespacedName::new(NAMESPACE, name)].decision.clone().unwrap()
    }
}

fn spec_reason(fleet: &Fleet, name: &str) -> Vec<&'static str> {
    let decisions = plan(&fleet.seen).decisions;
    decisions[&NamespacedName::new(NAMESPACE, name)].findings.iter().map(|finding| finding.reason).collect()
}

#[test]
fn wva_28_replicas_meet_latency_targets() {
    let mut fleet = Fleet::new(vec![profiled("v", "5", 1, FAST)]);
    let rate = rate_of(&fleet.seen.variants[0], TTFT, TPOT);
    let decisions = fleet.settle(rate * 2.5);
    assert_eq!(fleet.replicas(), [3]);
    let alloc = stored(&fleet.seen).into_values().next().unwrap().desired_optimized_alloc.clone().unwrap();
    let reason = "Optimizer solution: cost and latency optimized allocation";
    assert_eq!(alloc.last_update.unwrap().reason.as_deref(), Some(reason));
    let level = decisions["v"].service_level.clone().unwrap();
    assert!(level.predicted.ttft.unwrap() <= TTFT && level.predicted.itl.unwrap() <= TPOT, "{level:?}");
    let is_near = |latency: Option<f64>, expected: f64| (latency.unwrap() - expected).abs() < 1e-9;
    assert!(is_near(level.measured.ttft, 100.0) && is_near(level.measured.itl, 10.0), "{level:?}");
    assert!(spec_reason(&fleet, "v").is_empty());
}

#[test]
fn wva_28_variants_share_the_load() {
    let mut fleet = Fleet::new(vec![profiled("a", "5", 1, FAST), profiled("b", "5", 1, FAST)]);
    let rate = rate_of(&fleet.seen.variants[0], TTFT, TPOT);
    fleet.settle(rate * 3.5);
    assert_eq!(fleet.replicas().iter().sum::<i32>(), 4);
}

#[test]
fn load_moves_to_cheaper_variant_and_back() {
    let mut fleet = Fleet::new(vec![profiled("a", "40", 4, FAST), profiled("b", "10", 0, FAST)]);
    let rate = rate_of(&fleet.seen.variants[0], TTFT, TPOT);
    fleet.settle(rate * 2.5);
    assert_eq!(fleet.replicas(), [0, 3]);
    spec(&mut fleet.seen.variants[1]).variant_cost = "90".into();
    fleet.settle(rate * 2.5);
    assert_eq!(fleet.replicas(), [3, 0]);
}

#[test]
fn replaced_replicas_stay_until_others_are_ready() {
    let mut fleet = Fleet::new(vec![profiled("a", "40", 3, FAST), profiled("b", "10", 0, FAST)]);
    let rate = rate_of(&fleet.seen.variants[0], TTFT, TPOT);
    for _ in 0..30 {
        fleet.step(rate * 2.5);
        let ready = fleet.replicas();
        if ready[1] > 0 {
            break;
        }
    }
    assert_eq!(fleet.replicas(), [3, 3]);
    for replica in [0, 1, 2] {
        target(&mut fleet.seen, 1).ready = replica;
        fleet.measure(rate * 2.5);
        assert_eq!(plan(&fleet.seen).decisions[&NamespacedName::new(NAMESPACE, "a")].replicas, Some(3), "{replica}");
    }
}

#[test]
fn constant_load_keeps_number() {
    let variants = || vec![profiled("a", "20", 1, FAST), profiled("b", "11", 1, SLOW)];
    let rate = rate_of(&variants()[0], TTFT, TPOT);
    for tenths in (5..80).step_by(5) {
        let load = rate * f64::from(tenths) / 10.0;
        let mut fleet = Fleet::new(variants());
        fleet.settle(load);
        let settled = fleet.replicas();
        for _ in 0..120 {
            fleet.step(load);
            assert_eq!(fleet.replicas(), settled, "{load} requests/s");
        }
        assert!(fleet.capacity(TTFT, TPOT) >= load, "{load} requests/s");
    }
}

#[test]
fn catching_up_takes_two_decisions() {
    let mut fleet = Fleet::new(vec![profiled("v", "5", 1, FAST)]);
    let load = rate_of(&fleet.seen.variants[0], TTFT, TPOT) * 6.5;
    let mut numbers = vec![1];
    for _ in 0..20 {
        fleet.step(load);
        let now = fleet.replicas()[0];
        if numbers.last() != Some(&now) {
            numbers.push(now);
        }
    }
    assert!(numbers.len() <= 3 && numbers.last() == Some(&7), "{numbers:?}");
}

#[test]
fn smaller_load_shrinks_after_stabilization_window() {
    let mut fleet = Fleet::new(vec![profiled("v", "5", 1, FAST)]);
    let rate = rate_of(&fleet.seen.variants[0], TTFT, TPOT);
    fleet.settle(rate * 3.5);
    assert_eq!(fleet.replicas(), [4]);
    let steps = (0..60).take_while(|_| {
        fleet.step(rate * 1.2);
        fleet.replicas() == [4]
    });
    let seconds = i64::try_from(steps.count()).unwrap() * INTERVAL_SECONDS;
    assert!((240..=600).contains(&seconds), "{seconds} s");
    fleet.settle(rate * 1.2);
    assert_eq!(fleet.replicas(), [2]);
}

#[test]
fn measured_latency_above_target_blocks_scale_down() {
    let mut fleet = Fleet::new(vec![profiled("v", "5", 1, FAST)]);
    let rate = rate_of(&fleet.seen.variants[0], TTFT, TPOT);
    fleet.settle(rate * 3.5);
    fleet.latency = (TTFT / 1e3 * 1.1, 0.01);
    let decisions = fleet.settle(rate * 0.5);
    assert_eq!(fleet.replicas(), [4], "the profile is too optimistic");
    assert!(decisions["v"].trace.hold.as_ref().unwrap().has(FactorCode::LatencyTargetMissed));
    fleet.latency = (TTFT / 1e3 * 0.9, 0.01);
    fleet.settle(rate * 0.5);
    assert_eq!(fleet.replicas(), [1]);
}

#[test]
fn stricter_target_that_is_unreachable_lowers_nothing() {
    let mut fleet = Fleet::new(vec![profiled("v", "5", 1, FAST)]);
    // A reachable target with small batches. Without a target, far fewer replicas complete the same load.
    let reachable = FAST.alpha + 2.0 * FAST.beta;
    add_class(&mut fleet.seen, "premium.yaml", 1, MODEL, (TTFT, reachable));
    fleet.latency = (0.1, 0.0001);
    let rate = rate_of(&fleet.seen.variants[0], TTFT, reachable);
    fleet.settle(rate * 9.5);
    assert_eq!(fleet.replicas(), [10]);
    add_class(&mut fleet.seen, "premium.yaml", 1, MODEL, (TTFT, FAST.alpha / 2.0));
    let decisions = fleet.settle(rate * 9.5);
    assert_eq!(fleet.replicas(), [10]);
    assert!(decisions["v"].trace.hold.as_ref().unwrap().has(FactorCode::LatencyTargetUnreachable));
}

#[test]
fn variant_at_most_doubles_in_one_reconcile() {
    let mut fleet = Fleet::new(vec![profiled("v", "5", 10, FAST)]);
    let rate = rate_of(&fleet.seen.variants[0], TTFT, TPOT);
    fleet.settle(rate * 9.5);
    let mut largest = 0;
    for _ in 0..40 {
        let before = fleet.replicas()[0];
        fleet.step(rate * 90.0);
        let after = fleet.replicas()[0];
        assert!(after <= before * 2, "{before} to {after}");
        largest = largest.max(after);
    }
    assert!(largest >= 90, "{largest}");
}

#[test]
fn class_without_targets_sets_none() {
    let mut fleet = Fleet::new(vec![profiled("v", "5", 1, FAST)]);
    add_class(&mut fleet.seen, "premium.yaml", 1, MODEL, (0.0, 0.0));
    fleet.settle(1.0);
    assert_eq!(spec_reason(&fleet, "v"), ["ServiceClassMissing"]);
}

#[test]
fn load_within_headroom_keeps_replica() {
    let mut fleet = Fleet::new(vec![profiled("v", "5", 1, FAST)]);
    let rate = rate_of(&fleet.seen.variants[0], TTFT, TPOT);
    fleet.settle(rate * 2.5);
    fleet.settle(rate * 1.95);
    assert_eq!(fleet.replicas(), [3], "two replicas serve it with less than 10 % to spare");
}

#[test]
fn idle_model_keeps_one_replica_of_cheapest() {
    let mut fleet = Fleet::new(vec![profiled("a", "5", 2, FAST), profiled("b", "50", 3, FAST)]);
    fleet.settle(0.0);
    assert_eq!(fleet.replicas(), [1, 0]);
    spec(&mut fleet.seen.variants[1]).min_replicas = 2;
    fleet.settle(0.0);
    assert_eq!(fleet.replicas(), [0, 2], "the minimum of another variant is enough");
}

#[test]
fn unknown_request_length_holds_number() {
    let mut fleet = Fleet::new(vec![profiled("v", "5", 2, FAST)]);
    for _ in 0..30 {
        fleet.step(4.0);
        fleet.seen.memory.lengths.clear();
        for pod in the_model(&mut fleet.seen).pods.as_mut().unwrap() {
            (pod.input, pod.output) = (None, None);
        }
    }
    let decision = plan(&fleet.seen).decisions.into_values().next().unwrap();
    assert_eq!((decision.kind, decision.replicas), (DecisionKind::Held, Some(2)));
    assert!(matches!(decision.metrics, MetricsState::Incomplete(why) if why.has(FactorCode::RequestLengthUnknown)));
}

#[test]
fn first_reconcile_lowers_nothing() {
    let fleet = Fleet::new(vec![profiled("v", "5", 6, FAST)]);
    let decision = plan(&fleet.seen).decisions.into_values().next().unwrap();
    assert_eq!(decision.replicas, Some(6));
    assert!(decision.trace.hold.unwrap().has(FactorCode::ArrivalRateUnknown));
}

#[test]
fn pod_without_metrics_never_lowers_and_may_grow() {
    for (load, expected) in [(0.3, 4), (7.5, 8)] {
        let mut fleet = Fleet::new(vec![profiled("v", "5", 4, FAST)]);
        let rate = rate_of(&fleet.seen.variants[0], TTFT, TPOT);
        for _ in 0..8 {
            fleet.step(rate * load);
            let silent = fleet.seen.variants[0].current().unwrap() - 1;
            for pod in the_model(&mut fleet.seen).pods.as_mut().unwrap() {
                if pod.name.ends_with(&format!("-{silent}")) {
                    (pod.waiting, pod.running, pod.completed, pod.completed_per_second) = (None, None, None, None);
                    (pod.input, pod.output) = (None, None);
                }
            }
        }
        let replicas = fleet.replicas()[0];
        if expected == 4 {
            assert_eq!(replicas, 4, "load {load}");
        } else {
            assert!(replicas > 4 && replicas <= expected, "load {load}: {replicas}");
        }
    }
}

#[test]
fn unreachable_target_gives_no_load_to_variant() {
    let hopeless = Speed { alpha: 30.0, ..FAST };
    let mut fleet = Fleet::new(vec![profiled("a", "1", 2, hopeless), profiled("b", "50", 1, FAST)]);
    let rate = rate_of(&fleet.seen.variants[1], TTFT, TPOT);
    let decisions = fleet.settle(rate * 1.5);
    assert_eq!(fleet.replicas(), [0, 2]);
    assert_eq!(spec_reason(&fleet, "a"), ["LatencyTargetUnreachable"]);
    assert!(decisions["b"].trace.signal.has(FactorCode::LatencyTargetUnreachable));

    let mut alone = Fleet::new(vec![profiled("a", "1", 1, hopeless)]);
    let max = Profile::read(alone.seen.variants[0].spec.variant_profile.as_ref().unwrap()).unwrap();
    let max = max.server(SHAPE).unwrap().rate_range().max;
    alone.settle(max * 2.5);
    assert_eq!(alone.replicas(), [3], "sized without targets");
    assert_eq!(spec_reason(&alone, "a"), ["LatencyTargetUnreachable"]);
}

#[test]
fn saturation_decides_without_profile_or_target() {
    let mut fleet = Fleet::new(vec![profiled("a", "5", 2, FAST), profiled("b", "5", 2, FAST)]);
    spec(&mut fleet.seen.variants[1]).variant_profile = None;
    let plans = plan(&fleet.seen).decisions;
    assert!(plans.values().all(|decision| decision.service_level.is_none()));
    assert_eq!(spec_reason(&fleet, "a"), ["VariantProfileIgnored"]);

    let mut fleet = Fleet::new(vec![profiled("a", "5", 2, FAST)]);
    fleet.seen.config.classes.by_key.clear();
    assert_eq!(spec_reason(&fleet, "a"), ["ServiceClassMissing"]);
    add_class(&mut fleet.seen, "any.yaml", 5, "default/default", (TTFT, TPOT));
    assert!(spec_reason(&fleet, "a").is_empty(), "default/default is used");

    let profile = spec(&mut fleet.seen.variants[0]).variant_profile.as_mut().unwrap();
    profile.perf_parms.decode_parms.insert("beta".into(), "fast".into());
    let finding = plan(&fleet.seen).decisions.into_values().next().unwrap().findings.remove(0);
    assert_eq!(finding.reason, "VariantProfileInvalid");
    assert!(finding.message.starts_with("spec.variantProfile.perfParms.decodeParms.beta: \"fast\" is not a number"));
}

#[test]
fn analyzer_name_selects_engine() {
    let mut fleet = Fleet::new(vec![profiled("a", "5", 2, FAST), a_variant("b", "5", 2)]);
    for (name, by_queueing) in [("percentage", false), ("saturation", false), ("queueing", true), ("", false)] {
        let entry = serde_json::from_value(json!({ "analyzerName": name })).unwrap();
        fleet.seen.config.saturation.entries.insert("default".into(), entry);
        let decisions = plan(&fleet.seen).decisions;
        let decision = |variant: &str| decisions[&NamespacedName::new(NAMESPACE, variant)].clone();
        assert_eq!(decision("a").service_level.is_some(), by_queueing, "{name}");
        if by_queueing {
            let held = decision("b");
            assert_eq!((held.kind, held.replicas), (DecisionKind::Held, Some(2)));
            assert!(held.trace.hold.unwrap().has(FactorCode::VariantProfileMissing));
        }
    }
}

#[test]
fn referenced_class_comes_before_lookup() {
    let mut fleet = Fleet::new(vec![profiled("v", "5", 1, FAST)]);
    add_class(&mut fleet.seen, "relaxed.yaml", 9, MODEL, (2000.0, 200.0));
    fleet.step(1.0);
    assert_eq!(fleet.status("v").service_level.unwrap().class.as_deref(), Some("premium.yaml"));
    let class = |key: &str| Some(SloClassRef { name: "service-classes-config".into(), key: key.into() });
    spec(&mut fleet.seen.variants[0]).slo_class_ref = class("relaxed.yaml");
    let level = fleet.status("v").service_level.unwrap();
    assert_eq!((level.class.as_deref(), level.target.unwrap().ttft_milliseconds), (Some("relaxed.yaml"), Some(2000.0)));
    assert!(spec_reason(&fleet, "v").is_empty());
    spec(&mut fleet.seen.variants[0]).slo_class_ref = class("absent.yaml");
    assert_eq!(spec_reason(&fleet, "v"), ["ServiceClassNotFound"]);
    assert_eq!(fleet.status("v").service_level.unwrap().class.as_deref(), Some("premium.yaml"));
}

#[test]
fn accelerator_price_replaces_default_cost() {
    let mut fleet = Fleet::new(vec![profiled("a", "10", 1, FAST), profiled("b", "10", 1, FAST)]);
    spec(&mut fleet.seen.variants[0]).accelerator = Some("A100".into());
    fleet.seen.config.costs.cents = BTreeMap::from([("A100".into(), 40.0), ("H100".into(), 90.0)]);
    let costs = fleet.seen.config.costs.clone();
    let cost = |fleet: &Fleet, at: usize| fleet.seen.variants[at].cost(&costs);
    assert_eq!((cost(&fleet, 0), cost(&fleet, 1)), (40.0, 90.0));
    target(&mut fleet.seen, 0).gpus = 4;
    assert_eq!(cost(&fleet, 0), 160.0);
    spec(&mut fleet.seen.variants[0]).variant_cost = "10.0".into();
    assert_eq!(cost(&fleet, 0), 10.0);
    spec(&mut fleet.seen.variants[0]).variant_cost = "10".into();
    let rate = rate_of(&fleet.seen.variants[0], TTFT, TPOT);
    fleet.settle(rate * 0.8);
    assert_eq!(fleet.replicas(), [0, 1], "the H100 costs 90, the four A100 cost 160");
}

#[test]
fn scarce_accelerators_follow_priority() {
    for first in ["other", "meta/llama"] {
        let mut fleet = Fleet::new(vec![profiled("v", "5", 1, FAST)]);
        fleet.seen.config.classes.by_key.clear();
        let mut other = profiled("w", "5", 1, FAST);
        spec(&mut other).model_id = "other".into();
        let model = the_model(&mut fleet.seen).clone();
        fleet.seen.models.insert(NamespacedName::new(NAMESPACE, "other"), model);
        fleet.seen.variants.push(other);
        for model in ["other", "meta/llama"] {
            add_class(
                &mut fleet.seen,
                &model.replace('/', "-"),
                if model == first { 1 } else { 2 },
                model,
                (TTFT, TPOT),
            );
        }
        let decisions = plan(&fleet.seen).decisions;
        let priority = |name: &str| decisions[&NamespacedName::new(NAMESPACE, name)].priority;
        assert_eq!(priority("w") < priority("v"), first == "other");
    }
    let request = |variant: &str, priority: i64, spare_kv: f64| GpuRequest {
        variant: variant.into(),
        accelerator: "H100".into(),
        current: 1,
        target: 2,
        gpus: 1,
        priority,
        spare_kv,
        ..GpuRequest::default()
    };
    let requests = [request("saturated", 10, 0.0), request("first", 1, 0.5), request("second", 1, 0.6)];
    let grants = limit(&requests, &BTreeMap::from([("H100".to_owned(), 4)]));
    assert_eq!(grants.iter().map(|grant| grant.target).collect::<Vec<_>>(), [1, 2, 1]);
}

#[test]
fn moving_figures_cause_no_write() {
    let mut fleet = Fleet::new(vec![profiled("v", "5", 1, FAST)]);
    let rate = rate_of(&fleet.seen.variants[0], TTFT, TPOT);
    fleet.settle(rate * 2.5);
    let settled = stored(&fleet.seen);
    for wobble in [2.45, 2.52, 2.4, 2.5] {
        fleet.latency = (wobble / 10.0, wobble / 100.0);
        fleet.step(rate * wobble);
        assert_eq!(stored(&fleet.seen), settled);
    }
    let level = settled.into_values().next().unwrap().decision.clone().unwrap().service_level.unwrap();
    let figures = [level.requests_per_second, level.grows_above, level.predicted.unwrap().ttft_milliseconds];
    for figure in figures.map(Option::unwrap) {
        assert_eq!(format!("{figure:.2e}").parse::<f64>().unwrap(), figure, "three digits");
    }
}

fn speeds() -> impl Strategy<Value = Speed> {
    (4..16_i32, 1..60_i32, 1..20_i32, 1..60_i32, 4..96_i64).prop_map(|(alpha, beta, gamma, delta, batch)| Speed {
        alpha: f64::from(alpha),
        beta: f64::from(beta) / 100.0,
        gamma: f64::from(gamma),
        delta: f64::from(delta) / 1000.0,
        batch,
    })
}

fn fleets() -> impl Strategy<Value = Vec<ObservedVariant>> {
    prop::collection::vec((speeds(), 1..60_i32, 0..4_i32), 1..4).prop_map(|variants| {
        let mut all = Vec::new();
        for (index, (speed, cost, replicas)) in variants.into_iter().enumerate() {
            let replicas = if index == 0 { replicas.max(1) } else { replicas };
            // A cost of 10 would be the default.
            all.push(profiled(&format!("v{index}"), &format!("{cost}.0"), replicas, speed));
        }
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn more_load_never_gets_less_capacity(variants in fleets(), load in 1..400_i32, more in 1..200_i32) {
        let (ttft, tpot) = (TTFT * 2.0, TPOT * 2.0);
        let settled = |load: i32| {
            let mut fleet = Fleet::new(variants.clone());
            add_class(&mut fleet.seen, "premium.yaml", 1, MODEL, (ttft, tpot));
            fleet.settle(f64::from(load) / 10.0);
            fleet.capacity(ttft, tpot)
        };
        let (low, high) = (settled(load), settled(load + more));
        prop_assert!(low >= f64::from(load) / 10.0 * (1.0 - 1e-6), "{low} for {load}");
        prop_assert!(high >= low * (1.0 - 1e-6), "{high} for {load} + {more}, {low} for {load}");
        prop_assert!(high >= f64::from(load + more) / 10.0 * (1.0 - 1e-6), "{high} for {load} + {more}");
    }

    #[test]
    fn looser_target_never_gets_more_replicas(speed in speeds(), load in 1..400_i32, looser in 1..30_i32) {
        let settled = |factor: f64| {
            let mut fleet = Fleet::new(vec![profiled("v", "5", 1, speed)]);
            add_class(&mut fleet.seen, "premium.yaml", 1, MODEL, (TTFT * factor, TPOT * factor));
            fleet.settle(f64::from(load) / 10.0);
            fleet.replicas()[0]
        };
        let (strict, loose) = (settled(2.0), settled(2.0 + f64::from(looser) / 10.0));
        prop_assert!(loose <= strict, "{loose} replicas instead of {strict}");
    }

    #[test]
    fn answer_never_exceeds_feasible_single_variant_cost(variants in fleets(), load in 1..400_i32) {
        let load = f64::from(load) / 10.0;
        let (ttft, tpot) = (TTFT * 2.0, TPOT * 2.0);
        let mut fleet = Fleet::new(variants.clone());
        add_class(&mut fleet.seen, "premium.yaml", 1, MODEL, (ttft, tpot));
        fleet.settle(load);
        let costs = fleet.seen.config.costs.clone();
        let cost: f64 =
            fleet.seen.variants.iter().map(|one| f64::from(one.current().unwrap()) * one.cost(&costs)).sum();
        for variant in &variants {
            // With the headroom, and the price of the transition in both directions.
            let single = (load * 1.1 / rate_of(variant, ttft, tpot)).ceil() * variant.cost(&costs);
            prop_assert!(cost * 0.9 <= single * 1.1 + 1e-6, "{cost} instead of {single} with {}", variant.key);
        }
    }

    #[test]
    fn order_of_variants_is_irrelevant(variants in fleets(), load in 1..400_i32) {
        let settled = |variants: Vec<ObservedVariant>| {
            let mut fleet = Fleet::new(variants);
            let decisions = fleet.settle(f64::from(load) / 10.0);
            decisions.into_iter().map(|(name, decision)| (name, decision.replicas)).collect::<Vec<_>>()
        };
        let reversed: Vec<ObservedVariant> = variants.iter().rev().cloned().collect();
        prop_assert_eq!(settled(variants), settled(reversed));
    }

    #[test]
    fn stated_flip_points_flip_the_decision(variants in fleets(), load in 5..400_i32) {
        let load = f64::from(load) / 10.0;
        let settled = |fleet: &mut Fleet, rate: f64| {
            fleet.settle(rate);
            fleet.replicas()
        };
        let mut fleet = Fleet::new(variants.clone());
        let before = settled(&mut fleet, load);
        let level = fleet.step(load).into_values().find_map(|decision| decision.service_level);
        let Some(level) = level else { return Ok(()) };
        let fork = |fleet: &Fleet| Fleet { seen: fleet.seen.clone(), completed: fleet.completed.clone(), latency: fleet.latency };
        if let Some(rate) = level.grows_above {
            prop_assert_eq!(&settled(&mut fork(&fleet), rate * 0.999), &before, "just below {}", rate);
            prop_assert!(settled(&mut fork(&fleet), rate * 1.001) != before, "just above {rate}");
        }
        if let Some(rate) = level.shrinks_below {
            prop_assert_eq!(&settled(&mut fork(&fleet), rate * 1.001), &before, "just above {}", rate);
            prop_assert!(settled(&mut fork(&fleet), rate * 0.999) != before, "just below {rate}");
        }
    }
}
