//! Conditions that report what a request waits for.

use std::time::Duration;

use serde_json::json;
use steersman_api::dynamo::v1beta1::Phase;
use steersman_plan::dynamo::{JobState, ObservedJob, Snapshot, plan};
use steersman_plan::pods::{ObservedContainer, ObservedPod, Terminated, Waiting};
use steersman_reconcile::Requeue;

use super::{IMAGE, TestEnv, output, request_snapshot, spec, summary};

pub fn waiting_pod(reason: &str, message: &str) -> ObservedPod {
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

/// A pod whose container has terminated once and waits again.
fn restarted_pod(reason: &str, message: &str) -> ObservedPod {
    let mut pod = waiting_pod(reason, message);
    pod.containers[0].last_terminated = Some(Terminated { exit_code: 1, ..Terminated::default() });
    pod
}

#[test]
fn invalid_spec_fails_until_corrected() {
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
        (spec("").replace("h100_sxm", "gtx"), "spec.hardware.gpuSku is \"gtx\", which the profiler does not support"),
        (
            spec("overrides: {dgd: {apiVersion: nvidia.com/v1beta1, kind: DynamoGraphDeployment, status: {}}}"),
            "spec.overrides.dgd: override status is not supported",
        ),
    ] {
        let mut env = TestEnv::after_settling(&wrong);
        assert_eq!(env.phase(), Phase::Failed, "{wrong}");
        let (status, reason, message) = env.condition_summary("Validation");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "ValidationFailed"));
        assert!(message.starts_with(why), "{message}");
        assert_eq!(
            env.condition_summary("Succeeded"),
            summary("False", "Failed", &format!("ValidationFailed: {message}"))
        );
        assert_eq!((env.event_reasons(), &env.events[0].message), (vec!["ValidationFailed"], &message));
        env.edit_spec(&spec(""));
        env.settle();
        assert_eq!(env.phase(), Phase::Profiling);
        assert_eq!(env.event_reasons(), ["ValidationFailed", "Initialized", "ProfilingJobCreated"]);
    }
}

#[test]
fn default_image_replaces_missing_image() {
    let mut snapshot = request_snapshot(&spec("").replace("image:", "#"));
    snapshot.settings.default_image = Some("planner:1.4.0".into());
    let mut env = TestEnv::new(snapshot);
    env.settle();
    let job = &env.objects["Job profile-qwen"];
    assert_eq!(job["spec"]["template"]["spec"]["containers"][0]["image"], "planner:1.4.0");
}

