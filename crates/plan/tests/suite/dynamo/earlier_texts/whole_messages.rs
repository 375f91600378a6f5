//! Texts of NVIDIA's Dynamo operator and its profiler in the whole messages that users see. Each row separates the
//! earlier text, which is a contract, from the rest, which may be reworded.

use serde_json::json;
use steersman_plan::dynamo::validate::{Review, validate};
use steersman_plan::dynamo::{JobState, names};
use steersman_reconcile::{EventType, Failure, ObjectId};

use super::settled;
use crate::dynamo::admission::{facts, request, request_in_phase, review_create, review_update};
use crate::dynamo::failures::profiling_env;
use crate::dynamo::{FINAL, IMAGE, TestEnv, output, request_snapshot, spec, summary};

/// Type, reason and message of the last event.
fn last_event(env: &TestEnv) -> (EventType, &str, &str) {
    let event = env.events.last().unwrap();
    (event.type_, event.reason, event.message.as_str())
}

#[test]
fn item_2_8_succeeded_keeps_message_of_phase() {
    let unexplained = json!({ "phase": "Failed", "observedGeneration": 1 });
    let mut failed = request_snapshot(&spec(""));
    failed.object.status = Some(serde_json::from_value(unexplained).unwrap());
    let mut profiling = profiling_env("");
    profiling.set_pod_phase("Running");
    profiling.settle();
    for (env, status, reason, kept, ours) in [
        (profiling, "False", "Profiling", "Profiling is in progress", ""),
        (
            TestEnv::after_profiling(&spec("autoApply: false")),
            "True",
            "SpecGenerated",
            "Profiling complete, spec available",
            ": set spec.autoApply to true to create DGD qwen-dgd, or create it yourself from annotation \
             nvidia.com/generated-dgd-spec",
        ),
        (
            TestEnv::after_profiling(&spec("")),
            "False",
            "Deploying",
            "Deployment is in progress",
            ": DGD qwen-dgd is in initializing state",
        ),
        (TestEnv::after_deployment(&spec("")), "True", "Deployed", "Deployment is healthy", ""),
        (settled(failed), "False", "Failed", "DGDR has failed", ""),
    ] {
        assert_eq!(env.condition_summary("Succeeded"), summary(status, reason, &[kept, ours].concat()));
    }
}

#[test]
fn unwritten_config_map_keeps_whole_event() {
    let mut env = profiling_env("");
    env.snapshot.output = Some(output(&[("profiler_status", "success"), ("final_config.yaml", FINAL)]));
    env.set_job_state(JobState::Complete);
    let object = ObjectId::new("ConfigMap", "team-a", "planner-config-1a2b");
    env.reconcile(Some(Failure { object, message: "denied".into(), transient: true, conflict: false }));
    let kept = "Failed to create ConfigMaps from profiling output: ConfigMap team-a/planner-config-1a2b: denied";
    let message = [kept, ". The DGD is created once they can be written"].concat();
    assert_eq!(last_event(&env), (EventType::Warning, "ConfigMapCreationFailed", message.as_str()));
}

#[test]
fn unusable_output_keeps_whole_message() {
    for (result, message) in [
        ("", "failed to extract DGD from final_config.yaml: no DynamoGraphDeployment found in YAML content"),
        (
            "apiVersion: nvidia.com/v2\nkind: DynamoGraphDeployment\nspec: {}",
            "unsupported DynamoGraphDeployment apiVersion \"nvidia.com/v2\"",
        ),
    ] {
        let mut env = profiling_env("");
        env.deliver_result(result);
        assert_eq!(env.condition_summary("SpecGenerated"), summary("False", "GenerationFailed", message));
        assert_eq!(last_event(&env), (EventType::Warning, "GenerationFailed", message));
    }
}

