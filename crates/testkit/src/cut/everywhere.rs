//! Work that is cut, or looks at old views, wherever it can be.
//! Comes in: some work as closures; goes out: the runs that did not end as the undisturbed one.

use anyhow::{Context, Result};
use kube::Client;
use serde_json::Value;

use super::compare::{compare, normalised};
use super::{Calls, Cut, Cutter, Then};
use crate::cluster::Cluster;
use crate::namespace::Namespace;

/// What came of [`crash_everywhere`].
#[derive(Debug)]
pub struct Crashes {
    /// How many calls the undisturbed run made.
    pub calls: usize,
    /// How many disturbed runs there were.
    pub runs: usize,
    /// The runs that did not end as the undisturbed one, or not at all.
    pub broken: Vec<String>,
}

/// No work needs more passes than this to settle.
const MOST_PASSES: usize = 10;

/// Runs some work undisturbed, then once more for each of its calls and each of `cuts`, each time in a fresh namespace,
/// and compares the objects that are left when nothing is written any more.
///
/// `prepare` makes what is there before; `pass` does the work once, with the client it is given and no other for what it
/// writes; `snapshot` lists all objects that matter. A process that dies starts again with a client that works.
pub async fn crash_everywhere<T>(
    cluster: &Cluster,
    prefix: &str,
    cuts: &[Cut],
    prepare: impl AsyncFn(&Namespace) -> Result<T>,
    pass: impl AsyncFn(Client, &Namespace, &T) -> Result<()>,
    snapshot: impl AsyncFn(&Namespace) -> Result<Vec<Value>>,
) -> Result<Crashes> {
    crash_everywhere_and(cluster, prefix, (Calls::Writes, cuts), prepare, pass, async |_| Ok(()), snapshot).await
}

/// The same with a choice of the calls, and with what must hold `always`: it is looked at after every pass, also after one
/// that was cut, before anything can mend what it left.
pub async fn crash_everywhere_and<T>(
    cluster: &Cluster,
    prefix: &str,
    (counted, cuts): (Calls, &[Cut]),
    prepare: impl AsyncFn(&Namespace) -> Result<T>,
    pass: impl AsyncFn(Client, &Namespace, &T) -> Result<()>,
    always: impl AsyncFn(&Namespace) -> Result<()>,
    snapshot: impl AsyncFn(&Namespace) -> Result<Vec<Value>>,
) -> Result<Crashes> {
    let admin = cluster.admin().await?;
    let work = async |cutter: &Cutter| {
        let namespace = cluster.namespace(prefix).await?;
        let given = prepare(&namespace).await.context("preparing")?;
        let pass = async |client| pass(client, &namespace, &given).await;
        let settled = settle(&admin, cutter, pass, async || always(&namespace).await).await;
        let left = snapshot(&namespace).await.context("reading what is left")?;
        anyhow::Ok((settled, normalised(left, namespace.name())))
    };

    let counter = Cutter::new(counted, None, Then::Made);
    let (settled, expected) = work(&counter).await?;
    settled.context("the undisturbed run")?;
    let calls = counter.calls();
    let mut crashes = Crashes { calls, runs: 0, broken: Vec::new() };
    for (number, cut) in (1..=calls).flat_map(|number| cuts.iter().map(move |cut| (number, *cut))) {
        let run = async || {
            let cutter = Cutter::new(counted, Some((number, cut)), cut.then());
            let (settled, left) = work(&cutter).await?;
            anyhow::Ok((settled.map(|()| cutter.hit()), left))
        };
        let (mut settled, mut left) = run().await?;
        if matches!(settled, Ok(false)) {
            // An event that was told before is looked for and counted up, which is a call more than a new one. It is new once the
            // window of time that it is named after has ended, and that does not happen twice in a row.
            (settled, left) = run().await?;
        }
        crashes.runs += 1;
        let flaw = match settled {
            Err(error) => Some(format!("{error:#}")),
            Ok(false) => Some("there was no such call".to_owned()),
            Ok(true) => compare(&expected, &left),
        };
        if let Some(flaw) = flaw {
            crashes.broken.push(format!("{cut:?} at call {number} of {calls}: {flaw}"));
        }
    }
    Ok(crashes)
}

