//! Reconciles a spec in a cluster that has every object a request may name, and collects the profiler's arguments, the
//! Job, the graph and the fields that a condition names.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use steersman_api::convert::convert;
use steersman_api::dynamo::v1beta1::{DynamoGraphDeploymentRequestStatus, Phase};
use steersman_plan::dynamo::request::spec_hash;
use steersman_plan::dynamo::{Snapshot, names, plan};
use steersman_reconcile::{Finding, Lookup};

use super::super::{FINAL, TestEnv, node, planned_job, request_snapshot};
use crate::leaves::Output;

/// A request in a cluster with a default image and one GPU node.
fn request_in_cluster(spec: &Value) -> Snapshot {
    let mut snapshot = request_snapshot(&spec.to_string());
    snapshot.settings.default_image = Some("default-planner:1.4.0".into());
    let labels = [
        ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
        ("nvidia.com/gpu.count", "8"),
        ("nvidia.com/gpu.memory", "81559"),
    ];
    snapshot.hardware.nodes = Lookup::Known(vec![node("gpu-0", &labels)]);
    snapshot
}

/// The Job alone, from a single plan: fast enough for the many fields that only the Job has.
pub fn job_output(spec: &Value) -> Output {
    let mut snapshot = request_in_cluster(spec);
    snapshot.object.annotations.insert(names::ACCEPTED_SPEC.into(), spec_hash(&snapshot.object.spec));
    snapshot.object.status = Some(DynamoGraphDeploymentRequestStatus {
        phase: Some(Phase::Pending),
        observed_generation: Some(1),
        ..DynamoGraphDeploymentRequestStatus::default()
    });
    let plan = plan(&snapshot);
    let (job, _) = split_config(planned_job(&plan));
    Output::Written { parts: [("Job".to_owned(), job)].into(), reported_fields: reported_fields(&plan.findings) }
}

/// Output of a v1beta1 spec, from the first reconcile to the graph.
pub fn v1beta1_output(spec: &Value) -> Output {
    run_to_graph(TestEnv::new(request_in_cluster(spec)))
}

/// Output of a v1alpha1 spec, converted as the API server stores it.
pub fn v1alpha1_output(spec: &Value) -> Output {
    let object = json!({ "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeploymentRequest",
        "metadata": { "name": "qwen", "namespace": "team-a" }, "spec": spec });
    let stored_object = convert(object, "nvidia.com/v1beta1").unwrap().object;
    let mut snapshot = request_in_cluster(&stored_object["spec"]);
    let annotations = stored_object["metadata"]["annotations"].clone();
    snapshot.object.annotations = serde_json::from_value::<Option<_>>(annotations).unwrap().unwrap_or_default();
    run_to_graph(TestEnv::new(snapshot))
}

fn run_to_graph(mut env: TestEnv) -> Output {
    env.settle();
    if env.phase() != Phase::Profiling {
        return Output::Rejected(env.condition_summary("Succeeded").2);
    }
    let reported_fields = reported_fields(&plan(&env.snapshot).findings);
    env.deliver_result(FINAL);
    let (job, config) = split_config(env.objects["Job profile-qwen"].clone());
    let mut parts: BTreeMap<String, Value> = [("Job".to_owned(), job), ("profiler".to_owned(), config)].into();
    if let Some((_, graph)) = env.objects.iter().find(|(name, _)| name.starts_with("DynamoGraphDeployment ")) {
        parts.insert("graph".to_owned(), graph.clone());
    }
    Output::Written { parts, reported_fields }
}

/// Splits the profiler's configuration, which repeats the whole spec, from the Job.
fn split_config(mut job: Value) -> (Value, Value) {
    job["metadata"]["annotations"] = Value::Null;
    let config = job["spec"]["template"]["spec"]["containers"][0]["args"][1].take();
    (job, serde_json::from_str(config.as_str().unwrap()).unwrap())
}

/// Fields that messages list as ignored.
fn reported_fields(findings: &[Finding]) -> Vec<String> {
    let prefixes = [
        ("Ignored fields of spec.overrides.profilingJob: ", "spec.overrides.profilingJob."),
        ("Fields of v1alpha1 without effect: ", ""),
    ];
    let fields_named_in = |finding: &Finding| {
        let (list, prefix) =
            prefixes.iter().find_map(|(text, prefix)| Some((finding.message.strip_prefix(text)?, prefix)))?;
        let fields = list.trim_end_matches('.').split(", ");
        Some(fields.map(|field| format!("{prefix}{field}")).collect::<Vec<_>>())
    };
    findings.iter().filter_map(fields_named_in).flatten().collect()
}
