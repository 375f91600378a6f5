//! Texts of NVIDIA's Dynamo operator that stay word for word: contracts with its users, whose alerts, scripts and
//! dashboards match them, so a change here is a breaking change.

mod whole_messages;

use serde_json::{Value, json};
use steersman_plan::dynamo::hardware::ObservedHardware;
use steersman_plan::dynamo::{JobState, ObservedGraph, Snapshot, plan};
use steersman_plan::pods::{ObservedContainer, ObservedPod, Terminated, Waiting};
use steersman_reconcile::{EventType, Failure, Lookup, ObjectId};

use super::admission::{assert_rejected, facts, request, request_in_phase, review_create, review_update};
use super::failures::profiling_env;
use super::hardware::{TWO_GPUS, exporter, failed_exporter, gpu_node, nodes};
use super::merge::{ALPHA, BETA, merge_yaml};
use super::waiting::waiting_pod;
use super::{FINAL, IMAGE, TestEnv, no_hardware, node, output, planned_job, request_snapshot, spec, summary};

/// Type, reason and message of all events.
fn published(env: &TestEnv) -> Vec<(EventType, &str, &str)> {
    env.events.iter().map(|event| (event.type_, event.reason, event.message.as_str())).collect()
}

/// Expects a condition whose message begins with the earlier text, which ours continues with the next step.
#[track_caller]
fn assert_condition_begins(env: &TestEnv, type_: &str, expected: [&str; 3]) {
    let (status, reason, message) = env.condition_summary(type_);
    assert_eq!([status.as_str(), reason.as_str()], expected[..2], "{type_}: {message}");
    let rest = message.strip_prefix(expected[2]).unwrap_or_else(|| panic!("{message:?} does not begin as earlier"));
    assert!(rest.is_empty() || rest.starts_with([':', '.', ' ']), "{message}");
}

fn rejected_write(kind: &str, name: &str, transient: bool) -> Option<Failure> {
    let object = ObjectId::new(kind, "team-a", name);
    Some(Failure { object, message: "denied".into(), transient, conflict: false })
}

/// A request whose Job has ended with a result that is not processed yet.
fn delivered_env() -> TestEnv {
    let mut env = profiling_env("");
    env.snapshot.output = Some(output(&[("profiler_status", "success"), ("final_config.yaml", FINAL)]));
    env.set_job_state(JobState::Complete);
    env
}

fn settled(snapshot: Snapshot) -> TestEnv {
    let mut env = TestEnv::new(snapshot);
    env.settle();
    env
}

#[test]
fn deployed_request_keeps_condition_texts() {
    let env = TestEnv::after_deployment(&spec(""));
    for (type_, reason, message) in [
        ("Validation", "ValidationPassed", "DGDR spec validation passed"),
        ("Profiling", "ProfilingCompleted", "Profiling job completed successfully"),
        ("SpecGenerated", "SpecGenerated", "DynamoGraphDeployment spec generated successfully"),
        ("DeploymentReady", "DeploymentReady", "DynamoGraphDeployment qwen-dgd is ready"),
        ("Succeeded", "Deployed", "Deployment is healthy"),
    ] {
        assert_eq!(env.condition_summary(type_), summary("True", reason, message));
    }
    let types: Vec<String> = env.status().conditions.into_iter().map(|condition| condition.type_).collect();
    let ours = "SpecAccepted";
    assert_eq!(types, ["Validation", "Profiling", "SpecGenerated", "DeploymentReady", "Succeeded", ours]);
}

#[test]
fn deployed_request_keeps_events() {
    let env = TestEnv::after_deployment(&spec(""));
    let expected = [
        ("Initialized", "DGDR initialized successfully"),
        ("ProfilingJobCreated", "Profiling job created"),
        ("SpecGenerated", "DynamoGraphDeployment spec generated successfully"),
        ("DeploymentCreated", "DynamoGraphDeployment qwen-dgd created successfully"),
        ("DeploymentReady", "DynamoGraphDeployment qwen-dgd is ready"),
    ];
    assert_eq!(published(&env), expected.map(|(reason, message)| (EventType::Normal, reason, message)));
}

