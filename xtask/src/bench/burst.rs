//! Measures a burst: many objects of one family, created at once on the local cluster with the operator's webhooks enabled.
//! The time until every object has its child and its status is compared with a baseline: the same writes by a plain client
//! in the same run. A missed goal is an error, so that a script can rely on the exit code.
//!
//! The operator runs while the baseline is measured, because the API server needs its webhooks; the benchmark holds the
//! Lease during that time, so that the operator reconciles nothing.

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
use steersman_testkit::{Cluster, Flavour, Namespace, NodePool, OperatorAccount, Options, wait};

use super::process::{Usage, usage};
use crate::go_programs;
use crate::operator::{self, Running};
use crate::progress::{self, Progress};

/// Limit for the operator's objects and for the baseline alike.
const MAX_CONCURRENT_REQUESTS: usize = 16;

/// The baseline is the median of this many runs, because the machine may be busy with other work.
const BASELINE_RUNS: usize = 3;

/// The operator counts as settled after this time without a write.
const SETTLE_PERIOD: Duration = Duration::from_secs(15);

/// The settled operator is observed for this time.
const IDLE_PERIOD: Duration = Duration::from_secs(60);

/// Limit for all children of a run to appear, and for its namespace to be deleted.
const RUN_TIMEOUT: Duration = Duration::from_secs(600);

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Renewals of the Lease are subtracted from the requests: objects do not cause them.
const LEASE_RENEWAL_INTERVAL: Duration = Duration::from_secs(2);

/// The objects that are created, and the writes that each of them causes.
pub struct Burst {
    pub family: Family,
    /// API version in which the objects are created.
    pub version: &'static str,
    pub nodes: Vec<NodePool>,
    /// Annotations of the namespaces.
    pub annotations: Vec<(&'static str, &'static str)>,
    /// Builds an object with this name.
    pub object: fn(&str) -> Value,
    /// Merge patch that the operator applies to an object before it creates the children.
    pub patch: Option<Value>,
    /// The children that the operator would write for the first object, given a folder for temporary files and the
    /// namespace.
    pub children: fn(&Path, &str) -> Result<BaselineChildren>,
    /// Kinds that the operator creates instead of applying them.
    pub created: &'static [&'static str],
    /// Numbers of objects. The baseline is measured for the first.
    pub sizes: Vec<usize>,
    pub goals: Goals,
}

#[derive(Default)]
pub struct BaselineChildren {
    /// Objects without an owner, once per namespace.
    pub shared: Vec<Value>,
    /// Children of one object.
    pub each: Vec<Value>,
}

/// Upper limits for a burst. Time has only a limit relative to the baseline of the same run, because machines differ and
/// are shared. CPU time hardly depends on other load, so its limit is absolute.
pub struct Goals {
    /// Size of the burst that the goals for CPU and memory apply to.
    pub objects: usize,
    pub cpu_seconds: Option<f64>,
    pub resident_mb: Option<f64>,
    pub requests: Option<f64>,
}

/// Limit for the time until all children exist, relative to the baseline.
const MAX_BASELINE_RATIO: f64 = 1.5;

/// Limit for the requests of a settled operator during [`IDLE_PERIOD`], per object.
const MAX_SETTLED_REQUESTS: f64 = 1.0;

/// Durations since the first object was created.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// Until the last child existed.
    children: Duration,
    /// Until the last object had a status.
    statuses: Duration,
}

