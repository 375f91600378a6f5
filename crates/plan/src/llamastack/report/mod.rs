//! What an object's status says.
//! Comes in: what was seen, planned and done; goes out: the status, equal to the stored one where there is nothing new.

mod config;
mod pods;
mod server;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use steersman_api::llamastack::status::Phase;
use steersman_api::llamastack::v1alpha2::{ExposeForm, LlamaStackDistributionSpec, LlamaStackDistributionStatus};
use steersman_api::meta::conditions::{self, Statement, Truth};
use steersman_reconcile::{Failure, Finding, Outcome, Severity, sentences};

use super::plan::Plan;
use super::resolve::{Answer, resolve};
use super::rules::blocked;
use super::seen::{DeploymentSeen, RouteSeen, Seen};
use super::{fields, names, network, scaling};
use crate::oci::LabelsSeen;

pub use config::{generated_anew, updated_anew};

const DEPLOYMENT: &str = "DeploymentReady";
const HEALTH: &str = "HealthCheck";
const STORAGE: &str = "StorageReady";
const SERVICE: &str = "ServiceReady";
const AVAILABLE: &str = "Available";
/// Our own: the others say how the children are, this one what became of the spec's fields.
const SPEC: &str = "SpecAccepted";

/// In the order of the way from the children to the spec.
const ORDER: [&str; 9] =
    [DEPLOYMENT, STORAGE, SERVICE, HEALTH, config::SECRETS, config::GENERATED, config::UPDATED, AVAILABLE, SPEC];

/// Stands for the name of the distribution where the object names an image.
const CUSTOM: &str = "custom";

/// Where the Deployment is on its way, with the words for it.
struct Progress {
    phase: Phase,
    message: String,
}

pub fn report(seen: &Seen, plan: &Plan, outcome: &Outcome) -> LlamaStackDistributionStatus {
    let stored = seen.object.status.clone().unwrap_or_default();
    let mut status = stored.clone();
    status.version.get_or_insert_default().operator_version = Some(seen.settings.operator_version.clone());
    status.available_replicas = Some(seen.deployment.as_ref().map_or(0, |live| live.ready));
    status.distribution_config.get_or_insert_default().available_distributions =
        Some(seen.settings.distributions.clone());
    if seen.object.deleting {
        status.phase = Some(Phase::Terminating);
        return dated(&stored, status, seen.now);
    }
    let answer = resolve(seen);
    let refusal = refusal(plan, outcome);
    // What runs already is as good as it was; what is new waits with its configuration.
    let waits = answer.waits.as_ref().filter(|_| refusal.is_none() && !config::made(seen));
    let mut statements = match (&refusal, waits) {
        (Some(why), _) => {
            status.phase = Some(Phase::Failed);
            let mut said = vec![statement(DEPLOYMENT, Err(failed(why)))];
            said.extend(remaining(seen, outcome));
            said
        }
        (None, Some(why)) => {
            status.phase = Some(if seen.deployment.is_some() { Phase::Initializing } else { Phase::Pending });
            let pending = || format!("Deployment is pending: {why}");
            let said = outcome.failure.as_ref().map_or_else(pending, |failure| failed(&failure.to_string()));
            vec![statement(DEPLOYMENT, Err(said))]
        }
        (None, None) => {
            let progress = progress(seen, outcome);
            status.phase = Some(progress.phase);
            served(seen, &progress, &mut status);
            if outcome.failure.is_none() {
                config::resolved(seen, &answer, &mut status);
            }
            living(seen, &progress, outcome)
        }
    };
    statements.extend(config::statements(seen, &answer, refusal.is_some(), outcome));
    statements.extend(available(seen, refusal.is_some() || waits.is_some(), status.phase));
    // While a registry is asked, only a part of what there is to say of the spec is known.
    if refusal.is_some() || !asking(seen, &answer) {
        statements.push(spec(&plan.findings));
    }
    let mut kept = status.conditions.take().unwrap_or_default();
    forget(seen, &answer, &mut kept);
    status.conditions =
        Some(conditions::in_order(conditions::merge(&kept, &statements, seen.object.generation, seen.now), &ORDER));
    dated(&stored, status, seen.now)
}

