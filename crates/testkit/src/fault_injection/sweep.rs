//! Repeats some work with a fault at every call, or with an outdated view at every reconcile, and reports the runs that do
//! not end like the undisturbed one.

use anyhow::{Context, Result};
use kube::Client;
use serde_json::Value;

use super::compare::{compare, normalize};
use super::{AfterFault, CallFault, CountedCalls, FaultInjector};
use crate::cluster::Cluster;
use crate::namespace::Namespace;

/// Result of [`crash_at_every_call`] or [`stale_view_at_every_reconcile`].
#[derive(Debug)]
pub struct SweepReport {
    /// Number of calls, or reconciles, of the undisturbed run.
    pub calls: usize,
    /// Number of disturbed runs.
    pub runs: usize,
    /// Runs that ended unlike the undisturbed one or did not settle, with the difference.
    pub failures: Vec<String>,
}

/// Most reconciles that any work needs to settle.
const MAX_RECONCILES: usize = 10;

/// Runs some work undisturbed, then again with each fault of `faults` at each of its calls, each time in a fresh namespace,
/// and compares the objects once nothing is written any more.
///
/// `prepare` creates the objects that exist before; `reconcile` does the work once and must write with the given client
/// only; `snapshot` lists all relevant objects. A process that crashes restarts with a client without faults.
pub async fn crash_at_every_call<T>(
    cluster: &Cluster,
    prefix: &str,
    faults: &[CallFault],
    prepare: impl AsyncFn(&Namespace) -> Result<T>,
    reconcile: impl AsyncFn(Client, &Namespace, &T) -> Result<()>,
    snapshot: impl AsyncFn(&Namespace) -> Result<Vec<Value>>,
) -> Result<SweepReport> {
    crash_at_every_call_with_invariant(
        cluster,
        prefix,
        (CountedCalls::Writes, faults),
        prepare,
        reconcile,
        async |_| Ok(()),
        snapshot,
    )
    .await
}

/// Like [`crash_at_every_call`] with a choice of calls and an invariant: `always` is checked after every reconcile, even
/// after a failed one, before a later one can repair anything.
pub async fn crash_at_every_call_with_invariant<T>(
    cluster: &Cluster,
    prefix: &str,
    (counted, faults): (CountedCalls, &[CallFault]),
    prepare: impl AsyncFn(&Namespace) -> Result<T>,
    reconcile: impl AsyncFn(Client, &Namespace, &T) -> Result<()>,
    always: impl AsyncFn(&Namespace) -> Result<()>,
    snapshot: impl AsyncFn(&Namespace) -> Result<Vec<Value>>,
) -> Result<SweepReport> {
    let admin = cluster.admin().await?;
    let work = async |injector: &FaultInjector| {
        let namespace = cluster.namespace(prefix).await?;
        let prepared = prepare(&namespace).await.context("preparing")?;
        let reconcile = async |client| reconcile(client, &namespace, &prepared).await;
        let settled = settle(&admin, injector, reconcile, async || always(&namespace).await).await;
        let remaining = snapshot(&namespace).await.context("reading the objects")?;
        anyhow::Ok((settled, normalize(remaining, namespace.name())))
    };

    let counter = FaultInjector::new(counted, None, AfterFault::Succeed);
    let (settled, expected) = work(&counter).await?;
    settled.context("the undisturbed run")?;
    let calls = counter.call_count();
    let mut report = SweepReport { calls, runs: 0, failures: Vec::new() };
    for (number, fault) in (1..=calls).flat_map(|number| faults.iter().map(move |fault| (number, *fault))) {
        let run = async || {
            let injector = FaultInjector::new(counted, Some((number, fault)), fault.after());
            let (settled, remaining) = work(&injector).await?;
            anyhow::Ok((settled.map(|()| injector.has_fired()), remaining))
        };
        let (mut settled, mut remaining) = run().await?;
        if matches!(settled, Ok(false)) {
            // An event that was published before is read and its count increased, which takes one call more than a new
            // event. An event is new once its time window has ended, which does not happen twice in a row.
            (settled, remaining) = run().await?;
        }
        report.runs += 1;
        let problem = match settled {
            Err(error) => Some(format!("{error:#}")),
            Ok(false) => Some("there was no such call".to_owned()),
            Ok(true) => compare(&expected, &remaining),
        };
        if let Some(problem) = problem {
            report.failures.push(format!("{fault:?} at call {number} of {calls}: {problem}"));
        }
    }
    Ok(report)
}