struct BurstMeasurement {
    objects: usize,
    baseline: Option<Times>,
    times: Times,
    usage_until_settled: Usage,
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
    let binaries = go_programs::cluster_programs()?;
    let program = program.map_or_else(|| operator::build(true), Ok)?;
    let run = RunFolder::create(&cache::runs_folder()?)?;
    let progress = Progress::start("starting the local cluster");
    let options = Options { node_pools: burst.nodes.clone(), ..Options::new(Flavour::Full) };
    let cluster = Cluster::start(&binaries, run.path(), &options).await?;
    progress.done();
    let account = OperatorAccount::install(&cluster).await?;
    let args =
        ClusterArgs { kubeconfig: Some(cluster.admin_kubeconfig()), context: None, request_timeout: REQUEST_TIMEOUT };
    let server = client::connect(&args.connect_options()).await?;
    let election = Election::new(server, &account.namespace, LEASE, "benchmark", Timing::default());
    let mut term = election.acquire().await;
    let running = tokio::select! {
        started = operator::start(&cluster, &account, run.path(), &program, None) => started?,
        lost = term.hold() => anyhow::bail!("the benchmark lost the Lease: {lost}"),
    };
    let first = burst.sizes.first().copied().context("--objects is empty")?;
    let before = usage(running.operator.id(), &running.metrics).await?;
    let mut baselines = tokio::select! {
        baselines = baselines::<K>(burst, &cluster, run.path(), first) => baselines?,
        lost = term.hold() => anyhow::bail!("the benchmark lost the Lease: {lost}"),
    };
    let after = usage(running.operator.id(), &running.metrics).await?;
    baselines.sort_by_key(|baseline| baseline.children);
    let baseline = baselines[BASELINE_RUNS / 2];
    term.release().await;
    let durations: Vec<String> = baselines.iter().map(|baseline| seconds(baseline.children)).collect();
    println!("\nbaseline, {first} objects by a plain client: {}", durations.join(", "));
    let conversions = (after.conversions - before.conversions) / (BASELINE_RUNS * first) as f64;
    println!("  conversion reviews per object, deletion included: {conversions:.1}");
    let (mut rows, mut missed) = (Vec::new(), Vec::new());
    for objects in burst.sizes.iter().copied() {
        let baseline = (objects == first).then_some(baseline);
        let row = measure_burst::<K>(burst, &cluster, &running, objects, baseline).await?;
        let lines = lines(&burst.goals, &K::plural(&()), &row);
        println!("\n{objects} objects at once");
        for line in &lines {
            println!("{line}");
        }
        missed.extend(lines.iter().filter(|line| line.is_missed()).map(|line| format!("{objects} objects: {line}")));
        rows.push(row);
    }
    let each = |row: &BurstMeasurement| row.times.children.as_secs_f64() / row.objects as f64;
    for row in &rows[1..] {
        println!("time per object, {} objects relative to {first}: {:.2}", row.objects, each(row) / each(&rows[0]));
    }
    ensure!(missed.is_empty(), "goals missed:\n{}", missed.join("\n"));
    Ok(())
}

/// A measured value, with its upper limit if it has one.
struct ReportLine {
    what: String,
    value: f64,
    digits: usize,
    unit: &'static str,
    goal: Option<f64>,
}