/// Whether a registry is being asked for the labels that decide. It is, after each start of the operator, and soon answers.
pub fn asking(seen: &Seen, answer: &Answer) -> bool {
    answer.waits.is_some() && seen.labels == LabelsSeen::Awaited
}

/// Whether the stored status already speaks of this generation of the object.
pub fn told(seen: &Seen) -> bool {
    let generation = seen.object.generation;
    generation.is_some() && stored(seen, DEPLOYMENT).is_some_and(|known| known.observed_generation == generation)
}

/// Whether the stored status already has these findings.
pub fn tells(seen: &Seen, findings: &[Finding]) -> bool {
    // Through the same gate as when it was stored, which may have cut it.
    let would = conditions::merge(&[], &[spec(findings)], None, seen.now);
    stored(seen, SPEC).is_some_and(|known| would.iter().any(|new| new.message == known.message))
}

fn stored<'a>(seen: &'a Seen, type_: &str) -> Option<&'a Condition> {
    conditions::find(seen.object.status.as_ref()?.conditions.as_deref()?, type_)
}

/// `lastUpdated` says when something else changed; on its own it would make every pass a write.
fn dated(
    stored: &LlamaStackDistributionStatus,
    mut status: LlamaStackDistributionStatus,
    now: Timestamp,
) -> LlamaStackDistributionStatus {
    if *stored != status {
        let seconds = Timestamp::from_second(now.as_second()).unwrap_or(now);
        status.version.get_or_insert_default().last_updated = Some(Time(seconds));
    }
    status
}

/// What stands against the object until somebody changes something. A failure that may pass by itself does not.
fn refusal(plan: &Plan, outcome: &Outcome) -> Option<String> {
    let blocker = plan.findings.iter().find(|finding| finding.severity == Severity::Blocker);
    let refused = outcome.failure.as_ref().filter(|failure| !failure.transient);
    blocker.map(|finding| finding.message.clone()).or_else(|| refused.map(Failure::to_string))
}

fn failed(why: &str) -> String {
    format!("Resource reconciliation failed: {why}")
}

fn progress(seen: &Seen, outcome: &Outcome) -> Progress {
    let at = |phase, message: String| Progress { phase, message };
    let was = seen.object.status.as_ref().and_then(|status| status.phase);
    let followed = told(seen) && was != Some(Phase::Failed) && !config::waited(seen);
    let live = match &seen.deployment {
        // What could not be written is not what runs, however well that runs. And where something was written for a new
        // spec, what was seen is older and says nothing about it.
        Some(live) if outcome.failure.is_none() && (followed || outcome.written == 0) => live,
        seen => {
            let phase = if seen.is_some() { Phase::Initializing } else { Phase::Pending };
            let pending = || "Deployment is pending".to_owned();
            return at(phase, outcome.failure.as_ref().map_or_else(pending, |failure| failed(&failure.to_string())));
        }
    };
    let wanted = wanted(seen, live);
    let DeploymentSeen { ready, updated, .. } = *live;
    let why = |message: String| pods::explained(seen, DEPLOYMENT, message);
    match ready {
        _ if rolled_out(seen, live) => at(Phase::Ready, "Deployment is ready".to_owned()),
        0 => at(Phase::Initializing, why("Deployment is pending".to_owned())),
        _ if ready < wanted => {
            at(Phase::Initializing, why(format!("Deployment is scaling: {ready}/{wanted} replicas ready")))
        }
        _ if ready > wanted => {
            at(Phase::Initializing, why(format!("Deployment is scaling down: {ready}/{wanted} replicas ready")))
        }
        _ => {
            let updated = updated.min(wanted);
            at(Phase::Initializing, why(format!("Deployment is rolling out: {updated}/{wanted} replicas updated")))
        }
    }
}

