//! The findings of a plan: one function for each rule.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;
use steersman_api::llamastack::v1alpha2::{FindingCode, FindingSeverity};
use steersman_reconcile::quantity::billionths;
use steersman_reconcile::{FieldPath, Finding, Message, Severity, message, path};

use crate::llamastack::annotations::KEEP_VOLUME;
use crate::llamastack::build::{self, adoption, scaling};
use crate::llamastack::config::problem::reason::{IGNORED, LABELS};
use crate::llamastack::config::{FieldError, base};
use crate::llamastack::resolution::{Setup, SpecResolution};
use crate::llamastack::snapshot::{ObservedClaim, ObservedObject, ObservedRoute, ReplicasOwner, Snapshot};
use crate::llamastack::validate::unread_problem;
use crate::llamastack::{annotations, fields, names, secret_change, volume};

/// A finding and the field of the spec that it is about.
pub struct SpecFinding {
    pub field: Option<FieldPath>,
    pub finding: Finding<Message>,
}

impl SpecFinding {
    pub fn code(&self) -> FindingCode {
        let severity = match self.finding.severity {
            Severity::Blocker => FindingSeverity::Blocker,
            Severity::Warning => FindingSeverity::Warning,
            Severity::Info => FindingSeverity::Info,
        };
        FindingCode {
            severity,
            reason: self.finding.reason.to_owned(),
            field: self.field.as_ref().map(FieldPath::to_string),
        }
    }
}

pub fn findings(snapshot: &Snapshot, resolution: &SpecResolution) -> Vec<SpecFinding> {
    let object = &snapshot.object;
    let setup = resolution.setup.as_ref();
    let rules = [
        (path!(metadata.name), name(object)),
        (path!(spec.distribution), resolution.image_error.clone()),
        (path!(spec.networking.port), port(object)),
        (path!(spec.workload.replicas), replicas(object)),
        (path!(spec.workload.autoscaling), autoscaling(object)),
        (path!(spec.workload.podDisruptionBudget), disruption_budget(object)),
        (path!(spec.workload.overrides.volumes), setup.and_then(|setup| volumes(object, setup))),
        (path!(spec.workload.overrides.volumeMounts), setup.and_then(|setup| volume_mounts(object, setup))),
        (path!(spec.workload.overrides.env), repeated_env(object)),
        (path!(spec.workload.topologySpreadConstraints), repeated_spread(object)),
        (path!(spec.workload.replicas), replicas_owner(snapshot)),
        (path!(spec.workload.storage.size), claim_size(object, snapshot.volume_claim.as_ref())),
        (path!(spec), setup.and_then(|setup| adopted(snapshot, setup))),
        (path!(spec.distribution.name), setup.and_then(|setup| image_replaced(snapshot, setup))),
        (path!(spec.distribution), labels(snapshot, resolution)),
        (path!(spec.networking.expose), route(snapshot)),
        (path!(spec.networking.expose), plain_ingress(snapshot)),
        (path!(spec.workload.storage), volume::mounted_by_several(snapshot)),
        (path!(metadata.annotations).key(KEEP_VOLUME), volume::not_kept(snapshot)),
        (path!(metadata.annotations), annotations::finding(object)),
        (path!(spec), secret_change::finding(snapshot)),
        (path!(spec.workload.workers), setup.and_then(|setup| workers(object, setup))),
    ];
    let rules = rules.into_iter().filter_map(|(field, finding)| Some((Some(field), finding?)));
    let of_fields = |problems: &[FieldError], severity| -> Vec<(Option<FieldPath>, Finding<Message>)> {
        problems.iter().map(|problem| (Some(problem.path.clone()), problem.finding(severity))).collect()
    };
    let unread: Vec<FieldError> = object.unread.iter().cloned().map(unread_problem).collect();
    let settings = snapshot.settings.operator_config.findings(object).into_iter().map(|finding| (None, finding.into()));
    let mut findings: Vec<SpecFinding> = rules
        .chain(of_fields(&resolution.config_errors, Severity::Blocker))
        .chain(of_fields(&resolution.missing_secrets, Severity::Blocker))
        .chain(of_fields(&resolution.config_map_errors, Severity::Blocker))
        .chain(of_fields(&resolution.warnings, Severity::Warning))
        .chain(settings)
        .chain(of_fields(&unread, Severity::Warning))
        .map(|(field, finding)| SpecFinding { field, finding })
        .collect();
    // The sort is stable: within one severity the order of the rules stays.
    findings.sort_by_key(|found| found.finding.severity);
    findings
}