impl ReportLine {
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

impl fmt::Display for ReportLine {
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

fn lines(goals: &Goals, children: &str, row: &BurstMeasurement) -> Vec<ReportLine> {
    let BurstMeasurement { objects, baseline, times, usage_until_settled, settled_writes, settled_requests } = row;
    let of_size = |goal: Option<f64>| goal.filter(|_| *objects == goals.objects);
    let each = |count: f64| count / *objects as f64;
    let mut lines = Vec::new();
    let times = [
        (
            format!("until all {children} exist"),
            times.children,
            baseline.map(|baseline| (baseline.children, Some(MAX_BASELINE_RATIO))),
        ),
        (
            "until all objects have a status".to_owned(),
            times.statuses,
            baseline.map(|baseline| (baseline.statuses, None)),
        ),
    ];
    for (what, times, baseline) in times {
        lines.push(ReportLine::new(what, times.as_secs_f64(), 2, " s"));
        if let Some((baseline, goal)) = baseline {
            let ratio = times.as_secs_f64() / baseline.as_secs_f64();
            lines.push(ReportLine::new("  relative to the baseline", ratio, 2, " x").goal(goal));
        }
    }
    lines.extend([
        ReportLine::new("CPU time until settled", usage_until_settled.cpu_seconds, 2, " s")
            .goal(of_size(goals.cpu_seconds)),
        ReportLine::new("resident memory when settled", usage_until_settled.resident_mb, 1, " MB")
            .goal(of_size(goals.resident_mb)),
        ReportLine::new("peak resident memory", usage_until_settled.peak_resident_mb, 1, " MB"),
        ReportLine::new("requests per object until settled", each(usage_until_settled.requests), 1, "")
            .goal(goals.requests),
        ReportLine::new("  reconciles", each(usage_until_settled.reconciles), 1, ""),
        ReportLine::new("  conversion reviews", each(usage_until_settled.conversions), 1, ""),
        ReportLine::new("  admission reviews", each(usage_until_settled.admissions), 1, ""),
        ReportLine::new("writes in the next 60 s", *settled_writes as f64, 0, "").goal(0.0),
        ReportLine::new("requests in the next 60 s per object", each(*settled_requests), 3, "")
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

    /// Writes a child and returns its kind.
    async fn write(&self, client: &Client, namespace: &str, child: &DynamicObject) -> Result<String> {
        let types = child.types.clone().context("the child has no kind")?;
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
        cluster.namespace_with_annotations(prefix, &self.annotations).await
    }
}

/// The time that the API server, its controllers, the webhooks and a client need for the same writes.
async fn baselines<K: Resource<DynamicType = ()>>(
    burst: &Burst,
    cluster: &Cluster,
    folder: &Path,
    objects: usize,
) -> Result<Vec<Times>> {
    let client = cluster.admin().await?;
    let mut baselines = Vec::new();
    for round in 0..BASELINE_RUNS {
        let progress = Progress::start(&format!("baseline {} of {BASELINE_RUNS}", round + 1));
        let namespace = burst.namespace(cluster, "baseline").await?;
        let children = (burst.children)(folder, namespace.name())?;
        let started = Instant::now();
        for object in &children.shared {
            burst.write(&client, namespace.name(), &serde_json::from_value(object.clone())?).await?;
        }
        let times = stream::iter(0..objects)
            .map(|number| write_as_plain_client::<K>(burst, &client, namespace.name(), number, &children.each, started))
            .buffer_unordered(MAX_CONCURRENT_REQUESTS);
        let children: Vec<Duration> = times.try_collect().await?;
        let children = children.into_iter().max().context("no object was written")?;
        baselines.push(Times { children, statuses: started.elapsed() });
        remove(&client, &namespace).await?;
        progress.done();
    }
    Ok(baselines)
}

/// Writes one object with its children and its status. Returns the time at which the child of kind `K` existed.
async fn write_as_plain_client<K: Resource<DynamicType = ()>>(
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
    let mut child_time = None;
    for child in children {
        let text = serde_json::to_string(child)?.replace(&name(0), &name(number));
        let mut child: DynamicObject = serde_json::from_str(&text)?;
        child.metadata.owner_references = Some(vec![serde_json::from_value(json!({
            "apiVersion": api_version, "kind": burst.family.kind(), "name": name(number),
            "uid": owner.metadata.uid, "controller": true, "blockOwnerDeletion": true,
        }))?]);
        if burst.write(client, namespace, &child).await? == K::kind(&()) {
            child_time = Some(started.elapsed());
        }
    }
    let status = Patch::Merge(json!({ "status": { "phase": "Pending" } }));
    burst
        .api(client, namespace, burst.family.storage_version())
        .patch_status(&name(number), &PatchParams::default(), &status)
        .await?;
    child_time.with_context(|| format!("the object has no child of kind {}", K::kind(&())))
}

/// Deletes the namespace and waits until it is gone, so that its cleanup does not slow the next run.
async fn remove(client: &Client, namespace: &Namespace) -> Result<()> {
    let namespaces: Api<CoreNamespace> = Api::all(client.clone());
    namespaces.delete(namespace.name(), &DeleteParams::default()).await?;
    let limit = Instant::now() + RUN_TIMEOUT;
    while namespaces.get_opt(namespace.name()).await?.is_some() {
        ensure!(
            Instant::now() < limit,
            "namespace {} was not deleted within {} s",
            namespace.name(),
            RUN_TIMEOUT.as_secs()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

async fn measure_burst<K>(
    burst: &Burst,
    cluster: &Cluster,
    running: &Running,
    objects: usize,
    baseline: Option<Times>,
) -> Result<BurstMeasurement>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Send + Sync + 'static,
{
    let client = cluster.admin().await?;
    let namespace = burst.namespace(cluster, "bench").await?;
    let id = running.operator.id();
    wait_for_leadership(cluster).await?;
    let before = usage(id, &running.metrics).await?;
    let progress = Progress::start(&format!("creating {objects} objects"));
    let started = Instant::now();
    let creating = stream::iter(0..objects)
        .map(|number| burst.create(&client, namespace.name(), number))
        .buffer_unordered(MAX_CONCURRENT_REQUESTS)
        .try_for_each(|_| std::future::ready(Ok(())));
    let stored = burst.family.storage_version();
    let children: Api<PartialObjectMeta<K>> = Api::namespaced(client.clone(), namespace.name());
    let all_children = wait_for_all(children, objects, started, |_| true);
    let all_statuses = wait_for_all(burst.api(&client, namespace.name(), stored), objects, started, has_status);
    let watching = tokio::time::timeout(RUN_TIMEOUT, async { tokio::try_join!(all_children, all_statuses) });
    let (created, watched) = tokio::join!(creating, watching);
    created?;
    let (children, statuses) = watched
        .with_context(|| format!("some objects have no child or no status after {} s", RUN_TIMEOUT.as_secs()))??;
    let times = Times { children, statuses };
    wait_until_settled(cluster).await?;
    let after = usage(id, &running.metrics).await?;
    progress.done();
    let waited = started.elapsed();
    let usage_until_settled = Usage {
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
        requests: after.requests - before.requests - waited.as_secs_f64() / LEASE_RENEWAL_INTERVAL.as_secs_f64(),
        reconciles: after.reconciles - before.reconciles,
        conversions: after.conversions - before.conversions,
        admissions: after.admissions - before.admissions,
        ..after
    };
    let progress =
        Progress::start(&format!("observing {objects} settled objects for {}", progress::elapsed(IDLE_PERIOD)));
    let writes = operator_writes(cluster)?;
    tokio::time::sleep(IDLE_PERIOD).await;
    let settled_writes = operator_writes(cluster)? - writes;
    let later = usage(id, &running.metrics).await?;
    progress.done();
    let renewals = IDLE_PERIOD.as_secs_f64() / LEASE_RENEWAL_INTERVAL.as_secs_f64();
    remove(&client, &namespace).await?;
    Ok(BurstMeasurement {
        objects,
        baseline,
        times,
        usage_until_settled,
        settled_writes,
        settled_requests: later.requests - after.requests - renewals,
    })
}

/// Waits until the operator leads; before that, it reconciles nothing.
async fn wait_for_leadership(cluster: &Cluster) -> Result<()> {
    let lead = async || {
        let writes = cluster.audited_writes().ok()?;
        let last = writes.iter().rfind(|write| write.is_lease() && write.uri.contains(LEASE) && write.succeeded())?;
        (last.holder() == operator::IDENTITY).then_some(())
    };
    wait::eventually("the operator leads", lead).await
}

/// Waits until `holds` has been true of so many objects, not necessarily at the same time.
async fn wait_for_all<T>(api: Api<T>, objects: usize, started: Instant, holds: fn(&T) -> bool) -> Result<Duration>
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

/// Waits until the operator has written nothing for [`SETTLE_PERIOD`].
async fn wait_until_settled(cluster: &Cluster) -> Result<()> {
    let (mut last, mut since) = (operator_writes(cluster)?, Instant::now());
    while since.elapsed() < SETTLE_PERIOD {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = operator_writes(cluster)?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(())
}

/// Number of writes by the operator in the audit log, without its Lease.
fn operator_writes(cluster: &Cluster) -> Result<usize> {
    let writes = cluster.audited_writes()?;
    Ok(writes.iter().filter(|write| write.user_agent.starts_with("steersman/") && !write.is_lease()).count())
}
