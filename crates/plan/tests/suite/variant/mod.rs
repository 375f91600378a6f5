//! A fleet in which nothing is wrong, from which each test departs in one point.

mod accelerators;
mod apart;
mod bounds;
mod config;
mod conflict;
mod demand;
mod doubt;
mod earlier_texts;
mod edges;
mod engines;
mod excluded;
mod faults;
mod laws;
mod legacy_texts;
mod notes;
mod numbers;
mod queueing;
mod ready;
mod report;
mod service_levels;
mod split;
mod split_laws;
mod targets;
mod told;
mod unmoved;
mod waits;
mod zero;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use steersman_api::variant::v1alpha1::{
    DesiredOptimizedAlloc, LastUpdate, VariantAutoscalingSpec, VariantAutoscalingStatus,
};
use steersman_plan::variant::config::Config;
use steersman_plan::variant::config::thresholds::SaturationEntry;
use steersman_plan::variant::{
    Decision, Explanation, Factor, FactorCode, FactorSubject, FleetSnapshot, MetricsState, ModelMetrics,
    ObservedTarget, ObservedVariant, PodMetrics, Settings, TargetName, plan, status,
};
use steersman_reconcile::{Lookup, NamespacedName};

const NAMESPACE: &str = "team-a";
const MODEL: &str = "meta/llama";
const NO_WORKLOAD: &str = "Deployment not found: Deployment v-decode does not exist in namespace team-a; create it or correct spec.scaleTargetRef";

fn now() -> Timestamp {
    "2026-11-15T23:00:00Z".parse().unwrap()
}

fn ago(minutes: i64) -> Timestamp {
    now() - SignedDuration::from_mins(minutes)
}

/// On a workload of another name with `replicas`, all ready; decided so an hour ago.
fn a_variant(name: &str, cost: &str, replicas: i32) -> ObservedVariant {
    let spec = json!({
        "scaleTargetRef": { "kind": "Deployment", "name": format!("{name}-decode") },
        "modelID": MODEL,
        "accelerator": "H100",
        "variantCost": cost,
    });
    ObservedVariant {
        key: NamespacedName::new(NAMESPACE, name),
        generation: Some(1),
        created: ago(120),
        deleting: false,
        labels: BTreeMap::new(),
        spec: serde_json::from_value(spec).unwrap(),
        status: Some(decided(replicas, "Earlier", ago(60))),
        target: Lookup::Known(Some(ObservedTarget {
            replicas: Some(replicas),
            status_replicas: Some(replicas),
            ready: replicas,
            gpus: 1,
            ..ObservedTarget::default()
        })),
        config: [].into(),
    }
}

/// To be changed.
fn spec(variant: &mut ObservedVariant) -> &mut VariantAutoscalingSpec {
    Arc::make_mut(&mut variant.spec)
}

fn decided(replicas: i32, reason: &str, at: Timestamp) -> Arc<VariantAutoscalingStatus> {
    Arc::new(VariantAutoscalingStatus {
        desired_optimized_alloc: Some(DesiredOptimizedAlloc {
            num_replicas: Some(replicas),
            accelerator: Some("H100".into()),
            last_run_time: Some(Time(at)),
            last_update: Some(LastUpdate {
                update_time: Some(Time(at)),
                num_replicas_changed: Some(0),
                reason: Some(reason.into()),
                unclamped_reason: None,
            }),
        }),
        ..VariantAutoscalingStatus::default()
    })
}

/// Every replica of every variant of the model with this load.
fn pods(variants: &[ObservedVariant], kv: f64, queue: f64) -> Vec<PodMetrics> {
    let mut pods = Vec::new();
    for variant in variants {
        let target = variant.target.known().unwrap().as_ref().unwrap();
        let named = Arc::new(TargetName::from(variant.spec.scale_target_ref.as_ref().unwrap()));
        let name = &named.name;
        for number in 0..target.ready {
            pods.push(PodMetrics {
                name: format!("{name}-{number}").into(),
                target: named.clone(),
                ready: true,
                kv: Some(kv),
                queue: Some(queue),
                total_kv: Some(16_000),
                input: Some(100.0),
                output: Some(50.0),
                hit_rate: Some(0.0),
                ..PodMetrics::default()
            });
        }
    }
    pods
}

/// One model with these variants under this load, requests flowing, nothing limited, decided by the percentage engine.
fn a_fleet(variants: Vec<ObservedVariant>, kv: f64, queue: f64) -> FleetSnapshot {
    let mut config = Config::default();
    let entry = SaturationEntry { analyzer_name: Some("percentage".into()), ..SaturationEntry::default() };
    config.saturation.entries.insert("default".into(), entry);
    let model = ModelMetrics {
        pods: Ok(pods(&variants, kv, queue)),
        requests: Lookup::Known(100.0),
        queue: Lookup::Known(None),
    };
    FleetSnapshot {
        now: now(),
        settings: Settings::default(),
        config,
        variants,
        models: BTreeMap::from([(NamespacedName::new(NAMESPACE, MODEL), model)]),
        gpus: Lookup::Unknown("not counted".into()),
        memory: Default::default(),
        defective: Default::default(),
    }
}

/// Metrics that are incomplete because of one variant.
fn incomplete(code: FactorCode, variant: &str, text: &str) -> MetricsState {
    MetricsState::Incomplete(Explanation::of(Factor::about(code, FactorSubject::Variant(variant.to_owned())), text))
}

fn the_model(seen: &mut FleetSnapshot) -> &mut ModelMetrics {
    seen.models.get_mut(&NamespacedName::new(NAMESPACE, MODEL)).unwrap()
}

/// To be changed.
fn target(seen: &mut FleetSnapshot, at: usize) -> &mut ObservedTarget {
    match &mut seen.variants[at].target {
        Lookup::Known(Some(target)) => target,
        other => panic!("it has a workload: {other:?}"),
    }
}

fn by_tokens(seen: &mut FleetSnapshot) {
    let entry = SaturationEntry { analyzer_name: Some("saturation".into()), ..SaturationEntry::default() };
    seen.config.saturation.entries.insert("default".into(), entry);
}

fn decision(seen: &FleetSnapshot, name: &str) -> Decision {
    plan(seen).decisions.remove(&NamespacedName::new(NAMESPACE, name)).unwrap()
}

fn replicas(seen: &FleetSnapshot, name: &str) -> i32 {
    decision(seen, name).replicas.unwrap()
}

/// A pass now, and so many minutes on.
fn later(seen: &mut FleetSnapshot, minutes: i64) {
    seen.memory = plan(seen).memory;
    seen.now += SignedDuration::from_mins(minutes);
}

/// What all objects would have stored after this pass.
fn stored(seen: &FleetSnapshot) -> BTreeMap<NamespacedName, Arc<VariantAutoscalingStatus>> {
    let plan = plan(seen);
    let told = |variant: &ObservedVariant| {
        let decision = plan.decisions.get(&variant.key)?;
        let status = status(variant, decision, true, seen.now);
        Some((variant.key.clone(), Arc::new(status)))
    };
    seen.variants.iter().filter_map(told).collect()
}

/// As it is once this pass is over.
fn settle(seen: &mut FleetSnapshot) {
    let mut all = stored(seen);
    for variant in &mut seen.variants {
        variant.status = all.remove(&variant.key);
    }
}
