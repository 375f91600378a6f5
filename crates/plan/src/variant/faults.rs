//! Bounds how many faults of one ConfigMap are reported.

use std::collections::BTreeMap;

use steersman_api::variant::v1alpha1::{ConfigFault, VariantAutoscalingStatus};
use steersman_reconcile::{Finding, NamespacedName, Severity};

use super::config::ConfigFinding;
use super::legacy_texts;

/// Faults reported per ConfigMap. Each is a log line and an event.
const MAX_PER_MAP: usize = 20;

/// The first faults of each ConfigMap, and a finding with the number of the others.
pub fn first_per_map(findings: Vec<ConfigFinding>) -> Vec<ConfigFinding> {
    let mut counts: BTreeMap<NamespacedName, usize> = BTreeMap::new();
    let mut kept = Vec::with_capacity(findings.len().min(MAX_PER_MAP));
    for finding in findings {
        let Some(map) = &finding.config_map else {
            kept.push(finding);
            continue;
        };
        let count = counts.entry(map.clone()).or_default();
        *count += 1;
        if *count <= MAX_PER_MAP {
            kept.push(finding);
        }
    }
    let more = counts.into_iter().filter(|(_, count)| *count > MAX_PER_MAP);
    kept.extend(more.map(|(map, count)| {
        let more = count - MAX_PER_MAP;
        let finding = Finding {
            severity: Severity::Warning,
            reason: "ConfigFaultsMore",
            message: format!("ConfigMap {map} has {more} more faults that are not listed."),
            remedy: "Correct the listed ones; the others are reported then.".to_owned(),
        };
        ConfigFinding { finding, config_map: Some(map), keys: Vec::new() }
    }));
    kept
}

/// Whether the status already reports the fault.
pub fn is_stored(status: &VariantAutoscalingStatus, fault: &ConfigFault) -> bool {
    if status.config_faults.is_empty() {
        legacy_texts::reports(status, fault)
    } else {
        status.config_faults.contains(fault)
    }
}
