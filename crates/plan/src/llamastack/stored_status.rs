//! What the stored status already reports. The plan asks it whether an event is due, the status whether a spec is new.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use steersman_api::meta::conditions::find;
use steersman_reconcile::Finding;

use super::legacy_texts;
use super::resolution::Config;
use super::seen::Seen;

pub const DEPLOYMENT_READY: &str = "DeploymentReady";
pub const HEALTH_CHECK: &str = "HealthCheck";
pub const STORAGE_READY: &str = "StorageReady";
pub const SERVICE_READY: &str = "ServiceReady";
pub const AVAILABLE: &str = "Available";
pub const CONFIG_GENERATED: &str = "ConfigGenerated";
pub const DEPLOYMENT_UPDATED: &str = "DeploymentUpdated";
pub const SECRETS_RESOLVED: &str = "SecretsResolved";
/// Our own: the others describe the children, this one the fields of the spec.
pub const SPEC_ACCEPTED: &str = "SpecAccepted";

pub fn condition<'a>(snapshot: &'a Seen, type_: &str) -> Option<&'a Condition> {
    find(snapshot.object.status.as_ref()?.conditions.as_deref()?, type_)
}

/// The stored status is about this generation of the object.
pub fn reports_generation(snapshot: &Seen) -> bool {
    let generation = snapshot.object.generation;
    let known = condition(snapshot, DEPLOYMENT_READY);
    generation.is_some() && known.is_some_and(|known| known.observed_generation == generation)
}

/// The stored status has these findings.
pub fn reports_findings(snapshot: &Seen, findings: &[Finding]) -> bool {
    let known = condition(snapshot, SPEC_ACCEPTED);
    known.is_some_and(|known| legacy_texts::reports_findings(known, findings))
}

/// The stored status names the ConfigMap of this configuration as the generated one.
pub fn reports_generated(snapshot: &Seen, config: &Config) -> bool {
    let status = snapshot.object.status.as_ref();
    let generation = status.and_then(|status| status.config_generation.as_ref());
    generation.is_some_and(|generation| generation.config_map_name.as_ref() == Some(&config.name))
}

/// The stored status says that the Deployment uses this configuration.
pub fn reports_deployed(snapshot: &Seen, config: &Config) -> bool {
    let known = condition(snapshot, DEPLOYMENT_UPDATED);
    known.and_then(legacy_texts::deployed_config_map) == Some(&config.name)
}
