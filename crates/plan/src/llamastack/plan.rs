//! The decision for one object.
//! Comes in: `Seen`; goes out: the children to write, or the findings that stand against it.

use std::time::Duration;

use k8s_openapi::Resource;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube_core::GroupVersionKind;
use steersman_reconcile::{Event, EventType, Finding, Requeue, Severity, WriteOp, sentences};

use super::config::Source;
use super::config::problem::reason;
use super::network::Route;
use super::operator_config::DefaultPolicy;
use super::resolve::{Answer, Setup, resolve};
use super::rules::{blocked, findings};
use super::seen::{ReplicasOwner, RouteSeen, Seen};
use super::{configmap, report, workload};

/// How soon to look again after a new spec was written, should no watch tell what came of it.
const SOON: Duration = Duration::from_secs(10);

/// How soon to look again for a Secret or a ConfigMap that is not there yet, where no watch tells of it: the operator may
/// lack the right to one, or the ConfigMap lies outside the one namespace that it watches.
const AWAITED: Duration = Duration::from_secs(15);

/// In the same case, how soon to look again at what is there, should its content change.
const REREAD: Duration = Duration::from_secs(300);

pub type Plan = steersman_reconcile::Plan<()>;

/// Total: every object gets an answer. While something blocks nothing is written, and what runs stays as it is.
pub fn plan(seen: &Seen) -> Plan {
    // Whatever would be written now, the garbage collector would have to remove again.
    if seen.object.deleting {
        return Plan::default();
    }
    let answer = resolve(seen);
    let findings = findings(seen, &answer);
    let requeue = requeue(seen, &answer);
    match &answer.setup {
        Some(setup) if !blocked(&findings) => {
            let mut events = told(seen, &answer, &findings);
            events.extend(done(seen, setup));
            Plan {
                writes: workload::writes(seen, setup),
                prune: swept(seen, setup),
                events,
                findings,
                requeue,
                resolution: (),
            }
        }
        // The labels of the image are on their way: nothing is known against the object, and nothing is built on a guess.
        None if answer.waits.is_some() && !blocked(&findings) => {
            let events = if report::asking(seen, &answer) { Vec::new() } else { told(seen, &answer, &findings) };
            Plan {
                writes: vec![WriteOp::Owned(workload::account(&seen.object))],
                events,
                findings,
                requeue,
                ..Plan::default()
            }
        }
        _ => Plan { events: told(seen, &answer, &findings), findings, requeue, ..Plan::default() },
    }
}

fn requeue(seen: &Seen, answer: &Answer) -> Requeue {
    let missing = !answer.secrets.is_empty() || !answer.others.is_empty();
    match &answer.setup {
        None if missing && !seen.followed => Requeue::After(AWAITED),
        Some(_) if !report::told(seen) => Requeue::After(SOON),
        _ if !seen.followed || scaled_elsewhere(seen) => Requeue::After(REREAD),
        _ => Requeue::AwaitChange,
    }
}

/// No watch tells when an autoscaler that is not the object's own is gone.
fn scaled_elsewhere(seen: &Seen) -> bool {
    seen.deployment.as_ref().is_some_and(|live| matches!(live.replicas_owner, ReplicasOwner::Autoscaler(_)))
}

/// ConfigMaps only once the pods are made from the ones that are wanted: the old ones may be mounted until then.
fn swept(seen: &Seen, setup: &Setup) -> Vec<GroupVersionKind> {
    let always = [
        kind::<Service>(),
        kind::<Ingress>(),
        kind::<HorizontalPodAutoscaler>(),
        kind::<PodDisruptionBudget>(),
        kind::<RoleBinding>(),
    ];
    let followed = configmap::followed(seen, &setup.mounts(&seen.object.name));
    let route = (seen.route != RouteSeen::NotServed).then(kind::<Route>);
    // One of an earlier operator may come of a setting that only that one knew, and without it everybody could reach the
    // server. The same holds where our own setting cannot be read.
    let unsure = seen.former_policy || seen.settings.operator_config.policy == DefaultPolicy::Unknown;
    let policy = (!unsure).then(kind::<NetworkPolicy>);
    always.into_iter().chain(route).chain(policy).chain(followed.then(kind::<ConfigMap>)).collect()
}

fn kind<K: Resource>() -> GroupVersionKind {
    GroupVersionKind::gvk(K::GROUP, K::VERSION, K::KIND)
}

/// Told once: as soon as the stored status says the same, there is nothing new in it.
fn told(seen: &Seen, answer: &Answer, findings: &[Finding]) -> Vec<Event> {
    match findings.first() {
        Some(first) if !report::tells(seen, findings) => {
            let kind = if first.severity == Severity::Info { EventType::Normal } else { EventType::Warning };
            vec![Event { type_: kind, reason: event_reason(first.reason, answer), message: sentences(findings) }]
        }
        _ => Vec::new(),
    }
}

/// The reasons of conditions are many; events have one for each thing that can go wrong.
fn event_reason(of: &'static str, answer: &Answer) -> &'static str {
    let unmade = answer.source == Source::Generated && !answer.errors.is_empty();
    match of {
        reason::INVALID if unmade => reason::FAILED,
        reason::NO_SECRET | reason::NO_SECRET_KEY => "SecretResolutionFailed",
        reason::FAILED | reason::NO_BASE | reason::VERSION | reason::NO_PROVIDER => reason::FAILED,
        other => other,
    }
}

/// What came to pass since the status was stored.
fn done(seen: &Seen, setup: &Setup) -> Vec<Event> {
    let normal = |reason, message| Event { type_: EventType::Normal, reason, message };
    let generated = report::generated_anew(seen, setup).map(|message| normal("ConfigGenerated", message));
    let updated = report::updated_anew(seen, setup).map(|message| normal("DeploymentUpdated", message));
    generated.into_iter().chain(updated).collect()
}
