//! Measures one fleet: the cost of creating all objects at once, of one change of the settings, and of 100 edits.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject};
use kube::runtime::{WatchStreamExt, watcher};
use steersman_testkit::metrics::sum_series;

use super::fleet::PODS_PER_OBJECT;
use super::{BenchEnv, MAX_CONCURRENT_REQUESTS, Progress, Running, resource};
use crate::bench::process::{scrape, usage};

/// The operator counts as settled after this time without a reconcile, write or query.
const SETTLE_PERIOD: Duration = Duration::from_secs(4);

const SETTLE_TIMEOUT: Duration = Duration::from_secs(600);

/// The reported cost is the median of this many changes, because the machine may be busy with other work.
const CHANGE_COUNT: usize = 5;

const EDIT_COUNT: usize = 100;

pub struct FleetMeasurement {
    objects: usize,
    /// Time until all objects have the correct status, after they were created at once.
    creation: Duration,
    change: Cost,
    /// Time to make the edits, and the number of reconciles that they caused.
    edits: (Duration, f64),
    resident_mb: f64,
    peak_resident_mb: f64,
}

/// The cost of one change of the settings.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    reconciles: f64,
    decisions: f64,
    decide_seconds: f64,
    /// Time spent on everything but waiting for the API server and Prometheus.
    compute_seconds: f64,
    reconcile_seconds: f64,
    cpu_seconds: f64,
    queries: f64,
    writes: f64,
}

/// The operator's counters since its start.
#[derive(Clone, Copy, Debug)]
struct Counters(Cost);

impl Counters {
    async fn now(env: &BenchEnv) -> Result<Self> {
        let Running { operator, metrics } = &env.running;
        let text = scrape(metrics).await?;
        let step = |name: &str| sum_series(&text, &format!("steersman_fleet_step_seconds_sum{{step=\"{name}\"}}"));
        Ok(Self(Cost {
            reconciles: sum_series(&text, "controller_runtime_reconcile_total{controller=\"va\""),
            decisions: sum_series(&text, "steersman_fleet_decisions_total"),
            decide_seconds: step("decide"),
            compute_seconds: step("gather") + step("decide") + step("report"),
            reconcile_seconds: sum_series(&text, "controller_runtime_reconcile_time_seconds_sum{controller=\"va\""),
            cpu_seconds: usage(operator.id(), metrics).await?.cpu_seconds,
            queries: env.prometheus.query_count().await? as f64,
            writes: sum_series(&text, "steersman_fleet_status_writes_total"),
        }))
    }

    fn since(self, before: Self) -> Cost {
        let (Self(now), Self(then)) = (self, before);
        Cost {
            reconciles: now.reconciles - then.reconciles,
            decisions: now.decisions - then.decisions,
            decide_seconds: now.decide_seconds - then.decide_seconds,
            compute_seconds: now.compute_seconds - then.compute_seconds,
            reconcile_seconds: now.reconcile_seconds - then.reconcile_seconds,
            cpu_seconds: now.cpu_seconds - then.cpu_seconds,
            queries: now.queries - then.queries,
            writes: now.writes - then.writes,
        }
    }
}

pub async fn measure(env: &BenchEnv) -> Result<FleetMeasurement> {
    let creation = create(env).await?;
    wait_until_settled(env, 1.0).await?;
    let progress = Progress::start("changing the settings");
    let mut changes = Vec::new();
    for change in 0..CHANGE_COUNT {
        let before = Counters::now(env).await?;
        env.change_setting("GLOBAL_OPT_INTERVAL", &format!("{}m", 9 - change % 2)).await?;
        let after = wait_until_settled(env, before.0.reconciles + 1.0).await?;
        changes.push(after.since(before));
    }
    progress.done();
    changes.sort_by(|a, b| a.compute_seconds.total_cmp(&b.compute_seconds));
    let edits = edit(env).await?;
    let usage = usage(env.running.operator.id(), &env.running.metrics).await?;
    Ok(FleetMeasurement {
        objects: env.size,
        creation,
        change: changes[CHANGE_COUNT / 2],
        edits,
        resident_mb: usage.resident_mb,
        peak_resident_mb: usage.peak_resident_mb,
    })
}

/// Creates all objects at once and returns the time until each of them had the correct status.
async fn create(env: &BenchEnv) -> Result<Duration> {
    let progress = Progress::start(&format!("creating {} objects", env.size));
    let started = Instant::now();
    let creating = stream::iter(0..env.size)
        .map(|object| env.create(object))
        .buffer_unordered(MAX_CONCURRENT_REQUESTS)
        .try_for_each(|()| std::future::ready(Ok(())));
    let waiting = tokio::time::timeout(SETTLE_TIMEOUT, wait_until_all_correct(env));
    let (created, statuses) = tokio::join!(creating, waiting);
    created?;
    statuses.with_context(|| format!("some objects have no correct status after {} s", SETTLE_TIMEOUT.as_secs()))??;
    progress.done();
    Ok(started.elapsed())
}

async fn wait_until_all_correct(env: &BenchEnv) -> Result<()> {
    let variants: Api<DynamicObject> = Api::all_with(env.client.clone(), &resource());
    let mut correct = BTreeSet::new();
    let mut touched = pin!(watcher(variants, watcher::Config::default()).touched_objects());
    while correct.len() < env.size {
        let variant = touched.next().await.context("the watch has ended")??;
        if has_correct_status(&variant) {
            correct.insert(variant.name_any());
        }
    }
    Ok(())
}