/// Repeats `reconcile` until it succeeds and writes nothing. After a crash, the client has no faults.
async fn settle(
    client: &Client,
    injector: &FaultInjector,
    reconcile: impl AsyncFn(Client) -> Result<()>,
    always: impl AsyncFn() -> Result<()>,
) -> Result<()> {
    let without_faults = FaultInjector::without_fault();
    let mut last = None;
    for _ in 0..MAX_RECONCILES {
        let active = if injector.state.after == AfterFault::Crashed && injector.has_fired() {
            &without_faults
        } else {
            injector
        };
        let before = active.writes();
        // A crash ends the reconcile at once, without error handling.
        let outcome = tokio::select! {
            outcome = reconcile(active.wrap(client)) => outcome,
            () = active.wait_for_crash() => Err(anyhow::anyhow!("the process crashed")),
        };
        always().await.context("the invariant")?;
        match outcome {
            Ok(()) if active.writes() == before => return Ok(()),
            Ok(()) => last = None,
            Err(error) => last = Some(error),
        }
    }
    let last = last.unwrap_or_else(|| anyhow::anyhow!("the work still writes"));
    Err(last.context(format!("not settled after {MAX_RECONCILES} reconciles")))
}

/// Runs some work undisturbed, then again for each of its reconciles with a delayed watch: after that one, a reconcile runs
/// on each of the earlier views. The resulting objects must be the same.
///
/// `view` reads all that a reconcile may use; `reconcile` does the work once on a view; `change` is an action of the user
/// after the first part of the work has settled.
pub async fn stale_view_at_every_reconcile<V>(
    cluster: &Cluster,
    prefix: &str,
    prepare: impl AsyncFn(&Namespace) -> Result<()>,
    change: impl AsyncFn(&Namespace) -> Result<()>,
    view: impl AsyncFn(&Namespace) -> Result<V>,
    reconcile: impl AsyncFn(Client, &V) -> Result<()>,
    snapshot: impl AsyncFn(&Namespace) -> Result<Vec<Value>>,
) -> Result<SweepReport> {
    let admin = cluster.admin().await?;
    // The watch is delayed after this reconcile, counted from 1; 0 means never. Returns the number of reconciles and the
    // objects.
    let work = async |delayed_after: usize| {
        let namespace = cluster.namespace(prefix).await?;
        prepare(&namespace).await.context("preparing")?;
        let mut views = Vec::new();
        let mut changed = false;
        loop {
            let counter = FaultInjector::without_fault();
            views.push(view(&namespace).await.context("reading a view")?);
            if let Some(newest) = views.last() {
                reconcile(counter.wrap(&admin), newest).await?;
            }
            if views.len() == delayed_after {
                for old in &views {
                    // A reconcile on an old view may be rejected, but must not have any other effect.
                    let _ = reconcile(admin.clone(), old).await;
                }
            } else if counter.writes() == 0 && changed {
                break;
            } else if counter.writes() == 0 {
                change(&namespace).await.context("changing")?;
                changed = true;
            }
            anyhow::ensure!(views.len() < 3 * MAX_RECONCILES, "the work still writes");
        }
        let remaining = snapshot(&namespace).await.context("reading the objects")?;
        anyhow::Ok((views.len(), normalize(remaining, namespace.name())))
    };
    let (reconciles, expected) = work(0).await?;
    let mut report = SweepReport { calls: reconciles, runs: 0, failures: Vec::new() };
    for delayed_after in 1..=reconciles {
        report.runs += 1;
        let problem = match work(delayed_after).await {
            Err(error) => Some(format!("{error:#}")),
            Ok((_, remaining)) => compare(&expected, &remaining),
        };
        report.failures.extend(
            problem.map(|problem| format!("delayed after reconcile {delayed_after} of {reconciles}: {problem}")),
        );
    }
    Ok(report)
}
