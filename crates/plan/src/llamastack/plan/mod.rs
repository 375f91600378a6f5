//! Plans one object: the children to write, or the findings that block them.

mod findings;
mod resolve;

use std::time::Duration;

use k8s_openapi::Resource;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube_core::GroupVersionKind;
use steersman_api::llamastack::v1alpha2::FindingCode;
use steersman_reconcile::{Event, EventType, Finding, Message, Requeue, Severity, WriteOp, sentences};

use self::findings::findings;
use self::resolve::resolve;
use super::build::network::Route;
use super::build::{self, adoption, configmap};
use super::config::Source;
use super::config::problem::reason;
use super::operator_config::DefaultPolicy;
use super::resolution::{Resolution, Setup, SpecResolution};
use super::snapshot::{ObservedRoute, ReplicasOwner, Snapshot};
use super::{names, pod_problem, secret_change, stored_status};

pub use findings::SpecFinding;
pub use resolve::{LabelsWanted, labels_wanted, referred};

/// Requeue after a new spec was written, in case a watch misses the result.
const NEW_SPEC_INTERVAL: Duration = Duration::from_secs(10);

/// Requeue for a missing Secret or ConfigMap without a watch: the operator may lack the right to watch it, or the
/// ConfigMap is outside the one namespace that it watches.
pub const MISSING_REFERENCE_INTERVAL: Duration = Duration::from_secs(15);

/// Requeue for the content of an existing one without a watch.
const REREAD_INTERVAL: Duration = Duration::from_secs(300);

/// Requeue while an autoscaler that the object does not own decides the replicas: its deletion is not watched.
const FOREIGN_AUTOSCALER_INTERVAL: Duration = Duration::from_secs(30);

pub type Plan = steersman_reconcile::Plan<Resolution>;

/// Total: every object gets a plan. While a finding blocks, nothing is written and the running server stays unchanged.
pub fn plan(snapshot: &Snapshot) -> Plan {
    // The garbage collector would have to remove anything that is written now.
    if snapshot.object.deleting {
        return Plan::empty(Resolution::Deleting);
    }
    let resolution = resolve(snapshot);
    let found = findings(snapshot, &resolution);
    let codes: Vec<FindingCode> = found.iter().map(SpecFinding::code).collect();
    let reported = secret_change::stored_codes(snapshot, &codes).unwrap_or_else(|| codes.clone());
    // Conditions and events have the paths of the author's version, codes those of the stored one.
    let names = snapshot.object.field_names();
    let findings: Vec<Finding> = found.iter().map(|found| found.finding.render(&names)).collect();
    let mut events = finding_events(snapshot, &resolution, &findings, &reported);
    events.extend(pod_event(snapshot));
    let (mut writes, mut prune) = (Vec::new(), Vec::new());
    match &resolution.setup {
        Some(setup) if !blocked(&findings) => {
            events.extend(progress_events(snapshot, setup));
            events.extend(content_events(snapshot, setup));
            writes = build::writes(snapshot, setup);
            prune = pruned_kinds(snapshot, setup);
        }
        // The labels of the image are awaited, and nothing is built without them. Only the account is written: reading the
        // labels may need its pull secrets.
        None if resolution.labels_awaited.is_some() && !blocked(&findings) => {
            if resolution.asks_registry(snapshot) {
                events.clear();
            }
            writes = vec![WriteOp::Owned(build::account(&snapshot.object))];
        }
        _ => {}
    }
    let requeue = requeue(snapshot, &resolution);
    Plan {
        writes,
        prune,
        events,
        findings,
        requeue,
        resolution: Resolution::Spec { resolution: Box::new(resolution), codes },
    }
}

/// The findings of the plan, with paths that can be rendered for any API version.
pub fn findings_of(snapshot: &Snapshot) -> Vec<Finding<Message>> {
    findings(snapshot, &resolve(snapshot)).into_iter().map(|found| found.finding).collect()
}

pub fn blocked(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Blocker)
}

fn requeue(snapshot: &Snapshot, resolution: &SpecResolution) -> Requeue {
    let missing = !resolution.missing_secrets.is_empty() || !resolution.config_map_errors.is_empty();
    match &resolution.setup {
        None if missing && !snapshot.followed => Requeue::After(MISSING_REFERENCE_INTERVAL),
        Some(_) if !stored_status::reports_generation(snapshot) => Requeue::After(NEW_SPEC_INTERVAL),
        _ if has_foreign_autoscaler(snapshot) => Requeue::After(FOREIGN_AUTOSCALER_INTERVAL),
        _ if !snapshot.followed => Requeue::After(REREAD_INTERVAL),
        _ => Requeue::AwaitChange,
    }
}

/// No watch covers autoscalers that the object does not own.
fn has_foreign_autoscaler(snapshot: &Snapshot) -> bool {
    snapshot.deployment.as_ref().is_some_and(|live| matches!(live.replicas_owner, ReplicasOwner::Autoscaler(_)))
}

