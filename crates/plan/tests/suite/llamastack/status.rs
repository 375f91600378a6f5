//! What the status says in each situation, word by word, and when it stays silent.

use jiff::SignedDuration;
use serde_json::json;
use steersman_api::llamastack::status::Phase;
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionStatus;
use steersman_plan::llamastack;
use steersman_plan::llamastack::{ObservedClaim, ObservedDeployment, ReplicasOwner, Snapshot, plan};
use steersman_reconcile::{Failure, ObjectId, Outcome};

use super::{a_deployment, a_new_object, a_settled_object, now, stored};

const PLAIN: &str = "{replicas: 2, server: {distribution: {name: starter}}}";
/// Without a port there is no Service, and nobody asks the server.
const UNASKED: &str = "Health check passed, by the probe of the pods. The server is not asked for its version and providers: \
                       it has no Service. Set spec.networking.port to give it one";
const FULL: &str = "{server: {distribution: {name: starter}, containerSpec: {port: 9000}, storage: {}}}";

pub fn told(seen: &Snapshot, outcome: &Outcome) -> LlamaStackDistributionStatus {
    llamastack::status(seen, &plan(seen), outcome)
}

fn after(written: usize) -> Outcome {
    Outcome { written, failure: None }
}

fn failed(transient: bool) -> Outcome {
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

pub fn says(status: &LlamaStackDistributionStatus, type_: &str, expected: [&str; 3]) {
    assert_eq!(condition(status, type_), Some(expected.map(str::to_owned)), "{type_}");
}

#[test]
fn the_phase_follows_the_deployment() {
    let none = "{replicas: 0, server: {distribution: {name: starter}}}";
    let scaled = "{replicas: 2, server: {distribution: {name: starter}, autoscaling: {maxReplicas: 9}}}";
    let hpa = ReplicasOwner::Other("kube-controller-manager".into());
    for (name, spec, deployment, phase, message) in [
        ("nothing there", PLAIN, None, Phase::Pending, "Deployment is pending"),
        ("no pod yet", PLAIN, Some(a_deployment(2, 0)), Phase::Initializing, "Deployment is pending"),
        (
            "one of two",
            PLAIN,
            Some(a_deployment(2, 1)),
            Phase::Initializing,
            "Deployment is scaling: 1/2 replicas ready",
        ),
        (
            "three of two",
            PLAIN,
            Some(a_deployment(2, 3)),
            Phase::Initializing,
            "Deployment is scaling down: 3/2 replicas ready",
        ),
        ("all", PLAIN, Some(a_deployment(2, 2)), Phase::Ready, "Deployment is ready"),
        (
            "scaled by hand to what is not wanted",
            PLAIN,
            Some(a_deployment(3, 3)),
            Phase::Initializing,
            "Deployment is scaling down: 3/2 replicas ready",
        ),
        (
            "a roll-out under way",
            PLAIN,
            Some(ObservedDeployment { updated: 1, ..a_deployment(2, 2) }),
            Phase::Initializing,
            "Deployment is rolling out: 1/2 replicas updated",
        ),
        (
            "a roll-out that is stuck: the new pods wait, the old ones serve",
            PLAIN,
            Some(ObservedDeployment {
                pods: 4,
                trouble: Some("progress deadline exceeded".into()),
                ..a_deployment(2, 2)
            }),
            Phase::Initializing,
            "Deployment is rolling out: 2/2 replicas updated: progress deadline exceeded",
        ),
        (
            "numbers of an earlier generation",
            PLAIN,
            Some(ObservedDeployment { observed_generation: Some(2), ..a_deployment(2, 2) }),
            Phase::Initializing,
            "Deployment is rolling out: 2/2 replicas updated",
        ),
        ("none wanted, none there", none, Some(a_deployment(0, 0)), Phase::Ready, "Deployment is ready"),
        (
            "an autoscaler's number counts",
            scaled,
            Some(ObservedDeployment { replicas_owner: hpa, ..a_deployment(5, 5) }),
            Phase::Ready,
            "Deployment is ready",
        ),
    ] {
        let seen = Snapshot { deployment, ..a_new_object(spec) };
        let status = told(&seen, &Outcome::default());
        assert_eq!(status.phase, Some(phase), "{name}");
        let (truth, reason, health) = match phase {
            Phase::Ready if spec == none => {
                let nobody = ["False", "HealthCheckFailed", "No server runs: spec.replicas is 0"];
                ("True", "DeploymentReady", nobody)
            }
            Phase::Ready => ("True", "DeploymentReady", ["True", "HealthCheckPassed", UNASKED]),
            _ => ("False", "DeploymentFailed", ["False", "HealthCheckFailed", "Deployment not ready"]),
        };
        says(&status, "DeploymentReady", [truth, reason, message]);
        says(&status, "HealthCheck", health);
        assert_eq!(status.available_replicas, Some(seen.deployment.map_or(0, |live| live.ready)), "{name}");
    }
}

/// The worst that a status can do is to call a spec applied that was not.
#[test]
fn what_could_not_be_written_is_not_ready_however_well_the_old_runs() {
    let seen = a_settled_object(FULL);
    let refused = |object: &str| Outcome {
        written: 0,
        failure: Some(Failure {
            object: ObjectId::new(object, "team-a", "starter"),
            message: "the API server answered 403: change freeze".into(),
            transient: true,
            conflict: false,
        }),
    };
    let said = |object: &str| {
        format!("Resource reconciliation failed: {object} team-a/starter: the API server answered 403: change freeze")
    };
    for (object, condition) in
        [("Deployment", "DeploymentReady"), ("Service", "ServiceReady"), ("PersistentVolumeClaim", "StorageReady")]
    {
        let status = told(&seen, &refused(object));
        assert_eq!(status.phase, Some(Phase::Initializing), "{object}");
        let [truth, _, message] = self::condition(&status, condition).unwrap();
        assert_eq!((truth.as_str(), message), ("False", said(object)));
        assert_eq!(self::condition(&status, "DeploymentReady").unwrap()[0], "False", "{object}");
    }
}

#[test]
fn a_ready_object_has_exactly_this_status() {
    let seen = a_settled_object(FULL);
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
            "configHash": seen.object.status.as_ref().unwrap().resolved_distribution.as_ref().unwrap().config_hash,
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
    assert_eq!(json!(seen.object.status), expected);
}

#[test]
fn a_settled_object_keeps_its_status_to_the_letter() {
    let mut seen = a_settled_object(FULL);
    seen.now += SignedDuration::from_hours(5);
    let before = seen.object.status.clone().unwrap();
    assert_eq!(told(&seen, &Outcome::default()), before);

    seen.volume_claim = Some(ObservedClaim { phase: Some("Lost".into()), size: None });
    let after = told(&seen, &Outcome::default());
    says(&after, "StorageReady", ["False", "StorageFailed", "PVC is not bound: Lost"]);
    let since = |status: &LlamaStackDistributionStatus, type_: &str| {
        let known = status.conditions.iter().flatten().find(|condition| condition.type_ == type_);
        known.unwrap().last_transition_time.0
    };
    assert_eq!(since(&after, "StorageReady"), seen.now);
    assert_eq!(since(&after, "DeploymentReady"), now());
    assert_eq!(after.version.unwrap().last_updated.unwrap().0, seen.now, "it moves with what else moves");
}

#[test]
fn children_that_were_just_made_are_not_called_missing() {
    let status = told(&a_new_object(FULL), &after(4));
    assert_eq!(status.phase, Some(Phase::Pending));
    says(&status, "StorageReady", ["False", "StorageFailed", "PVC is not bound: Pending"]);
    says(&status, "ServiceReady", ["True", "ServiceReady", "Service is ready"]);
}

#[test]
fn old_pods_do_not_make_a_new_spec_ready() {
    let mut seen = a_settled_object(FULL);
    seen.object.generation = Some(2);
    let status = told(&seen, &after(1));
    assert_eq!(status.phase, Some(Phase::Initializing));
    says(&status, "DeploymentReady", ["False", "DeploymentFailed", "Deployment is pending"]);

    assert_eq!(told(&seen, &after(0)).phase, Some(Phase::Ready), "nothing had to be written for it");
    seen.object.generation = Some(1);
    assert_eq!(told(&seen, &after(1)).phase, Some(Phase::Ready), "a repair of the same spec");
}

#[test]
fn a_blocker_fails_the_object_and_says_what_to_do() {
    let mut seen = a_settled_object(FULL);
    seen.object.generation = Some(2);
    seen.object.spec.distribution.name = Some("nobody".into());
    let status = told(&seen, &Outcome::default());
    assert_eq!(status.phase, Some(Phase::Failed));
    let message =
        "Resource reconciliation failed: failed to validate distribution: nobody. Distribution name not supported";
    says(&status, "DeploymentReady", ["False", "DeploymentFailed", message]);
    says(&status, "ServiceReady", ["True", "ServiceReady", "Service is ready"]);
    let accepted = condition(&status, "SpecAccepted").unwrap();
    assert_eq!(accepted[..2], ["False", "DistributionUnknown"]);
    assert!(accepted[2].ends_with(
        " Set spec.distribution.name to one of postgres-demo, starter, or \
         spec.distribution.image."
    ));
    let config = status.distribution_config.unwrap();
    assert_eq!(config.active_distribution.as_deref(), Some("starter"), "that one still runs");
    assert_eq!(status.available_replicas, Some(1));
}

#[test]
fn an_ignored_field_is_told_and_the_object_gets_ready_all_the_same() {
    let seen = a_settled_object("{server: {distribution: {name: starter}, autoscaling: {maxReplicas: 0}}}");
    let status = seen.object.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Ready));
    let accepted = condition(&status, "SpecAccepted").unwrap();
    assert_eq!(accepted[..2], ["True", "AutoscalingIgnored"]);
    assert!(accepted[2].starts_with("spec.workload.autoscaling.maxReplicas is 0"));
}

