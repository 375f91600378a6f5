//! What an object's status says.
//! Comes in: what was seen, planned and done; goes out: the status, equal to the stored one where there is nothing new.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use steersman_api::llamastack::status::Phase;
use steersman_api::llamastack::v1alpha1::{LlamaStackDistributionStatus, Server};
use steersman_api::meta::conditions::{self, Statement, Truth};

use super::plan::blocked;
use super::seen::{DeploymentSeen, Seen, ServerSeen};
use super::{names, workload};
use crate::{Failure, Finding, Outcome, Plan, Severity};

const DEPLOYMENT: &str = "DeploymentReady";
const HEALTH: &str = "HealthCheck";
const STORAGE: &str = "StorageReady";
const SERVICE: &str = "ServiceReady";
/// Our own: the others say how the children are, this one what became of the spec's fields.
const SPEC: &str = "SpecAccepted";

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
    let mut statements = match refusal(plan, outcome) {
        Some(why) => {
            status.phase = Some(Phase::Failed);
            vec![statement(DEPLOYMENT, Err(failed(&why)))]
        }
        None => {
            let progress = progress(seen, outcome);
            status.phase = Some(progress.phase);
            served(seen, &progress, &mut status);
            living(seen, &progress, outcome)
        }
    };
    statements.push(spec(&plan.findings));
    let mut kept = status.conditions.take().unwrap_or_default();
    forget(&seen.object.spec.server, &mut kept);
    status.conditions = Some(conditions::merge(&kept, &statements, seen.object.generation, seen.now));
    dated(&stored, status, seen.now)
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

/// All findings as running text.
pub fn sentences(findings: &[Finding]) -> String {
    let told = findings.iter().map(|Finding { message, remedy, .. }| {
        let stop = if message.ends_with(['.', '!', '?']) { "" } else { "." };
        format!("{message}{stop} {remedy}")
    });
    told.collect::<Vec<_>>().join(" ")
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
    blocker.map(|finding| finding.message.clone()).or_else(|| refused.map(words))
}

fn words(failure: &Failure) -> String {
    format!("{}: {}", failure.object, failure.message)
}

fn failed(why: &str) -> String {
    format!("Resource reconciliation failed: {why}")
}

fn progress(seen: &Seen, outcome: &Outcome) -> Progress {
    let at = |phase, message: String| Progress { phase, message };
    let was = seen.object.status.as_ref().and_then(|status| status.phase);
    let followed = told(seen) && was != Some(Phase::Failed);
    let live = match &seen.deployment {
        // What could not be written is not what runs, however well that runs. And where something was written for a new
        // spec, what was seen is older and says nothing about it.
        Some(live) if outcome.failure.is_none() && (followed || outcome.written == 0) => live,
        seen => {
            let phase = if seen.is_some() { Phase::Initializing } else { Phase::Pending };
            let pending = || "Deployment is pending".to_owned();
            return at(phase, outcome.failure.as_ref().map_or_else(pending, |failure| failed(&words(failure))));
        }
    };
    let wanted = workload::replicas(seen).or(live.replicas).unwrap_or(1);
    let DeploymentSeen { ready, updated, pods, .. } = *live;
    // A pod that is updated need not be ready, and one that is ready need not be updated: only when no other is left,
    // the ready ones are those of the newest template.
    let rolled_out = updated >= wanted && pods <= updated;
    let why = |message: String| match &live.trouble {
        Some(trouble) => format!("{message}: {trouble}"),
        None => message,
    };
    let current = live.observed_generation >= live.generation;
    match ready {
        _ if ready == wanted && current && rolled_out => at(Phase::Ready, "Deployment is ready".to_owned()),
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

/// What the object serves, where.
fn served(seen: &Seen, progress: &Progress, status: &mut LlamaStackDistributionStatus) {
    let object = &seen.object;
    let server = &object.spec.server;
    let name = server.distribution.name.clone().filter(|name| !name.is_empty());
    status.service_url = workload::wants_service(server)
        .then(|| names::service_url(&object.name, &object.namespace, workload::port(server)));
    status.route_url = None;
    let config = status.distribution_config.get_or_insert_default();
    config.active_distribution = Some(name.unwrap_or_else(|| CUSTOM.to_owned()));
    match &seen.server {
        _ if progress.phase != Phase::Ready => config.providers = None,
        ServerSeen::NotAsked => {}
        ServerSeen::Silent(_) => config.providers = None,
        ServerSeen::Answered { version, providers } => {
            config.providers = Some(providers.clone());
            let known = &mut status.version.get_or_insert_default().llama_stack_server_version;
            *known = version.clone().or(known.take());
        }
    }
}

/// How the children are.
fn living(seen: &Seen, progress: &Progress, outcome: &Outcome) -> Vec<Statement> {
    let ready = progress.phase == Phase::Ready;
    let server = &seen.object.spec.server;
    let deployment = if ready { Ok(progress.message.clone()) } else { Err(progress.message.clone()) };
    let health = match &seen.server {
        _ if !ready => Err("Deployment not ready".to_owned()),
        _ if workload::replicas(seen) == Some(0) => Err("No server runs: spec.replicas is 0".to_owned()),
        ServerSeen::Silent(why) => Err(why.clone()),
        // A pod is ready only once its startup probe has seen the server's own health check pass.
        ServerSeen::NotAsked | ServerSeen::Answered { .. } => Ok("Health check passed".to_owned()),
    };
    [
        Some(statement(DEPLOYMENT, deployment)),
        server.storage.is_some().then(|| statement(STORAGE, storage(seen, outcome))),
        workload::wants_service(server).then(|| statement(SERVICE, service(seen, outcome))),
        Some(statement(HEALTH, health)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Where all was written, a child that was not seen has been made since.
fn storage(seen: &Seen, outcome: &Outcome) -> Result<String, String> {
    let name = names::volume_claim(&seen.object.name);
    if let Some(failure) = failure_of("PersistentVolumeClaim", outcome) {
        return Err(failed(&failure));
    }
    match &seen.volume_claim {
        Some(claim) if claim.phase.as_deref() == Some("Bound") => Ok("Storage is ready".to_owned()),
        None if outcome.failure.is_some() => {
            Err(format!("Failed to get PVC: persistentvolumeclaims {name:?} not found"))
        }
        claim => {
            let phase = claim.as_ref().and_then(|claim| claim.phase.as_deref()).unwrap_or("Pending");
            Err(format!("PVC is not bound: {phase}"))
        }
    }
}

/// What stands against a child of this kind.
fn failure_of(kind: &str, outcome: &Outcome) -> Option<String> {
    let failure = outcome.failure.as_ref()?;
    failure.object.strip_prefix(kind)?.starts_with(' ').then(|| words(failure))
}

fn service(seen: &Seen, outcome: &Outcome) -> Result<String, String> {
    if let Some(failure) = failure_of("Service", outcome) {
        return Err(failed(&failure));
    }
    if seen.service || outcome.failure.is_none() {
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

/// Nothing is said about a child that the spec does not ask for.
fn forget(server: &Server, kept: &mut Vec<Condition>) {
    if server.storage.is_none() {
        conditions::remove(kept, STORAGE);
    }
    if !workload::wants_service(server) {
        conditions::remove(kept, SERVICE);
    }
}
