//! The exact status in each situation, and when it stays unchanged.

use jiff::SignedDuration;
use serde_json::json;
use steersman_api::llamastack::status::Phase;
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionStatus;
use steersman_plan::llamastack;
use steersman_plan::llamastack::{ObservedClaim, ObservedDeployment, ReplicasOwner, Snapshot, plan};
use steersman_reconcile::{Failure, ObjectId, Outcome};

use super::{now, observed_deployment, settled_snapshot, stored_status, v1alpha1_snapshot};

const SPEC_WITHOUT_PORT: &str = "{replicas: 2, server: {distribution: {name: starter}}}";
/// Health message of a server that has not been queried yet.
const NOT_QUERIED: &str = "The pods are ready; the first health check of the server is pending";
pub const SPEC_WITH_CHILDREN: &str =
    "{server: {distribution: {name: starter}, containerSpec: {port: 9000}, storage: {}}}";

pub fn render_status(snapshot: &Snapshot, outcome: &Outcome) -> LlamaStackDistributionStatus {
    llamastack::status(snapshot, &plan(snapshot), outcome)
}

fn outcome_after(written: usize) -> Outcome {
    Outcome { written, failure: None }
}

fn failed_outcome(transient: bool) -> Outcome {
    let failure = Failure {
        object: ObjectId::new("Service", "team-a", "starter-service"),
        message: "no".into(),
        transient,
        conflict: false,
    };
    Outcome { written: 1, failure: Some(failure) }
}

/// Status, reason and message of one condition.
pub fn condition(status: &LlamaStackDistributionStatus, type_: &str) -> Option<[String; 3]> {
    let known = status.conditions.iter().flatten().find(|condition| condition.type_ == type_)?;
    Some([known.status.clone(), known.reason.clone(), known.message.clone()])
}

pub fn assert_condition(status: &LlamaStackDistributionStatus, type_: &str, expected: [&str; 3]) {
    assert_eq!(condition(status, type_), Some(expected.map(str::to_owned)), "{type_}");
}

#[test]
fn phase_follows_deployment() {
    let none = "{replicas: 0, server: {distribution: {name: starter}}}";
    let scaled = "{replicas: 2, server: {distribution: {name: starter}, autoscaling: {maxReplicas: 9}}}";
    let hpa = ReplicasOwner::Other("kube-controller-manager".into());
    for (name, spec, deployment, phase, message) in [
        ("no Deployment", SPEC_WITHOUT_PORT, None, Phase::Pending, "Deployment is pending"),
        (
            "no pod yet",
            SPEC_WITHOUT_PORT,
            Some(observed_deployment(2, 0)),
            Phase::Initializing,
            "Deployment is pending",
        ),
        (
            "one of two",
            SPEC_WITHOUT_PORT,
            Some(observed_deployment(2, 1)),
            Phase::Initializing,
            "Deployment is scaling: 1/2 replicas ready",
        ),
        (
            "three of two",
            SPEC_WITHOUT_PORT,
            Some(observed_deployment(2, 3)),
            Phase::Initializing,
            "Deployment is scaling down: 3/2 replicas ready",
        ),
        ("all", SPEC_WITHOUT_PORT, Some(observed_deployment(2, 2)), Phase::Ready, "Deployment is ready"),
        (
            "scaled by hand to what is not wanted",
            SPEC_WITHOUT_PORT,
            Some(observed_deployment(3, 3)),
            Phase::Initializing,
            "Deployment is scaling down: 3/2 replicas ready",
        ),
        (
            "a roll-out under way",
            SPEC_WITHOUT_PORT,
            Some(ObservedDeployment { updated: 1, ..observed_deployment(2, 2) }),
            Phase::Initializing,
            "Deployment is rolling out: 1/2 replicas updated",
        ),
        (
            "a roll-out that is stuck: the new pods wait, the old ones serve",
            SPEC_WITHOUT_PORT,
            Some(ObservedDeployment {
                pods: 4,
                trouble: Some("progress deadline exceeded".into()),
                ..observed_deployment(2, 2)
            }),
            Phase::Initializing,
            "Deployment is rolling out: 2/2 replicas updated: progress deadline exceeded",
        ),
        (
            "numbers of an earlier generation",
            SPEC_WITHOUT_PORT,
            Some(ObservedDeployment { observed_generation: Some(2), ..observed_deployment(2, 2) }),
            Phase::Initializing,
            "Deployment is rolling out: 2/2 replicas updated",
        ),
        ("none wanted, none there", none, Some(observed_deployment(0, 0)), Phase::Ready, "Deployment is ready"),
        (
            "an autoscaler's number counts",
            scaled,
            Some(ObservedDeployment { replicas_owner: hpa, ..observed_deployment(5, 5) }),
            Phase::Ready,
            "Deployment is ready",
        ),
    ] {
        let snapshot = Snapshot { deployment, ..v1alpha1_snapshot(spec) };
        let status = render_status(&snapshot, &Outcome::default());
        assert_eq!(status.phase, Some(phase), "{name}");
        let (truth, reason, health) = match phase {
            Phase::Ready if spec == none => {
                let no_server = ["False", "HealthCheckFailed", "No server is running: spec.workload.replicas is 0"];
                ("True", "DeploymentReady", no_server)
            }
            Phase::Ready => ("True", "DeploymentReady", ["Unknown", "HealthCheckPending", NOT_QUERIED]),
            _ => ("False", "DeploymentFailed", ["False", "HealthCheckFailed", "Deployment not ready"]),
        };
        assert_condition(&status, "DeploymentReady", [truth, reason, message]);
        assert_condition(&status, "HealthCheck", health);
        assert_eq!(status.available_replicas, Some(snapshot.deployment.map_or(0, |live| live.ready)), "{name}");
    }
}