#[test]
fn a_refused_write_fails_the_object_and_one_that_may_yet_succeed_makes_it_wait() {
    let message = "Resource reconciliation failed: Service team-a/starter-service: no";
    let refused = told(&a_settled_object(FULL), &failed(false));
    assert_eq!(refused.phase, Some(Phase::Failed));
    says(&refused, "DeploymentReady", ["False", "DeploymentFailed", message]);

    assert_eq!(told(&a_settled_object(FULL), &failed(true)).phase, Some(Phase::Initializing));

    let mut changed = a_settled_object(FULL);
    changed.object.generation = Some(2);
    let status = told(&changed, &failed(true));
    assert_eq!(status.phase, Some(Phase::Initializing));
    says(&status, "DeploymentReady", ["False", "DeploymentFailed", message]);

    let fresh = told(&a_new_object(FULL), &failed(true));
    assert_eq!(fresh.phase, Some(Phase::Pending));
    says(&fresh, "DeploymentReady", ["False", "DeploymentFailed", message]);
    says(&fresh, "ServiceReady", ["False", "ServiceFailed", message]);
    let missing = "Failed to get PVC: persistentvolumeclaims \"starter-pvc\" not found";
    says(&fresh, "StorageReady", ["False", "StorageFailed", missing]);
}

/// While nothing can be written, a child that somebody removes stays away.
#[test]
fn a_refused_spec_says_which_of_the_children_before_it_are_left() {
    let mut seen = a_settled_object(FULL);
    seen.object.generation = Some(2);
    seen.object.spec.distribution.name = Some("nope".into());
    let status = told(&seen, &Outcome::default());
    assert_eq!(status.phase, Some(Phase::Failed));
    says(&status, "ServiceReady", ["True", "ServiceReady", "Service is ready"]);
    let known = status.conditions.iter().flatten().find(|known| known.type_ == "ServiceReady").unwrap();
    assert_ne!(known.observed_generation, Some(2), "it is the Service of the spec before");

    (seen.service, seen.volume_claim) = (false, None);
    let status = told(&seen, &Outcome::default());
    let missing = "Failed to get Service: services \"starter-service\" not found";
    says(&status, "ServiceReady", ["False", "ServiceFailed", missing]);
    let missing = "Failed to get PVC: persistentvolumeclaims \"starter-pvc\" not found";
    says(&status, "StorageReady", ["False", "StorageFailed", missing]);

    seen.object.status = Some(stored(&status));
    seen.service = true;
    says(&told(&seen, &Outcome::default()), "ServiceReady", ["True", "ServiceReady", "Service is ready"]);

    let failed = told(&a_settled_object(FULL), &failed(false));
    let message = "Resource reconciliation failed: Service team-a/starter-service: no";
    says(&failed, "ServiceReady", ["False", "ServiceFailed", message]);
}