#[test]
fn missing_cluster_prerequisite_keeps_request_pending() {
    type Change = fn(&mut Snapshot, bool);
    let annotate = |snapshot: &mut Snapshot, key: &str, value: &str| {
        snapshot.object.annotations.insert(key.into(), value.into());
    };
    let cases: [(&str, Change, &str); 5] = [
        (
            "modelCache: {pvcName: weights}",
            |snapshot, present| snapshot.references.model_cache = Some(present),
            "model cache PVC weights not found in namespace team-a",
        ),
        (
            "",
            |snapshot, present| snapshot.references.output_claim = Some(present),
            "output PVC results not found in namespace team-a",
        ),
        (
            "",
            |snapshot, present| snapshot.references.config_map = Some(present),
            "ConfigMap base with key disagg.yaml not found in namespace team-a",
        ),
        (
            "",
            |snapshot, present| snapshot.settings.profiling_cluster_role_found = present,
            "cluster role \"dgdr-profiling\" does not exist: ensure it is created by Helm before deploying components",
        ),
        (
            "",
            |snapshot, present| {
                snapshot.settings.operator_image = if present { "steersman:1".into() } else { String::new() }
            },
            "operator image must be configured: the sidecar of the profiling Job runs it",
        ),
    ];
    for (more, set, why) in cases {
        let mut snapshot = request_snapshot(&spec(more));
        annotate(&mut snapshot, "nvidia.com/dgdr-output-pvc", "results");
        annotate(&mut snapshot, "nvidia.com/dgdr-config-map-ref", r#"{"name":"base"}"#);
        set(&mut snapshot, false);
        let mut env = TestEnv::new(snapshot);
        env.settle();
        assert_eq!(env.phase(), Phase::Pending, "{why}");
        let (status, _, message) = env.condition_summary("Validation");
        assert!(status == "False" && message.starts_with(why), "{message}");
        assert_eq!(
            env.condition_summary("Succeeded"),
            summary("False", "Pending", &format!("DGDR is pending: {message}"))
        );
        assert_eq!(plan(&env.snapshot).requeue, Requeue::After(Duration::from_secs(15)));
        assert_eq!(env.event_reasons(), ["ValidationFailed"]);
        set(&mut env.snapshot, true);
        env.settle();
        assert_eq!(env.phase(), Phase::Profiling, "{why}");
        assert_eq!(env.event_reasons(), ["ValidationFailed", "Initialized", "ProfilingJobCreated"]);
    }
}

#[test]
fn image_pull_failure_is_explained_first() {
    let mut env = TestEnv::after_settling(&spec(""));
    let named = |name: &str, pod: ObservedPod| ObservedPod { name: name.into(), ..pod };
    let pull = || waiting_pod("ErrImagePull", "m");
    env.snapshot.job_pods =
        vec![named("a", waiting_pod("CrashLoopBackOff", "m")), named("b", pull()), named("c", pull())];
    env.settle();
    assert!(env.condition_summary("Profiling").2.starts_with("pod b container profiler: ErrImagePull: m. "));
    env.snapshot.job_pods.truncate(1);
    env.settle();
    assert!(env.condition_summary("Profiling").2.starts_with("pod a container profiler: CrashLoopBackOff: m. "));
}

#[test]
fn unstartable_pod_is_reported_without_failing_request() {
    let cases = [
        (
            waiting_pod("ImagePullBackOff", "Back-off pulling image"),
            "pod profile-qwen-x container profiler: ImagePullBackOff: Back-off pulling image. Check the name and tag of the image",
            vec!["ImagePullFailed"],
        ),
        (
            waiting_pod("CreateContainerConfigError", "secret \"hf\" not found"),
            "pod profile-qwen-x container profiler: CreateContainerConfigError: secret \"hf\" not found. Create the Secret",
            vec![],
        ),
        (
            ObservedPod {
                unscheduled: Some("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.".into()),
                ..waiting_pod("", "")
            },
            "pod profile-qwen-x cannot be scheduled: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu. Free or \
             add",
            vec![],
        ),
        (
            ObservedPod { unscheduled: Some("persistentvolumeclaim \"x\" not found".into()), ..waiting_pod("", "") },
            "pod profile-qwen-x cannot be scheduled: persistentvolumeclaim \"x\" not found. Create a \
             PersistentVolumeClaim of that",
            vec![],
        ),
        (
            ObservedPod {
                unscheduled: Some("0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.".into()),
                ..waiting_pod("", "")
            },
            "pod profile-qwen-x cannot be scheduled: 0/3 nodes are available: pod has unbound immediate \
             PersistentVolumeClaims. The claim needs a volume, or a StorageClass that provides one; its events show \
             the cause (kubectl describe pvc)",
            vec![],
        ),
        (
            waiting_pod("RegistryUnavailable", "try later"),
            "pod profile-qwen-x container profiler: RegistryUnavailable: try later. Check the name and tag of the image",
            vec!["ImagePullFailed"],
        ),
        (
            restarted_pod("CreateContainerConfigError", "secret \"hf\" not found"),
            "pod profile-qwen-x container profiler: CreateContainerConfigError: secret \"hf\" not found. Create the Secret",
            vec![],
        ),
    ];
    for (pod, why, told) in cases {
        let mut env = TestEnv::after_settling(&spec(""));
        env.events.clear();
        env.snapshot.job_pods = vec![pod];
        env.settle();
        assert_eq!(env.phase(), Phase::Profiling);
        let (status, reason, message) = env.condition_summary("Profiling");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "Initializing"));
        assert!(message.starts_with(why), "{message}");
        let progress = format!("Profiling is in progress: {message}");
        assert_eq!(env.condition_summary("Succeeded"), summary("False", "Profiling", &progress));
        assert_eq!(env.event_reasons(), told);
        env.set_pod_phase("Running");
        env.settle();
        assert_eq!(env.condition_summary("Profiling").1, "ProfilingRunning");
        assert_eq!(env.condition_summary("Succeeded").2, "Profiling is in progress");
    }
}

#[test]
fn repeated_image_pull_failure_is_reported_once() {
    let mut env = TestEnv::after_settling(&spec(""));
    env.events.clear();
    for reason in ["ErrImagePull", "ImagePullBackOff", "ErrImagePull"] {
        env.snapshot.job_pods = vec![waiting_pod(reason, "denied")];
        env.settle();
    }
    assert_eq!(env.event_reasons(), ["ImagePullFailed"]);
}