/// A spec that was not applied must never be reported as ready.
#[test]
fn failed_write_prevents_ready() {
    let snapshot = settled_snapshot(SPEC_WITH_CHILDREN);
    let rejection_of = |object: &str| Outcome {
        written: 0,
        failure: Some(Failure {
            object: ObjectId::new(object, "team-a", "starter"),
            message: "the API server answered 403: change freeze".into(),
            transient: true,
            conflict: false,
        }),
    };
    let expected_message = |object: &str| {
        format!("Resource reconciliation failed: {object} team-a/starter: the API server answered 403: change freeze")
    };
    for (object, condition) in
        [("Deployment", "DeploymentReady"), ("Service", "ServiceReady"), ("PersistentVolumeClaim", "StorageReady")]
    {
        let status = render_status(&snapshot, &rejection_of(object));
        assert_eq!(status.phase, Some(Phase::Initializing), "{object}");
        let [truth, _, message] = self::condition(&status, condition).unwrap();
        assert_eq!((truth.as_str(), message), ("False", expected_message(object)));
        assert_eq!(self::condition(&status, "DeploymentReady").unwrap()[0], "False", "{object}");
    }
}

#[test]
fn ready_object_has_expected_status() {
    let snapshot = settled_snapshot(SPEC_WITH_CHILDREN);
    let condition = |type_: &str, reason: &str, message: &str| {
        json!({
            "type": type_, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": "2026-11-15T23:00:00Z", "observedGeneration": 1,
        })
    };
    let expected = json!({
        "phase": "Ready",
        "resolvedDistribution": {
            "image": super::STARTER,
            "configSource": "embedded",
            "configHash": snapshot.object.status.as_ref().unwrap().resolved_distribution.as_ref().unwrap().config_hash,
        },
        "version": { "operatorVersion": "0.1.0", "llamaStackServerVersion": "0.7.1",
            "lastUpdated": "2026-11-15T23:00:00Z" },
        "distributionConfig": {
            "activeDistribution": "starter",
            "availableDistributions": { "postgres-demo": "postgres:1", "starter": super::STARTER },
            "providers": [],
        },
        "availableReplicas": 1,
        "serviceURL": "http://starter-service.team-a.svc.cluster.local:9000",
        "conditions": [
            condition("DeploymentReady", "DeploymentReady", "Deployment is ready"),
            condition("StorageReady", "StorageReady", "Storage is ready"),
            condition("ServiceReady", "ServiceReady", "Service is ready"),
            condition("HealthCheck", "HealthCheckPassed", "Health check passed"),
            condition("Available", "MinimumReplicasAvailable", "1/1 replicas available with current config"),
            condition("SpecAccepted", "SpecAccepted", "Every field of the spec is acted on."),
        ],
        "findings": [],
    });
    assert_eq!(json!(snapshot.object.status), expected);
}