#[test]
fn what_is_repaired_after_a_failure_is_not_ready_at_once() {
    let mut seen = a_settled_object(FULL);
    seen.object.status = Some(stored(&told(&seen, &failed(false))));
    assert_eq!(told(&seen, &after(1)).phase, Some(Phase::Initializing));
    assert_eq!(told(&seen, &after(0)).phase, Some(Phase::Ready));
}

#[test]
fn conditions_of_children_that_are_no_longer_wanted_go_and_those_of_others_stay() {
    let mut seen = a_settled_object(FULL);
    let status = seen.object.status.as_mut().unwrap();
    let mut foreign = status.conditions.as_ref().unwrap()[0].clone();
    foreign.type_ = "example.com/Audited".into();
    status.conditions.as_mut().unwrap().push(foreign);
    status.route_url = Some(String::new());
    seen.object.spec = a_new_object(PLAIN).object.spec;
    seen.object.spec.distribution.name = None;
    seen.object.spec.distribution.image = Some("registry.example/x:1".into());
    let status = told(&seen, &Outcome::default());
    let types: Vec<_> = status.conditions.iter().flatten().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(types, ["DeploymentReady", "HealthCheck", "Available", "SpecAccepted", "example.com/Audited"]);
    assert_eq!((status.service_url, status.route_url), (None, None));
    assert_eq!(status.distribution_config.unwrap().active_distribution.as_deref(), Some("custom"));
}

#[test]
fn an_object_that_is_being_deleted_says_so() {
    let mut seen = a_settled_object(FULL);
    seen.object.deleting = true;
    let status = told(&seen, &Outcome::default());
    assert_eq!(status.phase, Some(Phase::Terminating));
    assert_eq!(status.conditions, seen.object.status.unwrap().conditions);
}
