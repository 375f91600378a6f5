//! Decisions that depend on the stored status: on its codes, or on texts if a status has no codes.

use serde_json::json;
use steersman_api::llamastack::v1alpha2::{LlamaStackDistributionStatus, PodProblem};
use steersman_plan::llamastack::{ObservedReference, Snapshot, plan};
use steersman_plan::pods::{ObservedContainer, ObservedPod, Terminated};
use steersman_reconcile::Outcome;

use super::configuration::with_references;
use super::status::{condition, render_status};
use super::{observed_deployment, settle, settled_snapshot, stored_status, v1alpha2_snapshot};

const SPEC_WITH_PORT: &str = "{server: {distribution: {name: starter}, containerSpec: {port: 9000}}}";
const SPEC_WITH_IGNORED_FIELD: &str = "{server: {distribution: {name: starter}, autoscaling: {maxReplicas: 0}}}";
const SPEC_WITH_PROVIDER: &str =
    "{distribution: {name: starter}, providers: {inference: {provider: vllm, endpoint: 'http://vllm:8000'}}}";

/// The status as versions without codes stored it.
fn without_codes(mut status: LlamaStackDistributionStatus) -> LlamaStackDistributionStatus {
    (status.findings, status.deployed_config_map_name, status.pod_problem) = (None, None, None);
    status
}

fn set_message(snapshot: &mut Snapshot, type_: &str, message: &str) {
    let conditions = snapshot.object.status.as_mut().unwrap().conditions.as_mut().unwrap();
    conditions.iter_mut().find(|known| known.type_ == type_).unwrap().message = message.into();
}

fn event_reasons(snapshot: &Snapshot) -> Vec<&'static str> {
    plan(snapshot).events.iter().map(|event| event.reason).collect()
}

fn crashing_pod() -> ObservedPod {
    let container = ObservedContainer {
        name: "llama-stack".into(),
        terminated: Some(Terminated { exit_code: 3, reason: "Error".into(), message: String::new() }),
        ..ObservedContainer::default()
    };
    ObservedPod { containers: vec![container], ..ObservedPod::default() }
}

#[test]
fn findings_have_severity_reason_and_field() {
    let snapshot = settled_snapshot(SPEC_WITH_IGNORED_FIELD);
    let codes = json!([{ "severity": "Warning", "reason": "AutoscalingIgnored", "field": "spec.workload.autoscaling.maxReplicas" }]);
    assert_eq!(json!(snapshot.object.status.unwrap().findings), codes);
}

#[test]
fn finding_event_does_not_depend_on_text() {
    let mut snapshot = settled_snapshot(SPEC_WITH_IGNORED_FIELD);
    set_message(&mut snapshot, "SpecAccepted", "another text");
    assert_eq!(event_reasons(&snapshot), [""; 0]);
    snapshot.object.status.as_mut().unwrap().findings.as_mut().unwrap()[0].reason = "Other".into();
    assert_eq!(event_reasons(&snapshot), ["AutoscalingIgnored"]);
}

#[test]
fn findings_of_new_generation_cause_event() {
    let mut snapshot = settled_snapshot(SPEC_WITH_IGNORED_FIELD);
    snapshot.object.generation = Some(2);
    assert_eq!(event_reasons(&snapshot), ["AutoscalingIgnored"]);
    snapshot.object.status = Some(stored_status(&render_status(&snapshot, &Outcome::default())));
    assert_eq!(event_reasons(&snapshot), [""; 0]);
}

#[test]
fn legacy_finding_text_counts_as_reported() {
    let mut snapshot = settled_snapshot(SPEC_WITH_IGNORED_FIELD);
    snapshot.object.status = snapshot.object.status.map(without_codes);
    assert_eq!(event_reasons(&snapshot), [""; 0]);
    set_message(
        &mut snapshot,
        "SpecAccepted",
        "spec.workload.autoscaling.maxReplicas is 0, so no HorizontalPodAutoscaler is created. Set it to the maximum \
         number of pods, or remove spec.workload.autoscaling.",
    );
    assert_eq!(event_reasons(&snapshot), [""; 0], "the text of version 0.1.0");
    set_message(&mut snapshot, "SpecAccepted", "Every field of the spec is acted on.");
    assert_eq!(event_reasons(&snapshot), ["AutoscalingIgnored"]);
    // The Go operator has no such condition.
    snapshot.object.status.as_mut().unwrap().conditions.as_mut().unwrap().retain(|known| known.type_ != "SpecAccepted");
    assert_eq!(event_reasons(&snapshot), ["AutoscalingIgnored"]);
}