#[test]
fn phases_keep_values_of_status() {
    let phase = |env: &TestEnv| json!(env.status())["phase"].clone();
    let mut undiscovered = request_snapshot(&format!("model: m\nimage: {IMAGE}"));
    undiscovered.hardware = ObservedHardware::awaited();
    assert_eq!(phase(&settled(undiscovered)), "Pending");
    assert_eq!(phase(&TestEnv::after_settling(&spec(""))), "Profiling");
    assert_eq!(phase(&TestEnv::after_profiling(&spec("autoApply: false"))), "Ready");
    assert_eq!(phase(&TestEnv::after_profiling(&spec(""))), "Deploying");
    assert_eq!(phase(&TestEnv::after_deployment(&spec(""))), "Deployed");
    assert_eq!(phase(&TestEnv::after_settling(&spec("searchStrategy: thorough"))), "Failed");
}

#[test]
fn pending_request_keeps_condition_texts() {
    let mut snapshot = request_snapshot(&format!("model: m\nimage: {IMAGE}"));
    snapshot.hardware = ObservedHardware::awaited();
    let env = settled(snapshot);
    let discovering = "Discovering GPU hardware and preparing profiling job";
    assert_eq!(env.condition_summary("Profiling"), summary("False", "DiscoveringHardware", discovering));
    assert_eq!(env.condition_summary("Succeeded"), summary("False", "Pending", "DGDR is pending"));
    assert_eq!(published(&env), [(EventType::Normal, "Initialized", "DGDR initialized successfully")]);
}

#[test]
fn profiling_request_keeps_condition_texts() {
    let mut env = profiling_env("");
    env.set_pod_phase("Running");
    env.settle();
    let running = "Profiling is in progress";
    assert_eq!(env.condition_summary("Profiling"), summary("False", "ProfilingRunning", running));
    assert_eq!(env.condition_summary("Succeeded"), summary("False", "Profiling", running));
}

#[test]
fn sub_phase_keeps_condition_reason() {
    for (sub_phase, reason) in [
        ("Initializing", "Initializing"),
        ("SweepingPrefill", "SweepingPrefill"),
        ("SweepingDecode", "SweepingDecode"),
        ("SelectingConfig", "SelectingConfig"),
        ("BuildingCurves", "BuildingCurves"),
        ("GeneratingDGD", "GeneratingDGD"),
        ("Done", "Completed"),
    ] {
        let mut env = profiling_env("");
        env.snapshot.output = Some(output(&[("phase", sub_phase), ("message", "Candidate 1/4")]));
        env.settle();
        assert_eq!(env.condition_summary("Profiling"), summary("False", reason, "Candidate 1/4"));
        assert_eq!(json!(env.status())["profilingPhase"], sub_phase);
    }
}

#[test]
fn ready_request_keeps_condition_texts() {
    let env = TestEnv::after_profiling(&spec("autoApply: false"));
    let available = "Generated spec is available in annotation nvidia.com/generated-dgd-spec";
    assert_eq!(env.condition_summary("SpecGenerated"), summary("True", "SpecGenerated", available));
    assert_condition_begins(&env, "Succeeded", ["True", "SpecGenerated", "Profiling complete, spec available"]);
}

#[test]
fn deploying_request_keeps_condition_texts() {
    for (state, shown) in [(None, "initializing"), (Some("pending"), "pending"), (Some("failed"), "failed")] {
        let mut env = TestEnv::after_profiling(&spec(""));
        env.graph_mut().state = state.map(str::to_owned);
        env.settle();
        let message = format!("DGD qwen-dgd is in {shown} state");
        assert_eq!(env.condition_summary("DeploymentReady"), summary("False", "DeploymentInProgress", &message));
        assert_condition_begins(&env, "Succeeded", ["False", "Deploying", "Deployment is in progress"]);
    }
}

