//! Many LlamaStackDistributions at once on the local cluster.
//! Comes in: nothing; goes out: a table of how long it takes until all their Deployments are there, against the same writes
//! from a bare client in the same run, and what the operator used for it.
//!
//! The operator runs all the while, because it converts and judges; the benchmark holds its Lease while the bare client
//! writes, so that it does nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace as CoreNamespace;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use steersman::cli::{ClusterArgs, Manifests};
use steersman::leader::{Election, Timing};
use steersman::offline::{self, FileArgs, RenderArgs};
use steersman::run::LEASE;
use steersman::{client, rbac};
use steersman_api::Family;
use steersman_testkit::cache::{self, RunFolder};
use steersman_testkit::{Cluster, Flavour, Namespace, NodePool, Options, wait};

use super::process::{Used, used};
use crate::operator::{self, Running};
use crate::progress::Progress;
use crate::{local_cluster, progress};

/// Requests under way at once, of whoever writes.
const AT_ONCE: usize = 16;

/// How often the bare client is measured: the machine may be busy with something else.
const FLOORS: usize = 3;

/// How long nothing may be written until the operator counts as settled.
const STILL: Duration = Duration::from_secs(15);

/// How long the operator is watched once it has settled.
const WATCHED: Duration = Duration::from_secs(60);

/// How long all Deployments of a run may take: a benchmark that hangs says nothing.
const LONGEST: Duration = Duration::from_secs(600);

const PATIENCE: Duration = Duration::from_secs(30);

pub fn run() -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(measure())
}

struct Row {
    objects: usize,
    floor: Option<Duration>,
    took: Duration,
    spent: Used,
    settled_writes: usize,
    settled_requests: f64,
}

async fn measure() -> Result<()> {
    let binaries = local_cluster::programs()?;
    let program = operator::build(true)?;
    let run = RunFolder::create(&cache::runs()?)?;
    let progress = Progress::start("starting the local cluster");
    let options = Options { fleet: vec![NodePool::plain("cpu", 12)], ..Options::new(Flavour::Full) };
    let cluster = Cluster::start(&binaries, run.path(), &options).await?;
    progress.done();
    operator::install_account(&cluster).await?;
    let args = ClusterArgs { kubeconfig: Some(cluster.admin_kubeconfig()), context: None, request_timeout: PATIENCE };
    let server = client::connect(&args).await?;
    let election = Election::new(server, rbac::NAMESPACE, LEASE, "benchmark", Timing::default());
    let mut term = election.acquire().await;
    let operator = tokio::select! {
        started = operator::start(&cluster, run.path(), &program) => started?,
        lost = term.hold() => anyhow::bail!("the Lease was lost: {lost}"),
    };
    let mut floors = tokio::select! {
        floors = floors(&cluster, run.path(), 200) => floors?,
        lost = term.hold() => anyhow::bail!("the Lease was lost: {lost}"),
    };
    floors.sort();
    let floor = floors[FLOORS / 2];
    term.release().await;
    let said: Vec<String> = floors.iter().map(|floor| seconds(*floor)).collect();
    println!("\nfloor, 200 objects by a bare client: {}", said.join(", "));
    let mut rows = Vec::new();
    for objects in [200, 1000] {
        let row = objects_at_once(&cluster, &operator, objects, (objects == 200).then_some(floor)).await?;
        print(&row);
        rows.push(row);
    }
    let each = |row: &Row| row.took.as_secs_f64() / row.objects as f64;
    println!("time for each object, 1000 against 200: {:.2}", each(&rows[1]) / each(&rows[0]));
    Ok(())
}

fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

