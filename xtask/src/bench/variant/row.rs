//! One fleet, measured.
//! Comes in: a fleet whose objects are yet to be created; goes out: what creating them all at once, one change of the
//! settings and a hundred edits cost.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject};
use kube::runtime::{WatchStreamExt, watcher};
use steersman_testkit::metrics::sum;

use super::fleet::PODS;
use super::{AT_ONCE, Progress, Running, Stage, resource};
use crate::bench::process::{scraped, used};

/// How long nothing may happen until the operator counts as settled: a pass may wait for Prometheus for half a minute.
const STILL: Duration = Duration::from_secs(4);

const LONGEST: Duration = Duration::from_secs(600);

/// Changes of the settings; the middle one counts: the machine may be busy with something else.
const CHANGES: usize = 5;

const EDITS: usize = 100;

pub struct Row {
    objects: usize,
    /// Until all objects have a right status.
    at_once: Duration,
    change: Cost,
    /// How long the edits took to be made, and the passes that they became.
    edits: (Duration, f64),
    resident_mb: f64,
    most_resident_mb: f64,
}

/// What one change of the settings costs.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    passes: f64,
    operations: f64,
    decide: f64,
    /// All that is not waiting.
    compute: f64,
    pass: f64,
    cpu: f64,
    queries: f64,
    writes: f64,
}

/// What has been counted so far.
#[derive(Clone, Copy, Debug)]
struct Counted(Cost);

impl Counted {
    async fn now(stage: &Stage) -> Result<Self> {
        let Running { operator, metrics } = &stage.running;
        let text = scraped(metrics).await?;
        let step = |name: &str| sum(&text, &format!("steersman_fleet_step_seconds_sum{{step=\"{name}\"}}"));
        Ok(Self(Cost {
            passes: sum(&text, "controller_runtime_reconcile_total{controller=\"va\""),
            operations: sum(&text, "steersman_fleet_decisions_total"),
            decide: step("decide"),
            compute: step("gather") + step("decide") + step("report"),
            pass: sum(&text, "controller_runtime_reconcile_time_seconds_sum{controller=\"va\""),
            cpu: used(operator.id(), metrics).await?.cpu_seconds,
            queries: stage.prometheus.queries().await? as f64,
            writes: sum(&text, "steersman_fleet_status_writes_total"),
        }))
    }

    fn since(self, before: Self) -> Cost {
        let (Self(now), Self(then)) = (self, before);
        Cost {
            passes: now.passes - then.passes,
            operations: now.operations - then.operations,
            decide: now.decide - then.decide,
            compute: now.compute - then.compute,
            pass: now.pass - then.pass,
            cpu: now.cpu - then.cpu,
            queries: now.queries - then.queries,
            writes: now.writes - then.writes,
        }
    }
}

pub async fn measure(stage: &Stage) -> Result<Row> {
    let at_once = create(stage).await?;
    settled(stage, 1.0).await?;
    let progress = Progress::start("changing the settings");
    let mut changes = Vec::new();
    for change in 0..CHANGES {
        let before = Counted::now(stage).await?;
        stage.set("GLOBAL_OPT_INTERVAL", &format!("{}m", 9 - change % 2)).await?;
        let after = settled(stage, before.0.passes + 1.0).await?;
        changes.push(after.since(before));
    }
    progress.done();
    changes.sort_by(|a, b| a.compute.total_cmp(&b.compute));
    let edits = edit(stage).await?;
    let used = used(stage.running.operator.id(), &stage.running.metrics).await?;
    Ok(Row {
        objects: stage.size,
        at_once,
        change: changes[CHANGES / 2],
        edits,
        resident_mb: used.resident_mb,
        most_resident_mb: used.most_resident_mb,
    })
}

/// All objects at once. Returns how long it took until each of them said the right thing.
async fn create(stage: &Stage) -> Result<Duration> {
    let progress = Progress::start(&format!("{} objects at once", stage.size));
    let started = Instant::now();
    let creating = stream::iter(0..stage.size)
        .map(|object| stage.create(object))
        .buffer_unordered(AT_ONCE)
        .try_for_each(|()| std::future::ready(Ok(())));
    let told = tokio::time::timeout(LONGEST, all_right(stage));
    let (created, told) = tokio::join!(creating, told);
    created?;
    told.context("not all objects came to have a right status")??;
    progress.done();
    Ok(started.elapsed())
}

async fn all_right(stage: &Stage) -> Result<()> {
    let variants: Api<DynamicObject> = Api::all_with(stage.client.clone(), &resource());
    let mut right = BTreeSet::new();
    let mut touched = pin!(watcher(variants, watcher::Config::default()).touched_objects());
    while right.len() < stage.size {
        let variant = touched.next().await.context("the watch has ended")??;
        if is_right(&variant) {
            right.insert(variant.name_any());
        }
    }
    Ok(())
}