#[test]
fn deployed_config_map_decides_event_not_text() {
    let mut snapshot = settle(with_references(v1alpha2_snapshot(SPEC_WITH_PROVIDER)));
    let status = snapshot.object.status.as_mut().unwrap();
    let generated = status.config_generation.as_ref().unwrap().config_map_name.clone();
    assert_eq!(status.deployed_config_map_name, generated);
    set_message(&mut snapshot, "DeploymentUpdated", "another text");
    assert_eq!(event_reasons(&snapshot), [""; 0]);
    snapshot.object.status.as_mut().unwrap().deployed_config_map_name = Some("starter-config-00000000".into());
    assert_eq!(event_reasons(&snapshot), ["DeploymentUpdated"]);
}

#[test]
fn legacy_deployed_config_text_counts_as_reported() {
    let mut snapshot = settle(with_references(v1alpha2_snapshot(SPEC_WITH_PROVIDER)));
    snapshot.object.status = snapshot.object.status.map(without_codes);
    let name = snapshot.object.status.as_ref().unwrap().config_generation.clone().unwrap().config_map_name.unwrap();
    set_message(&mut snapshot, "DeploymentUpdated", &format!("Deployment updated with config {name}"));
    assert_eq!(event_reasons(&snapshot), [""; 0]);
    set_message(&mut snapshot, "DeploymentUpdated", "Deployment updated with config starter-config-00000000");
    assert_eq!(event_reasons(&snapshot), ["DeploymentUpdated"]);
    set_message(&mut snapshot, "DeploymentUpdated", "Failed to update Deployment: no");
    assert_eq!(event_reasons(&snapshot), ["DeploymentUpdated"]);
}

#[test]
fn pod_problem_is_stored_with_codes() {
    let snapshot = Snapshot {
        deployment: Some(observed_deployment(1, 0)),
        pods: Some(vec![crashing_pod()]),
        ..settled_snapshot(SPEC_WITH_PORT)
    };
    let status = render_status(&snapshot, &Outcome::default());
    let problem = status.pod_problem.clone().unwrap();
    assert_eq!((problem.reason.as_str(), problem.exit_code), ("CrashLoopBackOff", Some(3)));
    assert_eq!(problem.container.as_deref(), Some("llama-stack"));
    let message = condition(&status, "DeploymentReady").unwrap()[2].clone();
    assert_eq!(message, format!("Deployment is pending: {}", problem.message));
}

#[test]
fn stored_pod_problem_stays_until_pods_are_observed() {
    let mut snapshot = settled_snapshot(SPEC_WITH_PORT);
    let problem = PodProblem {
        reason: "ImagePullBackOff".into(),
        container: Some("llama-stack".into()),
        exit_code: None,
        message: "no image".into(),
    };
    snapshot.object.status.as_mut().unwrap().pod_problem = Some(problem.clone());
    set_message(&mut snapshot, "DeploymentReady", "another text");
    let mut snapshot = Snapshot { deployment: Some(observed_deployment(2, 1)), pods: None, ..snapshot };
    snapshot.object.spec.workload.get_or_insert_default().replicas = Some(2);
    let status = render_status(&snapshot, &Outcome::default());
    assert_eq!(status.pod_problem, Some(problem));
    let message = condition(&status, "DeploymentReady").unwrap()[2].clone();
    assert_eq!(message, "Deployment is scaling: 1/2 replicas ready: no image");
    snapshot.pods = Some(vec![]);
    assert_eq!(render_status(&snapshot, &Outcome::default()).pod_problem, None);
    snapshot.pods = None;
    snapshot.deployment = Some(observed_deployment(2, 2));
    assert_eq!(render_status(&snapshot, &Outcome::default()).pod_problem, None, "all pods are ready");
}

