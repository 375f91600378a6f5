//! Reads single values of a v1alpha2 spec, with their defaults.

use k8s_openapi::api::core::v1::{EnvVar, TopologySpreadConstraint};
use steersman_api::llamastack::v1alpha2::{
    AllowedFrom, Autoscaling, DisruptionBudget, ExposeForm, LlamaStackDistributionSpec, Overrides, VolumeStorage,
};
use steersman_reconcile::{FieldPath, path};

use super::names;
use super::snapshot::ObservedObject;

/// The server's own default.
pub const PORT: i32 = 8321;
pub const MOUNT_PATH: &str = "/.llama";

pub fn overrides(spec: &LlamaStackDistributionSpec) -> Option<&Overrides> {
    spec.workload.as_ref()?.overrides.as_ref()
}

/// A port of 0 counts as unset.
pub fn port(spec: &LlamaStackDistributionSpec) -> i32 {
    spec.networking.as_ref().and_then(|networking| networking.port).filter(|port| *port != 0).unwrap_or(PORT)
}

/// The Secret with the server's certificate. None: plain HTTP.
pub fn certificate(spec: &LlamaStackDistributionSpec) -> Option<&str> {
    let tls = spec.networking.as_ref()?.tls.as_ref().filter(|tls| tls.enabled == Some(true))?;
    tls.secret_name.as_deref().filter(|name| !name.is_empty())
}

pub fn exposed(spec: &LlamaStackDistributionSpec) -> Option<&ExposeForm> {
    spec.networking.as_ref()?.expose.as_ref().filter(|expose| expose.enabled())
}

pub fn allowed_from(spec: &LlamaStackDistributionSpec) -> Option<&AllowedFrom> {
    spec.networking.as_ref()?.allowed_from.as_ref()
}

/// The replicas in the spec. An autoscaler may have set others.
pub fn replicas(spec: &LlamaStackDistributionSpec) -> i32 {
    spec.workload.as_ref().and_then(|workload| workload.replicas).unwrap_or(1)
}

/// A section whose `maxReplicas` is 0 or less scales nothing and counts as absent.
pub fn autoscaling(spec: &LlamaStackDistributionSpec) -> Option<&Autoscaling> {
    spec.workload.as_ref()?.autoscaling.as_ref().filter(|autoscaling| autoscaling.max_replicas > 0)
}

pub fn workers(spec: &LlamaStackDistributionSpec) -> Option<i32> {
    spec.workload.as_ref()?.workers.filter(|workers| *workers > 0)
}

pub fn storage(spec: &LlamaStackDistributionSpec) -> Option<&VolumeStorage> {
    spec.workload.as_ref()?.storage.as_ref()
}

pub fn mount_path(spec: &LlamaStackDistributionSpec) -> &str {
    let given = storage(spec).and_then(|storage| storage.mount_path.as_deref());
    given.filter(|path| !path.is_empty()).unwrap_or(MOUNT_PATH)
}

/// The disruption budget and its path; it has a short name.
pub fn disruption_budget(spec: &LlamaStackDistributionSpec) -> Option<(FieldPath, &DisruptionBudget)> {
    let workload = spec.workload.as_ref()?;
    let short = || Some((path!(spec.workload.pdb), workload.pdb.as_ref()?));
    workload
        .pod_disruption_budget
        .as_ref()
        .map(|budget| (path!(spec.workload.podDisruptionBudget), budget))
        .or_else(short)
}

/// The spread constraints and their path; they have a short name.
pub fn spread_constraints(spec: &LlamaStackDistributionSpec) -> Option<(FieldPath, &[TopologySpreadConstraint])> {
    let workload = spec.workload.as_ref()?;
    let short = || Some((path!(spec.workload.topologySpread), workload.topology_spread.as_deref()?));
    let long = workload.topology_spread_constraints.as_deref();
    long.map(|given| (path!(spec.workload.topologySpreadConstraints), given)).or_else(short)
}

pub fn env(spec: &LlamaStackDistributionSpec) -> &[EnvVar] {
    overrides(spec).and_then(|overrides| overrides.env.as_deref()).unwrap_or_default()
}

/// Whether a command of the user's own starts the server. With a mounted configuration, arguments alone do not: the start
/// script ignores them.
pub fn has_own_command(spec: &LlamaStackDistributionSpec) -> bool {
    overrides(spec).and_then(|given| given.command.as_ref()).is_some_and(|words| !words.is_empty())
}

/// Whether a command or arguments of the user's own start the server, if no configuration is mounted.
pub fn has_own_start(spec: &LlamaStackDistributionSpec) -> bool {
    let has_args = || overrides(spec).and_then(|given| given.args.as_ref()).is_some_and(|words| !words.is_empty());
    has_own_command(spec) || has_args()
}

/// The name of the distribution. An empty string counts as unset.
pub fn distribution(spec: &LlamaStackDistributionSpec) -> Option<&str> {
    spec.distribution.name.as_deref().filter(|name| !name.is_empty())
}

pub fn service_account(object: &ObservedObject) -> String {
    let given = overrides(&object.spec).and_then(|pod| pod.service_account_name.clone());
    given.filter(|name| !name.is_empty()).unwrap_or_else(|| names::service_account(&object.name))
}
