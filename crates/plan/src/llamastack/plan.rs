//! The rules for one object, one function each.
//! Comes in: `Seen`; goes out: the children to write, or the findings that stand against it.

use std::collections::BTreeSet;
use std::time::Duration;
use steersman_api::meta::quantity::billionths;

use k8s_openapi::Resource;
use k8s_openapi::api::core::v1::{Service, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_core::GroupVersionKind;

use super::seen::{ClaimSeen, ObjectSeen, ReplicasOwner, Seen, Settings};
use super::{adoption, names, report, workload};
use crate::{Finding, Next, Note, NoteKind, Plan, Severity};

/// How soon to look again after a new spec was written, should no watch tell what came of it.
const SOON: Duration = Duration::from_secs(10);

/// Total: every object gets an answer. While something blocks nothing is written, and what runs stays as it is.
pub fn plan(seen: &Seen) -> Plan {
    // Whatever would be written now, the garbage collector would have to remove again.
    if seen.object.deleting {
        return Plan::default();
    }
    let image = image(&seen.settings, &seen.object);
    let findings = findings(seen, &image);
    let notes = notes(seen, &findings);
    match image {
        Ok(image) if !blocked(&findings) => Plan {
            writes: workload::writes(seen, &image),
            sweep: vec![GroupVersionKind::gvk(Service::GROUP, Service::VERSION, Service::KIND)],
            notes,
            findings,
            next: if report::told(seen) { Next::OnChange } else { Next::Within(SOON) },
        },
        _ => Plan { notes, findings, ..Plan::default() },
    }
}

pub fn blocked(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Blocker)
}

/// Told once: as soon as the stored status says the same, there is nothing new in it.
fn notes(seen: &Seen, findings: &[Finding]) -> Vec<Note> {
    match findings.first() {
        Some(first) if !report::tells(seen, findings) => {
            let kind = if first.severity == Severity::Info { NoteKind::Normal } else { NoteKind::Warning };
            vec![Note { kind, reason: first.reason, message: report::sentences(findings) }]
        }
        _ => Vec::new(),
    }
}

fn findings(seen: &Seen, image: &Result<String, Finding>) -> Vec<Finding> {
    let object = &seen.object;
    let rules = [
        name(object),
        image.as_ref().err().cloned(),
        beyond(object),
        port(object),
        replicas(object),
        volumes(object),
        volume_mounts(object),
        user_config(object),
        ca_bundle(object),
        exposed(object),
        allowed_from(object),
        autoscaling(object),
        disruption_budget(object),
        repeated_env(object),
        repeated_spread(object),
        replicas_held(seen),
        claim_size(object, seen.volume_claim.as_ref()),
        image.as_ref().ok().and_then(|image| adopted(seen, image)),
    ];
    let mut findings: Vec<Finding> = rules.into_iter().flatten().collect();
    // Stable: within one severity the order of the rules stays.
    findings.sort_by_key(|finding| finding.severity);
    findings
}

fn name(object: &ObjectSeen) -> Option<Finding> {
    Some(Finding {
        severity: Severity::Blocker,
        reason: "NameInvalid",
        message: names::refusal(&object.name)?,
        remedy: "Create the object under a name of at most 48 characters, without dots.".to_owned(),
    })
}

/// An empty string counts as not given.
fn image(settings: &Settings, object: &ObjectSeen) -> Result<String, Finding> {
    let distribution = &object.spec.server.distribution;
    let name = distribution.name.as_deref().filter(|name| !name.is_empty());
    let image = distribution.image.as_deref().filter(|image| !image.is_empty());
    let known = || settings.distributions.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let refuse = |reason, message, remedy| Err(Finding { severity: Severity::Blocker, reason, message, remedy });
    match (name, image) {
        (None, Some(image)) => Ok(image.to_owned()),
        (Some(name), None) => match settings.distributions.get(name) {
            Some(image) => Ok(image.clone()),
            None => refuse(
                "DistributionUnknown",
                format!("failed to validate distribution: {name}. Distribution name not supported"),
                format!("Set spec.server.distribution.name to one of {}, or spec.server.distribution.image.", known()),
            ),
        },
        (None, None) => refuse(
            "DistributionMissing",
            "failed to validate distribution: either distribution.name or distribution.image must be set".to_owned(),
            format!("Set spec.server.distribution.name to one of {}, or spec.server.distribution.image.", known()),
        ),
        (Some(_), Some(_)) => refuse(
            "DistributionAmbiguous",
            "Only one of name or image can be specified".to_owned(),
            "Remove spec.server.distribution.name or spec.server.distribution.image.".to_owned(),
        ),
    }
}