fn name(object: &ObservedObject) -> Option<Finding<Message>> {
    let remedy = "Create the object under a name of at most 48 characters, without dots.";
    Some(Finding::blocker("NameInvalid", names::refusal(&object.name)?, remedy))
}

fn adopted(snapshot: &Snapshot, setup: &Setup) -> Option<Finding<Message>> {
    let kept = adoption::adopted_template(snapshot, setup)?;
    let mut template = build::template(snapshot, setup);
    // Our default placement is no reason to report running pods as different.
    let given =
        snapshot.object.spec.workload.as_ref().and_then(|workload| workload.topology_spread_constraints.as_ref());
    if let Some(pod) = &mut template.spec {
        pod.affinity = None;
        pod.topology_spread_constraints = pod.topology_spread_constraints.take().filter(|_| given.is_some());
    }
    adoption::finding(&kept, &snapshot.object.name, &json!(template)).map(Finding::from)
}

/// A base is written for one image. An image that replaces it and has no base of its own may need another.
fn image_replaced(snapshot: &Snapshot, setup: &Setup) -> Option<Finding<Message>> {
    let shipped = base::distribution(fields::distribution(&snapshot.object.spec)?)?;
    let embedded = setup.distribution.config_source.as_deref() == Some(base::BaseSource::Embedded.as_str());
    if setup.generated.is_none() || !embedded || setup.image == shipped.image {
        return None;
    }
    let version = shipped.server_version;
    let message = message![
        path!(spec.distribution.name),
        format!(
            " is {}, and ConfigMap {} replaces its image with {}. No configuration is known for this image, so \
             Steersman generates the one for {} (llama-stack {version}).",
            shipped.name, snapshot.settings.operator_config.place, setup.image, shipped.image
        )
    ];
    let remedy = message![
        format!(
            "No action is needed if the image contains llama-stack {version}. Otherwise use an image that has its \
             configuration in labels, or set "
        ),
        path!(spec.overrideConfig),
        "."
    ];
    Some(Finding::info("ImageReplaced", message, remedy))
}

fn port(object: &ObservedObject) -> Option<Finding<Message>> {
    let port = fields::port(&object.spec);
    (!(1..=65_535).contains(&port)).then(|| {
        let message = message![path!(spec.networking.port), format!(" is {port}, which is not a valid port.")];
        Finding::blocker("PortInvalid", message, "Set it to a number from 1024 to 65535, or remove it to use 8321.")
    })
}

fn replicas(object: &ObservedObject) -> Option<Finding<Message>> {
    let replicas = fields::replicas(&object.spec);
    (replicas < 0).then(|| {
        let path = path!(spec.workload.replicas);
        let message = message![&path, format!(" is {replicas}, but must be 0 or more.")];
        Finding::blocker("ReplicasInvalid", message, message!["Set ", path, " to 0 or more."])
    })
}

fn autoscaling(object: &ObservedObject) -> Option<Finding<Message>> {
    let given = object.spec.workload.as_ref()?.autoscaling.as_ref()?;
    let max = given.max_replicas;
    let section = path!(spec.workload.autoscaling);
    if max <= 0 {
        let message =
            message![section.field("maxReplicas"), format!(" is {max}, so no HorizontalPodAutoscaler is created.")];
        let remedy = message!["Set it to the maximum number of pods, or remove ", section, "."];
        return Some(Finding::warning("AutoscalingIgnored", message, remedy));
    }
    let min = scaling::min_replicas(&object.spec, given);
    (max < min).then(|| {
        let message = message![
            section.field("maxReplicas"),
            format!(" is {max}, less than {min}, the larger of minReplicas and "),
            path!(spec.workload.replicas),
            "."
        ];
        Finding::blocker("AutoscalingInvalid", message, "Raise maxReplicas, or lower minReplicas and replicas.")
    })
}

fn disruption_budget(object: &ObservedObject) -> Option<Finding<Message>> {
    let given = object.spec.workload.as_ref()?.pod_disruption_budget.as_ref()?;
    (given.min_available.is_some() && given.max_unavailable.is_some()).then(|| {
        let message = message![path!(spec.workload.podDisruptionBudget), " has both minAvailable and maxUnavailable."];
        Finding::blocker("PodDisruptionBudgetInvalid", message, "Remove one of them.")
    })
}

