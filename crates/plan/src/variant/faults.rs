//! As many faults of one ConfigMap as a person reads.
//! Comes in: all that is wrong with the settings; goes out: the first of each ConfigMap, and how many more it has.

use std::collections::BTreeMap;

use steersman_reconcile::{Finding, Severity};

/// Of one ConfigMap. Each is a line in the log and an event.
const MOST: usize = 20;

/// A map with thousands of bad entries has its owner told of the first, which are mended alike.
pub fn few(findings: Vec<Finding>) -> Vec<Finding> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut kept = Vec::with_capacity(findings.len().min(MOST));
    for finding in findings {
        let Some(map) = map(&finding).map(str::to_owned) else {
            kept.push(finding);
            continue;
        };
        let count = counts.entry(map).or_default();
        *count += 1;
        if *count <= MOST {
            kept.push(finding);
        }
    }
    let more = counts.into_iter().filter(|(_, count)| *count > MOST);
    kept.extend(more.map(|(map, count)| Finding {
        severity: Severity::Warning,
        reason: "ConfigFaultsMore",
        message: format!("ConfigMap {map}, and {} more of its values cannot be used as they are.", count - MOST),
        remedy: "Correct those that are told; the next ones are told then.".to_owned(),
    }));
    kept
}

/// The ConfigMap that a finding is about, as `namespace/name`.
pub fn map(finding: &Finding) -> Option<&str> {
    finding.message.strip_prefix("ConfigMap ")?.split_once(',').map(|(map, _)| map)
}