/// Blocks, because a server without the half of its spec is another server than the one that was asked for.
fn beyond(object: &ObjectSeen) -> Option<Finding> {
    (!object.beyond.is_empty()).then(|| Finding {
        severity: Severity::Blocker,
        reason: "FieldsNotSupported",
        message: format!(
            "{} cannot be acted on by this version of Steersman yet; nothing is changed.",
            object.beyond.join(", ")
        ),
        remedy: "Leave these fields out, or wait for a version that knows them.".to_owned(),
    })
}

fn adopted(seen: &Seen, image: &str) -> Option<Finding> {
    let kept = adoption::kept(seen, image)?;
    adoption::finding(&kept, &seen.object.name, &serde_json::json!(workload::template(&seen.object, image)))
}

fn port(object: &ObjectSeen) -> Option<Finding> {
    let port = workload::port(&object.spec.server);
    (!(1..=65_535).contains(&port)).then(|| Finding {
        severity: Severity::Blocker,
        reason: "PortInvalid",
        message: format!("spec.server.containerSpec.port is {port}, which is not a port."),
        remedy: "Set it to a number from 1 to 65535, or leave it out for 8321.".to_owned(),
    })
}

fn replicas(object: &ObjectSeen) -> Option<Finding> {
    let replicas = workload::wanted_replicas(&object.spec);
    (replicas < 0).then(|| Finding {
        severity: Severity::Blocker,
        reason: "ReplicasInvalid",
        message: format!("spec.replicas is {replicas}; there cannot be fewer than 0."),
        remedy: "Set spec.replicas to 0 or more.".to_owned(),
    })
}

fn volumes(object: &ObjectSeen) -> Option<Finding> {
    let volumes = workload::volumes(object);
    let name = first_repeated(volumes.iter().map(|volume| volume.name.as_str()))?;
    let whose = if name == workload::STORAGE_VOLUME { ", the name of the server's own storage" } else { " twice" };
    Some(Finding {
        severity: Severity::Blocker,
        reason: "VolumeNameTaken",
        message: format!("spec.server.podOverrides.volumes has {name:?}{whose}."),
        remedy: "Give each volume a name of its own.".to_owned(),
    })
}

fn volume_mounts(object: &ObjectSeen) -> Option<Finding> {
    let server = &object.spec.server;
    let mounts = workload::volume_mounts(server);
    let path = first_repeated(mounts.iter().map(|mount| mount.mount_path.as_str()))?;
    let whose = if path == workload::mount_path(server) { ", where the server's own storage is" } else { " twice" };
    Some(Finding {
        severity: Severity::Blocker,
        reason: "MountPathTaken",
        message: format!("spec.server.podOverrides.volumeMounts has {path:?}{whose}."),
        remedy: "Give each mount a path of its own; spec.server.storage.mountPath moves the server's.".to_owned(),
    })
}

/// Blocks, because a server that starts without its configuration is another server than the one that runs. The same
/// holds for its trust in others.
fn user_config(object: &ObjectSeen) -> Option<Finding> {
    let config = object.spec.server.user_config.as_ref().filter(|config| !config.config_map_name.is_empty())?;
    Some(Finding {
        severity: Severity::Blocker,
        reason: "UserConfigNotSupported",
        message: format!(
            "spec.server.userConfig names ConfigMap {:?}, which this version of Steersman cannot mount yet; nothing is \
             changed.",
            config.config_map_name
        ),
        remedy: "Remove spec.server.userConfig to run with the configuration inside the image.".to_owned(),
    })
}

fn ca_bundle(object: &ObjectSeen) -> Option<Finding> {
    let bundle = object.spec.server.tls_config.as_ref().and_then(|tls| tls.ca_bundle.as_ref());
    let bundle = bundle.filter(|bundle| !bundle.config_map_name.is_empty())?;
    Some(Finding {
        severity: Severity::Blocker,
        reason: "CABundleNotSupported",
        message: format!(
            "spec.server.tlsConfig.caBundle names ConfigMap {:?}, which this version of Steersman cannot mount yet; \
             nothing is changed.",
            bundle.config_map_name
        ),
        remedy: "Remove spec.server.tlsConfig to run with the certificates inside the image.".to_owned(),
    })
}

fn ignored(reason: &'static str, field: &str, instead: &str, remedy: &str) -> Finding {
    Finding {
        severity: Severity::Warning,
        reason,
        message: format!("{field} is ignored by this version of Steersman: {instead}."),
        remedy: remedy.to_owned(),
    }
}

fn exposed(object: &ObjectSeen) -> Option<Finding> {
    let exposed = object.spec.network.as_ref().and_then(|network| network.expose_route);
    exposed.unwrap_or_default().then(|| {
        ignored(
            "ExposeRouteIgnored",
            "spec.network.exposeRoute",
            "no Ingress is made",
            "Make an Ingress yourself, or set it to false.",
        )
    })
}

