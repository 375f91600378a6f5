//! What is waited for, and how the condition says so while it lasts.

use std::time::Duration;

use steersman_api::dynamo::v1beta1::Phase;
use steersman_plan::dynamo::{JobState, ObservedJob, Snapshot, plan};
use steersman_plan::pods::{ObservedContainer, ObservedPod, Terminated, Waiting};
use steersman_reconcile::Requeue;

use super::{IMAGE, World, a_request, output, said, spec};

fn waiting(reason: &str, message: &str) -> ObservedPod {
    ObservedPod {
        name: "profile-qwen-x".into(),
        phase: "Pending".into(),
        containers: vec![ObservedContainer {
            name: "profiler".into(),
            waiting: Some(Waiting { reason: reason.into(), message: message.into() }),
            ..ObservedContainer::default()
        }],
        ..ObservedPod::default()
    }
}

/// A container that ended before and now waits.
fn restarted(reason: &str, message: &str) -> ObservedPod {
    let mut pod = waiting(reason, message);
    pod.containers[0].last_terminated = Some(Terminated { exit_code: 1, ..Terminated::default() });
    pod
}

#[test]
fn a_wrong_spec_fails_and_a_corrected_one_begins_anew() {
    for (wrong, why) in [
        (
            spec("searchStrategy: thorough"),
            "spec.searchStrategy \"thorough\" is incompatible with spec.backend \"auto\": set spec.backend to a specific \
             backend (sglang, trtllm, or vllm)",
        ),
        (
            spec("").replace("image:", "#"),
            "spec.image is required but not set; ensure the defaulting webhook ran or set spec.image explicitly",
        ),
        (spec("").replace("h100_sxm", "gtx"), "spec.hardware.gpuSku is \"gtx\", which the profiler does not know"),
        (
            spec("overrides: {dgd: {apiVersion: nvidia.com/v1beta1, kind: DynamoGraphDeployment, status: {}}}"),
            "spec.overrides.dgd: override status is not supported",
        ),
    ] {
        let mut world = World::settled(&wrong);
        assert_eq!(world.phase(), Phase::Failed, "{wrong}");
        let (status, reason, message) = world.says("Validation");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "ValidationFailed"));
        assert!(message.starts_with(why), "{message}");
        assert_eq!(world.says("Succeeded"), said("False", "Failed", &format!("ValidationFailed: {message}")));
        assert_eq!((world.told(), &world.notes[0].message), (vec!["ValidationFailed"], &message));
        world.edit(&spec(""));
        world.settle();
        assert_eq!(world.phase(), Phase::Profiling);
        assert_eq!(world.told(), ["ValidationFailed", "Initialized", "ProfilingJobCreated"]);
    }
}

#[test]
fn the_default_image_stands_in_for_one_that_is_not_given() {
    let mut seen = a_request(&spec("").replace("image:", "#"));
    seen.settings.default_image = Some("planner:1.4.0".into());
    let mut world = World::new(seen);
    world.settle();
    let job = &world.objects["Job profile-qwen"];
    assert_eq!(job["spec"]["template"]["spec"]["containers"][0]["image"], "planner:1.4.0");
}