#[test]
fn foreign_job_is_awaited_and_never_used() {
    let mut env = TestEnv::new(request_snapshot(&spec("")));
    env.snapshot.job =
        Some(ObservedJob { owner: Some("other".into()), state: JobState::Complete, ..ObservedJob::default() });
    env.settle();
    assert_eq!((env.phase(), env.created.len()), (Phase::Pending, 0));
    assert!(env.condition_summary("Profiling").2.starts_with("Job profile-qwen exists and belongs to another owner"));
    assert_eq!(plan(&env.snapshot).requeue, Requeue::After(Duration::from_secs(15)));
    env.snapshot.job = None;
    env.settle();
    assert_eq!(env.phase(), Phase::Profiling);
}

#[test]
fn output_of_earlier_request_is_removed_unread() {
    let mut snapshot = request_snapshot(&spec(""));
    let mut old = output(&[("profiler_status", "failed"), ("profiler_error", "old")]);
    old.owner = Some("gone".into());
    snapshot.output = Some(old.clone());
    let mut env = TestEnv::new(snapshot);
    env.settle();
    assert_eq!((env.phase(), &env.snapshot.output), (Phase::Profiling, &None));
    env.snapshot.output = Some(old);
    env.set_job_state(JobState::Complete);
    env.settle();
    assert_eq!(env.phase(), Phase::Profiling);
}

#[test]
fn graph_image_pull_failure_is_reported_once() {
    let mut env = TestEnv::after_profiling(&spec(""));
    env.events.clear();
    assert_eq!(env.condition_summary("DeploymentReady").2, "DGD qwen-dgd is in initializing state");
    env.graph_mut().state = Some("pending".into());
    env.graph_mut().unready = Some("Resources not ready: worker: pods".into());
    env.snapshot.graph_pods = vec![waiting_pod("ErrImagePull", "no such tag")];
    env.settle();
    let (_, reason, message) = env.condition_summary("DeploymentReady");
    assert_eq!(reason, "DeploymentInProgress");
    assert!(
        message.starts_with("DGD qwen-dgd is in pending state. pod profile-qwen-x container profiler"),
        "{message}"
    );
    assert!(message.ends_with("Resources not ready: worker: pods"), "{message}");
    assert_eq!(env.event_reasons(), ["ImagePullFailed"]);
    assert_eq!(env.events[0].message, "pod profile-qwen-x container profiler: ErrImagePull: no such tag");
}

