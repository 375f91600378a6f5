//! Compares the plan with the stored status: whether an event is due, and whether a spec is new.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use steersman_api::llamastack::v1alpha2::{FindingCode, PodProblem};
use steersman_api::meta::conditions::find;
use steersman_reconcile::Finding;

use super::legacy_texts;
use super::resolution::Config;
use super::snapshot::Snapshot;

pub const DEPLOYMENT_READY: &str = "DeploymentReady";
pub const HEALTH_CHECK: &str = "HealthCheck";
pub const STORAGE_READY: &str = "StorageReady";
pub const SERVICE_READY: &str = "ServiceReady";
pub const AVAILABLE: &str = "Available";
pub const CONFIG_GENERATED: &str = "ConfigGenerated";
pub const DEPLOYMENT_UPDATED: &str = "DeploymentUpdated";
pub const SECRETS_RESOLVED: &str = "SecretsResolved";
/// Not in upstream's API: the other conditions describe the children, this one the fields of the spec.
pub const SPEC_ACCEPTED: &str = "SpecAccepted";

/// Reason of `SpecAccepted` if the API server or the owner of an object of the same name rejects a child.
pub const CHILD_REJECTED: &str = "ChildRejected";

/// Reason of `ConfigGenerated` while the base of the configuration is unknown. The spec is not at fault.
pub const LABELS_AWAITED: &str = "ImageLabelsAwaited";

pub fn condition<'a>(snapshot: &'a Snapshot, type_: &str) -> Option<&'a Condition> {
    find(snapshot.object.status.as_ref()?.conditions.as_deref()?, type_)
}

/// Whether the stored status is about this generation of the object.
pub fn reports_generation(snapshot: &Snapshot) -> bool {
    let generation = snapshot.object.generation;
    let known = condition(snapshot, DEPLOYMENT_READY);
    generation.is_some() && known.is_some_and(|known| known.observed_generation == generation)
}

/// Whether the stored status has these findings for this generation. A new generation with the same codes may have
/// another wrong value.
pub fn reports_findings(snapshot: &Snapshot, findings: &[Finding], codes: &[FindingCode]) -> bool {
    let Some(known) = condition(snapshot, SPEC_ACCEPTED) else { return false };
    match snapshot.object.status.as_ref().and_then(|status| status.findings.as_ref()) {
        // A rejected child is known only after the plan, and has an event of its own.
        Some(stored) => {
            let of_plan = stored.iter().filter(|code| code.reason != CHILD_REJECTED);
            of_plan.eq(codes) && known.observed_generation == snapshot.object.generation
        }
        None => legacy_texts::reports_findings(known, findings),
    }
}

/// The stored findings of this generation.
pub fn findings(snapshot: &Snapshot) -> Option<&[FindingCode]> {
    let known = condition(snapshot, SPEC_ACCEPTED)?;
    let stored = snapshot.object.status.as_ref()?.findings.as_deref()?;
    (known.observed_generation == snapshot.object.generation).then_some(stored)
}

/// Whether the stored status names the ConfigMap of this configuration as the generated one.
pub fn reports_generated(snapshot: &Snapshot, config: &Config) -> bool {
    let status = snapshot.object.status.as_ref();
    let generation = status.and_then(|status| status.config_generation.as_ref());
    generation.is_some_and(|generation| generation.config_map_name.as_ref() == Some(&config.name))
}

/// Whether the stored status reports that the Deployment uses this configuration.
pub fn reports_deployed(snapshot: &Snapshot, config: &Config) -> bool {
    let Some(known) = condition(snapshot, DEPLOYMENT_UPDATED).filter(|known| known.status == "True") else {
        return false;
    };
    let status = snapshot.object.status.as_ref();
    let stored = status.and_then(|status| status.deployed_config_map_name.as_deref());
    stored.or_else(|| legacy_texts::deployed_config_map(known)) == Some(&config.name)
}

/// The problem of the newest pod when pods were last observed.
pub fn pod_problem(snapshot: &Snapshot) -> Option<PodProblem> {
    let status = snapshot.object.status.as_ref()?;
    if status.pod_problem.is_some() || status.findings.is_some() || awaits_labels(snapshot) {
        return status.pod_problem.clone();
    }
    [DEPLOYMENT_READY, AVAILABLE].iter().find_map(|type_| legacy_texts::pod_problem(condition(snapshot, type_)?))
}

/// Whether the stored status has this problem of the pods. Its text may have other numbers by now.
pub fn reports_pod_problem(snapshot: &Snapshot, problem: &PodProblem) -> bool {
    let codes = |problem: &PodProblem| (problem.reason.clone(), problem.container.clone(), problem.exit_code);
    pod_problem(snapshot).is_some_and(|stored| codes(&stored) == codes(problem))
}

/// Whether the stored status reports that the spec awaits the labels of its image.
pub fn awaits_labels(snapshot: &Snapshot) -> bool {
    condition(snapshot, CONFIG_GENERATED).is_some_and(|known| known.reason == LABELS_AWAITED)
}