#[test]
fn settled_object_keeps_status_unchanged() {
    let mut snapshot = settled_snapshot(SPEC_WITH_CHILDREN);
    snapshot.now += SignedDuration::from_hours(5);
    let before = snapshot.object.status.clone().unwrap();
    assert_eq!(render_status(&snapshot, &Outcome::default()), before);

    snapshot.volume_claim = Some(ObservedClaim { phase: Some("Lost".into()), ..ObservedClaim::default() });
    let after = render_status(&snapshot, &Outcome::default());
    assert_condition(&after, "StorageReady", ["False", "StorageFailed", "PVC is not bound: Lost"]);
    let transition_time = |status: &LlamaStackDistributionStatus, type_: &str| {
        let known = status.conditions.iter().flatten().find(|condition| condition.type_ == type_);
        known.unwrap().last_transition_time.0
    };
    assert_eq!(transition_time(&after, "StorageReady"), snapshot.now);
    assert_eq!(transition_time(&after, "DeploymentReady"), now());
    assert_eq!(after.version.unwrap().last_updated.unwrap().0, snapshot.now, "the time changes with any other change");
}

#[test]
fn new_children_are_not_reported_missing() {
    let status = render_status(&v1alpha1_snapshot(SPEC_WITH_CHILDREN), &outcome_after(4));
    assert_eq!(status.phase, Some(Phase::Pending));
    assert_condition(&status, "StorageReady", ["False", "StorageFailed", "PVC is not bound: Pending"]);
    assert_condition(&status, "ServiceReady", ["True", "ServiceReady", "Service is ready"]);
}

#[test]
fn old_pods_keep_new_spec_unready() {
    let mut snapshot = settled_snapshot(SPEC_WITH_CHILDREN);
    snapshot.object.generation = Some(2);
    let status = render_status(&snapshot, &outcome_after(1));
    assert_eq!(status.phase, Some(Phase::Initializing));
    assert_condition(&status, "DeploymentReady", ["False", "DeploymentFailed", "Deployment is pending"]);

    assert_eq!(render_status(&snapshot, &outcome_after(0)).phase, Some(Phase::Ready), "the new spec needed no write");
    snapshot.object.generation = Some(1);
    assert_eq!(
        render_status(&snapshot, &outcome_after(1)).phase,
        Some(Phase::Ready),
        "repairs of the same spec keep Ready"
    );
}

#[test]
fn blocker_fails_object_with_remedy() {
    let mut snapshot = settled_snapshot(SPEC_WITH_CHILDREN);
    snapshot.object.generation = Some(2);
    snapshot.object.spec.distribution.name = Some("nobody".into());
    let status = render_status(&snapshot, &Outcome::default());
    assert_eq!(status.phase, Some(Phase::Failed));
    let message =
        "Resource reconciliation failed: failed to validate distribution: nobody. Distribution name not supported";
    assert_condition(&status, "DeploymentReady", ["False", "DeploymentFailed", message]);
    assert_condition(&status, "ServiceReady", ["True", "ServiceReady", "Service is ready"]);
    let accepted = condition(&status, "SpecAccepted").unwrap();
    assert_eq!(accepted[..2], ["False", "DistributionUnknown"]);
    assert!(accepted[2].ends_with(
        " Set spec.distribution.name to one of postgres-demo, starter, or \
         spec.distribution.image."
    ));
    let config = status.distribution_config.unwrap();
    assert_eq!(config.active_distribution.as_deref(), Some("starter"), "the previous distribution still runs");
    assert_eq!(status.available_replicas, Some(1));
}

#[test]
fn ignored_field_is_reported_on_ready_object() {
    let snapshot = settled_snapshot("{server: {distribution: {name: starter}, autoscaling: {maxReplicas: 0}}}");
    let status = snapshot.object.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Ready));
    let accepted = condition(&status, "SpecAccepted").unwrap();
    assert_eq!(accepted[..2], ["True", "AutoscalingIgnored"]);
    assert!(accepted[2].starts_with("spec.workload.autoscaling.maxReplicas is 0"));
}

