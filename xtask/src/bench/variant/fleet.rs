//! Builds the fleet of the benchmark: the objects, their workloads and pods, and the metrics of the pods.

use std::fmt::Write;

use serde_json::{Value, json};
use steersman_api::Family;

pub const PODS_PER_OBJECT: usize = 10;

/// The metrics of all pods of a namespace are served as one page.
pub const OBJECTS_PER_NAMESPACE: usize = 100;

/// Each model has a cheap and an expensive variant.
const OBJECTS_PER_MODEL: usize = 2;

/// Metrics of a pod that Steersman reads.
pub const SERIES_PER_POD: usize = 10;

/// Load at which a variant needs exactly the replicas that it has.
const KV_CACHE_USAGE: f64 = 0.68;

/// Counter of requests in the second round of scrapes; in the first it is 0.
pub const REQUESTS_PER_POD: usize = 1_200;

pub fn name(object: usize) -> String {
    format!("variant-{object:05}")
}

fn target(object: usize) -> String {
    format!("{}-decode", name(object))
}

pub fn namespace(object: usize) -> String {
    format!("fleet-{:03}", object / OBJECTS_PER_NAMESPACE)
}

fn model(object: usize) -> String {
    format!("meta-llama/Llama-3.1-{}B-Instruct", object / OBJECTS_PER_MODEL)
}

fn pod(object: usize, number: usize) -> String {
    format!("{}-6d4cf56db6-{number:05}", target(object))
}

pub fn variant(object: usize) -> Value {
    let cost = if object.is_multiple_of(OBJECTS_PER_MODEL) { "10" } else { "40" };
    json!({
        "apiVersion": format!("{}/{}", Family::Va.group(), Family::Va.storage_version()),
        "kind": Family::Va.kind(),
        "metadata": { "name": name(object), "namespace": namespace(object) },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": target(object) },
            "modelID": model(object),
            "accelerator": "H100",
            "variantCost": cost,
            "minReplicas": 1,
            "maxReplicas": 20,
        },
    })
}

/// The Deployment in its stored form, with its status.
pub fn deployment(object: usize) -> Value {
    let labels = json!({ "app": target(object) });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": target(object), "namespace": namespace(object), "uid": uid(0, object, 0), "generation": 1,
            "creationTimestamp": "2026-11-16T00:00:00Z", "labels": labels,
        },
        "spec": {
            "replicas": PODS_PER_OBJECT,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": spec(object) },
        },
        "status": { "observedGeneration": 1, "replicas": PODS_PER_OBJECT, "updatedReplicas": PODS_PER_OBJECT,
            "readyReplicas": PODS_PER_OBJECT, "availableReplicas": PODS_PER_OBJECT },
    })
}

pub fn pods(object: usize) -> impl Iterator<Item = Value> {
    (0..PODS_PER_OBJECT).map(move |number| {
        let set = format!("{}-6d4cf56db6", target(object));
        let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": uid(1, object, 0),
            "controller": true, "blockOwnerDeletion": true });
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": pod(object, number), "namespace": namespace(object), "uid": uid(2, object, number),
                "creationTimestamp": "2026-11-16T00:00:00Z", "ownerReferences": [owner],
                "labels": { "app": target(object), "pod-template-hash": "6d4cf56db6" },
            },
            "spec": spec(object),
            "status": {
                "phase": "Running", "podIP": address(object * PODS_PER_OBJECT + number),
                "startTime": "2026-11-16T00:00:00Z",
                "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-11-16T00:00:00Z" }],
            },
        })
    })
}

fn spec(object: usize) -> Value {
    json!({ "containers": [{
        "name": "vllm", "image": "vllm/vllm-openai:v0.11.0",
        "args": [format!("--model={}", model(object)), "--max-num-seqs=256"],
        "resources": { "limits": { "nvidia.com/gpu": "1" }, "requests": { "nvidia.com/gpu": "1" } },
    }] })
}

fn uid(kind: usize, object: usize, number: usize) -> String {
    format!("{kind:08x}-0000-4000-8000-{object:06x}{number:06x}")
}

/// A unique address in 10.0.0.0/8.
fn address(pod: usize) -> String {
    format!("10.{}.{}.{}", pod >> 16 & 255, pod >> 8 & 255, pod & 255)
}

/// The metrics page of the pods of these objects. The request counters are 0 in round 0, and [`REQUESTS_PER_POD`] in round
/// 1.
pub fn page(objects: std::ops::Range<usize>, scrape_round: usize) -> String {
    let mut text = String::new();
    let requests = if scrape_round == 0 { 0 } else { REQUESTS_PER_POD };
    for object in objects {
        for number in 0..PODS_PER_OBJECT {
            let place = format!("namespace=\"{}\",pod=\"{}\"", namespace(object), pod(object, number));
            let labels = format!("{place},model_name=\"{}\"", model(object));
            let mut line = |metric: &str, labels: &str, value: f64| {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "vllm:{metric}{{{labels}}} {value}");
            };
            line("kv_cache_usage_perc", &labels, KV_CACHE_USAGE);
            line("num_requests_waiting", &labels, 0.0);
            line("cache_config_info", &format!("{place},block_size=\"16\",num_gpu_blocks=\"27000\""), 1.0);
            for (counter, per_request) in [
                ("request_success_total", 1),
                ("request_prompt_tokens_sum", 512),
                ("request_prompt_tokens_count", 1),
                ("request_generation_tokens_sum", 128),
                ("request_generation_tokens_count", 1),
                ("prefix_cache_queries_total", 512),
                ("prefix_cache_hits_total", 64),
            ] {
                line(counter, &labels, (requests * per_request) as f64);
            }
        }
    }
    text
}
