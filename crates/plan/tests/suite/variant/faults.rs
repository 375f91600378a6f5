//! As many faults as a person reads.

use steersman_plan::variant::ConfigFinding;
use steersman_plan::variant::config::first_per_map;
use steersman_reconcile::{Finding, NamespacedName, Severity};

fn fault(map: Option<&str>, message: String) -> ConfigFinding {
    let finding =
        Finding { severity: Severity::Warning, reason: "ConfigValueInvalid", message, remedy: "Correct it.".into() };
    let config_map = map.map(|namespace| NamespacedName::new(namespace, "settings"));
    ConfigFinding { finding, config_map, keys: vec![] }
}

#[test]
fn of_a_map_with_thousands_of_faults_the_first_are_told_and_how_many_more_there_are() {
    let many = |namespace: &str, count: usize| {
        (0..count).map(|key| fault(Some(namespace), format!("key {key}: bad."))).collect::<Vec<_>>()
    };
    let elsewhere = vec![fault(None, "WVA_SCALE_TO_ZERO is no boolean.".into())];
    let told = first_per_map([many("a", 5000), many("b", 20), elsewhere.clone()].concat());
    let of = |namespace: &str| {
        let map = Some(NamespacedName::new(namespace, "settings"));
        told.iter().filter(|one| one.config_map == map).count()
    };
    assert_eq!((of("a"), of("b"), told.len()), (21, 20, 42));
    assert!(told.contains(&elsewhere[0]));
    let more = "ConfigMap a/settings has 4980 more faults that are not listed.";
    assert_eq!(told.last().map(|last| last.message.as_str()), Some(more));
    assert_eq!(first_per_map(many("b", 20)), many("b", 20), "few are told as they are");
}
