//! Renders the status of one object from its snapshot, its plan and the outcome. It equals the stored one if nothing changed,
//! so that a settled object causes no write.

mod config;
mod server;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use steersman_api::llamastack::status::Phase;
use steersman_api::llamastack::v1alpha2::{
    ExposeForm, LlamaStackDistributionSpec, LlamaStackDistributionStatus, PodProblem,
};
use steersman_api::meta::conditions::{self, Statement, Truth};
use steersman_reconcile::{Failure, FieldPath, Finding, Outcome, Severity, message, path, sentences};

use super::build::{network, scaling};
use super::plan::{Plan, SpecFinding, blocked};
use super::resolution::{Resolution, SpecResolution};
use super::snapshot::{ObservedRoute, Snapshot};
use super::stored_status::{
    AVAILABLE, CHILD_REJECTED, CONFIG_GENERATED, DEPLOYMENT_READY, DEPLOYMENT_UPDATED, HEALTH_CHECK, SECRETS_RESOLVED,
    SERVICE_READY, SPEC_ACCEPTED, STORAGE_READY, awaits_labels, condition, reports_generation,
};
use super::{fields, names, pod_problem, secret_change};

/// Order of `status.conditions`: those about the children first, `SpecAccepted` last.
const ORDER: [&str; 9] = [
    DEPLOYMENT_READY,
    STORAGE_READY,
    SERVICE_READY,
    HEALTH_CHECK,
    SECRETS_RESOLVED,
    CONFIG_GENERATED,
    DEPLOYMENT_UPDATED,
    AVAILABLE,
    SPEC_ACCEPTED,
];

/// Name of the distribution of an object that names an image.
const CUSTOM: &str = "custom";

struct Progress {
    phase: Phase,
    /// Text of `DeploymentReady`.
    message: String,
    /// Whether all wanted pods are ready and of the newest template.
    rolled_out: bool,
    /// Whether the observed Deployment is that of the spec.
    applied: bool,
}

/// The spec that the observed pods are of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PodsOf {
    Spec,
    /// The spec was written just now, or could not be written for a moment.
    Previous,
    /// The spec is refused or waits, and counts of it mean nothing.
    LastAccepted,
}

pub fn status(snapshot: &Snapshot, plan: &Plan, outcome: &Outcome) -> LlamaStackDistributionStatus {
    let stored = snapshot.object.status.clone().unwrap_or_default();
    let mut status = stored.clone();
    status.version.get_or_insert_default().operator_version = Some(snapshot.settings.operator_version.clone());
    status.available_replicas = Some(snapshot.deployment.as_ref().map_or(0, |live| live.ready));
    status.distribution_config.get_or_insert_default().available_distributions =
        Some(snapshot.settings.distributions.clone());
    let Resolution::Spec { resolution, codes } = &plan.resolution else {
        status.phase = Some(Phase::Terminating);
        return with_last_updated(&stored, status, snapshot.now);
    };
    status.pod_problem = pod_problem::current(snapshot);
    let refusal = refusal(plan, outcome);
    // A running server with the configuration of this spec keeps its status. A new spec waits for its configuration.
    let waits = resolution.labels_awaited.as_ref().filter(|_| refusal.is_none() && !config::is_generated(snapshot));
    let mut pods_of = PodsOf::LastAccepted;
    let mut statements = match (&refusal, waits) {
        (Some(why), _) => {
            status.phase = Some(Phase::Failed);
            let mut statements = vec![result_statement(DEPLOYMENT_READY, Err(failed(why)))];
            statements.extend(changed_child_statements(snapshot, outcome));
            statements
        }
        (None, Some(why)) => {
            status.phase = Some(if snapshot.deployment.is_some() { Phase::Initializing } else { Phase::Pending });
            let pending = || format!("Deployment is pending: {why}");
            let message = outcome.failure.as_ref().map_or_else(pending, |failure| failed(&failure.to_string()));
            vec![result_statement(DEPLOYMENT_READY, Err(message))]
        }
        (None, None) => {
            let progress = progress(snapshot, status.pod_problem.as_ref(), outcome);
            status.phase = Some(progress.phase);
            pods_of = if progress.applied { PodsOf::Spec } else { PodsOf::Previous };
            set_addresses(snapshot, &progress, &mut status);
            if outcome.failure.is_none() {
                config::set_fields(snapshot, resolution, &mut status);
            }
            child_statements(snapshot, &progress, outcome)
        }
    };
    statements.extend(config::statements(snapshot, resolution, refusal.is_some(), outcome));
    statements.extend(available(snapshot, pods_of, status.pod_problem.as_ref(), outcome));
    // While a registry request is in flight or the pods are unknown, only some of the findings are known.
    let incomplete = resolution.asks_registry(snapshot) || secret_change::stored_codes(snapshot, codes).is_some();
    if refusal.is_some() || !incomplete {
        let rejection = rejection(snapshot, outcome);
        let rejected = rejection.iter().map(SpecFinding::code);
        status.findings = Some(rejected.chain(codes.iter().cloned()).collect());
        statements.push(spec(snapshot, &plan.findings, rejection));
    }
    let mut kept = status.conditions.take().unwrap_or_default();
    remove_unneeded(snapshot, resolution, &mut kept);
    status.conditions = Some(conditions::in_order(
        conditions::merge(&kept, &statements, snapshot.object.generation, snapshot.now),
        &ORDER,
    ));
    with_last_updated(&stored, status, snapshot.now)
}

