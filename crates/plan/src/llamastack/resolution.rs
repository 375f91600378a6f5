//! The result of resolving a spec. The plan resolves once per reconcile and carries the result, so that the status is
//! rendered from it and never resolves again.

use std::collections::BTreeSet;

use serde_json::Value;
use steersman_api::llamastack::v1alpha2::{FindingCode, ResolvedDistribution};
use steersman_reconcile::{Finding, Message};

use super::build::{adoption, configmap};
use super::config::{FieldError, Generated, Pod, Source};
use super::names;
use super::snapshot::Snapshot;
use crate::oci::ObservedLabels;

/// Pod annotation with the hash of the configuration that the pod was started with.
const CONFIG_HASH: &str = "/metadata/annotations/configmap.hash~1user-config";

#[derive(Clone, Debug, PartialEq)]
pub enum Resolution {
    /// The object is being deleted. The garbage collector removes its children, so nothing is resolved.
    Deleting,
    Spec {
        resolution: Box<SpecResolution>,
        /// The findings of the plan, as the status stores them.
        codes: Vec<FindingCode>,
    },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpecResolution {
    /// Absent while an error blocks.
    pub setup: Option<Setup>,
    pub source: Source,
    /// The reason why no image can be chosen.
    pub image_error: Option<Finding<Message>>,
    pub config_errors: Vec<FieldError>,
    /// Secrets that do not exist or lack the key that is needed.
    pub missing_secrets: Vec<FieldError>,
    /// Number of references to Secrets in the spec.
    pub secret_count: usize,
    /// ConfigMaps that do not exist, certificates that cannot be read.
    pub config_map_errors: Vec<FieldError>,
    pub warnings: Vec<FieldError>,
    /// The labels of the image determine the configuration and are unknown for this reason. The running server stays
    /// unchanged until they are known.
    pub labels_awaited: Option<String>,
}

impl SpecResolution {
    /// Whether a registry request for the labels is in flight. This happens after each start of the operator and ends
    /// soon, so nothing is reported meanwhile.
    pub fn asks_registry(&self, snapshot: &Snapshot) -> bool {
        self.labels_awaited.is_some() && snapshot.labels == ObservedLabels::Pending
    }
}

/// The input from which the children are built, besides the spec.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    pub image: String,
    /// Value of `status.resolvedDistribution`.
    pub distribution: ResolvedDistribution,
    pub config: Option<Config>,
    pub generated: Option<Generated>,
    /// The parts of the pod that the configuration needs.
    pub pod: Pod,
    /// Certificates that the server trusts besides those of its image.
    pub bundle: Option<HashedText>,
}

/// The ConfigMap with the server's configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub name: String,
    pub hash: String,
    /// The content. None: the ConfigMap is the user's.
    pub text: Option<String>,
    /// The path of the file in the pod.
    pub path: &'static str,
}

impl Config {
    /// The text of the event and the condition.
    pub fn deployed(&self) -> String {
        format!("Deployment updated with config {}", self.name)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct HashedText {
    pub text: String,
    pub hash: String,
}

impl Setup {
    /// Names of our ConfigMaps that the pods mount.
    pub fn mounts(&self, object: &str) -> BTreeSet<String> {
        let config = self.config.as_ref().filter(|config| config.text.is_some()).map(|config| config.name.clone());
        config.into_iter().chain(self.bundle.as_ref().map(|_| names::ca_bundle(object))).collect()
    }

    pub fn generated_config(&self) -> Option<(&Generated, &Config)> {
        self.generated.as_ref().zip(self.config.as_ref())
    }

    /// The configuration, if the live Deployment mounts its ConfigMap with the wanted content.
    pub fn deployed_config(&self, snapshot: &Snapshot) -> Option<&Config> {
        let config = self.config.as_ref()?;
        let live = snapshot.deployment.as_ref()?;
        let live_hash = live.template.pointer(CONFIG_HASH).and_then(Value::as_str);
        let current = live_hash == Some(&config.hash) || adoption::adopted_template(snapshot, self).is_some();
        (current && configmap::mounted(&live.template).contains(&config.name)).then_some(config)
    }
}