#[test]
fn legacy_pod_cause_stays_until_pods_are_observed() {
    for (type_, text, cause) in [
        ("DeploymentReady", "Deployment is pending: ImagePullBackOff: no image", Some("ImagePullBackOff: no image")),
        ("DeploymentReady", "Deployment is scaling: 1/2 replicas ready: a: b", Some("a: b")),
        ("DeploymentReady", "Deployment is scaling down: 3/2 replicas ready: a", Some("a")),
        ("DeploymentReady", "Deployment is rolling out: 1/2 replicas updated: a", Some("a")),
        ("Available", "Rolling update in progress: 1/2 updated: a", Some("a")),
        ("Available", "0/2 replicas available: a", Some("a")),
        // Without a cause, as the Go operator writes them too.
        ("DeploymentReady", "Deployment is pending", None),
        ("DeploymentReady", "Deployment is scaling: 1/2 replicas ready", None),
        ("DeploymentReady", "Deployment is ready", None),
        ("DeploymentReady", "Resource reconciliation failed: Service a/b: no replicas ready: x", None),
        ("Available", "1/2 replicas available", None),
    ] {
        let mut snapshot = settled_snapshot(SPEC_WITH_PORT);
        snapshot.object.status = snapshot.object.status.map(without_codes);
        set_message(&mut snapshot, type_, text);
        let snapshot = Snapshot { deployment: Some(observed_deployment(1, 0)), pods: None, ..snapshot };
        let status = render_status(&snapshot, &Outcome::default());
        assert_eq!(status.pod_problem.as_ref().map(|known| known.message.as_str()), cause, "{text}");
        let message = condition(&status, "DeploymentReady").unwrap()[2].clone();
        let expected =
            cause.map_or("Deployment is pending".to_owned(), |cause| format!("Deployment is pending: {cause}"));
        assert_eq!(message, expected, "{text}");

        let mut later = snapshot;
        later.object.status = Some(stored_status(&status));
        assert_eq!(render_status(&later, &Outcome::default()), status, "the cause is stored with codes: {text}");
    }
}

#[test]
fn crash_loop_causes_one_event() {
    let mut snapshot = settled_snapshot(SPEC_WITH_PORT);
    snapshot.deployment = Some(observed_deployment(1, 0));
    snapshot.pods = Some(vec![crashing_pod()]);
    assert_eq!(event_reasons(&snapshot), ["ServerNotStarting"]);
    assert!(plan(&snapshot).events[0].message.contains("exited with code 3"));
    snapshot.object.status = Some(stored_status(&render_status(&snapshot, &Outcome::default())));
    assert_eq!(event_reasons(&snapshot), [""; 0]);
    snapshot.object.status.as_mut().unwrap().pod_problem.as_mut().unwrap().exit_code = Some(1);
    assert_eq!(event_reasons(&snapshot), ["ServerNotStarting"], "another exit code is another problem");
    snapshot.deployment = Some(observed_deployment(1, 1));
    assert_eq!(event_reasons(&snapshot), [""; 0], "the server runs");
}

#[test]
fn changed_override_config_causes_event() {
    let with_content = |content: &str| {
        let mut snapshot = v1alpha2_snapshot("{distribution: {name: starter}, overrideConfig: {configMapName: mine}}");
        snapshot.references = vec![ObservedReference {
            secret: false,
            namespace: "team-a".into(),
            name: "mine".into(),
            keys: Some(["config.yaml".to_owned()].into()),
            content: Some([("config.yaml".to_owned(), content.to_owned())].into()),
        }];
        snapshot
    };
    let settled = settle(with_content("version: 2"));
    assert_eq!(event_reasons(&settled), [""; 0]);
    let changed = Snapshot { references: with_content("version: '2'").references, ..settled };
    assert_eq!(event_reasons(&changed), ["ConfigMapChanged"]);
    assert!(plan(&changed).events[0].message.starts_with("The content of ConfigMap mine changed."));
}
