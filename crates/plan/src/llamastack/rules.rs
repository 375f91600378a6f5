//! The rules that need nothing but the object. Admission, the offline commands and the plan apply all of them, so that
//! none of them accepts an object that another refuses.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_reconcile::quantity::billionths;
use steersman_reconcile::{FieldError, message, path};

use super::build::{self, network, scaling};
use super::config::Pod;
use super::config::problem::reason::INVALID;
use super::{config, fields, names};
use crate::oci::{BadReference, ImageReference};

/// Longest host name, in bytes.
const MAX_HOST_BYTES: usize = 253;

#[derive(Debug, Default)]
pub struct RuleResults {
    pub errors: Vec<FieldError>,
    /// Fields without effect.
    pub warnings: Vec<FieldError>,
}

/// The volumes that Steersman adds to the pod, besides the storage.
pub struct AddedVolumes<'a> {
    /// A configuration is mounted.
    pub config: bool,
    /// Additional CA certificates are mounted.
    pub trust: bool,
    pub pod: &'a Pod,
}

/// `name`: of the object; None if it is not known yet. `added`: None skips the rules about volumes.
pub fn check(name: Option<&str>, spec: &LlamaStackDistributionSpec, added: Option<&AddedVolumes<'_>>) -> RuleResults {
    let mut results = RuleResults::default();
    results.errors.extend(name.and_then(object_name));
    results.errors.extend(images(spec));
    results.errors.extend(replicas(spec));
    autoscaling(spec, &mut results);
    results.errors.extend(disruption_budget(spec));
    results.errors.extend(resources(spec));
    results.errors.extend(storage_size(spec));
    results.errors.extend(grace_period(spec));
    results.errors.extend(hostname(spec));
    if let Some(added) = added {
        results.errors.extend(volumes(spec, added));
        results.errors.extend(volume_mounts(spec, added));
    }
    results.errors.extend(repeated_spread(spec));
    results.warnings.extend(repeated_env(spec));
    results
}

fn object_name(name: &str) -> Option<FieldError> {
    let refusal = names::refusal(name)?;
    let remedy = "Create the object under a name of at most 48 characters, without dots.";
    Some(FieldError::new(path!(metadata.name), "NameInvalid", refusal.clone(), remedy).stated_as(refusal))
}

/// A kubelet refuses to pull an image whose reference is not well-formed.
fn images(spec: &LlamaStackDistributionSpec) -> Vec<FieldError> {
    let server = spec.distribution.image.clone().map(|image| (path!(spec.distribution.image), image));
    let external = config::external_providers(spec).into_iter().map(|one| (one.path.field("image"), one.image));
    let given = server.into_iter().chain(external).filter(|(_, image)| !image.is_empty());
    let remedy = "Write it as registry/repository:tag or registry/repository@sha256:….";
    let error = |(path, image): (_, String)| {
        let BadReference { text, why } = ImageReference::parse(&image).err()?;
        Some(FieldError::new(path, "ImageInvalid", format!("{text:?} is not an image reference: {why}"), remedy))
    };
    given.filter_map(error).collect()
}

fn replicas(spec: &LlamaStackDistributionSpec) -> Option<FieldError> {
    let replicas = fields::replicas(spec);
    (replicas < 0).then(|| {
        let path = path!(spec.workload.replicas);
        let statement = message![&path, format!(" is {replicas}, but must be 0 or more.")];
        let message = format!("{replicas} is not a number of pods");
        let remedy = message!["Set ", &path, " to 0 or more."];
        FieldError::new(path, "ReplicasInvalid", message, remedy).stated_as(statement)
    })
}