#[test]
fn what_the_cluster_lacks_is_awaited_in_pending() {
    type Change = fn(&mut Snapshot, bool);
    let annotated = |seen: &mut Snapshot, key: &str, value: &str| {
        seen.object.annotations.insert(key.into(), value.into());
    };
    let cases: [(&str, Change, &str); 5] = [
        (
            "modelCache: {pvcName: weights}",
            |seen, there| seen.named.model_cache = Some(there),
            "model cache PVC weights not found in namespace team-a",
        ),
        ("", |seen, there| seen.named.output_claim = Some(there), "output PVC results not found in namespace team-a"),
        (
            "",
            |seen, there| seen.named.config_map = Some(there),
            "ConfigMap base with key disagg.yaml not found in namespace team-a",
        ),
        (
            "",
            |seen, there| seen.settings.profiling_cluster_role_found = there,
            "cluster role \"dgdr-profiling\" does not exist: ensure it is created by Helm before deploying components",
        ),
        (
            "",
            |seen, there| seen.settings.operator_image = if there { "steersman:1".into() } else { String::new() },
            "operator image must be configured: the profiling Job delivers its result with a program in it",
        ),
    ];
    for (more, set, why) in cases {
        let mut seen = a_request(&spec(more));
        annotated(&mut seen, "nvidia.com/dgdr-output-pvc", "results");
        annotated(&mut seen, "nvidia.com/dgdr-config-map-ref", r#"{"name":"base"}"#);
        set(&mut seen, false);
        let mut world = World::new(seen);
        world.settle();
        assert_eq!(world.phase(), Phase::Pending, "{why}");
        let (status, _, message) = world.says("Validation");
        assert!(status == "False" && message.starts_with(why), "{message}");
        assert_eq!(world.says("Succeeded"), said("False", "Pending", &format!("DGDR is pending: {message}")));
        assert_eq!(plan(&world.seen).requeue, Requeue::After(Duration::from_secs(15)));
        assert_eq!(world.told(), ["ValidationFailed"]);
        set(&mut world.seen, true);
        world.settle();
        assert_eq!(world.phase(), Phase::Profiling, "{why}");
        assert_eq!(world.told(), ["ValidationFailed", "Initialized", "ProfilingJobCreated"]);
    }
}

#[test]
fn image_pull_is_explained_first() {
    let mut world = World::settled(&spec(""));
    let named = |name: &str, pod: ObservedPod| ObservedPod { name: name.into(), ..pod };
    let pull = || waiting("ErrImagePull", "m");
    world.seen.job_pods = vec![named("a", waiting("CrashLoopBackOff", "m")), named("b", pull()), named("c", pull())];
    world.settle();
    assert!(world.says("Profiling").2.starts_with("pod b container profiler: ErrImagePull: m. "));
    world.seen.job_pods.truncate(1);
    world.settle();
    assert!(world.says("Profiling").2.starts_with("pod a container profiler: CrashLoopBackOff: m. "));
}

#[test]
fn a_pod_that_cannot_start_is_told_while_it_lasts_and_fails_nothing() {
    let cases = [
        (
            waiting("ImagePullBackOff", "Back-off pulling image"),
            "pod profile-qwen-x container profiler: ImagePullBackOff: Back-off pulling image. Check the image's name",
            vec!["ImagePullFailed"],
        ),
        (
            waiting("CreateContainerConfigError", "secret \"hf\" not found"),
            "pod profile-qwen-x container profiler: CreateContainerConfigError: secret \"hf\" not found. Create the Secret",
            vec![],
        ),
        (
            ObservedPod {
                unscheduled: Some("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.".into()),
                ..waiting("", "")
            },
            "pod profile-qwen-x has no node: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu. Free or add",
            vec![],
        ),
        (
            ObservedPod { unscheduled: Some("persistentvolumeclaim \"x\" not found".into()), ..waiting("", "") },
            "pod profile-qwen-x has no node: persistentvolumeclaim \"x\" not found. Create a PersistentVolumeClaim of that",
            vec![],
        ),
        (
            ObservedPod {
                unscheduled: Some("0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.".into()),
                ..waiting("", "")
            },
            "pod profile-qwen-x has no node: 0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. The \
             events of the claim say why (kubectl describe pvc)",
            vec![],
        ),
        (
            waiting("RegistryUnavailable", "try later"),
            "pod profile-qwen-x container profiler: RegistryUnavailable: try later. Check the image's name",
            vec!["ImagePullFailed"],
        ),
        (
            restarted("CreateContainerConfigError", "secret \"hf\" not found"),
            "pod profile-qwen-x container profiler: CreateContainerConfigError: secret \"hf\" not found. Create the Secret",
            vec![],
        ),
    ];
    for (pod, why, told) in cases {
        let mut world = World::settled(&spec(""));
        world.notes.clear();
        world.seen.job_pods = vec![pod];
        world.settle();
        assert_eq!(world.phase(), Phase::Profiling);
        let (status, reason, message) = world.says("Profiling");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "Initializing"));
        assert!(message.starts_with(why), "{message}");
        assert_eq!(world.says("Succeeded").2, format!("Profiling is in progress: {message}"));
        assert_eq!(world.told(), told);
        world.pods("Running");
        world.settle();
        assert_eq!(world.says("Profiling").1, "ProfilingRunning");
        assert_eq!(world.says("Succeeded").2, "Profiling is in progress");
    }
}