#[test]
fn ignored_fields_are_named_in_spec_accepted() {
    let mut snapshot = request_snapshot(&spec(
        "overrides: {profilingJob: {completionMode: Indexed, template: {spec: {hostNetwork: true, containers: [{name: x, \
         command: [sh]}, {name: other}]}}}}\nsla: {e2eLatency: 10, ttft: 5, optimizationType: latency}",
    ));
    snapshot.references.token_secret = Some(false);
    snapshot
        .object
        .annotations
        .insert("nvidia.com/dgdr-config-map-ref".into(), r#"{"name":"base","key":"a.yaml"}"#.into());
    let mut env = TestEnv::new(snapshot);
    env.settle();
    let (status, _, message) = env.condition_summary("SpecAccepted");
    assert_eq!((env.phase(), status.as_str()), (Phase::Profiling, "True"));
    for part in [
        "Ignored fields of spec.overrides.profilingJob: completionMode, template.spec.hostNetwork, \
         template.spec.containers[0].command, template.spec.containers[1].",
        "ConfigMap base (key a.yaml) is mounted at /config in the profiling Job",
        "spec.overrides.dgd",
        "SLA must specify either (ttft and itl) or e2eLatency, not both.",
        "spec.sla.optimizationType is passed to the profiler, but current profilers ignore it.",
        "There is no Secret hf-token-secret in namespace team-a.",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(
        TestEnv::after_settling(&spec("")).condition_summary("SpecAccepted"),
        summary("True", "SpecAccepted", "Every field of the spec is acted on.")
    );
    // A finding outside of the spec does not change the reason.
    let mut snapshot = request_snapshot(&spec(""));
    snapshot.references.token_secret = Some(false);
    let mut env = TestEnv::new(snapshot);
    env.settle();
    let message = "Every field of the spec is acted on. There is no Secret hf-token-secret in namespace team-a. Create \
                   the Secret with key HF_TOKEN: the pods of generated graphs do not start without it, and some models \
                   cannot be downloaded without a token.";
    assert_eq!(env.condition_summary("SpecAccepted"), summary("True", "SpecAccepted", message));
}

/// Without a watch of Secrets, the condition would keep reporting a token that exists by now.
#[test]
fn missing_token_is_looked_up_again_without_watch() {
    let requeue = |token: Option<bool>, unwatched: bool| {
        let mut snapshot = request_snapshot(&spec(""));
        (snapshot.references.token_secret, snapshot.references.token_unwatched) = (token, unwatched);
        let mut env = TestEnv::new(snapshot);
        env.settle();
        plan(&env.snapshot).requeue
    };
    assert_eq!(requeue(Some(false), true), Requeue::After(Duration::from_secs(15)));
    assert_eq!(requeue(Some(false), false), requeue(Some(true), true));
    assert_eq!(requeue(None, true), requeue(Some(true), true), "not read: nothing is awaited");
}

/// Only the typed parts of `profilingConfig.config` have an effect.
#[test]
fn ignored_v1alpha1_fields_are_named_individually() {
    let stored_v1alpha1 = r#"{"version":1,"spec":{"enableGpuDiscovery":false,
        "profilingConfig":{"config":{"engine":{"backend":"vllm"},"sla":{"ttft":"fast","odd":1},"deployment":{"model":"m"}}},
        "deploymentOverrides":{"name":"mine","workersImage":"workers:1.0.0"}}}"#;
    let mut snapshot = request_snapshot(&spec("sla: {itl: 10}\nfeatures: {planner: {mode: agg}}"));
    snapshot.object.annotations.insert("nvidia.com/dgdr-spec".into(), stored_v1alpha1.into());
    let mut env = TestEnv::new(snapshot);
    env.settle();
    let (_, reason, message) = env.condition_summary("SpecAccepted");
    let want = "Fields of v1alpha1 without effect: spec.profilingConfig.config.deployment.model, \
                spec.profilingConfig.config.engine, spec.profilingConfig.config.sla.odd, \
                spec.profilingConfig.config.sla.ttft, spec.enableGpuDiscovery, spec.deploymentOverrides.name, \
                spec.deploymentOverrides.workersImage. ";
    assert_eq!(reason, "FieldIgnored");
    assert!(message.starts_with(want), "{message}");
    // Defaults that every v1alpha1 object has are not reported.
    let stored_v1alpha1 =
        format!(r#"{{"spec":{{"enableGpuDiscovery":true,"deploymentOverrides":{{"workersImage":"{IMAGE}"}}}}}}"#);
    let mut snapshot = request_snapshot(&spec(""));
    snapshot.object.annotations.insert("nvidia.com/dgdr-spec".into(), stored_v1alpha1);
    let mut env = TestEnv::new(snapshot);
    env.settle();
    assert_eq!(env.condition_summary("SpecAccepted").2, "Every field of the spec is acted on.");
}

/// Kubernetes reports a pod that a quota or pod security forbids only in the events of its Job.
#[test]
fn job_without_pod_points_to_its_events() {
    let mut env = TestEnv::after_settling(&spec(""));
    let starting = "Waiting for the pod of the profiling Job to start";
    let text = format!(
        "{starting}. If no pod is created, see the events of the Job: kubectl describe job -n team-a profile-qwen"
    );
    assert_eq!(env.condition_summary("Profiling"), summary("False", "Initializing", &text));
    env.set_pod_phase("Pending");
    env.settle();
    let text = format!(
        "{starting}. If it does not start, see its events: kubectl describe pod -n team-a \
                        profile-qwen-x"
    );
    assert_eq!(env.condition_summary("Profiling"), summary("False", "Initializing", &text));
}

/// A crash, or another writer, may come between the Job and the status of a corrected request.
#[test]
fn corrected_request_profiles_though_status_was_lost() {
    let mut env = TestEnv::after_settling(&spec("").replace("h100_sxm", "gtx"));
    assert_eq!(env.phase(), Phase::Failed);
    env.edit_spec(&spec(""));
    let status_before = env.snapshot.object.status.clone();
    env.reconcile(None);
    assert!(env.snapshot.job.is_some());
    env.snapshot.object.status = status_before;
    env.settle();
    assert_eq!(env.phase(), Phase::Profiling);
    assert_eq!(env.snapshot.object.status.as_ref().unwrap().profiling_job_name.as_deref(), Some("profile-qwen"));
}

#[test]
fn unstartable_graph_pods_are_explained() {
    let mut env = TestEnv::after_profiling(&spec(""));
    env.graph_mut().state = Some("pending".into());
    let waiting = |name: &str, reason: &str, message: &str| ObservedPod {
        name: name.into(),
        phase: "Pending".into(),
        containers: vec![ObservedContainer {
            name: "main".into(),
            waiting: Some(Waiting { reason: reason.into(), message: message.into() }),
            ..ObservedContainer::default()
        }],
        ..ObservedPod::default()
    };
    let secret = "secret \"hf-token-secret\" not found";
    env.snapshot.graph_pods = vec![waiting("qwen-0", "CreateContainerConfigError", secret)];
    env.settle();
    let text = "DGD qwen-dgd is in pending state. pod qwen-0 container main: CreateContainerConfigError: secret \
                \"hf-token-secret\" not found. Create the Secret or ConfigMap that the message names; the container starts \
                once it exists.";
    assert_eq!(env.condition_summary("DeploymentReady"), summary("False", "DeploymentInProgress", text));
    let line = "pod qwen-0 container main: CreateContainerConfigError: secret \"hf-token-secret\"…";
    assert_eq!(env.status().summary.as_deref(), Some(line));
    // A graph may have hundreds of pods with one problem.
    let names = (0..100).map(|number| format!("qwen-{number}"));
    env.snapshot.graph_pods = names.map(|name| waiting(&name, "CreateContainerConfigError", secret)).collect();
    env.settle();
    let message = env.condition_summary("DeploymentReady").2;
    assert!(message.ends_with("95 more problems of its pods are not listed."), "{message}");
    assert_eq!(message.matches("hf-token-secret").count(), 5, "{message}");
}

#[test]
fn summary_is_one_short_line() {
    let mut env = TestEnv::after_settling(&spec(""));
    env.set_pod_phase("Running");
    env.settle();
    assert_eq!(env.status().summary.as_deref(), Some("Profiling is in progress"));
    let error = "first line is very long: ".repeat(20) + "\nsecond line";
    env.snapshot.output = Some(output(&[("profiler_status", "failed"), ("profiler_error", &error)]));
    env.set_job_state(JobState::Complete);
    env.settle();
    let line = env.status().summary.unwrap();
    assert!(line.starts_with("InitializingFailed: profiling failed: first line") && line.ends_with('…'), "{line}");
    assert_eq!((line.chars().count(), line.lines().count()), (80, 1));
    assert!(env.condition_summary("Succeeded").2.contains("second line"));
    let env = TestEnv::after_deployment(&spec(""));
    assert_eq!(env.status().summary.as_deref(), Some("Deployment is healthy"));
}

/// The names that profilers of v1alpha1 used.
#[test]
fn v1alpha1_hardware_is_planned_for() {
    for (config, sku) in [
        (r#"{"hardware":{"gpuModel":"H100-SXM5-80GB","gpuVramMib":81920,"numGpusPerNode":4}}"#, "h100_sxm"),
        (r#"{"hardware":{"gpu_model":"h200_sxm","gpu_vram_mib":143771,"num_gpus_per_node":4}}"#, "h200_sxm"),
    ] {
        let mut snapshot =
            request_snapshot("model: m\nimage: i:1.0.0\nhardware: {totalGpus: 4, interconnect: nvlink, rdma: false}");
        snapshot.object.annotations.insert("nvidia.com/dgdr-profiling-config".into(), config.into());
        let mut env = TestEnv::new(snapshot);
        env.settle();
        assert_eq!(env.phase(), Phase::Profiling, "{:?}", env.status());
        let hardware = json!(env.snapshot.object.spec.hardware);
        assert_eq!((&hardware["gpuSku"], &hardware["numGpusPerNode"]), (&json!(sku), &json!(4)));
        assert_eq!(env.condition_summary("SpecAccepted").1, "SpecAccepted");
    }
    let mut snapshot = request_snapshot(&spec(""));
    let config = r#"{"hardware":{"gpuModel":"abacus","numGpusPerNode":0}}"#;
    snapshot.object.annotations.insert("nvidia.com/dgdr-profiling-config".into(), config.into());
    let mut env = TestEnv::new(snapshot);
    env.settle();
    let message = env.condition_summary("SpecAccepted").2;
    let unknown = "spec.profilingConfig.config.hardware.gpuModel, spec.profilingConfig.config.hardware.numGpusPerNode";
    assert!(message.contains(unknown), "{message}");
}