#[test]
fn unpulled_image_keeps_event() {
    for (reason, text, message) in [
        ("ErrImagePull", "no such tag", "pod profile-qwen-x container profiler: ErrImagePull: no such tag"),
        ("ImagePullBackOff", "", "pod profile-qwen-x container profiler: ImagePullBackOff"),
    ] {
        let mut env = TestEnv::after_profiling(&spec(""));
        env.events.clear();
        env.snapshot.graph_pods = vec![waiting_pod(reason, text)];
        env.settle();
        assert_eq!(published(&env), [(EventType::Warning, "ImagePullFailed", message)]);
    }
}

#[test]
fn degraded_graph_keeps_condition_and_event() {
    let mut env = TestEnv::after_deployment(&spec(""));
    env.events.clear();
    env.graph_mut().state = Some("failed".into());
    env.settle();
    let degraded = summary("False", "DeploymentDegraded", "Deployment degraded to failed");
    assert_eq!(env.condition_summary("DeploymentReady"), degraded);
    let message = "DynamoGraphDeployment qwen-dgd degraded from Ready to failed";
    assert_eq!(published(&env), [(EventType::Warning, "DeploymentDegraded", message)]);
}

#[test]
fn deleted_graph_keeps_condition_and_event() {
    let mut env = TestEnv::after_deployment(&spec(""));
    env.events.clear();
    env.snapshot.graph = None;
    env.settle();
    let message = "Deployment was deleted by user. Create a new DGDR to redeploy.";
    assert_eq!(env.condition_summary("DeploymentReady"), summary("False", "DeploymentDeleted", message));
    let message =
        "DGD qwen-dgd was deleted. DGDR will not recreate it. Delete this DGDR and create a new one to redeploy.";
    assert_eq!(published(&env), [(EventType::Warning, "DeploymentDeleted", message)]);
}

#[test]
fn rejected_graph_keeps_reasons() {
    for (transient, reason) in [(false, "DeploymentRejected"), (true, "DeploymentCreationFailed")] {
        let mut env = delivered_env();
        env.reconcile(rejected_write("DynamoGraphDeployment", "qwen-dgd", transient));
        assert_eq!(env.condition_summary("DeploymentReady").1, reason);
        assert_eq!(env.events.last().map(|event| event.reason), Some("DeploymentCreationFailed"));
    }
}

#[test]
fn unwritten_config_map_keeps_event() {
    let mut env = delivered_env();
    env.reconcile(rejected_write("ConfigMap", "planner-config-1a2b", true));
    let (type_, reason, message) = *published(&env).last().unwrap();
    assert_eq!((type_, reason), (EventType::Warning, "ConfigMapCreationFailed"));
    assert!(message.starts_with("Failed to create ConfigMaps from profiling output: "), "{message}");
}

#[test]
fn profiler_failure_keeps_reason_and_message() {
    for (sub_phase, reason) in [
        ("Initializing", "InitializingFailed"),
        ("SweepingPrefill", "SweepingPrefillFailed"),
        ("SweepingDecode", "SweepingDecodeFailed"),
        ("SelectingConfig", "SelectingConfigFailed"),
        ("BuildingCurves", "BuildingCurvesFailed"),
        ("GeneratingDGD", "GeneratingDGDFailed"),
    ] {
        let mut env = profiling_env(sub_phase);
        let data = [("phase", sub_phase), ("profiler_status", "failed"), ("profiler_error", "SLA out of reach")];
        env.snapshot.output = Some(output(&data));
        env.set_job_state(JobState::Complete);
        env.settle();
        let message = "profiling failed: SLA out of reach";
        assert_eq!(env.condition_summary("Profiling"), summary("False", reason, message));
        assert_eq!(published(&env), [(EventType::Warning, "ProfilingCheckFailed", message)]);
    }
    let mut env = profiling_env("");
    env.snapshot.output = Some(output(&[("profiler_status", "failed")]));
    env.set_job_state(JobState::Complete);
    env.settle();
    let message = "profiling failed: profiler reported failure (no details available)";
    assert_eq!(env.condition_summary("Profiling").2, message);
}