/// The pod's own problem precedes that of its Deployment, which has no details.
fn with_cause(snapshot: &Snapshot, problem: Option<&PodProblem>, progress: String) -> String {
    let of_deployment = || snapshot.deployment.as_ref().and_then(|live| live.trouble.as_ref());
    match problem.map(|problem| &problem.message).or_else(of_deployment) {
        Some(cause) => format!("{progress}: {cause}"),
        None => progress,
    }
}

/// `lastUpdated` records a change of another field; on its own it would make every reconcile a write.
fn with_last_updated(
    stored: &LlamaStackDistributionStatus,
    mut status: LlamaStackDistributionStatus,
    now: Timestamp,
) -> LlamaStackDistributionStatus {
    if *stored != status {
        status.version.get_or_insert_default().last_updated = Some(conditions::whole_seconds(now));
    }
    status
}

/// The error that blocks the object until something changes. A transient failure does not.
fn refusal(plan: &Plan, outcome: &Outcome) -> Option<String> {
    let blocker = plan.findings.iter().find(|finding| finding.severity == Severity::Blocker);
    let refused = outcome.failure.as_ref().filter(|failure| !failure.transient);
    blocker.map(|finding| finding.message.clone()).or_else(|| refused.map(Failure::to_string))
}

fn failed(why: &str) -> String {
    format!("Resource reconciliation failed: {why}")
}

fn progress(snapshot: &Snapshot, problem: Option<&PodProblem>, outcome: &Outcome) -> Progress {
    let was = snapshot.object.status.as_ref().and_then(|status| status.phase);
    let followed = reports_generation(snapshot) && was != Some(Phase::Failed) && !awaits_labels(snapshot);
    let live = match &snapshot.deployment {
        // After a failed write the observed Deployment is not the wanted one. After a write for a new spec it is older
        // than the spec.
        Some(live) if outcome.failure.is_none() && (followed || outcome.written == 0) => live,
        snapshot => {
            let phase = if snapshot.is_some() { Phase::Initializing } else { Phase::Pending };
            let pending = || "Deployment is pending".to_owned();
            let message = outcome.failure.as_ref().map_or_else(pending, |failure| failed(&failure.to_string()));
            return Progress { phase, message, rolled_out: false, applied: false };
        }
    };
    if scaling::rolled_out(snapshot, live) {
        let phase = if server::serves(snapshot) { Phase::Ready } else { Phase::Initializing };
        return Progress { phase, message: "Deployment is ready".to_owned(), rolled_out: true, applied: true };
    }
    let wanted = scaling::wanted_replicas(snapshot, live);
    let ready = live.ready;
    let message = if ready == 0 {
        "Deployment is pending".to_owned()
    } else if ready < wanted {
        format!("Deployment is scaling: {ready}/{wanted} replicas ready")
    } else if ready > wanted {
        format!("Deployment is scaling down: {ready}/{wanted} replicas ready")
    } else {
        format!("Deployment is rolling out: {}/{wanted} replicas updated", live.updated.min(wanted))
    };
    let message = with_cause(snapshot, problem, message);
    Progress { phase: Phase::Initializing, message, rolled_out: false, applied: true }
}

/// Sets the addresses, the distribution and the server's fields.
fn set_addresses(snapshot: &Snapshot, progress: &Progress, status: &mut LlamaStackDistributionStatus) {
    let object = &snapshot.object;
    let spec = &object.spec;
    let name = fields::distribution(spec).map(ToOwned::to_owned);
    status.service_url =
        Some(names::service_url(network::scheme(spec), &object.name, &object.namespace, fields::port(spec)));
    status.route_url = fields::exposed(spec).map(|expose| route_url(snapshot, expose));
    let config = status.distribution_config.get_or_insert_default();
    config.active_distribution = Some(name.unwrap_or_else(|| CUSTOM.to_owned()));
    server::set_fields(snapshot, progress.rolled_out, status);
}

