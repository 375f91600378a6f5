//! The enforcer and the limiter.

use std::collections::BTreeMap;

use serde::Deserialize;
use steersman_plan::variant::limits::enforce::{ScaleToZero, enforce};
use steersman_plan::variant::limits::gpus::{GpuRequest, limit, short_product_name};
use steersman_plan::variant::{Explanation, FactorCode};

use crate::file::vectors;

#[derive(Deserialize)]
struct File<T> {
    cases: Vec<T>,
    #[serde(default)]
    normalize: Vec<Name>,
}

#[derive(Deserialize)]
struct Name {
    full: String,
    short: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Enforcing {
    name: String,
    costs: BTreeMap<String, f64>,
    enabled: bool,
    query_error: bool,
    request_count: f64,
    targets: BTreeMap<String, i32>,
    expected: Enforced,
}

#[derive(Deserialize)]
struct Enforced {
    applied: bool,
    targets: BTreeMap<String, i32>,
}

#[test]
fn the_enforcer_answers_as_upstream() {
    let Some(file) = vectors::<File<Enforcing>>("enforcer.json") else { return };
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
struct Limiting {
    name: String,
    nodes: BTreeMap<String, BTreeMap<String, i32>>,
    decisions: Vec<Decision>,
    expected: Vec<Limited>,
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
struct Limited {
    variant: String,
    target: i32,
    gpus_allocated: i32,
    was_limited: bool,
    step_reason: String,
}

#[test]
fn the_limiter_answers_as_upstream() {
    let Some(file) = vectors::<File<Limiting>>("gpu-limiter.json") else { return };
    for case in file.cases {
        let mut offered = BTreeMap::new();
        for (product, count) in case.nodes.values().flatten() {
            *offered.entry(short_product_name(product)).or_default() += count;
        }
        let wanted = case.decisions.into_iter().map(|given| GpuRequest {
            variant: given.variant,
            accelerator: given.acc,
            current: given.current,
            target: given.target,
            held: 0,
            gpus: given.gpus,
            spare_kv: given.spare,
            cost: given.cost,
        });
        let granted = limit(&wanted.collect::<Vec<_>>(), &offered);
        assert_eq!(granted.len(), case.expected.len(), "{}", case.name);
        for (got, want) in granted.into_iter().zip(case.expected) {
            assert_eq!(
                (got.variant, got.target, got.gpus, got.limited, got.reason),
                (want.variant, want.target, want.gpus_allocated, want.was_limited, want.step_reason),
                "{}",
                case.name
            );
        }
    }
    for Name { full, short: name } in file.normalize {
        assert_eq!(short_product_name(&full), name, "{full}");
    }
}