#[test]
fn failed_job_keeps_reason_and_details() {
    let terminated = |message: &str| ObservedContainer {
        name: "profiler".into(),
        terminated: Some(Terminated { exit_code: 137, reason: "OOMKilled".into(), message: message.into() }),
        ..ObservedContainer::default()
    };
    let waiting = ObservedContainer {
        name: "profiler".into(),
        waiting: Some(Waiting { reason: "CrashLoopBackOff".into(), message: "back-off 10s".into() }),
        ..ObservedContainer::default()
    };
    for (container, details) in [
        (terminated(""), "Container: profiler, ExitCode: 137, Reason: OOMKilled"),
        (terminated("no memory"), "Container: profiler, ExitCode: 137, Reason: OOMKilled, Message: no memory"),
        (waiting, "Container: profiler, Waiting - Reason: CrashLoopBackOff, Message: back-off 10s"),
    ] {
        let mut env = profiling_env("");
        env.snapshot.object.status.as_mut().unwrap().profiling_phase = None;
        env.set_job_state(JobState::Failed("Job has reached the specified backoff limit".into()));
        env.snapshot.job_pods = vec![ObservedPod {
            name: "profile-qwen-x".into(),
            phase: "Failed".into(),
            containers: vec![container],
            ..ObservedPod::default()
        }];
        env.settle();
        let message = format!(
            "profiling job failed: Job has reached the specified backoff limit. Details: Pod: profile-qwen-x, {details}"
        );
        assert_eq!(env.condition_summary("Profiling"), summary("False", "ProfilingFailed", &message));
        assert_eq!(published(&env), [(EventType::Warning, "ProfilingCheckFailed", message.as_str())]);
    }
}

#[test]
fn rejected_job_keeps_reasons() {
    let mut env = TestEnv::new(request_snapshot(&spec("")));
    env.reconcile(rejected_write("Job", "profile-qwen", false));
    let (status, reason, _) = env.condition_summary("Profiling");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "JobCreationFailed"));
    assert_eq!(env.event_reasons(), ["ProfilingJobFailed"]);
}

#[test]
fn unusable_output_keeps_message() {
    let large = FINAL.replace("'{}'", &"x".repeat(250_000));
    for (output, begin, end) in [
        ("", "failed to extract DGD from final_config.yaml: no DynamoGraphDeployment found in YAML content", ""),
        (
            "apiVersion: nvidia.com/v2\nkind: DynamoGraphDeployment\nspec: {}",
            "unsupported DynamoGraphDeployment apiVersion \"nvidia.com/v2\"",
            "",
        ),
        (
            &large,
            "additional resources YAML size (250",
            " bytes) exceeds maximum annotation size (250000 bytes); consider reducing the number of resources or storing \
             them separately",
        ),
    ] {
        let mut env = profiling_env("");
        env.deliver_result(output);
        let (status, reason, message) = env.condition_summary("SpecGenerated");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "GenerationFailed"));
        assert!(message.starts_with(begin) && message.ends_with(end), "{message}");
        assert_eq!(published(&env), [(EventType::Warning, "GenerationFailed", message.as_str())]);
    }
}

