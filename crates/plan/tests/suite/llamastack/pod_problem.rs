//! The text of each problem that keeps pods from starting. It stays the same while the problem lasts.

use proptest::prelude::*;
use steersman_plan::llamastack::pod_problem::find;
use steersman_plan::llamastack::{ObservedDeployment, Snapshot};
use steersman_plan::pods::{ObservedContainer, ObservedPod, Terminated, Waiting};
use steersman_reconcile::Outcome;

use super::status::{condition, render_status};
use super::{observed_deployment, settled_snapshot, stored_status, v1alpha2_snapshot};

const SPEC_WITH_PORT: &str = "{server: {distribution: {name: starter}, containerSpec: {port: 9000}}}";
const LOG_COMMAND: &str = "kubectl logs -n team-a -l app=llama-stack,app.kubernetes.io/instance=starter -c ";

/// Any pod, for property tests.
pub fn any_pod() -> impl Strategy<Value = ObservedPod> {
    let reason = prop::sample::select(vec!["", "ErrImagePull", "CrashLoopBackOff", "ContainerCreating", "Odd"]);
    let waiting =
        prop::option::of((reason, ".{0,20}").prop_map(|(reason, message)| Waiting { reason: reason.into(), message }));
    let terminated = || {
        let end = (any::<i32>(), "[A-Z]?", ".{0,20}");
        prop::option::of(end.prop_map(|(exit_code, reason, message)| Terminated { exit_code, reason, message }))
    };
    let name = prop::sample::select(vec!["llama-stack", "install-provider-a", "generate-config"]);
    let container = (name, any::<bool>(), any::<bool>(), waiting, terminated(), terminated()).prop_map(
        |(name, init, ready, waiting, terminated, last_terminated)| {
            let (name, image) = (name.into(), "image:1".into());
            ObservedContainer { name, image, init, ready, waiting, terminated, last_terminated }
        },
    );
    (prop::option::of(".{0,20}"), prop::collection::vec(container, 0..3))
        .prop_map(|(unscheduled, containers)| ObservedPod { unscheduled, containers, ..pending_pod() })
}

fn pending_pod() -> ObservedPod {
    ObservedPod { phase: "Pending".into(), ..ObservedPod::default() }
}

fn container(name: &str, waiting: Option<(&str, &str)>, termination: Option<(i32, &str, &str)>) -> ObservedContainer {
    ObservedContainer {
        name: name.into(),
        image: "image:1".into(),
        init: name != "llama-stack",
        waiting: waiting.map(|(reason, message)| Waiting { reason: reason.into(), message: message.into() }),
        last_terminated: termination.map(|(exit_code, reason, message)| Terminated {
            exit_code,
            reason: reason.into(),
            message: message.into(),
        }),
        ..ObservedContainer::default()
    }
}

fn pod_with(container: ObservedContainer) -> ObservedPod {
    ObservedPod { containers: vec![container], ..pending_pod() }
}

fn waiting_pod(reason: &str, message: &str) -> ObservedPod {
    pod_with(container("llama-stack", Some((reason, message)), None))
}

fn crashed_pod(state: Option<(&str, &str)>, termination: (i32, &str, &str)) -> ObservedPod {
    pod_with(container("llama-stack", state, Some(termination)))
}

fn unschedulable_pod(message: &str) -> ObservedPod {
    ObservedPod { unscheduled: Some(message.into()), ..pending_pod() }
}

fn carry_pull_cause(before: &ObservedPod, mut now: ObservedPod) -> ObservedPod {
    now.carry_pull_causes(before);
    now
}

/// The cause in the conditions of a server without a ready pod.
fn reported_cause(snapshot: &Snapshot, pods: Vec<ObservedPod>) -> Option<String> {
    let snapshot = Snapshot { pods: Some(pods), deployment: Some(observed_deployment(1, 0)), ..snapshot.clone() };
    let status = render_status(&snapshot, &Outcome::default());
    let [truth, reason, message] = condition(&status, "DeploymentReady").unwrap();
    assert_eq!((truth.as_str(), reason.as_str()), ("False", "DeploymentFailed"));
    let why = message.strip_prefix("Deployment is pending")?.strip_prefix(": ").map(str::to_owned);
    let [_, reason, available] = condition(&status, "Available").unwrap();
    assert_eq!(reason, "ReplicasUnavailable");
    assert_eq!(
        available,
        why.as_ref().map_or("0/1 replicas available".into(), |why| format!("0/1 replicas available: {why}"))
    );
    why
}

