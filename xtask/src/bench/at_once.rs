//! Bursts: many objects of one family, created at once on the local cluster with the operator's webhooks on. Measures from
//! outside how long it takes until every object has its child and its status, against a floor: the same writes by a bare
//! client in the same run. A missed goal is an error, so that a script can rely on the exit code.
//!
//! The operator runs while the floor is measured, because the API server needs its webhooks; the benchmark holds the Lease
//! during that time, so that the operator reconciles nothing.

use std::collections::BTreeSet;
use std::fmt::{self, Debug};
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
use serde::de::DeserializeOwned;
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
    /// How many objects at once; the floor is measured for the first size.
    pub sizes: Vec<usize>,
    /// For bursts of [`Goals::objects`].
    pub goals: Goals,
}

#[derive(Default)]
pub struct Children {
    /// What all objects of the namespace have together, and none of them owns.
    pub shared: Vec<Value>,
    pub each: Vec<Value>,
}

/// What a burst may cost at most. Time is compared with the floor of the same run: machines differ and are shared. CPU time
/// hardly depends on what else runs, so it is compared as it is.
pub struct Goals {
    /// The size that the goals for CPU and memory are meant for.
    pub objects: usize,
    pub cpu_seconds: Option<f64>,
    pub resident_mb: Option<f64>,
    pub requests: Option<f64>,
}

/// Of the floor, until all children exist.
const MAX_FLOOR_RATIO: f64 = 1.5;

/// Requests of a settled operator in [`WATCHED`], for each object.
const MAX_SETTLED_REQUESTS: f64 = 1.0;

/// Since the first object was created.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// Until the last child existed.
    children: Duration,
    /// Until the last object had a status.
    statuses: Duration,
}

struct Row {
    objects: usize,
    floor: Option<Times>,
    took: Times,
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
    let before = used(running.operator.id(), &running.metrics).await?;
    let mut floors = tokio::select! {
        floors = floors::<K>(burst, &cluster, run.path(), first) => floors?,
        lost = term.hold() => anyhow::bail!("the Lease was lost: {lost}"),
    };
    let after = used(running.operator.id(), &running.metrics).await?;
    floors.sort_by_key(|floor| floor.children);
    let floor = floors[FLOORS / 2];
    term.release().await;
    let shown: Vec<String> = floors.iter().map(|floor| seconds(floor.children)).collect();
    println!("\nfloor, {first} objects by a bare client: {}", shown.join(", "));
    let conversions = (after.conversions - before.conversions) / (FLOORS * first) as f64;
    println!("  conversion reviews for each of its objects, with its deletion: {conversions:.1}");
    let (mut rows, mut missed) = (Vec::new(), Vec::new());
    for objects in burst.sizes.iter().copied() {
        let floor = (objects == first).then_some(floor);
        let row = objects_at_once::<K>(burst, &cluster, &running, objects, floor).await?;
        let lines = lines(&burst.goals, &K::plural(&()), &row);
        println!("\n{objects} objects at once");
        for line in &lines {
            println!("{line}");
        }
        missed.extend(lines.iter().filter(|line| line.is_missed()).map(|line| format!("{objects} objects: {line}")));
        rows.push(row);
    }
    let each = |row: &Row| row.took.children.as_secs_f64() / row.objects as f64;
    for row in &rows[1..] {
        println!("time for each object, {} against {first}: {:.2}", row.objects, each(row) / each(&rows[0]));
    }
    ensure!(missed.is_empty(), "goals missed:\n{}", missed.join("\n"));
    Ok(())
}

/// One measured value and what it may be at most.
struct Line {
    what: String,
    value: f64,
    digits: usize,
    unit: &'static str,
    goal: Option<f64>,
}

impl Line {
    fn new(what: impl Into<String>, value: f64, digits: usize, unit: &'static str) -> Self {
        Self { what: what.into(), value, digits, unit, goal: None }
    }

    fn goal(self, goal: impl Into<Option<f64>>) -> Self {
        Self { goal: goal.into(), ..self }
    }