#[test]
fn only_permanent_write_failure_fails_object() {
    let message = "Resource reconciliation failed: Service team-a/starter-service: no";
    let failed_status = render_status(&settled_snapshot(SPEC_WITH_CHILDREN), &failed_outcome(false));
    assert_eq!(failed_status.phase, Some(Phase::Failed));
    assert_condition(&failed_status, "DeploymentReady", ["False", "DeploymentFailed", message]);

    assert_eq!(
        render_status(&settled_snapshot(SPEC_WITH_CHILDREN), &failed_outcome(true)).phase,
        Some(Phase::Initializing)
    );

    let mut changed = settled_snapshot(SPEC_WITH_CHILDREN);
    changed.object.generation = Some(2);
    let status = render_status(&changed, &failed_outcome(true));
    assert_eq!(status.phase, Some(Phase::Initializing));
    assert_condition(&status, "DeploymentReady", ["False", "DeploymentFailed", message]);

    let new_status = render_status(&v1alpha1_snapshot(SPEC_WITH_CHILDREN), &failed_outcome(true));
    assert_eq!(new_status.phase, Some(Phase::Pending));
    assert_condition(&new_status, "DeploymentReady", ["False", "DeploymentFailed", message]);
    assert_condition(&new_status, "ServiceReady", ["False", "ServiceFailed", message]);
    let missing = "Failed to get PVC: persistentvolumeclaims \"starter-pvc\" not found";
    assert_condition(&new_status, "StorageReady", ["False", "StorageFailed", missing]);
}

/// A rejected spec writes nothing, so that deleted children are not restored.
#[test]
fn rejected_spec_reports_remaining_children() {
    let mut snapshot = settled_snapshot(SPEC_WITH_CHILDREN);
    snapshot.object.generation = Some(2);
    snapshot.object.spec.distribution.name = Some("nope".into());
    let status = render_status(&snapshot, &Outcome::default());
    assert_eq!(status.phase, Some(Phase::Failed));
    assert_condition(&status, "ServiceReady", ["True", "ServiceReady", "Service is ready"]);
    let known = status.conditions.iter().flatten().find(|known| known.type_ == "ServiceReady").unwrap();
    assert_ne!(known.observed_generation, Some(2), "the Service belongs to the previous spec");

    (snapshot.service, snapshot.volume_claim) = (false, None);
    let status = render_status(&snapshot, &Outcome::default());
    let missing = "Failed to get Service: services \"starter-service\" not found";
    assert_condition(&status, "ServiceReady", ["False", "ServiceFailed", missing]);
    let missing = "Failed to get PVC: persistentvolumeclaims \"starter-pvc\" not found";
    assert_condition(&status, "StorageReady", ["False", "StorageFailed", missing]);

    snapshot.object.status = Some(stored_status(&status));
    snapshot.service = true;
    assert_condition(
        &render_status(&snapshot, &Outcome::default()),
        "ServiceReady",
        ["True", "ServiceReady", "Service is ready"],
    );

    let failed = render_status(&settled_snapshot(SPEC_WITH_CHILDREN), &failed_outcome(false));
    let message = "Resource reconciliation failed: Service team-a/starter-service: no";
    assert_condition(&failed, "ServiceReady", ["False", "ServiceFailed", message]);
}

#[test]
fn repair_after_failure_is_initializing_first() {
    let mut snapshot = settled_snapshot(SPEC_WITH_CHILDREN);
    snapshot.object.status = Some(stored_status(&render_status(&snapshot, &failed_outcome(false))));
    assert_eq!(render_status(&snapshot, &outcome_after(1)).phase, Some(Phase::Initializing));
    assert_eq!(render_status(&snapshot, &outcome_after(0)).phase, Some(Phase::Ready));
}

#[test]
fn unneeded_conditions_are_removed_foreign_ones_stay() {
    let mut snapshot = settled_snapshot(SPEC_WITH_CHILDREN);
    let status = snapshot.object.status.as_mut().unwrap();
    let mut foreign = status.conditions.as_ref().unwrap()[0].clone();
    foreign.type_ = "example.com/Audited".into();
    status.conditions.as_mut().unwrap().push(foreign);
    status.route_url = Some(String::new());
    snapshot.object.spec = v1alpha1_snapshot(SPEC_WITHOUT_PORT).object.spec;
    snapshot.object.spec.distribution.name = None;
    snapshot.object.spec.distribution.image = Some("registry.example/x:1".into());
    let status = render_status(&snapshot, &Outcome::default());
    let types: Vec<_> = status.conditions.iter().flatten().map(|condition| condition.type_.as_str()).collect();
    let expected =
        ["DeploymentReady", "ServiceReady", "HealthCheck", "Available", "SpecAccepted", "example.com/Audited"];
    assert_eq!(types, expected);
    assert_eq!(status.route_url, None);
    assert_eq!(status.distribution_config.unwrap().active_distribution.as_deref(), Some("custom"));
}

