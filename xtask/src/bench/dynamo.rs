//! The burst of DynamoGraphDeploymentRequests: the requests, their Jobs and the goals. The operator discovers the GPUs, and
//! the pods of the Jobs never end.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};
use steersman::relay::PROFILING_ROLE;
use steersman_api::Family;
use steersman_plan::dynamo::build::account;
use steersman_plan::dynamo::hardware::ObservedHardware;
use steersman_plan::dynamo::{ObservedObject, ObservedReferences, Settings, Snapshot, names, profile_job};
use steersman_testkit::pod_behaviour::{BEHAVIOUR_ANNOTATION, PodBehaviour};
use steersman_testkit::{Gpu, NodePool};

use super::burst::{self, BaselineChildren, Burst, Goals, name};

const IMAGE: &str = "nvcr.io/nvidia/ai-dynamo/dynamo-planner:1.4.0";

const SIZE: usize = 500;

pub fn run(sizes: &[usize], program: Option<PathBuf>) -> Result<()> {
    let objects = Burst {
        family: Family::Dgdr,
        version: Family::Dgdr.storage_version(),
        nodes: vec![NodePool::with_gpus(Gpu::H100, 4)],
        annotations: vec![(BEHAVIOUR_ANNOTATION, PodBehaviour::Hang.annotation_value())],
        object,
        patch: Some(json!({
            "metadata": { "annotations": { names::ACCEPTED_SPEC: "0123456789abcdef " } },
            "spec": { "hardware": hardware() },
        })),
        children,
        created: &["Job"],
        sizes: if sizes.is_empty() { vec![SIZE] } else { sizes.to_vec() },
        goals: Goals { objects: SIZE, cpu_seconds: None, resident_mb: None, requests: None },
    };
    burst::run::<Job>(&objects, program)
}

fn object(name: &str) -> Value {
    json!({
        "apiVersion": "nvidia.com/v1beta1",
        "kind": Family::Dgdr.kind(),
        "metadata": { "name": name },
        "spec": { "model": "Qwen/Qwen3-32B", "backend": "vllm", "image": IMAGE },
    })
}

/// The hardware that the operator discovers on the nodes of the benchmark.
fn hardware() -> Value {
    json!({ "gpuSku": "h100_sxm", "vramMb": 81_559, "numGpusPerNode": 8, "totalGpus": 32, "rdma": false })
}

fn children(_: &Path, namespace: &str) -> Result<BaselineChildren> {
    let mut spec = object(&name(0))["spec"].take();
    spec["hardware"] = hardware();
    let snapshot = Snapshot {
        now: "2026-11-16T00:00:00Z".parse()?,
        settings: Settings { operator_image: "steersman:local".to_owned(), ..Settings::default() },
        object: ObservedObject {
            name: name(0),
            namespace: namespace.to_owned(),
            uid: String::new(),
            generation: None,
            created: None,
            deleting: false,
            finalizers: Vec::new(),
            annotations: Default::default(),
            spec: serde_json::from_value(spec).context("the spec")?,
            status: None,
        },
        job: None,
        job_pods: Vec::new(),
        output: None,
        graph: None,
        graphs_served: true,
        graph_pods: Vec::new(),
        additional: Vec::new(),
        references: ObservedReferences::default(),
        account: None,
        binding: None,
        thorough_binding: None,
        hardware: ObservedHardware::awaited(),
    };
    let shared = vec![
        account::account(&snapshot.object, None),
        account::binding(&snapshot.object, names::ROLE_BINDING, PROFILING_ROLE, None),
    ];
    Ok(BaselineChildren { shared, each: vec![profile_job::job(&snapshot, IMAGE)] })
}