    /// NaN misses every goal.
    fn is_missed(&self) -> bool {
        self.goal.is_some_and(|goal| self.value.is_nan() || self.value > goal)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, value, digits, unit, goal } = self;
        let value = format!("{value:.digits$}{unit}");
        write!(f, "  {what:<44} {value:>10}")?;
        if let Some(goal) = goal {
            write!(f, "  goal {goal}{unit}{}", if self.is_missed() { ", MISSED" } else { "" })?;
        }
        Ok(())
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

fn lines(goals: &Goals, children: &str, row: &Row) -> Vec<Line> {
    let Row { objects, floor, took, spent, settled_writes, settled_requests } = row;
    let of_size = |goal: Option<f64>| goal.filter(|_| *objects == goals.objects);
    let each = |count: f64| count / *objects as f64;
    let mut lines = Vec::new();
    let times = [
        (
            format!("until all {children} exist"),
            took.children,
            floor.map(|floor| (floor.children, Some(MAX_FLOOR_RATIO))),
        ),
        ("until all objects have a status".to_owned(), took.statuses, floor.map(|floor| (floor.statuses, None))),
    ];
    for (what, took, floor) in times {
        lines.push(Line::new(what, took.as_secs_f64(), 2, " s"));
        if let Some((floor, goal)) = floor {
            let ratio = took.as_secs_f64() / floor.as_secs_f64();
            lines.push(Line::new("  of the floor", ratio, 2, " x").goal(goal));
        }
    }
    lines.extend([
        Line::new("CPU until settled", spent.cpu_seconds, 2, " s").goal(of_size(goals.cpu_seconds)),
        Line::new("resident when settled", spent.resident_mb, 1, " MB").goal(of_size(goals.resident_mb)),
        Line::new("most resident", spent.most_resident_mb, 1, " MB"),
        Line::new("requests for each object until settled", each(spent.requests), 1, "").goal(goals.requests),
        Line::new("  reconciles", each(spent.reconciles), 1, ""),
        Line::new("  conversion reviews", each(spent.conversions), 1, ""),
        Line::new("  admission reviews", each(spent.admissions), 1, ""),
        Line::new("writes in the next 60 s", *settled_writes as f64, 0, "").goal(0.0),
        Line::new("requests in the next 60 s for each object", each(*settled_requests), 3, "")
            .goal(MAX_SETTLED_REQUESTS),
    ]);
    lines
}

pub fn name(number: usize) -> String {
    format!("server-{number}")
}

impl Burst {
    fn api(&self, client: &Client, namespace: &str, version: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(self.family.group(), version, self.family.kind());
        let resource = ApiResource::from_gvk_with_plural(&kind, self.family.plural());
        Api::namespaced_with(client.clone(), namespace, &resource)
    }

    async fn create(&self, client: &Client, namespace: &str, number: usize) -> Result<DynamicObject> {
        let object = serde_json::from_value((self.object)(&name(number)))?;
        Ok(self.api(client, namespace, self.version).create(&PostParams::default(), &object).await?)
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

/// The time that the API server, its controllers, the webhooks and a client need for the same writes.
async fn floors<K: Resource<DynamicType = ()>>(
    burst: &Burst,
    cluster: &Cluster,
    folder: &Path,
    objects: usize,
) -> Result<Vec<Times>> {
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
        let children: Vec<Duration> = times.try_collect().await?;
        let children = children.into_iter().max().context("no object was written")?;
        floors.push(Times { children, statuses: started.elapsed() });
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
        burst.api(client, namespace, burst.version).patch(&name(number), &PatchParams::default(), &patch).await?;
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
    burst
        .api(client, namespace, burst.family.storage_version())
        .patch_status(&name(number), &PatchParams::default(), &status)
        .await?;
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
    floor: Option<Times>,
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
    let stored = burst.family.storage_version();
    let children: Api<PartialObjectMeta<K>> = Api::namespaced(client.clone(), namespace.name());
    let all_there = until_all(children, objects, started, |_| true);
    let all_told = until_all(burst.api(&client, namespace.name(), stored), objects, started, has_status);
    let watching = tokio::time::timeout(LONGEST, async { tokio::try_join!(all_there, all_told) });
    let (created, watched) = tokio::join!(creating, watching);
    created?;
    let (children, statuses) = watched.context("not all objects have their child and their status")??;
    let took = Times { children, statuses };
    settled(cluster).await?;
    let after = used(id, &running.metrics).await?;
    progress.done();
    let waited = started.elapsed();
    let spent = Used {
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
        requests: after.requests - before.requests - waited.as_secs_f64() / RENEWED.as_secs_f64(),
        reconciles: after.reconciles - before.reconciles,
        conversions: after.conversions - before.conversions,
        admissions: after.admissions - before.admissions,
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

/// When `holds` has been true of so many objects, each by itself.
async fn until_all<T>(api: Api<T>, objects: usize, started: Instant, holds: fn(&T) -> bool) -> Result<Duration>
where
    T: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    T::DynamicType: Clone,
{
    let mut seen = BTreeSet::new();
    let mut touched = pin!(watcher(api, watcher::Config::default()).touched_objects());
    while seen.len() < objects {
        let object = touched.next().await.context("the watch has ended")??;
        if holds(&object) {
            seen.insert(object.name_any());
        }
    }
    Ok(started.elapsed())
}

fn has_status(object: &DynamicObject) -> bool {
    object.data.get("status").is_some_and(|status| status.get("phase").is_some())
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
