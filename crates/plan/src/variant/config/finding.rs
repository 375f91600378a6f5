//! A finding about settings, with the ConfigMap that it is about.

use std::fmt;
use std::ops::Deref;

use serde::Serialize;
use steersman_api::variant::v1alpha1::{ConfigFault, ConfigMapReference};
use steersman_reconcile::{Finding, NamespacedName};

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
