//! The scale-to-zero enforcer and the GPU limiter.

use std::collections::BTreeMap;

use serde::Deserialize;
use steersman_plan::variant::gpu_limit::{GpuRequest, limit, short_product_name};
use steersman_plan::variant::scale_to_zero::{ScaleToZero, enforce};
use steersman_plan::variant::{Explanation, FactorCode};

use crate::file::load_vectors;

#[derive(Deserialize)]
struct File<T> {
    cases: Vec<T>,
    #[serde(default)]
    normalize: Vec<ProductName>,
}

#[derive(Deserialize)]
struct ProductName {
    full: String,
    short: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EnforcerCase {
    name: String,
    costs: BTreeMap<String, f64>,
    enabled: bool,
    query_error: bool,
    request_count: f64,
    targets: BTreeMap<String, i32>,
    expected: EnforcerResult,
}

#[derive(Deserialize)]
struct EnforcerResult {
    applied: bool,
    targets: BTreeMap<String, i32>,
}

#[test]
fn enforcer_matches_upstream() {
    let Some(file) = load_vectors::<File<EnforcerCase>>("enforcer.json") else { return };
    for case in file.cases {
        let sleep = match () {
            () if !case.enabled => ScaleToZero::Disabled,
            () if case.query_error => {
                ScaleToZero::Unknown(Explanation::new(FactorCode::RequestsUnknown, "the query failed"))
            }
            () if case.request_count > 0.0 => ScaleToZero::Active,
            () => ScaleToZero::Idle,
        };
        let mut targets = case.targets;
        let applied = enforce(&mut targets, &case.costs, &sleep);
        assert_eq!((applied, targets), (case.expected.applied, case.expected.targets), "{}", case.name);
    }
}

#[derive(Deserialize)]
struct LimiterCase {
    name: String,
    nodes: BTreeMap<String, BTreeMap<String, i32>>,
    decisions: Vec<Decision>,
    expected: Vec<LimiterResult>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Decision {
    variant: String,
    acc: String,
    current: i32,
    target: i32,
    #[serde(rename = "GPUs")]
    gpus: i32,
    spare: f64,
    cost: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LimiterResult {
    variant: String,
    target: i32,
    gpus_allocated: i32,
    was_limited: bool,
    step_reason: String,
}

#[test]
fn limiter_matches_upstream() {
    let Some(file) = load_vectors::<File<LimiterCase>>("gpu-limiter.json") else { return };
    for case in file.cases {
        let mut gpus_by_type = BTreeMap::new();
        for (product, count) in case.nodes.values().flatten() {
            *gpus_by_type.entry(short_product_name(product)).or_default() += count;
        }
        let requests = case.decisions.into_iter().map(|decision| GpuRequest {
            variant: decision.variant,
            accelerator: decision.acc,
            current: decision.current,
            target: decision.target,
            gpus: decision.gpus,
            spare_kv: decision.spare,
            cost: decision.cost,
            ..GpuRequest::default()
        });
        let results = limit(&requests.collect::<Vec<_>>(), &gpus_by_type);
        assert_eq!(results.len(), case.expected.len(), "{}", case.name);
        for (result, expected) in results.into_iter().zip(case.expected) {
            assert_eq!(
                (result.variant, result.target, result.gpus, result.limited, result.reason),
                (
                    expected.variant,
                    expected.target,
                    expected.gpus_allocated,
                    expected.was_limited,
                    expected.step_reason
                ),
                "{}",
                case.name
            );
        }
    }
    for ProductName { full, short: name } in file.normalize {
        assert_eq!(short_product_name(&full), name, "{full}");
    }
}