/// All pods that there should be are ready, and of the newest template. A pod that is updated need not be ready, and one
/// that is ready need not be updated: only when no other is left, the ready ones are those of the newest template.
pub fn rolled_out(seen: &Seen, live: &DeploymentSeen) -> bool {
    let wanted = wanted(seen, live);
    let current = live.observed_generation >= live.generation;
    current && live.ready == wanted && live.updated >= wanted && live.pods <= live.updated
}

/// How many pods there should be now.
fn wanted(seen: &Seen, live: &DeploymentSeen) -> i32 {
    scaling::replicas(seen).or(live.replicas).unwrap_or(1)
}

/// What the object serves, where.
fn served(seen: &Seen, progress: &Progress, status: &mut LlamaStackDistributionStatus) {
    let object = &seen.object;
    let spec = &object.spec;
    let name = fields::distribution(spec).map(ToOwned::to_owned);
    status.service_url = fields::wants_service(spec)
        .then(|| names::service_url(network::scheme(spec), &object.name, &object.namespace, fields::port(spec)));
    status.route_url = fields::exposed(spec).map(|expose| route_url(seen, expose));
    let config = status.distribution_config.get_or_insert_default();
    config.active_distribution = Some(name.unwrap_or_else(|| CUSTOM.to_owned()));
    server::shown(seen, progress.phase == Phase::Ready, status);
}

/// Empty where no address has been assigned yet.
fn route_url(seen: &Seen, expose: &ExposeForm) -> String {
    match &seen.route {
        RouteSeen::Admitted { host } => return format!("https://{host}"),
        RouteSeen::Refused(_) => return String::new(),
        RouteSeen::NotServed | RouteSeen::Unanswered => {}
    }
    let assigned = seen.ingress.as_ref().and_then(|ingress| ingress.address.as_deref());
    assigned.or(network::host(expose)).map(|address| format!("http://{address}")).unwrap_or_default()
}

/// How many pods answer. Of a spec that cannot be acted on, the pods of the one before are counted.
fn available(seen: &Seen, refused: bool, phase: Option<Phase>) -> Option<Statement> {
    let say = |truth, reason: &str, message| {
        Some(Statement { type_: AVAILABLE.to_owned(), truth, reason: reason.to_owned(), message })
    };
    let Some(live) = &seen.deployment else {
        let desired = fields::replicas(&seen.object.spec);
        return say(Truth::False, "ReplicasUnavailable", format!("0/{desired} replicas available"));
    };
    let (wanted, DeploymentSeen { ready, updated, pods: all, .. }) = (wanted(seen, live), live);
    // Also while old pods serve beside new ones that are not ready: those that are available have not the current config.
    let rolling = live.observed_generation < live.generation || *updated < wanted || all > updated;
    let why = |message: String| pods::explained(seen, AVAILABLE, message);
    match phase {
        Some(Phase::Ready) => say(
            Truth::True,
            "MinimumReplicasAvailable",
            format!("{ready}/{wanted} replicas available with current config"),
        ),
        _ if refused && *ready >= wanted && !rolling => {
            say(Truth::True, "MinimumReplicasAvailable", format!("{ready}/{wanted} replicas available"))
        }
        _ if rolling => say(
            Truth::False,
            "RolloutInProgress",
            why(format!("Rolling update in progress: {updated}/{wanted} updated")),
        ),
        _ => say(Truth::False, "ReplicasUnavailable", why(format!("{ready}/{wanted} replicas available"))),
    }
}