/// Passes until one succeeds and writes nothing. The passes after a death have a client that works.
async fn settle(
    client: &Client,
    cutter: &Cutter,
    pass: impl AsyncFn(Client) -> Result<()>,
    always: impl AsyncFn() -> Result<()>,
) -> Result<()> {
    let again = Cutter::counting();
    let mut last = None;
    for _ in 0..MOST_PASSES {
        let current = if cutter.shared.then == Then::Dead && cutter.hit() { &again } else { cutter };
        let before = current.writes();
        // A dead process does not go on with failing calls: it is over, wherever it was.
        let passed = tokio::select! {
            passed = pass(current.around(client)) => passed,
            () = current.death() => Err(anyhow::anyhow!("the process died")),
        };
        always().await.context("what must hold always")?;
        match passed {
            Ok(()) if current.writes() == before => return Ok(()),
            Ok(()) => last = None,
            Err(error) => last = Some(error),
        }
    }
    let last = last.unwrap_or_else(|| anyhow::anyhow!("it still writes"));
    Err(last.context(format!("not settled after {MOST_PASSES} passes")))
}

/// Runs some work as it goes, then once more for each of its passes with a watch that was held back: after that pass, one
/// is made on each of the views that were taken before it. What is left in the end must be the same.
///
/// `view` takes in all that a pass may look at; `pass` does the work once on a view; `change` is what the user does when
/// the first part of the work has settled.
pub async fn stale_everywhere<V>(
    cluster: &Cluster,
    prefix: &str,
    prepare: impl AsyncFn(&Namespace) -> Result<()>,
    change: impl AsyncFn(&Namespace) -> Result<()>,
    view: impl AsyncFn(&Namespace) -> Result<V>,
    pass: impl AsyncFn(Client, &V) -> Result<()>,
    snapshot: impl AsyncFn(&Namespace) -> Result<Vec<Value>>,
) -> Result<Crashes> {
    let admin = cluster.admin().await?;
    // Held back after this pass, from 1; 0: never. Returns how many passes there were and what is left.
    let work = async |held_back: usize| {
        let namespace = cluster.namespace(prefix).await?;
        prepare(&namespace).await.context("preparing")?;
        let mut views = Vec::new();
        let mut changed = false;
        loop {
            let counter = Cutter::counting();
            views.push(view(&namespace).await.context("looking")?);
            if let Some(newest) = views.last() {
                pass(counter.around(&admin), newest).await?;
            }
            if views.len() == held_back {
                for old in &views {
                    // An old view may well lead to a refusal; it must not lead anywhere else.
                    let _ = pass(admin.clone(), old).await;
                }
            } else if counter.writes() == 0 && changed {
                break;
            } else if counter.writes() == 0 {
                change(&namespace).await.context("changing")?;
                changed = true;
            }
            anyhow::ensure!(views.len() < 3 * MOST_PASSES, "it still writes");
        }
        let left = snapshot(&namespace).await.context("reading what is left")?;
        anyhow::Ok((views.len(), normalised(left, namespace.name())))
    };
    let (passes, expected) = work(0).await?;
    let mut crashes = Crashes { calls: passes, runs: 0, broken: Vec::new() };
    for held_back in 1..=passes {
        crashes.runs += 1;
        let flaw = match work(held_back).await {
            Err(error) => Some(format!("{error:#}")),
            Ok((_, left)) => compare(&expected, &left),
        };
        crashes.broken.extend(flaw.map(|flaw| format!("held back after pass {held_back} of {passes}: {flaw}")));
    }
    Ok(crashes)
}