fn print(row: &Row) {
    let Row { objects, floor, took, spent, settled_writes, settled_requests } = row;
    println!("\n{objects} objects at once");
    let line = |what: &str, value: String, goal: &str| println!("  {what:<44} {value:>10}  {goal}");
    line("until all Deployments exist", seconds(*took), "");
    if let Some(floor) = floor {
        line("  of the floor", format!("{:.2} x", took.as_secs_f64() / floor.as_secs_f64()), "goal 1.5 x");
    }
    let of_200 = |goal: &'static str| if *objects == 200 { goal } else { "" };
    line("CPU until settled", format!("{:.2} s", spent.cpu_seconds), of_200("goal 2.5 s"));
    line("resident when settled", format!("{:.1} MB", spent.resident_mb), of_200("goal 40 MB"));
    line("most resident", format!("{:.1} MB", spent.most_resident_mb), "");
    line("requests for each object until settled", format!("{:.1}", spent.requests / *objects as f64), "goal 14");
    line("writes in the next 60 s", settled_writes.to_string(), "goal 0");
    let each = settled_requests / *objects as f64;
    line("requests in the next 60 s for each object", format!("{each:.3}"), "goal 1");
}

/// A v1alpha1 object with storage, as users of the Go operator have them.
fn manifest(name: &str) -> Value {
    json!({
        "apiVersion": "llamastack.io/v1alpha1",
        "kind": "LlamaStackDistribution",
        "metadata": { "name": name },
        "spec": { "replicas": 1, "server": {
            "distribution": { "name": "starter" },
            "containerSpec": { "port": 8321 },
            "storage": { "size": "10Gi" },
        } },
    })
}

fn name(number: usize) -> String {
    format!("server-{number}")
}

fn distributions(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(Family::Llsd.group(), "v1alpha1", Family::Llsd.kind());
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

async fn create(client: &Client, namespace: &str, number: usize) -> Result<DynamicObject> {
    let object = serde_json::from_value(manifest(&name(number)))?;
    Ok(distributions(client, namespace).create(&PostParams::default(), &object).await?)
}

/// The time that the API server, its controllers and a client need for the same writes, and nothing else.
async fn floors(cluster: &Cluster, folder: &Path, objects: usize) -> Result<Vec<Duration>> {
    let client = cluster.admin().await?;
    let children = children(folder)?;
    let mut floors = Vec::new();
    for round in 0..FLOORS {
        let progress = Progress::start(&format!("floor {} of {FLOORS}", round + 1));
        let namespace = cluster.namespace("floor").await?;
        let started = Instant::now();
        let times = stream::iter(0..objects)
            .map(|number| floor_of(&client, namespace.name(), number, &children, started))
            .buffer_unordered(AT_ONCE);
        let times: Vec<Duration> = times.try_collect().await?;
        floors.push(times.into_iter().max().context("no object was written")?);
        remove(&client, &namespace).await?;
        progress.done();
    }
    Ok(floors)
}

/// Writes one object with its children and its status. Returns when its Deployment was there.
async fn floor_of(
    client: &Client,
    namespace: &str,
    number: usize,
    children: &[Value],
    started: Instant,
) -> Result<Duration> {
    let owner = create(client, namespace, number).await?;
    let mut there = None;
    for child in children {
        let text = serde_json::to_string(child)?.replace(&name(0), &name(number));
        let mut child: DynamicObject = serde_json::from_str(&text)?;
        child.metadata.owner_references = Some(vec![serde_json::from_value(json!({
            "apiVersion": "llamastack.io/v1alpha2", "kind": Family::Llsd.kind(), "name": name(number),
            "uid": owner.metadata.uid, "controller": true, "blockOwnerDeletion": true,
        }))?]);
        let types = child.types.clone().context("a rendered child has a kind")?;
        let kind: GroupVersionKind = (&types).try_into()?;
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind));
        if kind.kind == "PersistentVolumeClaim" {
            api.create(&PostParams::default(), &child).await?;
        } else {
            let as_manager = PatchParams::apply("benchmark").force();
            api.patch(&child.name_any(), &as_manager, &Patch::Apply(&child)).await?;
        }
        if kind.kind == "Deployment" {
            there = Some(started.elapsed());
        }
    }
    let status = Patch::Merge(json!({ "status": { "phase": "Initializing" } }));
    distributions(client, namespace).patch_status(&name(number), &PatchParams::default(), &status).await?;
    there.context("no Deployment was rendered")
}