fn autoscaling(spec: &LlamaStackDistributionSpec, results: &mut RuleResults) {
    let Some(given) = spec.workload.as_ref().and_then(|workload| workload.autoscaling.as_ref()) else { return };
    let max = given.max_replicas;
    let section = path!(spec.workload.autoscaling);
    let maximum = section.field("maxReplicas");
    if max <= 0 {
        let problem = format!("{max}, so no HorizontalPodAutoscaler is created");
        let statement = message![&maximum, format!(" is {problem}.")];
        let remedy = message!["Set it to the maximum number of pods, or remove ", section, "."];
        results.warnings.push(
            FieldError::new(maximum, "AutoscalingIgnored", format!("it is {problem}"), remedy).stated_as(statement),
        );
        return;
    }
    let min = scaling::min_replicas(spec, given);
    if max < min {
        let problem = format!("{max}, less than {min}, the larger of minReplicas and ");
        let of_spec = path!(spec.workload.replicas);
        let statement = message![&maximum, format!(" is {problem}"), &of_spec, "."];
        let remedy = "Raise maxReplicas, or lower minReplicas and replicas.";
        let message = message![format!("it is {problem}"), of_spec];
        results.errors.push(FieldError::new(maximum, "AutoscalingInvalid", message, remedy).stated_as(statement));
    }
    for (field, percent) in [
        ("targetCPUUtilizationPercentage", given.target_cpu_utilization_percentage),
        ("targetMemoryUtilizationPercentage", given.target_memory_utilization_percentage),
    ] {
        if let Some(percent) = percent.filter(|percent| *percent < 1) {
            let message = format!("{percent} is not a utilization");
            let error = FieldError::new(
                section.field(field),
                "AutoscalingInvalid",
                message,
                "Set it to 1 or more, in percent.",
            );
            results.errors.push(error);
        }
    }
}

fn disruption_budget(spec: &LlamaStackDistributionSpec) -> Option<FieldError> {
    let (path, given) = fields::disruption_budget(spec)?;
    (given.min_available.is_some() && given.max_unavailable.is_some()).then(|| {
        let problem = "has both minAvailable and maxUnavailable";
        let statement = message![&path, format!(" {problem}.")];
        FieldError::new(path, "PodDisruptionBudgetInvalid", format!("it {problem}"), "Remove one of them.")
            .stated_as(statement)
    })
}

/// An API server refuses a request above the limit, and an extended resource (such as a GPU) whose request and limit
/// differ.
fn resources(spec: &LlamaStackDistributionSpec) -> Vec<FieldError> {
    let path = path!(spec.workload.resources);
    let wanted = build::resources(spec);
    let (requests, limits) = (wanted.requests.unwrap_or_default(), wanted.limits.unwrap_or_default());
    let mut errors = Vec::new();
    for (name, request) in &requests {
        let limit = limits.get(name);
        let amount = |quantity: &str| billionths(quantity);
        let extended = name.contains('/');
        let (message, remedy) = match limit {
            Some(limit) if amount(&request.0) > amount(&limit.0) => (
                format!("the request of {} {name} is above the limit of {}", request.0, limit.0),
                "Lower the request, or raise the limit.",
            ),
            Some(limit) if extended && amount(&request.0) != amount(&limit.0) => (
                format!("the request of {} {name} differs from the limit of {}", request.0, limit.0),
                "Set both to the same number.",
            ),
            None if extended => {
                (format!("the request of {} {name} has no limit", request.0), "Set a limit of the same number.")
            }
            _ => continue,
        };
        errors.push(FieldError::new(path.field("requests"), "ResourcesInvalid", message, remedy));
    }
    errors
}

fn storage_size(spec: &LlamaStackDistributionSpec) -> Option<FieldError> {
    let size = fields::storage(spec)?.size.as_ref()?;
    (billionths(&size.0)? <= 0).then(|| {
        let message = format!("{} is not the size of a volume", size.0);
        FieldError::new(path!(spec.workload.storage.size), "StorageSizeInvalid", message, "Set a size such as 10Gi.")
    })
}

fn grace_period(spec: &LlamaStackDistributionSpec) -> Option<FieldError> {
    let seconds = fields::overrides(spec)?.termination_grace_period_seconds.filter(|seconds| *seconds < 0)?;
    let path = path!(spec.workload.overrides.terminationGracePeriodSeconds);
    Some(FieldError::new(path, INVALID, format!("{seconds} is not a number of seconds"), "Set it to 0 or more."))
}

/// The host name of an Ingress: a DNS name in lower case, whose first label may be `*`.
fn hostname(spec: &LlamaStackDistributionSpec) -> Option<FieldError> {
    let host = network::host(fields::exposed(spec)?)?;
    let name = host.strip_prefix("*.").unwrap_or(host);
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let label =
        |label: &str| !label.is_empty() && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-');
    let address = name.parse::<std::net::IpAddr>().is_ok();
    if host.len() <= MAX_HOST_BYTES && name.split('.').all(label) && !address {
        return None;
    }
    Some(FieldError::new(
        path!(spec.networking.expose.hostname),
        "HostnameInvalid",
        format!("{host:?} is not a DNS name"),
        "Use lower-case letters, digits, dashes and dots, such as llama.example.com.",
    ))
}

