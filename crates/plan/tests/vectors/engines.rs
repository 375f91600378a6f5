//! The share-based saturation engine and the cost-aware solver.

use std::collections::BTreeMap;

use serde::Deserialize;
use steersman_plan::variant::analyze::saturation_percentage::{self, PodSaturation, Spare};
use steersman_plan::variant::config::thresholds::Thresholds;
use steersman_plan::variant::optimize::cost_aware::{Need, Offer, Reason, cost_aware};
use steersman_plan::variant::progress::VariantState;

use crate::file::{load_vectors, nearly_equal};

#[derive(Deserialize)]
struct File<T> {
    cases: Vec<T>,
}

#[derive(Deserialize)]
struct ShareCase {
    name: String,
    replicas: Option<Vec<PodMetrics>>,
    states: Vec<WorkloadState>,
    expected: Expected,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PodMetrics {
    pod: String,
    variant: String,
    kv: f64,
    queue: f64,
    cost: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WorkloadState {
    variant: String,
    current: i32,
    desired: i32,
    pending: i32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expected {
    avg_spare_kv: f64,
    avg_spare_queue: f64,
    non_saturated: usize,
    scale_down_safe: bool,
    scale_up_reason: String,
    should_scale_up: bool,
    targets: BTreeMap<String, i32>,
    total_replicas: usize,
}

#[test]
fn share_engine_matches_upstream() {
    let Some(file) = load_vectors::<File<ShareCase>>("saturation-v1.json") else { return };
    let thresholds = Thresholds::default();
    for ShareCase { name, replicas, states, expected } in file.cases {
        let pods = replicas.unwrap_or_default().into_iter();
        let pods =
            pods.map(|PodMetrics { pod, variant, kv, queue, cost }| PodSaturation { pod, variant, kv, queue, cost });
        let pods: Vec<PodSaturation> = pods.collect();
        let states = states.into_iter().map(|WorkloadState { variant, current, desired, pending }| VariantState {
            variant,
            current,
            desired: Some(desired),
            pending,
            ..VariantState::default()
        });
        let states: Vec<VariantState> = states.collect();
        let analysis = saturation_percentage::analyze(&pods, &thresholds, Spare::OfUnsaturated);
        assert!(nearly_equal(analysis.spare_kv, expected.avg_spare_kv), "{name}: {analysis:?}");
        assert!(nearly_equal(analysis.spare_queue, expected.avg_spare_queue), "{name}: {analysis:?}");
        assert_eq!(analysis.non_saturated, expected.non_saturated, "{name}");
        assert_eq!(analysis.replicas, expected.total_replicas, "{name}");
        assert_eq!(analysis.has_spare_replica, expected.scale_down_safe, "{name}");
        assert_eq!(analysis.missing.is_some(), expected.should_scale_up, "{name}");
        assert_eq!(analysis.missing.clone().unwrap_or_default(), expected.scale_up_reason, "{name}");
        for spare in [Spare::OfUnsaturated, Spare::OfAll] {
            let analysis = saturation_percentage::analyze(&pods, &thresholds, spare);
            assert_eq!(
                saturation_percentage::targets(&analysis, &states, true).replicas,
                expected.targets,
                "{name}: {spare:?}"
            );
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SolverCase {
    name: String,
    required_capacity: f64,
    spare_capacity: f64,
    variants: Vec<VariantOffer>,
    expected: Vec<SolverDecision>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VariantOffer {
    variant: String,
    cost: f64,
    #[serde(rename = "PRC")]
    capacity: f64,
    current: i32,
}

#[derive(Deserialize)]
struct SolverDecision {
    variant: String,
    target: i32,
    action: String,
    reason: String,
}

#[test]
fn cost_aware_solver_matches_upstream() {
    let Some(file) = load_vectors::<File<SolverCase>>("cost-aware-optimizer.json") else { return };
    for SolverCase { name, required_capacity, spare_capacity, variants, expected } in file.cases {
        let need = Need { required: required_capacity, spare: spare_capacity };
        let offers = variants.iter().map(|VariantOffer { variant, cost, capacity, current }| Offer {
            variant: variant.clone(),
            cost: *cost,
            capacity: *capacity,
            current: *current,
            ready: *current,
            ..Offer::default()
        });
        let offers: Vec<Offer> = offers.collect();
        let targets = cost_aware(&offers, need, true);
        assert_eq!(targets.len(), expected.len(), "{name}");
        for SolverDecision { variant, target, action, reason } in &expected {
            assert_eq!(targets.get(variant), Some(target), "{name}: {variant}");
            let current = offers.iter().find(|offer| offer.variant == *variant).map_or(0, |offer| offer.current);
            let solver_reason = Reason::of(current, *target, need);
            assert_eq!(
                (solver_reason.action(), solver_reason.to_string().as_str()),
                (action.as_str(), reason.as_str()),
                "{name}"
            );
        }
    }
}
