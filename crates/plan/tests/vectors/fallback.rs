//! Fallback replica targets for variants without an engine result.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use steersman_plan::variant::bounds::Bounds;
use steersman_plan::variant::fallback::{FallbackInput, HeldTarget, Path, Previous, fall_back};

use crate::file::{Difference, assert_known_differences, load_vectors};

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
    current: i32,
    min_replicas: Option<i32>,
    max_replicas: Option<i32>,
    previous_desired: i32,
    previous_reason: String,
    previous_update_age_seconds: i64,
    other_variants_same_model: Option<Vec<Sibling>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Sibling {
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
    let mut differences = Vec::new();
    for Case { name, input, expected } in file.cases {
        let age = input.previous_update_age_seconds;
        let updated_at = (age >= 0).then(|| now - SignedDuration::from_secs(age));
        let others = input.other_variants_same_model.unwrap_or_default();
        let fallback = FallbackInput {
            bounds: Bounds { min: input.min_replicas.unwrap_or_default(), max: input.max_replicas },
            current: input.current,
            created,
            previous: Previous {
                replicas: input.previous_desired,
                reason: input.previous_reason,
                unclamped_reason: None,
                at: updated_at,
            },
            others_run: others.iter().any(|other| other.current > 0 || other.desired > 0),
        };
        let path = if input.path == 2 { Path::Fallback } else { Path::LastResort };
        let held = fall_back(path, &fallback, now);
        let expected_target = HeldTarget {
            replicas: expected.num_replicas,
            reason: expected.reason,
            // Upstream has no such field.
            unclamped_reason: held.unclamped_reason.clone(),
            at: match expected.update_time.as_str() {
                "now" => now,
                "preserved" => updated_at.unwrap(),
                "creationTimestamp" => created,
                other => panic!("{name}: {other}"),
            },
        };
        if held == expected_target {
            assert_eq!(held.replicas - input.previous_desired, expected.num_replicas_changed, "{name}");
        } else {
            differences.push(Difference { case: name, detail: format!("{held:?}, not {expected_target:?}") });
        }
    }
    assert_known_differences(&KNOWN_DIFFERENCES, &differences);
}
