//! What a fleet of the benchmark is made of.
//! Comes in: how many objects; goes out: the objects, their workloads and pods, and what the pods say of themselves.

use std::fmt::Write;

use serde_json::{Value, json};
use steersman_api::Family;

/// Pods of each object.
pub const PODS: usize = 10;

/// Objects of one namespace, whose pods' metrics are on one page.
pub const IN_NAMESPACE: usize = 100;

/// Objects of one model: a cheap one and a dear one.
const OF_MODEL: usize = 2;

/// Metrics of each pod, which is what Steersman reads.
pub const SERIES: usize = 10;

/// So full that nothing is missing, and that none can go.
const KV: f64 = 0.68;

/// What every pod has counted by its second look: more than by the first.
pub const REQUESTS: usize = 1_200;

pub fn name(object: usize) -> String {
    format!("variant-{object:05}")
}

fn target(object: usize) -> String {
    format!("{}-decode", name(object))
}

pub fn namespace(object: usize) -> String {
    format!("fleet-{:03}", object / IN_NAMESPACE)
}

fn model(object: usize) -> String {
    format!("meta-llama/Llama-3.1-{}B-Instruct", object / OF_MODEL)
}

fn pod(object: usize, number: usize) -> String {
    format!("{}-6d4cf56db6-{number:05}", target(object))
}

pub fn variant(object: usize) -> Value {
    let cost = if object.is_multiple_of(OF_MODEL) { "10" } else { "40" };
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

/// As the API server stores it.
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
            "replicas": PODS,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": spec(object) },
        },
        "status": { "observedGeneration": 1, "replicas": PODS, "updatedReplicas": PODS, "readyReplicas": PODS,
            "availableReplicas": PODS },
    })
}

pub fn pods(object: usize) -> impl Iterator<Item = Value> {
    (0..PODS).map(move |number| {
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
                "phase": "Running", "podIP": address(object * PODS + number), "startTime": "2026-11-16T00:00:00Z",
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

/// A different one for each pod, in a range that nobody else has.
fn address(pod: usize) -> String {
    format!("10.{}.{}.{}", pod >> 16 & 255, pod >> 8 & 255, pod & 255)
}

/// What the pods of these objects say, each under its own name. By the second look, `look` 1, all of them have served
/// requests.
pub fn page(objects: std::ops::Range<usize>, look: usize) -> String {
    let mut text = String::new();
    let requests = if look == 0 { 0 } else { REQUESTS };
    for object in objects {
        for number in 0..PODS {
            let place = format!("namespace=\"{}\",pod=\"{}\"", namespace(object), pod(object, number));
            let labels = format!("{place},model_name=\"{}\"", model(object));
            let mut say = |metric: &str, labels: &str, value: f64| {
                // Writing to a text cannot fail.
                let _ = writeln!(text, "vllm:{metric}{{{labels}}} {value}");
            };
            say("kv_cache_usage_perc", &labels, KV);
            say("num_requests_waiting", &labels, 0.0);
            say("cache_config_info", &format!("{place},block_size=\"16\",num_gpu_blocks=\"27000\""), 1.0);
            for (counter, each) in [
                ("request_success_total", 1),
                ("request_prompt_tokens_sum", 512),
                ("request_prompt_tokens_count", 1),
                ("request_generation_tokens_sum", 128),
                ("request_generation_tokens_count", 1),
                ("prefix_cache_queries_total", 512),
                ("prefix_cache_hits_total", 64),
            ] {
                say(counter, &labels, (requests * each) as f64);
            }
        }
    }
    text
}