fn volumes(object: &ObservedObject, setup: &Setup) -> Option<Finding<Message>> {
    let volumes = build::volumes(object, setup);
    let name = repeated(volumes.iter().map(|volume| volume.name.as_str())).next()?;
    let given = fields::overrides(&object.spec).and_then(|given| given.volumes.as_deref()).unwrap_or_default();
    let problem = if name == build::STORAGE_VOLUME {
        format!(" has a volume {name:?}, which is the name of the server's storage volume.")
    } else if given.iter().filter(|volume| volume.name == name).count() < 2 {
        format!(" has a volume {name:?}, which is the name of a volume that Steersman adds.")
    } else {
        format!(" has two volumes {name:?}.")
    };
    let message = message![path!(spec.workload.overrides.volumes), problem];
    Some(Finding::blocker("VolumeNameTaken", message, "Give each volume a unique name."))
}

fn volume_mounts(object: &ObservedObject, setup: &Setup) -> Option<Finding<Message>> {
    let mounts = build::volume_mounts(object, setup);
    let path = repeated(mounts.iter().map(|mount| mount.mount_path.as_str())).next()?;
    let given = fields::overrides(&object.spec).and_then(|given| given.volume_mounts.as_deref()).unwrap_or_default();
    let problem = if path == fields::mount_path(&object.spec) {
        format!(" has a mount at {path:?}, where the server's storage is mounted.")
    } else if given.iter().filter(|mount| mount.mount_path == path).count() < 2 {
        format!(" has a mount at {path:?}, where Steersman mounts a volume.")
    } else {
        format!(" has two mounts at {path:?}.")
    };
    let message = message![path!(spec.workload.overrides.volumeMounts), problem];
    let storage = path!(spec.workload.storage.mountPath);
    let remedy = message!["Mount each volume at a unique path. To move the server's storage, set ", storage, "."];
    Some(Finding::blocker("MountPathTaken", message, remedy))
}

/// Lists names only: a value may be a secret.
fn repeated_env(object: &ObservedObject) -> Option<Finding<Message>> {
    let given = fields::env(&object.spec).iter().map(|variable| variable.name.as_str());
    let repeated: BTreeSet<&str> = repeated(given).collect();
    if repeated.is_empty() {
        return None;
    }
    let names = repeated.into_iter().collect::<Vec<_>>().join(", ");
    let message = format!(" sets {names} more than once; the last value is used.");
    let message = message![path!(spec.workload.overrides.env), message];
    Some(Finding::warning("EnvRepeated", message, "Keep one entry for each name."))
}

/// The API server accepts such a list in a manifest and fails on it in an apply.
fn repeated_spread(object: &ObservedObject) -> Option<Finding<Message>> {
    let given = object.spec.workload.as_ref()?.topology_spread_constraints.as_ref()?;
    let key = |one: &TopologySpreadConstraint| format!("{} ({})", one.topology_key, one.when_unsatisfiable);
    let keys: Vec<String> = given.iter().map(key).collect();
    let twice = repeated(keys.iter().map(String::as_str)).next()?;
    let message = message![path!(spec.workload.topologySpreadConstraints), format!(" has {twice} twice.")];
    let remedy = "Keep one constraint for each pair of topologyKey and whenUnsatisfiable.";
    Some(Finding::blocker("SpreadConstraintRepeated", message, remedy))
}

/// With an autoscaler in the spec, another owner of the replicas is expected.
fn replicas_owner(snapshot: &Snapshot) -> Option<Finding<Message>> {
    let live = snapshot.deployment.as_ref()?;
    let (who, remedy) = match &live.replicas_owner {
        ReplicasOwner::Ours => return None,
        ReplicasOwner::Autoscaler(name) => (
            format!("HorizontalPodAutoscaler {name}"),
            message![
                "To use the spec again, delete the HorizontalPodAutoscaler; the spec takes effect within 30 seconds. \
                 To have Steersman create one, set ",
                path!(spec.workload.autoscaling),
                "."
            ],
        ),
        ReplicasOwner::Other(manager) => (
            format!("field manager {manager:?}"),
            "To use the spec again, stop the program that scales the Deployment, then run kubectl scale deployment \
             with the number you want."
                .into(),
        ),
    };
    if fields::autoscaling(&snapshot.object.spec).is_some() {
        return None;
    }
    let facts = format!(
        " is {}, but {who} controls the replicas of Deployment {}, which has {}.",
        fields::replicas(&snapshot.object.spec),
        names::deployment(&snapshot.object.name),
        live.replicas.unwrap_or(1)
    );
    Some(Finding::info("ReplicasDecidedElsewhere", message![path!(spec.workload.replicas), facts], remedy))
}