/// Empty until an address is assigned.
fn route_url(snapshot: &Snapshot, expose: &ExposeForm) -> String {
    match &snapshot.route {
        ObservedRoute::Admitted { host } => return format!("https://{host}"),
        ObservedRoute::Refused(_) => return String::new(),
        ObservedRoute::NotServed | ObservedRoute::Unanswered => {}
    }
    let assigned = snapshot.ingress.as_ref().and_then(|ingress| ingress.address.as_deref());
    assigned.or(network::host(expose)).map(|address| format!("http://{address}")).unwrap_or_default()
}

/// Counts the ready pods of the newest template. One of them is enough. None: the spec was written just now, and the stored
/// condition stays until the result is observed.
fn available(
    snapshot: &Snapshot,
    pods_of: PodsOf,
    problem: Option<&PodProblem>,
    outcome: &Outcome,
) -> Option<Statement> {
    let unavailable = |reason, message| Some(Statement::new(AVAILABLE, Truth::False, reason, message));
    let Some(live) = &snapshot.deployment else {
        let message = format!("0/{} replicas available", fields::replicas(&snapshot.object.spec).max(0));
        return unavailable("ReplicasUnavailable", message);
    };
    let wanted = match pods_of {
        PodsOf::LastAccepted => live.replicas.unwrap_or(1),
        PodsOf::Spec | PodsOf::Previous => scaling::wanted_replicas(snapshot, live),
    };
    let observed = live.observed_generation >= live.generation;
    // The Deployment counts ready pods of all templates. Even if all older pods are among them, the rest is current.
    let older = (live.pods - live.updated).max(0);
    let current = if observed { (live.ready - older).max(0) } else { 0 };
    let counts = format!("{current}/{wanted} replicas available");
    let with_problem =
        |message: String| if current < wanted { with_cause(snapshot, problem, message) } else { message };
    match pods_of {
        PodsOf::Spec if current > 0 => {
            let message = with_problem(format!("{counts} with current config"));
            return Some(Statement::new(AVAILABLE, Truth::True, "MinimumReplicasAvailable", message));
        }
        PodsOf::LastAccepted if current > 0 => {
            return Some(Statement::new(AVAILABLE, Truth::True, "MinimumReplicasAvailable", with_problem(counts)));
        }
        PodsOf::Previous if current > 0 && outcome.failure.is_none() => return None,
        _ => {}
    }
    if !observed || live.updated < wanted || older > 0 {
        let message = format!("Rolling update in progress: {}/{wanted} updated", live.updated);
        return unavailable("RolloutInProgress", with_problem(message));
    }
    let message = match pods_of {
        PodsOf::Previous if current > 0 => format!("{counts}, with the previous config"),
        _ if fields::replicas(&snapshot.object.spec) == 0 && wanted == 0 => {
            let replicas = snapshot.object.field_names().render(&path!(spec.workload.replicas));
            format!("{counts}: {replicas} is 0")
        }
        _ => counts,
    };
    unavailable("ReplicasUnavailable", with_problem(message))
}

