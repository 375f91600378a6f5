//! Many objects of one family at once on the local cluster.
//! Comes in: what an object and its children are; goes out: a table of how long it takes until the children are all there,
//! against the same writes from a bare client in the same run, and what the operator used for it.
//!
//! The operator runs all the while, because it converts and judges; the benchmark holds its Lease while the bare client
//! writes, so that it does nothing else.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace as CoreNamespace;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};
use steersman::args::ClusterArgs;
use steersman::run::LEASE;
use steersman_api::Family;
use steersman_runtime::client;
use steersman_runtime::leader::{Election, Timing};
use steersman_testkit::cache::{self, RunFolder};
use steersman_testkit::{Account, Cluster, Flavour, Namespace, NodePool, Options, wait};

use super::process::{Used, used};
use crate::local_cluster;
use crate::operator::{self, Running};
use crate::progress::{self, Progress};

/// Requests under way at once, of whoever writes.
const AT_ONCE: usize = 16;

/// How often the bare client is measured: the machine may be busy with something else.
const FLOORS: usize = 3;

/// How long nothing may be written until the operator counts as settled.
const STILL: Duration = Duration::from_secs(15);

/// How long the operator is watched once it has settled.
const WATCHED: Duration = Duration::from_secs(60);

/// How long all children of a run may take: a benchmark that hangs says nothing.
const LONGEST: Duration = Duration::from_secs(600);

const PATIENCE: Duration = Duration::from_secs(30);

/// A renewal of the Lease is nothing that objects cost.
const RENEWED: Duration = Duration::from_secs(2);

/// What there are many of.
pub struct Burst {
    pub family: Family,
    /// The version in which they are created.
    pub version: &'static str,
    pub nodes: Vec<NodePool>,
    /// Annotations of the namespaces.
    pub annotations: Vec<(&'static str, &'static str)>,
    /// An object of this name.
    pub object: fn(&str) -> Value,
    /// What the operator writes into an object itself before it makes its children, as a merge patch.
    pub patch: Option<Value>,
    /// What the operator would write for one in this namespace. A folder to work in is given, too.
    pub children: fn(&Path, &str) -> Result<Children>,
    /// Kinds that are created, not applied.
    pub created: &'static [&'static str],
    /// How many at once, the first beside the bare client.
    pub sizes: Vec<usize>,
    /// For the first size.
    pub goals: Goals,
}

#[derive(Default)]
pub struct Children {
    /// What all objects of the namespace have together, and none of them owns.
    pub shared: Vec<Value>,
    pub each: Vec<Value>,
}

pub struct Goals {
    pub cpu: &'static str,
    pub resident: &'static str,
    pub requests: &'static str,
}

struct Row {
    objects: usize,
    floor: Option<Duration>,
    took: Duration,
    spent: Used,
    settled_writes: usize,
    settled_requests: f64,
}

/// `K` is the kind of the child that is waited for: one for each object.
pub fn run<K>(burst: &Burst, program: Option<PathBuf>) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Send + Sync + 'static,
{
    tokio::runtime::Runtime::new()?.block_on(measure::<K>(burst, program))
}

async fn measure<K>(burst: &Burst, program: Option<PathBuf>) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Send + Sync + 'static,
{
    let binaries = local_cluster::programs()?;
    let program = program.map_or_else(|| operator::build(true), Ok)?;
    let run = RunFolder::create(&cache::runs()?)?;
    let progress = Progress::start("starting the local cluster");
    let options = Options { fleet: burst.nodes.clone(), ..Options::new(Flavour::Full) };
    let cluster = Cluster::start(&binaries, run.path(), &options).await?;
    progress.done();
    let account = Account::install(&cluster).await?;
    let args = ClusterArgs { kubeconfig: Some(cluster.admin_kubeconfig()), context: None, request_timeout: PATIENCE };
    let server = client::connect(&args.connect_options()).await?;
    let election = Election::new(server, &account.namespace, LEASE, "benchmark", Timing::default());
    let mut term = election.acquire().await;
    let running = tokio::select! {
        started = operator::start(&cluster, &account, run.path(), &program) => started?,
        lost = term.hold() => anyhow::bail!("the Lease was lost: {lost}"),
    };
    let first = burst.sizes.first().copied().context("no number of objects")?;
    let mut floors = tokio::select! {
        floors = floors::<K>(burst, &cluster, run.path(), first) => floors?,
        lost = term.hold() => anyhow::bail!("the Lease was lost: {lost}"),
    };
    floors.sort();
    let floor = floors[FLOORS / 2];
    term.release().await;
    let said: Vec<String> = floors.iter().map(|floor| seconds(*floor)).collect();
    println!("\nfloor, {first} objects by a bare client: {}", said.join(", "));
    let mut rows = Vec::new();
    for objects in burst.sizes.iter().copied() {
        let floor = (objects == first).then_some(floor);
        let row = objects_at_once::<K>(burst, &cluster, &running, objects, floor).await?;
        print(burst, &K::plural(&()), &row);
        rows.push(row);
    }
    let each = |row: &Row| row.took.as_secs_f64() / row.objects as f64;
    for row in &rows[1..] {
        println!("time for each object, {} against {first}: {:.2}", row.objects, each(row) / each(&rows[0]));
    }
    Ok(())
}

fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

fn print(burst: &Burst, children: &str, row: &Row) {
    let Row { objects, floor, took, spent, settled_writes, settled_requests } = row;
    println!("\n{objects} objects at once");
    let line = |what: &str, value: String, goal: &str| println!("  {what:<44} {value:>10}  {goal}");
    let of_first = |goal: &'static str| if floor.is_some() { goal } else { "" };
    line(&format!("until all {children} exist"), seconds(*took), "");
    if let Some(floor) = floor {
        line("  of the floor", format!("{:.2} x", took.as_secs_f64() / floor.as_secs_f64()), "goal 1.5 x");
    }
    line("CPU until settled", format!("{:.2} s", spent.cpu_seconds), of_first(burst.goals.cpu));
    line("resident when settled", format!("{:.1} MB", spent.resident_mb), of_first(burst.goals.resident));
    line("most resident", format!("{:.1} MB", spent.most_resident_mb), "");
    let each = spent.requests / *objects as f64;
    line("requests for each object until settled", format!("{each:.1}"), burst.goals.requests);
    line("writes in the next 60 s", settled_writes.to_string(), "goal 0");
    let each = settled_requests / *objects as f64;
    line("requests in the next 60 s for each object", format!("{each:.3}"), "goal 1");
}

pub fn name(number: usize) -> String {
    format!("server-{number}")
}

impl Burst {
    fn api(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(self.family.group(), self.version, self.family.kind());
        let resource = ApiResource::from_gvk_with_plural(&kind, self.family.plural());
        Api::namespaced_with(client.clone(), namespace, &resource)
    }

    async fn create(&self, client: &Client, namespace: &str, number: usize) -> Result<DynamicObject> {
        let object = serde_json::from_value((self.object)(&name(number)))?;
        Ok(self.api(client, namespace).create(&PostParams::default(), &object).await?)
    }

    /// Returns the kind of what was written.
    async fn write(&self, client: &Client, namespace: &str, child: &DynamicObject) -> Result<String> {
        let types = child.types.clone().context("a child has a kind")?;
        let kind: GroupVersionKind = (&types).try_into()?;
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind));
        if self.created.contains(&kind.kind.as_str()) {
            api.create(&PostParams::default(), child).await?;
        } else {
            let as_manager = PatchParams::apply("benchmark").force();
            api.patch(&child.name_any(), &as_manager, &Patch::Apply(child)).await?;
        }
        Ok(kind.kind)
    }

    async fn namespace(&self, cluster: &Cluster, prefix: &str) -> Result<Namespace> {
        cluster.namespace_with(prefix, &self.annotations).await
    }
}

/// The time that the API server, its controllers and a client need for the same writes, and nothing else.
async fn floors<K: Resource<DynamicType = ()>>(
    burst: &Burst,
    cluster: &Cluster,
    folder: &Path,
    objects: usize,
) -> Result<Vec<Duration>> {
    let client = cluster.admin().await?;
    let mut floors = Vec::new();
    for round in 0..FLOORS {
        let progress = Progress::start(&format!("floor {} of {FLOORS}", round + 1));
        let namespace = burst.namespace(cluster, "floor").await?;
        let children = (burst.children)(folder, namespace.name())?;
        let started = Instant::now();
        for object in &children.shared {
            burst.write(&client, namespace.name(), &serde_json::from_value(object.clone())?).await?;
        }
        let times = stream::iter(0..objects)
            .map(|number| floor_of::<K>(burst, &client, namespace.name(), number, &children.each, started))
            .buffer_unordered(AT_ONCE);
        let times: Vec<Duration> = times.try_collect().await?;
        floors.push(times.into_iter().max().context("no object was written")?);
        remove(&client, &namespace).await?;
        progress.done();
    }
    Ok(floors)
}

