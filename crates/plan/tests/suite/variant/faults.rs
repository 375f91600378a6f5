//! As many faults as a person reads.

use steersman_plan::variant::faults::few;
use steersman_reconcile::{Finding, Severity};

fn fault(message: String) -> Finding {
    Finding { severity: Severity::Warning, reason: "ConfigValueInvalid", message, remedy: "Correct it.".into() }
}

#[test]
fn of_a_map_with_thousands_of_faults_the_first_are_told_and_how_many_more_there_are() {
    let many = |map: &str, count: usize| {
        (0..count).map(|key| fault(format!("ConfigMap {map}, key {key}: bad."))).collect::<Vec<_>>()
    };
    let elsewhere = vec![fault("WVA_SCALE_TO_ZERO is no boolean.".into())];
    let told = few([many("a/settings", 5000), many("b/settings", 20), elsewhere.clone()].concat());
    let of = |map: &str| told.iter().filter(|one| one.message.starts_with(&format!("ConfigMap {map},"))).count();
    assert_eq!((of("a/settings"), of("b/settings"), told.len()), (21, 20, 42));
    assert!(told.contains(&elsewhere[0]));
    let more = "ConfigMap a/settings, and 4980 more of its values cannot be used as they are.";
    assert_eq!(told.last().map(|last| last.message.as_str()), Some(more));
    assert_eq!(few(many("b/settings", 20)), many("b/settings", 20), "few are told as they are");
}