fn volumes(spec: &LlamaStackDistributionSpec, added: &AddedVolumes<'_>) -> Option<FieldError> {
    let given = fields::overrides(spec).and_then(|given| given.volumes.as_deref()).unwrap_or_default();
    let of_user = given.iter().map(|volume| volume.name.as_str());
    let name = repeated(build::volume_names(spec, added).into_iter().chain(of_user.clone())).next()?;
    let problem = if name == build::STORAGE_VOLUME {
        format!("has a volume {name:?}, which is the name of the server's storage volume")
    } else if of_user.filter(|known| *known == name).count() < 2 {
        format!("has a volume {name:?}, which is the name of a volume that Steersman adds")
    } else {
        format!("has two volumes {name:?}")
    };
    let path = path!(spec.workload.overrides.volumes);
    let statement = message![&path, format!(" {problem}.")];
    let remedy = "Give each volume a unique name.";
    Some(FieldError::new(path, "VolumeNameTaken", format!("it {problem}"), remedy).stated_as(statement))
}

fn volume_mounts(spec: &LlamaStackDistributionSpec, added: &AddedVolumes<'_>) -> Option<FieldError> {
    let given = fields::overrides(spec).and_then(|given| given.volume_mounts.as_deref()).unwrap_or_default();
    let of_user = given.iter().map(|mount| mount.mount_path.as_str());
    let taken = repeated(build::mount_paths(spec, added).into_iter().chain(of_user.clone())).next()?;
    let problem = if taken == fields::mount_path(spec) {
        format!("has a mount at {taken:?}, where the server's storage is mounted")
    } else if of_user.filter(|known| *known == taken).count() < 2 {
        format!("has a mount at {taken:?}, where Steersman mounts a volume")
    } else {
        format!("has two mounts at {taken:?}")
    };
    let path = path!(spec.workload.overrides.volumeMounts);
    let statement = message![&path, format!(" {problem}.")];
    let storage = path!(spec.workload.storage.mountPath);
    let remedy = message!["Mount each volume at a unique path. To move the server's storage, set ", storage, "."];
    Some(FieldError::new(path, "MountPathTaken", format!("it {problem}"), remedy).stated_as(statement))
}

/// Lists names only: a value may be a secret.
fn repeated_env(spec: &LlamaStackDistributionSpec) -> Option<FieldError> {
    let given = fields::env(spec).iter().map(|variable| variable.name.as_str());
    let repeated: BTreeSet<&str> = repeated(given).collect();
    if repeated.is_empty() {
        return None;
    }
    let names = repeated.into_iter().collect::<Vec<_>>().join(", ");
    let problem = format!("sets {names} more than once; the last value is used");
    let path = path!(spec.workload.overrides.env);
    let statement = message![&path, format!(" {problem}.")];
    let remedy = "Keep one entry for each name.";
    Some(FieldError::new(path, "EnvRepeated", format!("it {problem}"), remedy).stated_as(statement))
}

/// The API server accepts such a list in a manifest and fails on it in an apply.
fn repeated_spread(spec: &LlamaStackDistributionSpec) -> Option<FieldError> {
    let (path, given) = fields::spread_constraints(spec)?;
    let key = |one: &TopologySpreadConstraint| format!("{} ({})", one.topology_key, one.when_unsatisfiable);
    let keys: Vec<String> = given.iter().map(key).collect();
    let twice = repeated(keys.iter().map(String::as_str)).next()?;
    let statement = message![&path, format!(" has {twice} twice.")];
    let remedy = "Keep one constraint for each pair of topologyKey and whenUnsatisfiable.";
    let message = format!("it has {twice} twice");
    Some(FieldError::new(path, "SpreadConstraintRepeated", message, remedy).stated_as(statement))
}

fn repeated<'a>(of: impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    let mut known = BTreeSet::new();
    of.filter(move |item| !known.insert(*item))
}