/// An existing claim is never changed.
fn claim_size(object: &ObservedObject, claim: Option<&ObservedClaim>) -> Option<Finding<Message>> {
    let storage = fields::storage(&object.spec)?;
    let default = Quantity(build::STORAGE_SIZE.to_owned());
    let wanted = storage.size.as_ref().unwrap_or(&default);
    let live = claim?.size.as_ref()?;
    if billionths(&wanted.0)? == billionths(&live.0)? {
        return None;
    }
    let claim = names::volume_claim(&object.name);
    let facts = format!(
        " is {}, but PersistentVolumeClaim {claim} requests {}, and Steersman does not change existing claims.",
        wanted.0, live.0
    );
    let remedy =
        "To grow the volume, edit the claim (its StorageClass must allow expansion), then set the same size here.";
    Some(Finding::warning("StorageSizeIgnored", message![path!(spec.workload.storage.size), facts], remedy))
}

/// A registry request in flight is not reported, a failed one is.
fn labels(snapshot: &Snapshot, resolution: &SpecResolution) -> Option<Finding<Message>> {
    let message = resolution.labels_awaited.clone().filter(|_| !resolution.asks_registry(snapshot))?;
    let remedy = "Check the name of the image, and that the ServiceAccount of the pods has a pull secret for it.";
    Some(Finding::warning(LABELS, message, remedy))
}

fn route(snapshot: &Snapshot) -> Option<Finding<Message>> {
    let ObservedRoute::Refused(why) = &snapshot.route else { return None };
    fields::exposed(&snapshot.object.spec)?;
    let route = names::route(&snapshot.object.name);
    let message = message![path!(spec.networking.expose), format!(": the router does not admit Route {route}: {why}")];
    let host = path!(spec.networking.expose.hostname);
    // OpenShift keeps the last host of a Route if an update omits it.
    let remedy = message![
        "Set ",
        host,
        format!(
            " to a host name that no other Route uses, or remove it and delete Route {route}; Steersman then creates \
             another one."
        )
    ];
    Some(Finding::warning("RouteRefused", message, remedy))
}

/// A certificate of the server does not protect the way from the client to the Ingress.
fn plain_ingress(snapshot: &Snapshot) -> Option<Finding<Message>> {
    let spec = &snapshot.object.spec;
    fields::exposed(spec).and(fields::certificate(spec)).filter(|_| !snapshot.route.answered())?;
    let ingress = names::ingress(&snapshot.object.name);
    let message = message![
        path!(spec.networking.expose),
        format!(": clients outside the cluster reach Ingress {ingress} by plain HTTP, although "),
        path!(spec.networking.tls),
        " makes the server use HTTPS."
    ];
    let remedy = "Add TLS to the ingress controller, such as a default certificate, or expose the server by an Ingress of \
                  your own.";
    Some(Finding::warning("IngressWithoutTls", message, remedy))
}

/// The image's own command starts a single process. A command of the user's own may read the variable LLS_WORKERS.
fn workers(object: &ObservedObject, setup: &Setup) -> Option<Finding<Message>> {
    let workers = fields::workers(&object.spec).filter(|workers| *workers > 1)?;
    let own_command = fields::overrides(&object.spec).and_then(|given| given.command.as_ref());
    if setup.config.is_some() || own_command.is_some_and(|command| !command.is_empty()) {
        return None;
    }
    let message = message![
        path!(spec.workload.workers),
        format!(
            " is {workers}, which sets the requested CPUs only: without a mounted configuration, the command of the \
             image starts one process."
        )
    ];
    let remedy = message!["Set ", path!(spec.providers), " or ", path!(spec.overrideConfig), ", or remove the field."];
    Some(Finding::warning(IGNORED, message, remedy))
}

fn repeated<'a>(of: impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    let mut known = BTreeSet::new();
    of.filter(move |item| !known.insert(*item))
}
