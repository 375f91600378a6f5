//! A finding about settings, with the ConfigMap that it is about, and the limit of findings for each ConfigMap.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

use serde::Serialize;
use steersman_api::variant::v1alpha1::{ConfigFault, ConfigMapReference, VariantAutoscalingStatus};
use steersman_reconcile::{Finding, NamespacedName, Severity};

use crate::variant::legacy_texts;

/// Faults reported per ConfigMap. Each is a log line and an event.
const MAX_PER_MAP: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigFinding {
    pub finding: Finding,
    /// `None` if the setting comes from the environment or from no single ConfigMap.
    pub config_map: Option<NamespacedName>,
    /// More than one if they contradict each other.
    pub keys: Vec<String>,
}

impl ConfigFinding {
    /// The form in `status.configFaults`. It depends on the keys, not on values or wording.
    pub fn fault(&self) -> ConfigFault {
        let map = self.config_map.as_ref();
        ConfigFault {
            code: self.reason.to_owned(),
            config_map: map.map(|NamespacedName { namespace, name }| ConfigMapReference {
                namespace: namespace.clone(),
                name: name.clone(),
            }),
            keys: self.keys.clone(),
        }
    }
}

impl From<Finding> for ConfigFinding {
    fn from(finding: Finding) -> Self {
        Self { finding, config_map: None, keys: Vec::new() }
    }
}

impl Deref for ConfigFinding {
    type Target = Finding;

    fn deref(&self) -> &Finding {
        &self.finding
    }
}

impl fmt::Display for ConfigFinding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.finding.fmt(out)
    }
}

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
