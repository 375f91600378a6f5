//! Simulates the load on the pods of VariantAutoscalings, as metrics of vLLM, and the HPAs of their workloads.

mod hpa;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject};
use kube::{Client, ResourceExt};
use steersman_api::Family;
use steersman_sim::fleet::Fleet;
use steersman_sim::load::{Load, LoadStep, Rate};
use steersman_sim::server::{RequestShape, Speed};
use steersman_sim::{Millis, expose};
use steersman_testkit::pod_behaviour::is_ready;
use steersman_testkit::{Cluster, FakePodMetrics};
use tokio::time;

use super::observe::{self, Notes, list};

/// Interval at which the metrics of the pods are updated.
const UPDATE_INTERVAL: Duration = Duration::from_millis(500);

/// Requests per second for every model, and the number of seconds, in a cycle. Steersman sizes a model for the largest
/// load of five minutes, so that the replicas stay during the cycle.
const LOAD_CYCLE: [(u32, u64); 3] = [(5, 20), (16, 50), (5, 130)];
const LOAD_CYCLES: usize = 500;

const REQUEST_SHAPE: RequestShape = RequestShape { input: 1000, output: 250, cached: 200 };

/// Never returns, except with an error.
pub async fn simulate(cluster: &Cluster, namespace: &str, notes: &Notes) -> Result<()> {
    let admin = cluster.admin().await?;
    tokio::select! {
        ended = simulate_load(cluster, &admin, namespace, notes) => ended,
        ended = hpa::simulate(cluster, &admin, namespace, notes) => ended,
    }
}

/// The model that a workload serves, and its simulated speed.
struct SimulatedVariant {
    model: String,
    speed: Speed,
}

async fn simulate_load(cluster: &Cluster, admin: &Client, namespace: &str, notes: &Notes) -> Result<()> {
    let objects = observe::objects(admin, Family::Va, namespace);
    let pods: Api<Pod> = Api::namespaced(admin.clone(), namespace);
    let pod_metrics = FakePodMetrics::start().await?;
    let mut fleets: BTreeMap<String, Fleet> = BTreeMap::new();
    let mut pod_models: BTreeMap<String, String> = BTreeMap::new();
    let (began, mut rate) = (Instant::now(), None);
    loop {
        time::sleep(UPDATE_INTERVAL).await;
        let (Some(objects), Some(pods)) = (list(&objects).await, list(&pods).await) else { continue };
        let variants: BTreeMap<String, SimulatedVariant> = objects.iter().filter_map(variant).collect();
        let now = Millis::try_from(began.elapsed().as_millis()).unwrap_or(Millis::MAX);
        for variant in variants.values() {
            fleets.entry(variant.model.clone()).or_insert_with(|| Fleet::new(REQUEST_SHAPE, load())).run_until(now);
        }
        let mut existing_pods = BTreeSet::new();
        for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            let (name, Some(variant)) = (pod.name_any(), workload(pod).and_then(|name| variants.get(name))) else {
                continue;
            };
            let Some(fleet) = fleets.get_mut(&variant.model) else { continue };
            if pod_models.insert(name.clone(), variant.model.clone()).is_none() {
                cluster.add_scrape_target(
                    &name,
                    &pod_metrics.address().to_string(),
                    &FakePodMetrics::target_labels(namespace, &name),
                )?;
            }
            if is_ready(pod) && !fleet.pods().contains_key(&name) {
                fleet.add(&name, variant.speed);
            }
            existing_pods.insert(name);
        }
        pod_models.retain(|name, model| {
            if existing_pods.contains(name) {
                return true;
            }
            if let Some(fleet) = fleets.get_mut(model) {
                fleet.remove(name);
            }
            pod_metrics.remove(namespace, name);
            // An error means that the target does not exist any more.
            let _ = cluster.remove_scrape_target(name);
            false
        });
        for (name, model) in &pod_models {
            let text = fleets.get(model).and_then(|fleet| expose::pod(fleet, name, model));
            if let Some(text) = text {
                pod_metrics.set(namespace, name, text);
            }
        }
        let current_rate = load().rate_at(now).0 / 1000;
        if !variants.is_empty() && rate.replace(current_rate) != Some(current_rate) {
            notes.send(format!("each model with a VariantAutoscaling gets {current_rate} requests per second"))?;
        }
    }
}

fn load() -> Load {
    let step = |(rate, seconds)| LoadStep { rate: Rate(rate * 1000), lasts: seconds * 1000 };
    Load::Steps((0..LOAD_CYCLES).flat_map(|_| LOAD_CYCLE.map(step)).collect())
}

/// The name of an object's workload, and its simulation.
fn variant(object: &DynamicObject) -> Option<(String, SimulatedVariant)> {
    let spec = &object.data["spec"];
    let workload = spec["scaleTargetRef"]["name"].as_str()?.to_owned();
    let model = spec["modelID"].as_str()?.to_owned();
    // Tokens per second for a single request; a real value depends on more than the GPU.
    let decode = match spec["accelerator"].as_str() {
        Some("H100") => 60,
        Some("A100") => 40,
        _ => 25,
    };
    let speed = Speed { start: 0, prefill: 160 * decode, decode, sequences: 32, blocks: 2500, block_size: 16 };
    Some((workload, SimulatedVariant { model, speed }))
}

/// The name of the Deployment, derived from that of the pod's ReplicaSet.
fn workload(pod: &Pod) -> Option<&str> {
    let owner = pod.owner_references().iter().find(|owner| owner.kind == "ReplicaSet")?;
    owner.name.rsplit_once('-').map(|(name, _)| name)
}
