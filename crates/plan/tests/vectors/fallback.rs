//! Numbers for variants for which no engine has one.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use steersman_plan::variant::config::duration;
use steersman_plan::variant::config::zero::RETENTION;
use steersman_plan::variant::limits::Bounds;
use steersman_plan::variant::limits::fallback::{
    FallbackInput, FallbackTarget, Other, Path, Patience, Previous, fall_back,
};

use crate::file::{differ_only_in, vectors};

#[derive(Deserialize)]
struct File {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    input: Input,
    expected: Expected,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    path: u8,
    accelerator_count: i64,
    current: i32,
    min_replicas: Option<i32>,
    max_replicas: Option<i32>,
    other_variants_same_model: Option<Vec<Sibling>>,
    previous_desired: i32,
    previous_reason: String,
    previous_update_age_seconds: i64,
    retention_period: String,
    scale_to_zero_enabled: Option<bool>,
    #[serde(rename = "variantID")]
    variant_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Sibling {
    #[serde(rename = "VariantID")]
    variant_id: String,
    acc_count: i64,
    min: Option<i32>,
    current: i32,
    desired: i32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expected {
    num_replicas: i32,
    num_replicas_changed: i32,
    reason: String,
    update_time: String,
}

/// What is not known lowers nothing, however long it stays unknown.
const OTHERWISE: [(&str, &str); 5] = [
    ("path3-retention-exceeded-s2z-on", "metrics that are missing are not idleness"),
    ("path2-retention-exceeded-s2z-off-cheapest", "metrics that are missing are not idleness"),
    ("path2-retention-exceeded-s2z-off-not-cheapest", "metrics that are missing are not idleness"),
    ("path2-retention-exceeded-own-min", "metrics that are missing are not idleness"),
    ("path2-retention-exceeded-other-min", "metrics that are missing are not idleness"),
];

#[test]
fn a_variant_without_a_number_gets_that_of_upstream() {
    let Some(file) = vectors::<File>("fallback-allocation.json") else { return };
    let now: Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
    let created: Timestamp = "2026-11-15T08:00:00Z".parse().unwrap();
    let mut differ = Vec::new();
    for Case { name, input, expected } in file.cases {
        let age = input.previous_update_age_seconds;
        let at = (age >= 0).then(|| now - SignedDuration::from_secs(age));
        let variant = FallbackInput {
            variant_id: input.variant_id,
            accelerators: input.accelerator_count,
            bounds: Bounds { min: input.min_replicas.unwrap_or_default(), max: input.max_replicas },
            current: input.current,
            created,
            previous: Previous {
                replicas: input.previous_desired,
                reason: input.previous_reason,
                unclamped_reason: None,
                at,
            },
        };
        let others = input.other_variants_same_model.unwrap_or_default().into_iter().map(|other| Other {
            variant_id: other.variant_id,
            accelerators: other.acc_count,
            min: other.min.unwrap_or_default(),
            current: other.current,
            desired: other.desired,
        });
        let others: Vec<Other> = others.collect();
        let period = duration::parse(&input.retention_period).unwrap_or(RETENTION);
        let zero = input.scale_to_zero_enabled.unwrap_or_default();
        let path = if input.path == 2 { Path::Fallback } else { Path::LastResort };
        let patience = Patience::Retention { period, zero };
        let fallen = fall_back(path, &variant, &others, patience, now);
        let wanted = FallbackTarget {
            replicas: expected.num_replicas,
            reason: expected.reason,
            // Upstream has no such field.
            unclamped_reason: fallen.unclamped_reason.clone(),
            at: match expected.update_time.as_str() {
                "now" => now,
                "preserved" => at.unwrap(),
                "creationTimestamp" => created,
                other => panic!("{name}: {other}"),
            },
        };
        assert_eq!(fallen, wanted, "{name}");
        assert_eq!(fallen.replicas - input.previous_desired, expected.num_replicas_changed, "{name}");
        if fall_back(path, &variant, &others, Patience::Endless, now) != wanted {
            differ.push(name);
        }
    }
    differ_only_in(&OTHERWISE, &differ);
}