#[test]
fn invalid_spec_keeps_message() {
    let graph_override = "overrides: {dgd: {apiVersion: nvidia.com/v1beta1, kind: DynamoGraphDeployment}}";
    type Change = fn(&mut Snapshot);
    let cases: [(String, Change, &str); 6] = [
        (
            spec("searchStrategy: thorough"),
            |_| (),
            "spec.searchStrategy \"thorough\" is incompatible with spec.backend \"auto\": set spec.backend to a specific \
             backend (sglang, trtllm, or vllm)",
        ),
        (
            spec("").replace("image:", "#"),
            |_| (),
            "spec.image is required but not set; ensure the defaulting webhook ran or set spec.image explicitly",
        ),
        (
            spec("modelCache: {pvcName: weights}"),
            |snapshot| snapshot.references.model_cache = Some(false),
            "model cache PVC weights not found in namespace team-a",
        ),
        (
            spec(""),
            |snapshot| snapshot.settings.profiling_cluster_role_found = false,
            "cluster role \"dgdr-profiling\" does not exist: ensure it is created by Helm before deploying components",
        ),
        (
            spec(graph_override),
            |snapshot| snapshot.settings.operator_image.clear(),
            "operator image must be configured when a DGD override is present",
        ),
        (
            format!("model: m\nimage: {IMAGE}"),
            |_| (),
            "GPU hardware info required but auto-discovery failed. Verify DCGM exporter is reachable from the operator's \
             namespace, or set spec.hardware.{gpuSku,vramMb,numGpusPerNode} explicitly.",
        ),
    ];
    for (spec, change, text) in cases {
        let mut snapshot = request_snapshot(&spec);
        change(&mut snapshot);
        let env = settled(snapshot);
        assert_condition_begins(&env, "Validation", ["False", "ValidationFailed", text]);
        let message = env.condition_summary("Validation").2;
        assert_eq!(published(&env), [(EventType::Warning, "ValidationFailed", message.as_str())]);
    }
}

#[test]
fn failed_discovery_keeps_causes() {
    let no_exporter = "gpu operator is not installed gpu-operator";
    let no_node = "no nodes found in cluster";
    let by_exporters = |exporters| ObservedHardware { exporters, ..no_hardware() };
    let by_labels = |found, labels: &str| (nodes(found), format!("{no_exporter}; {labels}"));
    let tesla = || vec![gpu_node("a", "Tesla T4", "1", "15360")];
    let cases = [
        (no_hardware(), format!("{no_exporter}; {no_node}")),
        (
            ObservedHardware { gpu_operator: true, ..no_hardware() },
            format!(
                "DCGM is not enabled in the GPU Operator (check GPU Operator configuration and permissions); {no_node}"
            ),
        ),
        (
            by_exporters(Lookup::Unknown("timeout".into())),
            format!("listing DCGM exporter pods failed: list pods: timeout; {no_node}"),
        ),
        (
            by_exporters(Lookup::Known(vec![failed_exporter("no route")])),
            format!("failed to scrape any DCGM exporter pod: [no route]; {no_node}"),
        ),
        (
            by_exporters(Lookup::Known(vec![exporter("n", "up 1")])),
            format!("no GPU metrics could be parsed from any DCGM pod; {no_node}"),
        ),
        (
            ObservedHardware {
                nodes: Lookup::Unknown("forbidden".into()),
                ..by_exporters(Lookup::Known(vec![exporter("n", TWO_GPUS)]))
            },
            "no GPU nodes matching SKU \"l4\" found; failed to list cluster nodes: forbidden".to_owned(),
        ),
        (
            ObservedHardware { by_labels: false, ..no_hardware() },
            format!("{no_exporter}; node-label discovery is disabled"),
        ),
        (
            ObservedHardware { nodes: Lookup::Unknown("forbidden".into()), ..no_hardware() },
            format!("{no_exporter}; failed to list cluster nodes: forbidden"),
        ),
        by_labels(
            vec![node("a", &[])],
            "no nodes with NVIDIA GPU Feature Discovery labels found (checked 1 nodes). Ensure GPU nodes have labels: \
             nvidia.com/gpu.count, nvidia.com/gpu.product, nvidia.com/gpu.memory",
        ),
        by_labels(
            tesla(),
            "no nodes with NVIDIA GPU Feature Discovery labels matching SKU \"l4\" found (checked 1 nodes)",
        ),
    ];
    for (hardware, cause) in cases {
        let mut snapshot = request_snapshot(&format!("model: m\nimage: {IMAGE}\nhardware: {{gpuSku: l4}}"));
        snapshot.hardware = hardware;
        let (_, _, message) = settled(snapshot).condition_summary("Validation");
        assert!(message.contains(&format!(" Cause: {cause}. ")), "{message}\n{cause}");
    }
}