#[test]
fn deleting_object_is_terminating() {
    let mut snapshot = settled_snapshot(SPEC_WITH_CHILDREN);
    snapshot.object.deleting = true;
    let status = render_status(&snapshot, &Outcome::default());
    assert_eq!(status.phase, Some(Phase::Terminating));
    assert_eq!(status.conditions, snapshot.object.status.unwrap().conditions);
}

/// Task 3.8: one ready pod with the current config is enough.
#[test]
fn one_current_pod_makes_server_available() {
    let live = |replicas, ready, updated, pods| {
        let mut snapshot = settled_snapshot(SPEC_WITHOUT_PORT);
        let spec = snapshot.object.spec.workload.as_mut().unwrap();
        spec.replicas = Some(replicas);
        snapshot.deployment =
            Some(ObservedDeployment { ready, updated, pods, ..observed_deployment(replicas, replicas) });
        render_status(&snapshot, &Outcome::default())
    };
    let available = |message| ["True", "MinimumReplicasAvailable", message];
    let cases = [
        ("all", live(3, 3, 3, 3), available("3/3 replicas available with current config")),
        ("one of three", live(3, 1, 3, 3), available("1/3 replicas available with current config")),
        ("a scale-down", live(1, 3, 3, 3), available("3/1 replicas available with current config")),
        (
            "an old pod among three ready ones",
            live(3, 3, 2, 3),
            available("2/3 replicas available with current config"),
        ),
        ("none", live(3, 0, 3, 3), ["False", "ReplicasUnavailable", "0/3 replicas available"]),
        (
            "no replicas",
            live(0, 0, 0, 0),
            ["False", "ReplicasUnavailable", "0/0 replicas available: spec.workload.replicas is 0"],
        ),
        ("old pods alone", live(3, 3, 0, 3), ["False", "RolloutInProgress", "Rolling update in progress: 0/3 updated"]),
        (
            "as many old pods as ready ones",
            live(3, 1, 2, 3),
            ["False", "RolloutInProgress", "Rolling update in progress: 2/3 updated"],
        ),
    ];
    for (name, status, expected) in cases {
        assert_eq!(condition(&status, "Available").unwrap(), expected, "{name}");
    }
    let mut unobserved = settled_snapshot(SPEC_WITHOUT_PORT);
    unobserved.deployment.as_mut().unwrap().observed_generation = Some(2);
    let status = render_status(&unobserved, &Outcome::default());
    assert_eq!(condition(&status, "Available").unwrap()[1], "RolloutInProgress", "the counts are of an older template");
}

#[test]
fn written_spec_keeps_available_until_observed() {
    let mut snapshot = settled_snapshot(SPEC_WITHOUT_PORT);
    let stored = condition(snapshot.object.status.as_ref().unwrap(), "Available").unwrap();
    assert_eq!(stored[0], "True");
    snapshot.object.generation = Some(2);
    snapshot.object.spec.workload.get_or_insert_default().replicas = Some(3);
    let written = render_status(&snapshot, &outcome_after(1));
    assert_eq!(condition(&written, "Available").unwrap(), stored, "one pod runs, and more are about to be added");
    let known = written.conditions.iter().flatten().find(|known| known.type_ == "Available").unwrap();
    assert_eq!(known.observed_generation, Some(1));
    let failed = render_status(&snapshot, &failed_outcome(true));
    assert_eq!(condition(&failed, "Available").unwrap()[0], "False", "no pod has the new spec");
    snapshot.deployment.as_mut().unwrap().ready = 0;
    let stopped = render_status(&snapshot, &outcome_after(1));
    assert_eq!(condition(&stopped, "Available").unwrap()[0], "False");
}

#[test]
fn refused_spec_does_not_change_available_counts() {
    for (replicas, message) in [(-1, "1/1 replicas available"), (3, "1/1 replicas available")] {
        let mut snapshot = settled_snapshot("{replicas: 1, server: {distribution: {name: starter}}}");
        snapshot.object.generation = Some(2);
        snapshot.object.spec.distribution.name = Some("nobody".into());
        snapshot.object.spec.workload.get_or_insert_default().replicas = Some(replicas);
        let status = render_status(&snapshot, &Outcome::default());
        assert_condition(&status, "Available", ["True", "MinimumReplicasAvailable", message]);
        snapshot.deployment = None;
        let status = render_status(&snapshot, &Outcome::default());
        let message = format!("0/{} replicas available", replicas.max(0));
        assert_condition(&status, "Available", ["False", "ReplicasUnavailable", &message]);
    }
}

