//! Fallback replica targets for variants without an engine result.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use steersman_plan::variant::config::duration;
use steersman_plan::variant::config::zero::RETENTION;
use steersman_plan::variant::limits::Bounds;
use steersman_plan::variant::limits::fallback::{
    FallbackInput, FallbackTarget, Other, Path, Patience, Previous, fall_back,
};

use crate::file::{assert_known_differences, load_vectors};

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

/// Missing metrics never lower a target in `Mode::Steersman`, however long they are missing.
const KNOWN_DIFFERENCES: [(&str, &str); 5] = [
    ("path3-retention-exceeded-s2z-on", "missing metrics do not mean idle"),
    ("path2-retention-exceeded-s2z-off-cheapest", "missing metrics do not mean idle"),
    ("path2-retention-exceeded-s2z-off-not-cheapest", "missing metrics do not mean idle"),
    ("path2-retention-exceeded-own-min", "missing metrics do not mean idle"),
    ("path2-retention-exceeded-other-min", "missing metrics do not mean idle"),
];

#[test]
fn fallback_replicas_match_upstream() {
    let Some(file) = load_vectors::<File>("fallback-allocation.json") else { return };
    let now: Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
    let created: Timestamp = "2026-11-15T08:00:00Z".parse().unwrap();
    let mut differing_cases = Vec::new();
    for Case { name, input, expected } in file.cases {
        let age = input.previous_update_age_seconds;
        let updated_at = (age >= 0).then(|| now - SignedDuration::from_secs(age));
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
                at: updated_at,
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
        let scale_to_zero = input.scale_to_zero_enabled.unwrap_or_default();
        let path = if input.path == 2 { Path::Fallback } else { Path::LastResort };
        let patience = Patience::Retention { period, zero: scale_to_zero };
        let fallback = fall_back(path, &variant, &others, patience, now);
        let expected_result = FallbackTarget {
            replicas: expected.num_replicas,
            reason: expected.reason,
            // Upstream has no such field.
            unclamped_reason: fallback.unclamped_reason.clone(),
            at: match expected.update_time.as_str() {
                "now" => now,
                "preserved" => updated_at.unwrap(),
                "creationTimestamp" => created,
                other => panic!("{name}: {other}"),
            },
        };
        assert_eq!(fallback, expected_result, "{name}");
        assert_eq!(fallback.replicas - input.previous_desired, expected.num_replicas_changed, "{name}");
        if fall_back(path, &variant, &others, Patience::Endless, now) != expected_result {
            differing_cases.push(name);
        }
    }
    assert_known_differences(&KNOWN_DIFFERENCES, &differing_cases);
}