/// Writes one object with its children and its status. Returns when the child that counts was there.
async fn floor_of<K: Resource<DynamicType = ()>>(
    burst: &Burst,
    client: &Client,
    namespace: &str,
    number: usize,
    children: &[Value],
    started: Instant,
) -> Result<Duration> {
    let owner = burst.create(client, namespace, number).await?;
    let api_version = format!("{}/{}", burst.family.group(), burst.family.storage_version());
    if let Some(patch) = &burst.patch {
        let patch = Patch::Merge(patch);
        burst.api(client, namespace).patch(&name(number), &PatchParams::default(), &patch).await?;
    }
    let mut there = None;
    for child in children {
        let text = serde_json::to_string(child)?.replace(&name(0), &name(number));
        let mut child: DynamicObject = serde_json::from_str(&text)?;
        child.metadata.owner_references = Some(vec![serde_json::from_value(json!({
            "apiVersion": api_version, "kind": burst.family.kind(), "name": name(number),
            "uid": owner.metadata.uid, "controller": true, "blockOwnerDeletion": true,
        }))?]);
        if burst.write(client, namespace, &child).await? == K::kind(&()) {
            there = Some(started.elapsed());
        }
    }
    let status = Patch::Merge(json!({ "status": { "phase": "Pending" } }));
    burst.api(client, namespace).patch_status(&name(number), &PatchParams::default(), &status).await?;
    there.with_context(|| format!("there is no {} among the children", K::kind(&())))
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

async fn objects_at_once<K>(
    burst: &Burst,
    cluster: &Cluster,
    running: &Running,
    objects: usize,
    floor: Option<Duration>,
) -> Result<Row>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Send + Sync + 'static,
{
    let client = cluster.admin().await?;
    let namespace = burst.namespace(cluster, "bench").await?;
    let id = running.operator.id();
    led(cluster).await?;
    let before = used(id, &running.metrics).await?;
    let progress = Progress::start(&format!("{objects} objects"));
    let started = Instant::now();
    let creating = stream::iter(0..objects)
        .map(|number| burst.create(&client, namespace.name(), number))
        .buffer_unordered(AT_ONCE)
        .try_for_each(|_| std::future::ready(Ok(())));
    let all_there = tokio::time::timeout(LONGEST, all_there::<K>(&client, namespace.name(), objects, started));
    let (created, there) = tokio::join!(creating, all_there);
    created?;
    let took = there.context("not all children came to be")??;
    settled(cluster).await?;
    let after = used(id, &running.metrics).await?;
    progress.done();
    let waited = started.elapsed();
    let spent = Used {
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
        requests: after.requests - before.requests - waited.as_secs_f64() / RENEWED.as_secs_f64(),
        ..after
    };
    let progress = Progress::start(&format!("{} of {objects} settled objects", progress::elapsed(WATCHED)));
    let writes = own_writes(cluster)?;
    tokio::time::sleep(WATCHED).await;
    let settled_writes = own_writes(cluster)? - writes;
    let later = used(id, &running.metrics).await?;
    progress.done();
    let renewals = WATCHED.as_secs_f64() / RENEWED.as_secs_f64();
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
        (last.holder() == operator::IDENTITY).then_some(())
    };
    wait::eventually("the operator leads", lead).await
}

async fn all_there<K>(client: &Client, namespace: &str, objects: usize, started: Instant) -> Result<Duration>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Send + Sync + 'static,
{
    let children: Api<PartialObjectMeta<K>> = Api::namespaced(client.clone(), namespace);
    let mut seen = BTreeSet::new();
    let mut touched = pin!(watcher(children, watcher::Config::default()).touched_objects());
    while seen.len() < objects {
        let child = touched.next().await.context("the watch has ended")??;
        seen.insert(child.name_any());
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