fn allowed_from(object: &ObjectSeen) -> Option<Finding> {
    object.spec.network.as_ref()?.allowed_from.as_ref()?;
    Some(ignored(
        "AllowedFromIgnored",
        "spec.network.allowedFrom",
        "no NetworkPolicy is made, and every pod of the cluster can reach the server",
        "Make a NetworkPolicy yourself, or remove the field.",
    ))
}

fn autoscaling(object: &ObjectSeen) -> Option<Finding> {
    object.spec.server.autoscaling.as_ref()?;
    Some(ignored(
        "AutoscalingIgnored",
        "spec.server.autoscaling",
        "no HorizontalPodAutoscaler is made",
        "Make a HorizontalPodAutoscaler yourself, or remove the field and set spec.replicas.",
    ))
}

fn disruption_budget(object: &ObjectSeen) -> Option<Finding> {
    object.spec.server.pod_disruption_budget.as_ref()?;
    Some(ignored(
        "PodDisruptionBudgetIgnored",
        "spec.server.podDisruptionBudget",
        "no PodDisruptionBudget is made",
        "Make a PodDisruptionBudget yourself, or remove the field.",
    ))
}

/// Names only: a value may be a secret.
fn repeated_env(object: &ObjectSeen) -> Option<Finding> {
    let given = workload::user_env(&object.spec.server).iter().map(|variable| variable.name.as_str());
    let repeated: BTreeSet<&str> = repeated(given).collect();
    (!repeated.is_empty()).then(|| Finding {
        severity: Severity::Warning,
        reason: "EnvRepeated",
        message: format!(
            "spec.server.containerSpec.env has more than one {}; the last one counts.",
            repeated.into_iter().collect::<Vec<_>>().join(", ")
        ),
        remedy: "Keep one entry of each name.".to_owned(),
    })
}

/// The API server takes such a list in a manifest and fails on it in an apply.
fn repeated_spread(object: &ObjectSeen) -> Option<Finding> {
    let given = object.spec.server.topology_spread_constraints.as_ref()?;
    let key = |one: &TopologySpreadConstraint| format!("{} ({})", one.topology_key, one.when_unsatisfiable);
    let keys: Vec<String> = given.iter().map(key).collect();
    let twice = first_repeated(keys.iter().map(String::as_str))?.to_owned();
    Some(Finding {
        severity: Severity::Blocker,
        reason: "SpreadConstraintRepeated",
        message: format!("spec.server.topologySpreadConstraints has {twice} twice."),
        remedy: "Keep one constraint for each pair of topologyKey and whenUnsatisfiable.".to_owned(),
    })
}

/// Where the spec asks for an autoscaler, that is how it should be.
fn replicas_held(seen: &Seen) -> Option<Finding> {
    let live = seen.deployment.as_ref()?;
    let ReplicasOwner::Other(manager) = &live.replicas_owner else { return None };
    if workload::autoscaled(&seen.object.spec.server) {
        return None;
    }
    Some(Finding {
        severity: Severity::Info,
        reason: "ReplicasDecidedElsewhere",
        message: format!(
            "spec.replicas is {}, but field manager {manager:?} decides on the replicas of Deployment {}, and it has {}.",
            workload::wanted_replicas(&seen.object.spec),
            names::deployment(&seen.object.name),
            live.replicas.unwrap_or(1)
        ),
        remedy:
            "To decide here again, remove what scales it, such as a HorizontalPodAutoscaler, and then: kubectl scale \
                 deployment with the number you want."
                .to_owned(),
    })
}

/// A claim is never changed once it is there.
fn claim_size(object: &ObjectSeen, claim: Option<&ClaimSeen>) -> Option<Finding> {
    let storage = object.spec.server.storage.as_ref()?;
    let default = Quantity(workload::STORAGE_SIZE.to_owned());
    let wanted = storage.size.as_ref().unwrap_or(&default);
    let live = claim?.size.as_ref()?;
    (billionths(&wanted.0)? != billionths(&live.0)?).then(|| Finding {
        severity: Severity::Warning,
        reason: "StorageSizeIgnored",
        message: format!(
            "spec.server.storage.size is {}, but PersistentVolumeClaim {} was made with {} and is left as it is.",
            wanted.0,
            names::volume_claim(&object.name),
            live.0
        ),
        remedy: "Change the claim itself where its storage class can expand it, then set the same size here."
            .to_owned(),
    })
}

fn first_repeated<'a>(of: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    repeated(of).next()
}

fn repeated<'a>(of: impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    let mut known = BTreeSet::new();
    of.filter(move |item| !known.insert(*item))
}