#[test]
fn invalid_spec_keeps_whole_message() {
    for (spec, kept, ours) in [
        (
            spec("searchStrategy: thorough"),
            "spec.searchStrategy \"thorough\" is incompatible with spec.backend \"auto\": set spec.backend to a specific \
             backend (sglang, trtllm, or vllm)",
            ". Or set spec.searchStrategy to rapid.",
        ),
        (
            spec("").replace("image:", "#"),
            "spec.image is required but not set; ensure the defaulting webhook ran or set spec.image explicitly",
            ". Set the image, or start the operator with --dgdr-default-image to have one for all requests.",
        ),
        (
            format!("model: m\nimage: {IMAGE}"),
            "GPU hardware info required but auto-discovery failed. Verify DCGM exporter is reachable from the operator's \
             namespace, or set spec.hardware.{gpuSku,vramMb,numGpusPerNode} explicitly.",
            " Cause: gpu operator is not installed gpu-operator; no nodes found in cluster. Set \
             spec.hardware.totalGpus as well: without it, profiling still waits for discovery.",
        ),
    ] {
        let env = TestEnv::after_settling(&spec);
        let message = [kept, ours].concat();
        assert_eq!(env.condition_summary("Validation"), summary("False", "ValidationFailed", &message));
        assert_eq!(last_event(&env), (EventType::Warning, "ValidationFailed", message.as_str()));
    }
}

/// The profiler ends with these errors; admission predicts them.
#[test]
fn predicted_profiler_errors_keep_text() {
    for (more, path, kept, ours) in [
        (
            json!({ "workload": { "concurrency": 1, "requestRate": 2 } }),
            "spec.workload: ",
            "Only one of 'concurrency' or 'requestRate' can be provided, not both.",
            " Remove one of the two fields, or the profiler ends with this error.",
        ),
        (
            json!({ "sla": { "e2eLatency": 100, "ttft": 10 } }),
            "spec.sla: ",
            "SLA must specify either (ttft and itl) or e2eLatency, not both.",
            " Remove e2eLatency, or ttft and itl, or the profiler ends with this error.",
        ),
        (
            json!({ "sla": { "itl": 0 } }),
            "spec.sla.itl: ",
            "SLA 'itl' must be positive (got 0).",
            " Set a positive number of milliseconds, or the profiler ends with this error.",
        ),
    ] {
        let review = review_create(&request(more));
        let warnings: Vec<String> = review.warnings.iter().map(ToString::to_string).collect();
        assert_eq!((warnings, review.errors.len()), (vec![[path, kept, ours].concat()], 0));
    }
}

#[test]
fn admission_keeps_whole_error_texts() {
    let texts =
        |review: Review| -> Vec<String> { review.errors.iter().map(|error| error.text().to_string()).collect() };
    let wrong = request(json!({ "backend": "auto", "searchStrategy": "thorough", "runtimeVersionOverride": null }));
    let rows = [
        [
            "spec.hardware: Required value: GPU hardware configuration is required when GPU discovery is disabled",
            ". Set spec.hardware.gpuSku, spec.hardware.vramMb and spec.hardware.numGpusPerNode.",
        ],
        [
            "spec.searchStrategy: Invalid value: \"thorough\": is incompatible with spec.backend \"auto\"; set \
             spec.backend to a specific backend (sglang, trtllm, or vllm)",
            ". Or set spec.searchStrategy to rapid.",
        ],
        [
            "spec.runtimeVersionOverride: Required value: is required when spec.image has no parseable \
             semantic-version tag",
            ". Set the field to the version of Dynamo in profiler:latest, such as 1.4.0.",
        ],
    ];
    assert_eq!(texts(validate(&wrong, None, &facts(false))), rows.map(|row| row.concat()));
    let old = request_in_phase("Deploying", json!({}));
    let kept = "spec: Forbidden: updates are forbidden while the resource is in phase \"Deploying\"; delete and recreate \
                the resource to change its spec";
    let changed = request_in_phase("Deploying", json!({ "model": "other" }));
    let ours = ". Changed fields: spec.model. In this phase only spec.autoApply can be changed.";
    assert_eq!(texts(review_update(&old, &changed)), [[kept, ours].concat()]);
}

#[test]
fn output_config_map_keeps_name_and_labels() {
    assert_eq!(names::output("qwen"), "dgdr-output-qwen");
    let expected = json!({
        "dgdr.nvidia.com/name": "qwen",
        "dgdr.nvidia.com/namespace": "team-a",
        "nvidia.com/managed-by": "dynamo-operator",
    });
    assert_eq!(json!(names::labels("qwen", "team-a")), expected);
}