#[test]
fn rejected_child_makes_spec_unaccepted() {
    let status = render_status(&settled_snapshot(SPEC_WITH_CHILDREN), &failed_outcome(false));
    let [truth, reason, message] = condition(&status, "SpecAccepted").unwrap();
    assert_eq!((truth.as_str(), reason.as_str()), ("False", "ChildRejected"));
    assert!(message.contains("Service team-a/starter-service: no. Correct spec.networking.port, which"), "{message}");
    let status = render_status(&settled_snapshot(SPEC_WITH_CHILDREN), &failed_outcome(true));
    assert_eq!(condition(&status, "SpecAccepted").unwrap()[0], "True", "a failed call says nothing about the spec");
}

#[test]
fn rejected_child_names_its_source_once() {
    for (kind, stored, older) in [
        ("Deployment", "spec.workload", "spec.server"),
        ("PersistentVolumeClaim", "spec.workload.storage", "spec.server.storage"),
        ("HorizontalPodAutoscaler", "spec.workload.autoscaling", "spec.server.autoscaling"),
        ("PodDisruptionBudget", "spec.workload.replicas", "spec.replicas"),
        ("Service", "spec.networking.port", "spec.server.containerSpec.port"),
        ("Ingress", "spec.networking.expose", "spec.network.exposeRoute"),
        ("Route", "spec.networking.expose", "spec.network.exposeRoute"),
        ("NetworkPolicy", "spec.networking.allowedFrom", "spec.network.allowedFrom"),
        ("ConfigMap", "spec", "spec"),
    ] {
        let mut outcome = failed_outcome(false);
        outcome.failure.as_mut().unwrap().object.kind = kind.into();
        let mut snapshot = settled_snapshot("{server: {distribution: {name: starter}, autoscaling: {maxReplicas: 0}}}");
        for (version, path) in [("v1alpha2", stored), ("v1alpha1", older)] {
            snapshot.object.written_in = version.into();
            let status = render_status(&snapshot, &outcome);
            let message = &condition(&status, "SpecAccepted").unwrap()[2];
            assert!(message.contains(&format!("Correct {path}, which it comes from")), "{kind} {version}: {message}");
            let codes: Vec<_> =
                status.findings.iter().flatten().map(|code| (code.reason.as_str(), code.field.as_deref())).collect();
            let ignored = ("AutoscalingIgnored", Some("spec.workload.autoscaling.maxReplicas"));
            assert_eq!(codes, [("ChildRejected", Some(stored)), ignored], "{kind}");
        }
        snapshot.object.status = Some(stored_status(&render_status(&snapshot, &outcome)));
        assert_eq!(plan(&snapshot).events, [], "the other findings have been reported");
        let repaired = render_status(&snapshot, &Outcome::default());
        assert_eq!(repaired.findings.unwrap().len(), 1);
    }
}

#[test]
fn status_and_events_name_authors_fields() {
    let texts = |version: &str, spec: &str| {
        let mut snapshot = settled_snapshot(spec);
        snapshot.object.written_in = version.to_owned();
        snapshot.object.generation = Some(2);
        let plan = plan(&snapshot);
        let status = render_status(&snapshot, &Outcome::default());
        format!("{:?} {}", plan.events, json!(status.conditions))
    };
    for (spec, older, newer) in [
        (
            "{server: {distribution: {name: starter}, autoscaling: {maxReplicas: 0}}}",
            "spec.server.autoscaling.maxReplicas",
            "spec.workload.autoscaling.maxReplicas",
        ),
        ("{server: {distribution: {name: nope}}}", "spec.server.distribution.name", "spec.distribution.name"),
        ("{replicas: 0, server: {distribution: {name: starter}}}", "spec.replicas", "spec.workload.replicas"),
    ] {
        let (in_v1alpha1, in_v1alpha2) = (texts("v1alpha1", spec), texts("v1alpha2", spec));
        assert!(in_v1alpha1.contains(older) && !in_v1alpha1.contains(newer), "{in_v1alpha1}");
        assert!(in_v1alpha2.contains(newer) && !in_v1alpha2.contains(older), "{in_v1alpha2}");
        assert_eq!(texts("", spec), in_v1alpha2, "the stored version if the author's is unknown");
    }
}