/// At the simulated load, every object keeps its replicas.
fn has_correct_status(variant: &DynamicObject) -> bool {
    let status = &variant.data["status"];
    let holds = |name: &str| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|known| known["type"] == name && known["status"] == "True")
    };
    status["desiredOptimizedAlloc"]["numReplicas"] == PODS_PER_OBJECT
        && status["currentAlloc"]["numReplicas"] == PODS_PER_OBJECT
        && ["TargetResolved", "MetricsAvailable", "OptimizationReady"].into_iter().all(holds)
}

/// Waits until there were so many reconciles, and then until there are no more.
async fn wait_until_settled(env: &BenchEnv, reconciles: f64) -> Result<Counters> {
    let limit = Instant::now() + SETTLE_TIMEOUT;
    let (mut last, mut since) = (Counters::now(env).await?, Instant::now());
    while last.0.reconciles < reconciles || since.elapsed() < SETTLE_PERIOD {
        anyhow::ensure!(
            Instant::now() < limit,
            "the operator did not settle within {} s: {last:?}",
            SETTLE_TIMEOUT.as_secs()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = Counters::now(env).await?;
        // A reconcile in progress is not counted yet, but its queries are.
        if (now.0.reconciles, now.0.writes, now.0.queries) != (last.0.reconciles, last.0.writes, last.0.queries) {
            since = Instant::now();
        }
        last = now;
    }
    Ok(last)
}

/// Makes the edits within one second, or as fast as the API server accepts them.
async fn edit(env: &BenchEnv) -> Result<(Duration, f64)> {
    let before = Counters::now(env).await?;
    let started = Instant::now();
    // Edits of one object are sequential, and each sets another value, even if there are fewer objects than edits.
    let edits = stream::iter(0..env.size.min(EDIT_COUNT)).map(|object| async move {
        for number in (object..EDIT_COUNT).step_by(env.size) {
            let due = started + Duration::from_secs(1) * number as u32 / EDIT_COUNT as u32;
            tokio::time::sleep_until(due.into()).await;
            env.edit(object, 21 + number).await?;
        }
        Ok::<_, anyhow::Error>(())
    });
    edits.buffer_unordered(EDIT_COUNT).try_for_each(|()| std::future::ready(Ok(()))).await?;
    let took = started.elapsed();
    let after = wait_until_settled(env, before.0.reconciles + 1.0).await?;
    Ok((took, after.since(before).reconciles))
}

fn millis(seconds: f64) -> String {
    format!("{:.1} ms", seconds * 1e3)
}

/// The row as text, a line for each value with its goal.
pub fn summary(row: &FleetMeasurement) -> String {
    let FleetMeasurement { objects, creation, change, edits, resident_mb, peak_resident_mb } = row;
    let goal = |of: &[(usize, &'static str)]| of.iter().find(|(size, _)| size == objects).map_or("", |(_, goal)| *goal);
    let mut lines = vec![format!("{objects} objects, {} pods", objects * PODS_PER_OBJECT)];
    let mut line = |what: &str, value: String, goal: &str| lines.push(format!("  {what:<52} {value:>12}  {goal}"));
    let created = goal(&[(1_000, "goal 15 s")]);
    line("time until all created objects have their status", format!("{:.1} s", creation.as_secs_f64()), created);
    line("one change of the settings: reconciles", format!("{}", change.reconciles), "goal 1");
    line("  decisions", format!("{}", change.decisions), &format!("goal {objects}"));
    line("  statuses written", format!("{}", change.writes), "goal 0");
    line("  queries to Prometheus", format!("{}", change.queries), "");
    line("  time to decide", millis(change.decide_seconds), "");
    line(
        "  time to compute in all",
        millis(change.compute_seconds),
        goal(&[(1_000, "goal 100 ms"), (10_000, "goal 1 s")]),
    );
    line("  CPU time, with reading the answers", millis(change.cpu_seconds), "");
    line("  reconcile time, with waiting", format!("{:.2} s", change.reconcile_seconds), "");
    line(
        &format!("100 edits within {:.2} s: reconciles", edits.0.as_secs_f64()),
        format!("{}", edits.1),
        "goal at most 2",
    );
    line("resident memory when settled", format!("{resident_mb:.1} MB"), goal(&[(10_000, "goal 200 MB")]));
    line("peak resident memory", format!("{peak_resident_mb:.1} MB"), "");
    lines.join("\n")
}

/// All rows as a Markdown table, for the documentation.
pub fn table(rows: &[FleetMeasurement]) -> String {
    let head = "| objects | pods | reconciles | decisions | writes | queries | deciding | computing | reconcile | resident |\n\
                |---|---|---|---|---|---|---|---|---|---|";
    let row = |row: &FleetMeasurement| {
        let Cost { reconciles, decisions, decide_seconds, compute_seconds, reconcile_seconds, queries, writes, .. } =
            row.change;
        format!(
            "| {} | {} | {reconciles} | {decisions} | {writes} | {queries} | {} | {} | {reconcile_seconds:.2} s | {:.0} MB |",
            row.objects,
            row.objects * PODS_PER_OBJECT,
            millis(decide_seconds),
            millis(compute_seconds),
            row.resident_mb
        )
    };
    [head.to_owned()].into_iter().chain(rows.iter().map(row)).collect::<Vec<_>>().join("\n")
}