#[test]
fn an_image_that_is_tried_again_and_again_is_told_once() {
    let mut world = World::settled(&spec(""));
    world.notes.clear();
    for reason in ["ErrImagePull", "ImagePullBackOff", "ErrImagePull"] {
        world.seen.job_pods = vec![waiting(reason, "denied")];
        world.settle();
    }
    assert_eq!(world.told(), ["ImagePullFailed"]);
}

#[test]
fn a_job_of_somebody_else_is_waited_for_and_never_used() {
    let mut world = World::new(a_request(&spec("")));
    world.seen.job = Some(ObservedJob { owner: Some("other".into()), mark: None, state: JobState::Complete });
    world.settle();
    assert_eq!((world.phase(), world.created.len()), (Phase::Pending, 0));
    assert!(world.says("Profiling").2.starts_with("Job profile-qwen belongs to somebody else"));
    assert_eq!(plan(&world.seen).requeue, Requeue::After(Duration::from_secs(15)));
    world.seen.job = None;
    world.settle();
    assert_eq!(world.phase(), Phase::Profiling);
}

#[test]
fn output_of_an_earlier_request_of_this_name_is_removed_before_the_job_and_never_read() {
    let mut seen = a_request(&spec(""));
    let mut old = output(&[("profiler_status", "failed"), ("profiler_error", "old")]);
    old.owner = Some("gone".into());
    seen.output = Some(old.clone());
    let mut world = World::new(seen);
    world.settle();
    assert_eq!((world.phase(), &world.seen.output), (Phase::Profiling, &None));
    world.seen.output = Some(old);
    world.job(JobState::Complete);
    world.settle();
    assert_eq!(world.phase(), Phase::Profiling);
}

#[test]
fn images_of_the_graphs_pods_that_cannot_be_pulled_are_told_in_the_condition_and_once_as_an_event() {
    let mut world = World::profiled(&spec(""));
    world.notes.clear();
    assert_eq!(world.says("DeploymentReady").2, "DGD qwen-dgd is in initializing state");
    world.graph().state = Some("pending".into());
    world.graph().unready = Some("Resources not ready: worker: pods".into());
    world.seen.graph_pods = vec![waiting("ErrImagePull", "no such tag")];
    world.settle();
    let (_, reason, message) = world.says("DeploymentReady");
    assert_eq!(reason, "DeploymentInProgress");
    assert!(
        message.starts_with("DGD qwen-dgd is in pending state. pod profile-qwen-x container profiler"),
        "{message}"
    );
    assert!(message.ends_with("Resources not ready: worker: pods"), "{message}");
    assert_eq!(world.told(), ["ImagePullFailed"]);
    assert_eq!(world.notes[0].message, "pod profile-qwen-x container profiler: ErrImagePull: no such tag");
}

