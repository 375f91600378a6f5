//! A cluster in which everything is there that a request may name.
//! Comes in: a spec; goes out: what the profiler is told, the Job and the graph that come of it, and the fields that a
//! condition speaks of.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use steersman_api::convert::convert;
use steersman_api::dynamo::v1beta1::{DynamoGraphDeploymentRequestStatus, Phase};
use steersman_plan::dynamo::asked::mark;
use steersman_plan::dynamo::{Snapshot, names, plan};
use steersman_reconcile::{Finding, Lookup};

use super::super::{FINAL, World, a_request, node, the_job};
use crate::leaves::Output;

/// What the operator finds where the request says nothing.
fn request(spec: &Value) -> Snapshot {
    let mut seen = a_request(&spec.to_string());
    seen.settings.default_image = Some("default-planner:1.4.0".into());
    let labels = [
        ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
        ("nvidia.com/gpu.count", "8"),
        ("nvidia.com/gpu.memory", "81559"),
    ];
    seen.hardware.nodes = Lookup::Known(vec![node("gpu-0", &labels)]);
    seen
}

/// The Job alone, in one step: for the many fields that only it can have.
pub fn job(spec: &Value) -> Output {
    let mut seen = request(spec);
    seen.object.annotations.insert(names::ACCEPTED_SPEC.into(), mark(&seen.object.spec));
    seen.object.status = Some(DynamoGraphDeploymentRequestStatus {
        phase: Some(Phase::Pending),
        observed_generation: Some(1),
        ..DynamoGraphDeploymentRequestStatus::default()
    });
    let plan = plan(&seen);
    let (job, _) = without_config(the_job(&plan));
    Output::Written { parts: [("Job".to_owned(), job)].into(), told: told(&plan.findings) }
}

/// From the first look to the graph.
pub fn life(spec: &Value) -> Output {
    lived(World::new(request(spec)))
}

/// The same for a spec of v1alpha1, as it is stored.
pub fn earlier(spec: &Value) -> Output {
    let object = json!({ "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeploymentRequest",
        "metadata": { "name": "qwen", "namespace": "team-a" }, "spec": spec });
    let stored = convert(object, "nvidia.com/v1beta1").unwrap().object;
    let mut seen = request(&stored["spec"]);
    let annotations = stored["metadata"]["annotations"].clone();
    seen.object.annotations = serde_json::from_value::<Option<_>>(annotations).unwrap().unwrap_or_default();
    lived(World::new(seen))
}

fn lived(mut world: World) -> Output {
    world.settle();
    if world.phase() != Phase::Profiling {
        return Output::Refused(world.says("Succeeded").2);
    }
    let told = told(&plan(&world.seen).findings);
    world.deliver(FINAL);
    let (job, config) = without_config(world.objects["Job profile-qwen"].clone());
    let mut parts: BTreeMap<String, Value> = [("Job".to_owned(), job), ("profiler".to_owned(), config)].into();
    if let Some((_, graph)) = world.objects.iter().find(|(name, _)| name.starts_with("DynamoGraphDeployment ")) {
        parts.insert("graph".to_owned(), graph.clone());
    }
    Output::Written { parts, told }
}

/// The Job, without what repeats the whole spec; and that, as the profiler reads it.
fn without_config(mut job: Value) -> (Value, Value) {
    job["metadata"]["annotations"] = Value::Null;
    let config = job["spec"]["template"]["spec"]["containers"][0]["args"][1].take();
    (job, serde_json::from_str(config.as_str().unwrap()).unwrap())
}

/// The fields in the messages that say what has no effect.
fn told(findings: &[Finding]) -> Vec<String> {
    let lists = [
        ("Not taken over from spec.overrides.profilingJob: ", "spec.overrides.profilingJob."),
        ("Kept from v1alpha1 and without effect: ", ""),
    ];
    let of = |finding: &Finding| {
        let (said, whole) =
            lists.iter().find_map(|(begin, whole)| Some((finding.message.strip_prefix(begin)?, whole)))?;
        let fields = said.trim_end_matches('.').split(", ");
        Some(fields.map(|field| format!("{whole}{field}")).collect::<Vec<_>>())
    };
    findings.iter().filter_map(of).flatten().collect()
}