#[test]
fn rejected_spec_change_keeps_event() {
    let mut env = TestEnv::after_deployment(&spec(""));
    env.events.clear();
    env.edit_spec(&spec("backend: vllm"));
    env.settle();
    let message = "Cannot modify spec in phase 'Deployed'. DynamoGraphDeploymentRequest is immutable once profiling starts. \
                   Create a new resource with a different name instead.";
    assert_eq!(published(&env), [(EventType::Warning, "SpecChangeRejected", message)]);
}

#[test]
fn admission_keeps_error_texts() {
    let no_hardware =
        "spec.hardware: Required value: GPU hardware configuration is required when GPU discovery is disabled";
    let thorough = "spec.searchStrategy: Invalid value: \"thorough\": is incompatible with spec.backend \"auto\"; set \
                    spec.backend to a specific backend (sglang, trtllm, or vllm)";
    let no_version = "spec.runtimeVersionOverride: Required value: is required when spec.image has no parseable \
                      semantic-version tag";
    let wrong = request(json!({ "backend": "auto", "searchStrategy": "thorough", "runtimeVersionOverride": null }));
    let review = steersman_plan::dynamo::validate::validate(&wrong, None, &facts(false));
    assert_rejected(&review, &[no_hardware, thorough, no_version]);
    assert_rejected(&review_create(&wrong), &[thorough, no_version]);
    for phase in ["Profiling", "Ready", "Deploying", "Deployed"] {
        let forbidden = format!(
            "spec: Forbidden: updates are forbidden while the resource is in phase \"{phase}\"; delete and recreate the \
             resource to change its spec"
        );
        let old = request_in_phase(phase, json!({}));
        assert_rejected(&review_update(&old, &request_in_phase(phase, json!({ "model": "other" }))), &[&forbidden]);
    }
}

#[test]
fn graph_override_keeps_warnings_and_errors() {
    let rest = "metadata: {name: n, uid: u, annotations: {nvidia.com/dgd-spec: x}}\n\
                spec: {components: [{name: Other, replicas: 1}]}";
    assert_eq!(
        merge_yaml(BETA, "v1beta1", rest).unwrap().warnings,
        [
            "metadata: ignored identity/runtime fields: name, uid",
            "metadata.annotations: ignored reserved operator keys: nvidia.com/dgd-spec",
            "spec.components[Other]: ignored because the generated blueprint has no such component",
        ]
    );
    assert_eq!(
        merge_yaml(ALPHA, "v1alpha1", "spec: {services: {other: {replicas: 1}}}").unwrap().warnings,
        ["spec.services[other]: ignored because the generated blueprint has no such service"]
    );
    assert_eq!(merge_yaml(BETA, "v1beta1", "status: {}").unwrap_err(), "override status is not supported");
    assert_eq!(
        merge_yaml(BETA, "v1beta1", "spec: {backendFramework: null}").unwrap_err(),
        "override spec.backendFramework must not be null; field deletion is not supported"
    );
}

