//! Plays what VariantAutoscalings are about: the load on their pods, and the HPA that follows their numbers.
//! Comes in: objects, pods and the operator's number in Prometheus; goes out: metrics of each pod as vLLM has them, and
//! the replicas of the workloads.

mod follow;

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
use steersman_testkit::play::is_ready;
use steersman_testkit::{Cluster, Pods};
use tokio::time;

use super::show::{self, listed};

/// How often the pods say something new: as often as they are asked.
const STEP: Duration = Duration::from_millis(500);

/// Requests per second that come for every model, and for how many seconds; then again from the start. What was
/// measured counts for a minute, so that replicas go a minute after the load has.
const DAY: [(u32, u64); 3] = [(5, 20), (16, 50), (5, 130)];
const DAYS: usize = 500;

/// Of every request.
const SHAPE: RequestShape = RequestShape { input: 1000, output: 250, cached: 200 };

/// Without end.
pub async fn play(cluster: &Cluster, namespace: &str) -> Result<()> {
    let admin = cluster.admin().await?;
    tokio::select! {
        ended = serve(cluster, &admin, namespace) => ended,
        ended = follow::play(cluster, &admin, namespace) => ended,
    }
}

/// What a workload is played as.
struct Variant {
    model: String,
    speed: Speed,
}

async fn serve(cluster: &Cluster, admin: &Client, namespace: &str) -> Result<()> {
    let objects = show::objects(admin, Family::Va, namespace);
    let pods: Api<Pod> = Api::namespaced(admin.clone(), namespace);
    let said = Pods::start().await?;
    let mut fleets: BTreeMap<String, Fleet> = BTreeMap::new();
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let (began, mut rate) = (Instant::now(), None);
    loop {
        time::sleep(STEP).await;
        let (Some(objects), Some(pods)) = (listed(&objects).await, listed(&pods).await) else { continue };
        let variants: BTreeMap<String, Variant> = objects.iter().filter_map(variant).collect();
        let now = Millis::try_from(began.elapsed().as_millis()).unwrap_or(Millis::MAX);
        for variant in variants.values() {
            fleets.entry(variant.model.clone()).or_insert_with(|| Fleet::new(SHAPE, load())).run_until(now);
        }
        let mut living = BTreeSet::new();
        for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            let (name, Some(variant)) = (pod.name_any(), workload(pod).and_then(|name| variants.get(name))) else {
                continue;
            };
            let Some(fleet) = fleets.get_mut(&variant.model) else { continue };
            if known.insert(name.clone(), variant.model.clone()).is_none() {
                cluster.scrape(&name, &said.address().to_string(), &Pods::labels(namespace, &name))?;
            }
            if is_ready(pod) && !fleet.pods().contains_key(&name) {
                fleet.add(&name, variant.speed);
            }
            living.insert(name);
        }
        known.retain(|name, model| {
            if living.contains(name) {
                return true;
            }
            if let Some(fleet) = fleets.get_mut(model) {
                fleet.remove(name);
            }
            said.silence(namespace, name);
            // Where it is not, nobody scrapes it.
            let _ = cluster.forget(name);
            false
        });
        for (name, model) in &known {
            let text = fleets.get(model).and_then(|fleet| expose::pod(fleet, name, model));
            if let Some(text) = text {
                said.say(namespace, name, text);
            }
        }
        let comes = load().rate_at(now).0 / 1000;
        if !variants.is_empty() && rate.replace(comes) != Some(comes) {
            println!("played: {comes} requests per second come for each model with a VariantAutoscaling");
        }
    }
}

fn load() -> Load {
    let step = |(rate, seconds)| LoadStep { rate: Rate(rate * 1000), lasts: seconds * 1000 };
    Load::Steps((0..DAYS).flat_map(|_| DAY.map(step)).collect())
}

/// The workload of an object, and how it is played.
fn variant(object: &DynamicObject) -> Option<(String, Variant)> {
    let spec = &object.data["spec"];
    let workload = spec["scaleTargetRef"]["name"].as_str()?.to_owned();
    let model = spec["modelID"].as_str()?.to_owned();
    // Of one request at a time; what it is in reality depends on much more.
    let decode = match spec["accelerator"].as_str() {
        Some("H100") => 60,
        Some("A100") => 40,
        _ => 25,
    };
    let speed = Speed { start: 0, prefill: 160 * decode, decode, sequences: 32, blocks: 2500, block_size: 16 };
    Some((workload, Variant { model, speed }))
}

/// The Deployment above its ReplicaSet.
fn workload(pod: &Pod) -> Option<&str> {
    let owner = pod.owner_references().iter().find(|owner| owner.kind == "ReplicaSet")?;
    owner.name.rsplit_once('-').map(|(name, _)| name)
}