#[test]
fn each_problem_comes_with_remedy() {
    let snapshot = settled_snapshot(SPEC_WITH_PORT);
    for (pod, want) in [
        (
            waiting_pod("ErrImagePull", "failed to resolve reference \"image:1\": not found"),
            "ImagePullBackOff: container llama-stack cannot pull image image:1: failed to resolve reference \"image:1\": \
             not found. Check the name, the tag and the pull secrets; the pod starts as soon as the image can be pulled"
                .into(),
        ),
        (
            waiting_pod("CreateContainerConfigError", "couldn't find key token in Secret team-a/vllm"),
            "CreateContainerConfigError: container llama-stack cannot start: couldn't find key token in Secret \
             team-a/vllm. Create the missing object or key; the pod starts as soon as it exists"
                .into(),
        ),
        (
            waiting_pod("RunContainerError", "exec: \"x\": executable file not found in $PATH"),
            "RunContainerError: container llama-stack cannot start: exec: \"x\": executable file not found in $PATH. \
             Check image image:1, and the command, volume mounts and security context of the pod"
                .into(),
        ),
        (
            crashed_pod(Some(("CrashLoopBackOff", "back-off 20s restarting failed container")), (1, "Error", "hush")),
            format!(
                "CrashLoopBackOff: container llama-stack exited with code 1 (Error). Read its log: \
                 {LOG_COMMAND}llama-stack --previous"
            ),
        ),
        (
            crashed_pod(None, (137, "OOMKilled", "")),
            "CrashLoopBackOff: container llama-stack ran out of memory (exit code 137, OOMKilled). Raise \
             spec.workload.resources.limits.memory or, if there is no limit, requests.memory"
                .into(),
        ),
        (
            pod_with(container("prepare-storage", None, Some((137, "OOMKilled", "")))),
            "CrashLoopBackOff: init container prepare-storage ran out of memory (exit code 137, OOMKilled). No field \
             changes the memory limit of this container. This is a bug in Steersman; report it with the spec of the \
             object"
                .into(),
        ),
        (
            unschedulable_pod(
                "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 Insufficient cpu. preemption: 0/3 nodes",
            ),
            "Unschedulable: no node fits the pod: Insufficient cpu, Insufficient nvidia.com/gpu. Add nodes that fit, \
             or lower spec.workload.resources"
                .into(),
        ),
        (
            unschedulable_pod("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"),
            "Unschedulable: pod has unbound immediate PersistentVolumeClaims. not found. Check the events of the \
             PersistentVolumeClaim, and that a StorageClass can provision it"
                .into(),
        ),
        (
            pod_with(container("generate-config", None, Some((1, "Error", "x\nsteersman: cannot read\nthe file\n")))),
            format!(
                "CrashLoopBackOff: init container generate-config exited with code 1 (Error): steersman: cannot read \
                 the file. Read its log: {LOG_COMMAND}generate-config"
            ),
        ),
    ] {
        assert_eq!(reported_cause(&snapshot, vec![pod]), Some(want));
    }
}

#[test]
fn external_provider_problem_names_image_and_resolution() {
    let snapshot = v1alpha2_snapshot(
        "{distribution: {name: starter}, externalProviders: {inference: [{providerId: mine, image: 'reg/mine:1'}]}}",
    );
    let install = |waiting, termination| vec![pod_with(container("install-provider-mine", waiting, termination))];
    let prefix = "external provider \"mine\", init container install-provider-mine: ";
    for (pods, want) in [
        (
            install(Some(("ImagePullBackOff", "Back-off pulling image \"reg/mine:1\"")), None),
            "Failed to pull provider image reg/mine:1 (ImagePullBackOff). Resolution: Correct \
             spec.externalProviders.inference[0].image, or add a pull secret to the server's ServiceAccount"
                .to_owned(),
        ),
        (
            install(
                None,
                Some((
                    1,
                    "Error",
                    "Looking in links\nexternal provider mine: Missing /lls-provider/lls-provider-spec.yaml in image \
                     reg/mine:1\n",
                )),
            ),
            format!(
                "external provider mine: Missing /lls-provider/lls-provider-spec.yaml in image reg/mine:1 (exit code 1, \
                 image reg/mine:1). Resolution: Fix the image and set spec.externalProviders.inference[0].image to it. Full log: {LOG_COMMAND}install-provider-mine"
            ),
        ),
        (
            install(None, Some((137, "Error", ""))),
            format!(
                "image reg/mine:1 exited with code 137. Resolution: Read its log: \
                 {LOG_COMMAND}install-provider-mine"
            ),
        ),
        (
            install(None, Some((137, "OOMKilled", "Killed"))),
            "image reg/mine:1 exceeded its memory limit of 512Mi (exit code 137, OOMKilled). Resolution: No field \
             changes this limit. Set spec.externalProviders.inference[0].image to an image with fewer or smaller packages"
                .to_owned(),
        ),
        (
            install(Some(("RunContainerError", "exec: \"/bin/sh\": no such file")), None),
            "RunContainerError: exec: \"/bin/sh\": no such file with image reg/mine:1. Resolution: Use an image with \
             /bin/sh and python3 in spec.externalProviders.inference[0].image"
                .to_owned(),
        ),
    ] {
        assert_eq!(reported_cause(&snapshot, pods), Some(format!("{prefix}{want}")));
    }
}

#[test]
fn starting_or_ready_container_has_no_problem() {
    let ready = ObservedContainer { ready: true, ..container("llama-stack", None, Some((1, "Error", ""))) };
    for pod in [
        ObservedPod::default(),
        waiting_pod("ContainerCreating", ""),
        waiting_pod("PodInitializing", ""),
        pod_with(container("llama-stack", None, None)),
        pod_with(ready),
    ] {
        assert_eq!(find(std::slice::from_ref(&pod)), None, "{pod:?}");
    }
}