fn child_statements(snapshot: &Snapshot, progress: &Progress, outcome: &Outcome) -> Vec<Statement> {
    let ready = progress.rolled_out;
    let spec = &snapshot.object.spec;
    let written = outcome.failure.is_none();
    let deployment = if ready { Ok(progress.message.clone()) } else { Err(progress.message.clone()) };
    [
        Some(result_statement(DEPLOYMENT_READY, deployment)),
        fields::storage(spec).is_some().then(|| result_statement(STORAGE_READY, storage(snapshot, outcome, written))),
        Some(result_statement(SERVICE_READY, service(snapshot, outcome, written))),
        server::health(snapshot, ready),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The children of the previous spec stay while the spec is refused, unless someone deletes them. A condition is
/// reported only if it is false or has changed: an unchanged child says nothing about the new spec.
fn changed_child_statements(snapshot: &Snapshot, outcome: &Outcome) -> Vec<Statement> {
    let statements = [
        result_statement(STORAGE_READY, storage(snapshot, outcome, false)),
        result_statement(SERVICE_READY, service(snapshot, outcome, false)),
    ];
    let changed = |new: &Statement| {
        condition(snapshot, &new.type_)
            .is_some_and(|known| new.truth == Truth::False || known.status != new.truth.as_str())
    };
    statements.into_iter().filter(changed).collect()
}

/// If all was `written`, a child that was not observed has been created since.
fn storage(snapshot: &Snapshot, outcome: &Outcome, written: bool) -> Result<String, String> {
    let name = names::volume_claim(&snapshot.object.name);
    if let Some(failure) = failure_of("PersistentVolumeClaim", outcome) {
        return Err(failed(&failure));
    }
    match &snapshot.volume_claim {
        Some(claim) if claim.phase.as_deref() == Some("Bound") => Ok("Storage is ready".to_owned()),
        None if !written => Err(format!("Failed to get PVC: persistentvolumeclaims {name:?} not found")),
        claim => {
            let phase = claim.as_ref().and_then(|claim| claim.phase.as_deref()).unwrap_or("Pending");
            Err(format!("PVC is not bound: {phase}"))
        }
    }
}

/// The failed write of a child of this kind.
fn failure_of(kind: &str, outcome: &Outcome) -> Option<String> {
    let failure = outcome.failure.as_ref()?;
    (failure.object.kind == kind).then(|| failure.to_string())
}

fn service(snapshot: &Snapshot, outcome: &Outcome, written: bool) -> Result<String, String> {
    if let Some(failure) = failure_of("Service", outcome) {
        return Err(failed(&failure));
    }
    if snapshot.service || written {
        return Ok("Service is ready".to_owned());
    }
    let name = names::service(&snapshot.object.name);
    Err(format!("Failed to get Service: services {name:?} not found"))
}

/// A condition with the Go operator's reasons for success and failure.
fn result_statement(type_: &str, result: Result<String, String>) -> Statement {
    let (good, bad) = match type_ {
        HEALTH_CHECK => ("HealthCheckPassed", "HealthCheckFailed"),
        STORAGE_READY => ("StorageReady", "StorageFailed"),
        SERVICE_READY => ("ServiceReady", "ServiceFailed"),
        _ => ("DeploymentReady", "DeploymentFailed"),
    };
    match result {
        Ok(message) => Statement::new(type_, Truth::True, good, message),
        Err(message) => Statement::new(type_, Truth::False, bad, message),
    }
}

/// The finding about a child that is rejected for good.
fn rejection(snapshot: &Snapshot, outcome: &Outcome) -> Option<SpecFinding> {
    let failure = outcome.failure.as_ref().filter(|failure| !failure.transient)?;
    let field = source_of(&failure.object.kind, &snapshot.object.spec);
    let message = format!("An object that the spec asks for cannot be written: {failure}.");
    let remedy =
        message!["Correct ", &field, ", which it comes from, if its content is rejected. Running pods stay unchanged."];
    Some(SpecFinding { field: Some(field), finding: Finding::blocker(CHILD_REJECTED, message, remedy) })
}

/// The part of the spec that a child of this kind comes from.
fn source_of(kind: &str, spec: &LlamaStackDistributionSpec) -> FieldPath {
    match kind {
        "Deployment" => path!(spec.workload),
        "PersistentVolumeClaim" => path!(spec.workload.storage),
        "HorizontalPodAutoscaler" => path!(spec.workload.autoscaling),
        "PodDisruptionBudget" => {
            fields::disruption_budget(spec).map_or_else(|| path!(spec.workload.replicas), |(path, _)| path)
        }
        "Service" => path!(spec.networking.port),
        "Ingress" | "Route" => path!(spec.networking.expose),
        "NetworkPolicy" => path!(spec.networking.allowedFrom),
        _ => path!(spec),
    }
}

fn spec(snapshot: &Snapshot, findings: &[Finding], rejection: Option<SpecFinding>) -> Statement {
    if let Some(rejection) = rejection {
        let rejection = rejection.finding.render(&snapshot.object.field_names());
        let all: Vec<Finding> = std::iter::once(rejection).chain(findings.iter().cloned()).collect();
        return Statement::new(SPEC_ACCEPTED, Truth::False, CHILD_REJECTED, sentences(&all));
    }
    let truth = if blocked(findings) { Truth::False } else { Truth::True };
    let (reason, message) = match findings.first() {
        Some(first) => (first.reason, sentences(findings)),
        None => (SPEC_ACCEPTED, "Every field of the spec is acted on.".to_owned()),
    };
    Statement::new(SPEC_ACCEPTED, truth, reason, message)
}

/// Removes conditions about fields that the spec does not have.
fn remove_unneeded(snapshot: &Snapshot, resolution: &SpecResolution, kept: &mut Vec<Condition>) {
    let spec: &LlamaStackDistributionSpec = &snapshot.object.spec;
    if fields::storage(spec).is_none() {
        conditions::remove(kept, STORAGE_READY);
    }
    for type_ in config::unneeded(resolution) {
        conditions::remove(kept, type_);
    }
}