/// ConfigMaps are pruned only after the rollout of a new pod template: until then, old pods may mount old ConfigMaps.
fn pruned_kinds(snapshot: &Snapshot, setup: &Setup) -> Vec<GroupVersionKind> {
    // RoleBindings stay: pods of a server that ran as the user of its image may not start without.
    let always =
        [kind::<Service>(), kind::<Ingress>(), kind::<HorizontalPodAutoscaler>(), kind::<PodDisruptionBudget>()];
    let followed = configmap::is_rolled_out(snapshot, &setup.mounts(&snapshot.object.name));
    let route = (snapshot.route != ObservedRoute::NotServed).then(kind::<Route>);
    // An earlier operator's policy may follow from a setting that only that operator knew, and without the policy
    // everyone can reach the server. The same holds if our own setting cannot be read.
    let unsure = snapshot.has_legacy_policy || snapshot.settings.operator_config.policy == DefaultPolicy::Unknown;
    let policy = (!unsure).then(kind::<NetworkPolicy>);
    always.into_iter().chain(route).chain(policy).chain(followed.then(kind::<ConfigMap>)).collect()
}

fn kind<K: Resource>() -> GroupVersionKind {
    GroupVersionKind::gvk(K::GROUP, K::VERSION, K::KIND)
}

/// The findings share one event, sent until the stored status reports them.
fn finding_events(
    snapshot: &Snapshot,
    resolution: &SpecResolution,
    findings: &[Finding],
    codes: &[FindingCode],
) -> Vec<Event> {
    match findings.first() {
        Some(first) if !stored_status::reports_findings(snapshot, findings, codes) => {
            let type_ = if first.severity == Severity::Info { EventType::Normal } else { EventType::Warning };
            vec![Event { type_, reason: event_reason(first.reason, resolution), message: sentences(findings) }]
        }
        _ => Vec::new(),
    }
}

/// Conditions have many reasons; events have one for each kind of failure.
fn event_reason(reason: &'static str, resolution: &SpecResolution) -> &'static str {
    let not_generated = resolution.source == Source::Generated && !resolution.config_errors.is_empty();
    match reason {
        reason::INVALID if not_generated => reason::FAILED,
        reason::NO_SECRET | reason::NO_SECRET_KEY => "SecretResolutionFailed",
        reason::FAILED | reason::NO_BASE | reason::VERSION | reason::NO_PROVIDER => reason::FAILED,
        other => other,
    }
}

/// A crash loop or another problem of the pods that the stored status does not report yet.
fn pod_event(snapshot: &Snapshot) -> Option<Event> {
    let problem = pod_problem::current(snapshot)?;
    let is_new = !stored_status::reports_pod_problem(snapshot, &problem);
    is_new.then(|| Event::warning("ServerNotStarting", problem.message))
}

/// The ConfigMaps whose content differs from the one that the live pods were started with. The write that follows replaces
/// the pods.
fn content_events(snapshot: &Snapshot, setup: &Setup) -> Vec<Event> {
    let Some(live) = snapshot.deployment.as_ref().filter(|_| adoption::adopted_template(snapshot, setup).is_none())
    else {
        return Vec::new();
    };
    // A generated configuration has an event of its own.
    let config = setup.config.as_ref().filter(|config| config.text.is_none());
    let config = config.map(|config| (build::CONFIG_HASH, &config.hash, config.name.clone()));
    let bundle = setup.bundle.as_ref();
    let bundle = bundle.map(|bundle| (build::TRUST_HASH, &bundle.hash, names::ca_bundle(&snapshot.object.name)));
    let changed = |(annotation, hash, _): &(&str, &String, String)| {
        let started_with = live.template["metadata"]["annotations"][*annotation].as_str();
        started_with.is_some_and(|started_with| started_with != hash.as_str())
    };
    let event = |(_, _, name): (&str, &String, String)| {
        let message = format!(
            "The content of ConfigMap {name} changed. The pods are replaced, because they read it at \
                               their start"
        );
        Event::normal("ConfigMapChanged", message)
    };
    config.into_iter().chain(bundle).filter(changed).map(event).collect()
}

/// Events for progress that the stored status does not report yet.
fn progress_events(snapshot: &Snapshot, setup: &Setup) -> Vec<Event> {
    let generated = setup.generated_config().filter(|(_, config)| !stored_status::reports_generated(snapshot, config));
    let generated = generated.map(|(generated, _)| Event::normal("ConfigGenerated", generated.summary()));
    let deployed = setup.deployed_config(snapshot).filter(|config| !stored_status::reports_deployed(snapshot, config));
    let deployed = deployed.map(|config| Event::normal("DeploymentUpdated", config.deployed()));
    generated.into_iter().chain(deployed).collect()
}