/// As the operator would write them.
fn children(folder: &Path) -> Result<Vec<Value>> {
    let file = folder.join("object.json");
    fs::write(&file, manifest(&name(0)).to_string())?;
    let files = FileArgs { files: vec![file], recursive: false };
    let told = offline::render(&RenderArgs { files, base: None, output: Manifests::Json })?;
    ensure!(told.ending == offline::Ending::Fine, "the object cannot be rendered: {}", told.notes.join("; "));
    let list: Value = serde_json::from_str(&told.out)?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// Waits until the namespace with all that is in it is gone, so that nothing of one run slows the next.
async fn remove(client: &Client, namespace: &Namespace) -> Result<()> {
    let namespaces: Api<CoreNamespace> = Api::all(client.clone());
    namespaces.delete(namespace.name(), &DeleteParams::default()).await?;
    let limit = Instant::now() + LONGEST;
    while namespaces.get_opt(namespace.name()).await?.is_some() {
        ensure!(Instant::now() < limit, "namespace {} does not go away", namespace.name());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

async fn objects_at_once(
    cluster: &Cluster,
    operator: &Running,
    objects: usize,
    floor: Option<Duration>,
) -> Result<Row> {
    let client = cluster.admin().await?;
    let namespace = cluster.namespace("bench").await?;
    let id = operator.process.id();
    led(cluster).await?;
    let before = used(id, &operator.metrics)?;
    let progress = Progress::start(&format!("{objects} objects"));
    let started = Instant::now();
    let creating = stream::iter(0..objects)
        .map(|number| create(&client, namespace.name(), number))
        .buffer_unordered(AT_ONCE)
        .try_for_each(|_| std::future::ready(Ok(())));
    let all_there = tokio::time::timeout(LONGEST, all_deployments(&client, namespace.name(), objects, started));
    let (created, there) = tokio::join!(creating, all_there);
    created?;
    let took = there.context("not all Deployments came to be")??;
    settled(cluster).await?;
    let after = used(id, &operator.metrics)?;
    progress.done();
    let leases = Duration::from_secs(2);
    let waited = started.elapsed();
    let spent = Used {
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
        requests: after.requests - before.requests - waited.as_secs_f64() / leases.as_secs_f64(),
        ..after
    };
    let progress = Progress::start(&format!("{} of {objects} settled objects", progress::elapsed(WATCHED)));
    let writes = own_writes(cluster)?;
    tokio::time::sleep(WATCHED).await;
    let settled_writes = own_writes(cluster)? - writes;
    let later = used(id, &operator.metrics)?;
    progress.done();
    let renewals = WATCHED.as_secs_f64() / leases.as_secs_f64();
    remove(&client, &namespace).await?;
    Ok(Row {
        objects,
        floor,
        took,
        spent,
        settled_writes,
        settled_requests: later.requests - after.requests - renewals,
    })
}

/// Until the operator leads, it does nothing.
async fn led(cluster: &Cluster) -> Result<()> {
    let lead = async || {
        let writes = cluster.writes().ok()?;
        let last = writes.iter().rfind(|write| write.is_lease() && write.uri.contains(LEASE) && write.succeeded())?;
        (last.holder() == "local").then_some(())
    };
    wait::eventually("the operator leads", lead).await
}

async fn all_deployments(client: &Client, namespace: &str, objects: usize, started: Instant) -> Result<Duration> {
    let deployments: Api<PartialObjectMeta<Deployment>> = Api::namespaced(client.clone(), namespace);
    let mut seen = BTreeSet::new();
    let mut touched = pin!(watcher(deployments, watcher::Config::default()).touched_objects());
    while seen.len() < objects {
        let deployment = touched.next().await.context("the watch has ended")??;
        seen.insert(deployment.name_any());
    }
    Ok(started.elapsed())
}

/// Waits until the operator has written nothing for a while.
async fn settled(cluster: &Cluster) -> Result<()> {
    let (mut last, mut since) = (own_writes(cluster)?, Instant::now());
    while since.elapsed() < STILL {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = own_writes(cluster)?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(())
}

/// What the operator wrote besides its Lease, by the API server's account.
fn own_writes(cluster: &Cluster) -> Result<usize> {
    let writes = cluster.writes()?;
    Ok(writes.iter().filter(|write| write.user_agent.starts_with("steersman/") && !write.is_lease()).count())
}