/// How the children are.
fn living(seen: &Seen, progress: &Progress, outcome: &Outcome) -> Vec<Statement> {
    let ready = progress.phase == Phase::Ready;
    let spec = &seen.object.spec;
    let written = outcome.failure.is_none();
    let deployment = if ready { Ok(progress.message.clone()) } else { Err(progress.message.clone()) };
    [
        Some(statement(DEPLOYMENT, deployment)),
        fields::storage(spec).is_some().then(|| statement(STORAGE, storage(seen, outcome, written))),
        fields::wants_service(spec).then(|| statement(SERVICE, service(seen, outcome, written))),
        server::health(seen, ready),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Of a spec that cannot be acted on, the children of the one before stay, unless somebody else removes them. That they are
/// still as they were is no word about the new spec.
fn remaining(seen: &Seen, outcome: &Outcome) -> Vec<Statement> {
    let said = [statement(STORAGE, storage(seen, outcome, false)), statement(SERVICE, service(seen, outcome, false))];
    let news = |new: &Statement| {
        stored(seen, &new.type_).is_some_and(|known| new.truth == Truth::False || known.status != new.truth.as_str())
    };
    said.into_iter().filter(news).collect()
}

/// Where all was `written`, a child that was not seen has been made since.
fn storage(seen: &Seen, outcome: &Outcome, written: bool) -> Result<String, String> {
    let name = names::volume_claim(&seen.object.name);
    if let Some(failure) = failure_of("PersistentVolumeClaim", outcome) {
        return Err(failed(&failure));
    }
    match &seen.volume_claim {
        Some(claim) if claim.phase.as_deref() == Some("Bound") => Ok("Storage is ready".to_owned()),
        None if !written => Err(format!("Failed to get PVC: persistentvolumeclaims {name:?} not found")),
        claim => {
            let phase = claim.as_ref().and_then(|claim| claim.phase.as_deref()).unwrap_or("Pending");
            Err(format!("PVC is not bound: {phase}"))
        }
    }
}

/// What stands against a child of this kind.
fn failure_of(kind: &str, outcome: &Outcome) -> Option<String> {
    let failure = outcome.failure.as_ref()?;
    (failure.object.kind == kind).then(|| failure.to_string())
}

fn service(seen: &Seen, outcome: &Outcome, written: bool) -> Result<String, String> {
    if let Some(failure) = failure_of("Service", outcome) {
        return Err(failed(&failure));
    }
    if seen.service || written {
        return Ok("Service is ready".to_owned());
    }
    let name = names::service(&seen.object.name);
    Err(format!("Failed to get Service: services {name:?} not found"))
}

fn statement(type_: &str, said: Result<String, String>) -> Statement {
    let (good, bad) = match type_ {
        HEALTH => ("HealthCheckPassed", "HealthCheckFailed"),
        STORAGE => ("StorageReady", "StorageFailed"),
        SERVICE => ("ServiceReady", "ServiceFailed"),
        _ => ("DeploymentReady", "DeploymentFailed"),
    };
    let (truth, reason, message) = match said {
        Ok(message) => (Truth::True, good, message),
        Err(message) => (Truth::False, bad, message),
    };
    Statement { type_: type_.to_owned(), truth, reason: reason.to_owned(), message }
}

fn spec(findings: &[Finding]) -> Statement {
    let truth = if blocked(findings) { Truth::False } else { Truth::True };
    let (reason, message) = match findings.first() {
        Some(first) => (first.reason, sentences(findings)),
        None => (SPEC, "Every field of the spec is acted on.".to_owned()),
    };
    Statement { type_: SPEC.to_owned(), truth, reason: reason.to_owned(), message }
}

/// Nothing is said about what the spec does not ask for.
fn forget(seen: &Seen, answer: &Answer, kept: &mut Vec<Condition>) {
    let spec: &LlamaStackDistributionSpec = &seen.object.spec;
    if fields::storage(spec).is_none() {
        conditions::remove(kept, STORAGE);
    }
    if !fields::wants_service(spec) {
        conditions::remove(kept, SERVICE);
    }
    for type_ in config::unasked(answer) {
        conditions::remove(kept, type_);
    }
}