#[test]
fn profiling_job_keeps_names_and_labels() {
    let mut snapshot = request_snapshot(&spec(
        "modelCache: {pvcName: weights}\noverrides: {dgd: {apiVersion: nvidia.com/v1beta1, kind: DynamoGraphDeployment}}",
    ));
    for (annotation, value) in
        [("nvidia.com/dgdr-output-pvc", "results"), ("nvidia.com/dgdr-config-map-ref", r#"{"name":"base"}"#)]
    {
        snapshot.object.annotations.insert(annotation.into(), value.into());
    }
    let job = planned_job(&plan(&snapshot));
    let labels = json!({ "app": "dynamo-profiler", "dgdr": "qwen", "nvidia.com/managed-by": "dynamo-operator" });
    assert_eq!((&job["metadata"]["name"], &job["metadata"]["labels"]), (&json!("profile-qwen"), &labels));
    let pod = &job["spec"]["template"]["spec"];
    let names = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&pod["containers"]), ["profiler", "output-copier"]);
    assert_eq!(names(&pod["initContainers"]), ["dgd-override-installer"]);
    assert_eq!(names(&pod["imagePullSecrets"]), ["nvcr-imagepullsecret"]);
    assert_eq!(names(&pod["volumes"]), ["profiling-output", "model-cache", "profiling-config", "dgd-override-tool"]);
    assert_eq!(pod["serviceAccountName"], "dgdr-profiling-job");
    let profiler = &pod["containers"][0];
    let paths: Vec<&Value> =
        profiler["volumeMounts"].as_array().unwrap().iter().map(|mount| &mount["mountPath"]).collect();
    assert_eq!(paths, ["/data", "/opt/model-cache", "/config", "/opt/dynamo/bin"]);
    assert_eq!(profiler["command"], json!(["python", "-m", "dynamo.profiler"]));
    assert_eq!((&profiler["args"][0], &profiler["args"][2]), (&json!("--config"), &json!("--output-dir")));
    assert_eq!(
        names(&profiler["env"]),
        ["DGDR_NAME", "DGDR_NAMESPACE", "DGDR_UID", "DYNAMO_DGD_APPLY_OVERRIDES_BIN", "HUGGING_FACE_HUB_TOKEN"]
    );
    assert_eq!(profiler["env"][3]["value"], "/opt/dynamo/bin/dgd-apply-overrides");
    let token = &profiler["env"][4]["valueFrom"]["secretKeyRef"];
    assert_eq!((&token["name"], &token["key"]), (&json!("hf-token-secret"), &json!("HF_TOKEN")));
}

#[test]
fn written_objects_keep_names_and_labels() {
    let env = TestEnv::after_deployment(&spec(""));
    let account = json!({
        "app.kubernetes.io/managed-by": "dynamo-operator",
        "app.kubernetes.io/component": "rbac",
        "app.kubernetes.io/name": "dgdr-profiling-job",
    });
    let generated = json!({
        "dgdr.nvidia.com/name": "qwen",
        "dgdr.nvidia.com/namespace": "team-a",
        "nvidia.com/managed-by": "dynamo-operator",
    });
    let mut graph = generated.clone();
    graph["team"] = json!("a");
    for (object, labels) in [
        ("ServiceAccount dgdr-profiling-job", &account),
        ("RoleBinding dgdr-profiling-job-binding", &account),
        ("ConfigMap planner-config-1a2b", &generated),
        ("DynamoGraphDeployment qwen-dgd", &graph),
    ] {
        assert_eq!(env.objects[object]["metadata"]["labels"], *labels, "{object}");
    }
}

#[test]
fn request_keeps_annotation_keys() {
    let env = TestEnv::after_profiling(&spec("autoApply: false"));
    let annotations = &env.snapshot.object.annotations;
    assert!(annotations["nvidia.com/generated-dgd-spec"].contains("kind: DynamoGraphDeployment"));
    assert!(annotations["dgdr.nvidia.com/additional-resources"].contains("kind: ConfigMap"));
    // A graph of an earlier operator is recognized by its labels.
    let mut env = env;
    let labels = [
        ("dgdr.nvidia.com/name", "qwen"),
        ("dgdr.nvidia.com/namespace", "team-a"),
        ("nvidia.com/managed-by", "dynamo-operator"),
    ];
    env.snapshot.graph = Some(ObservedGraph {
        name: "qwen-dgd".into(),
        uid: "graph-1".into(),
        api_version: "nvidia.com/v1beta1".into(),
        created: Some(super::now()),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        state: Some("successful".into()),
        ..ObservedGraph::default()
    });
    env.edit_spec(&spec(""));
    env.settle();
    assert_eq!(env.condition_summary("Succeeded"), summary("True", "Deployed", "Deployment is healthy"));
}

#[test]
fn finalizer_of_earlier_operator_is_recognized() {
    let mut env = TestEnv::after_deployment(&spec(""));
    env.snapshot.object.finalizers = vec!["nvidia.com/finalizer".into()];
    env.snapshot.object.deleting = true;
    env.settle();
    assert_eq!(env.snapshot.object.finalizers, Vec::<String>::new());
}