/// Kubelets and schedulers alternate between messages for one problem; the status must not.
#[test]
fn text_stays_while_problem_lasts() {
    let sequences = [
        vec![
            crashed_pod(
                Some(("CrashLoopBackOff", "back-off 20s restarting failed container=x pod=x-1")),
                (1, "Error", ""),
            ),
            crashed_pod(
                Some(("CrashLoopBackOff", "back-off 5m0s restarting failed container=x pod=x-1")),
                (1, "Error", ""),
            ),
            crashed_pod(Some(("RunContainerError", "exec: \"x\": not found")), (1, "Error", "")),
            crashed_pod(None, (1, "Error", "")),
        ],
        vec![
            waiting_pod("ErrImagePull", "pull https://cdn/x?sig=1: 403"),
            waiting_pod(
                "ImagePullBackOff",
                "Back-off pulling image \"a:1\": ErrImagePull: pull https://cdn/x?sig=2: 403",
            ),
        ],
        vec![
            unschedulable_pod("0/3 nodes are available: 1 node(s) had untolerated taint {a: b}, 2 Insufficient cpu."),
            unschedulable_pod(
                "0/9 nodes are available: 7 Insufficient cpu, 2 node(s) had untolerated taint {a: b}. preemption: no",
            ),
        ],
        vec![
            waiting_pod("CreateContainerError", &format!("name is reserved for \"{}\"", "0a".repeat(32))),
            waiting_pod("CreateContainerError", &format!("name is reserved for \"{}\"", "1b".repeat(32))),
        ],
    ];
    let snapshot = settled_snapshot(SPEC_WITH_PORT);
    for sequence in sequences {
        let first = reported_cause(&snapshot, vec![sequence[0].clone()]);
        assert!(first.is_some());
        for pod in sequence {
            assert_eq!(reported_cause(&snapshot, vec![pod.clone()]), first, "{pod:?}");
        }
    }
    let digest = format!("no image reg/x@sha256:{} here", "0a".repeat(32));
    assert!(
        reported_cause(&snapshot, vec![waiting_pod("ErrImagePull", &digest)]).unwrap().contains(&digest),
        "a digest is part of the image name"
    );
}

#[test]
fn pull_cause_is_carried_between_attempts() {
    let failed = waiting_pod("ErrImagePull", "not found");
    let back_off = waiting_pod("ImagePullBackOff", "Back-off pulling image \"image:1\"");
    assert_eq!(find(&[carry_pull_cause(&failed, back_off.clone())]), find(std::slice::from_ref(&failed)));
    let other = waiting_pod("ErrImagePull", "no basic auth credentials");
    assert_eq!(carry_pull_cause(&failed, other.clone()), other, "a new cause replaces the old one");
    let mut renamed = back_off.clone();
    renamed.containers[0].image = "image:2".into();
    assert_eq!(carry_pull_cause(&failed, renamed.clone()), renamed, "another image has its own cause");
    let crash = crashed_pod(Some(("CrashLoopBackOff", "")), (1, "Error", ""));
    assert_eq!(carry_pull_cause(&failed, crash.clone()), crash);
}

#[test]
fn newest_pod_problem_precedes_deployment_problem() {
    let snapshot = settled_snapshot(SPEC_WITH_PORT);
    let stuck_deployment =
        ObservedDeployment { trouble: Some("timed out progressing".into()), ..observed_deployment(1, 0) };
    let mut snapshot =
        Snapshot { deployment: Some(stuck_deployment), pods: Some(vec![ObservedPod::default()]), ..snapshot };
    let message = |snapshot: &Snapshot| {
        condition(&render_status(snapshot, &Outcome::default()), "DeploymentReady").unwrap()[2].clone()
    };
    assert_eq!(message(&snapshot), "Deployment is pending: timed out progressing");
    snapshot.pods = Some(vec![ObservedPod::default(), crashed_pod(None, (3, "", "")), crashed_pod(None, (4, "", ""))]);
    let crash = message(&snapshot);
    assert!(crash.starts_with("Deployment is pending: CrashLoopBackOff: container llama-stack exited with code 3."));

    // After a start the pods are not observed yet.
    snapshot.object.status = Some(stored_status(&render_status(&snapshot, &Outcome::default())));
    snapshot.pods = None;
    assert_eq!(message(&snapshot), crash);
    assert_eq!(condition(&render_status(&snapshot, &Outcome::default()), "Available"), {
        let status = snapshot.object.status.clone().unwrap();
        condition(&status, "Available")
    });
    snapshot.pods = Some(vec![]);
    assert_eq!(message(&snapshot), "Deployment is pending: timed out progressing");
}

#[test]
fn ready_server_reports_no_problem() {
    let mut snapshot = settled_snapshot(SPEC_WITH_PORT);
    let before = snapshot.object.status.clone().unwrap();
    snapshot.pods = Some(vec![crashed_pod(None, (1, "Error", ""))]);
    assert_eq!(render_status(&snapshot, &Outcome::default()), before);
}