/// By the load, every object keeps what it has.
fn is_right(variant: &DynamicObject) -> bool {
    let status = &variant.data["status"];
    let holds = |name: &str| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|known| known["type"] == name && known["status"] == "True")
    };
    status["desiredOptimizedAlloc"]["numReplicas"] == PODS
        && status["currentAlloc"]["numReplicas"] == PODS
        && ["TargetResolved", "MetricsAvailable", "OptimizationReady"].into_iter().all(holds)
}

/// Waits until there were so many passes, and then until there are no more.
async fn settled(stage: &Stage, passes: f64) -> Result<Counted> {
    let limit = Instant::now() + LONGEST;
    let (mut last, mut since) = (Counted::now(stage).await?, Instant::now());
    while last.0.passes < passes || since.elapsed() < STILL {
        anyhow::ensure!(Instant::now() < limit, "the operator does not settle: {last:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = Counted::now(stage).await?;
        // A pass under way asks first; its questions are counted before it is.
        if (now.0.passes, now.0.writes, now.0.queries) != (last.0.passes, last.0.writes, last.0.queries) {
            since = Instant::now();
        }
        last = now;
    }
    Ok(last)
}

/// A hundred within a second, or as fast as the API server takes them.
async fn edit(stage: &Stage) -> Result<(Duration, f64)> {
    let before = Counted::now(stage).await?;
    let started = Instant::now();
    // One object's edits follow each other; each is another value, also where there are fewer objects than edits.
    let edits = stream::iter(0..stage.size.min(EDITS)).map(|object| async move {
        for number in (object..EDITS).step_by(stage.size) {
            let due = started + Duration::from_secs(1) * number as u32 / EDITS as u32;
            tokio::time::sleep_until(due.into()).await;
            stage.edit(object, 21 + number).await?;
        }
        Ok::<_, anyhow::Error>(())
    });
    edits.buffer_unordered(EDITS).try_for_each(|()| std::future::ready(Ok(()))).await?;
    let took = started.elapsed();
    let after = settled(stage, before.0.passes + 1.0).await?;
    Ok((took, after.since(before).passes))
}

fn millis(seconds: f64) -> String {
    format!("{:.1} ms", seconds * 1e3)
}

/// One row in words, each with its goal.
pub fn told(row: &Row) -> String {
    let Row { objects, at_once, change, edits, resident_mb, most_resident_mb } = row;
    let goal = |of: &[(usize, &'static str)]| of.iter().find(|(size, _)| size == objects).map_or("", |(_, goal)| *goal);
    let mut lines = vec![format!("{objects} objects, {} pods", objects * PODS)];
    let mut line = |what: &str, value: String, goal: &str| lines.push(format!("  {what:<52} {value:>12}  {goal}"));
    let created = goal(&[(1_000, "goal 15 s")]);
    line("created at once, until all have a right status", format!("{:.1} s", at_once.as_secs_f64()), created);
    line("one change of the settings: passes", format!("{}", change.passes), "goal 1");
    line("  operations", format!("{}", change.operations), &format!("goal {objects}"));
    line("  statuses written", format!("{}", change.writes), "goal 0");
    line("  queries of Prometheus", format!("{}", change.queries), "");
    line("  deciding", millis(change.decide), "");
    line("  all computing", millis(change.compute), goal(&[(1_000, "goal 100 ms"), (10_000, "goal 1 s")]));
    line("  CPU, with reading the answers", millis(change.cpu), "");
    line("  the whole pass, with waiting", format!("{:.2} s", change.pass), "");
    line(&format!("100 edits within {:.2} s: passes", edits.0.as_secs_f64()), format!("{}", edits.1), "goal at most 2");
    line("resident when settled", format!("{resident_mb:.1} MB"), goal(&[(10_000, "goal 200 MB")]));
    line("most resident", format!("{most_resident_mb:.1} MB"), "");
    lines.join("\n")
}

/// All rows, as they stand in the documents.
pub fn table(rows: &[Row]) -> String {
    let head = "| objects | pods | passes | operations | writes | queries | deciding | computing | pass | resident |\n\
                |---|---|---|---|---|---|---|---|---|---|";
    let row = |row: &Row| {
        let Cost { passes, operations, decide, compute, pass, queries, writes, .. } = row.change;
        format!(
            "| {} | {} | {passes} | {operations} | {writes} | {queries} | {} | {} | {pass:.2} s | {:.0} MB |",
            row.objects,
            row.objects * PODS,
            millis(decide),
            millis(compute),
            row.resident_mb
        )
    };
    [head.to_owned()].into_iter().chain(rows.iter().map(row)).collect::<Vec<_>>().join("\n")
}
