//! The findings of a plan: those of the object by `rules`, and one function for each rule about the cluster.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;
use steersman_api::llamastack::v1alpha2::{FindingCode, FindingSeverity};
use steersman_reconcile::quantity::billionths;
use steersman_reconcile::{FieldPath, Finding, Message, Severity, message, path};

use crate::llamastack::annotations::KEEP_VOLUME;
use crate::llamastack::build::{self, adoption};
use crate::llamastack::config::problem::reason::{IGNORED, LABELS};
use crate::llamastack::config::{FieldError, base};
use crate::llamastack::resolution::{Setup, SpecResolution};
use crate::llamastack::rules::{self, AddedVolumes};
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
    let added = setup.map(|setup| AddedVolumes {
        config: setup.config.is_some(),
        trust: setup.bundle.is_some(),
        pod: &setup.pod,
    });
    let of_object = rules::check(Some(&object.name), &object.spec, added.as_ref());
    let of_cluster = [
        (path!(spec.distribution), resolution.image_error.clone()),
        (path!(spec.networking.port), port(object)),
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
    let of_cluster = of_cluster.into_iter().filter_map(|(field, finding)| Some((Some(field), finding?)));
    let of_fields = |problems: &[FieldError], severity| -> Vec<(Option<FieldPath>, Finding<Message>)> {
        problems.iter().map(|problem| (Some(problem.path.clone()), problem.finding(severity))).collect()
    };
    let unread: Vec<FieldError> = object.unread.iter().cloned().map(unread_problem).collect();
    let settings = snapshot.settings.operator_config.findings(object).into_iter().map(|finding| (None, finding.into()));
    let mut findings: Vec<SpecFinding> = of_fields(&of_object.errors, Severity::Blocker)
        .into_iter()
        .chain(of_cluster)
        .chain(of_fields(&of_object.warnings, Severity::Warning))
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

fn adopted(snapshot: &Snapshot, setup: &Setup) -> Option<Finding<Message>> {
    let kept = adoption::adopted_template(snapshot, setup)?;
    let mut template = build::template(snapshot, setup);
    // Our default placement is no reason to report running pods as different.
    let given = fields::spread_constraints(&snapshot.object.spec);
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
    if setup.config.is_some() || fields::has_own_start(&object.spec) {
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