#[test]
fn fields_without_effect_are_named_in_a_condition_of_our_own() {
    let mut seen = a_request(&spec(
        "overrides: {profilingJob: {completionMode: Indexed, template: {spec: {hostNetwork: true, containers: [{name: x, \
         command: [sh]}, {name: other}]}}}}\nsla: {e2eLatency: 10, ttft: 5, optimizationType: latency}",
    ));
    seen.named.token_secret = false;
    seen.object.annotations.insert("nvidia.com/dgdr-config-map-ref".into(), r#"{"name":"base","key":"a.yaml"}"#.into());
    let mut world = World::new(seen);
    world.settle();
    let (status, _, message) = world.says("SpecAccepted");
    assert_eq!((world.phase(), status.as_str()), (Phase::Profiling, "True"));
    for part in [
        "Not taken over from spec.overrides.profilingJob: completionMode, template.spec.hostNetwork, \
         template.spec.containers[0].command, template.spec.containers[1].",
        "ConfigMap base (key a.yaml) is mounted at /config in the profiling Job",
        "spec.overrides.dgd",
        "SLA must specify either (ttft and itl) or e2eLatency, not both.",
        "spec.sla.optimizationType is handed to the profiler, and today's profilers do not act on it.",
        "There is no Secret hf-token-secret in namespace team-a.",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(
        World::settled(&spec("")).says("SpecAccepted"),
        said("True", "SpecAccepted", "Every field of the spec is acted on.")
    );
    // What is not about the spec is not the reason.
    let mut seen = a_request(&spec(""));
    seen.named.token_secret = false;
    let mut world = World::new(seen);
    world.settle();
    let message = "Every field of the spec is acted on. There is no Secret hf-token-secret in namespace team-a. Create it \
                   with key HF_TOKEN if the model cannot be downloaded without a token.";
    assert_eq!(world.says("SpecAccepted"), said("True", "SpecAccepted", message));
}

/// A spec of v1alpha1 that says much, and of which only its typed parts count.
#[test]
fn fields_of_the_earlier_version_without_effect_are_named_one_by_one() {
    let kept = r#"{"version":1,"spec":{"enableGpuDiscovery":false,
        "profilingConfig":{"config":{"engine":{"backend":"vllm"},"sla":{"ttft":"fast","odd":1},"deployment":{"model":"m"}}},
        "deploymentOverrides":{"name":"mine","workersImage":"workers:1.0.0"}}}"#;
    let mut seen = a_request(&spec("sla: {itl: 10}\nfeatures: {planner: {mode: agg}}"));
    seen.object.annotations.insert("nvidia.com/dgdr-spec".into(), kept.into());
    let mut world = World::new(seen);
    world.settle();
    let (_, reason, message) = world.says("SpecAccepted");
    let want = "Kept from v1alpha1 and without effect: spec.profilingConfig.config.deployment.model, \
                spec.profilingConfig.config.engine, spec.profilingConfig.config.sla.odd, \
                spec.profilingConfig.config.sla.ttft, spec.enableGpuDiscovery, spec.deploymentOverrides.name, spec.deploymentOverrides.workersImage. ";
    assert_eq!(reason, "FieldIgnored");
    assert!(message.starts_with(want), "{message}");
    // Of the workers' image and the discovery as every object of v1alpha1 has them there is nothing to tell.
    let kept =
        format!(r#"{{"spec":{{"enableGpuDiscovery":true,"deploymentOverrides":{{"workersImage":"{IMAGE}"}}}}}}"#);
    let mut seen = a_request(&spec(""));
    seen.object.annotations.insert("nvidia.com/dgdr-spec".into(), kept);
    let mut world = World::new(seen);
    world.settle();
    assert_eq!(world.says("SpecAccepted").2, "Every field of the spec is acted on.");
}

/// A quota or pod security that forbids the pod is told to its Job alone.
#[test]
fn a_job_without_any_pod_leads_to_the_events_of_the_job() {
    let mut world = World::settled(&spec(""));
    let starting = "Waiting for the pod of the profiling Job to start";
    let text = format!(
        "{starting}. If none comes, the events of the Job say why: kubectl describe job -n team-a profile-qwen"
    );
    assert_eq!(world.says("Profiling"), said("False", "Initializing", &text));
    world.pods("Pending");
    world.settle();
    let text = format!("{starting}. If it does not, its events say why: kubectl describe pod -n team-a profile-qwen-x");
    assert_eq!(world.says("Profiling"), said("False", "Initializing", &text));
}

/// A crash, or another writer, may come between the Job and the status of a corrected request.
#[test]
fn corrected_request_profiles_though_status_was_lost() {
    let mut world = World::settled(&spec("").replace("h100_sxm", "gtx"));
    assert_eq!(world.phase(), Phase::Failed);
    world.edit(&spec(""));
    let stored = world.seen.object.status.clone();
    world.pass(None);
    assert!(world.seen.job.is_some());
    world.seen.object.status = stored;
    world.settle();
    assert_eq!(world.phase(), Phase::Profiling);
    assert_eq!(world.seen.object.status.as_ref().unwrap().profiling_job_name.as_deref(), Some("profile-qwen"));
}
