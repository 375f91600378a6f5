//! What `up` shows: examples of every family that come to life.

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Running, cluster_is_built, xtask};

#[test]
fn requests_end_in_graphs_and_variants_grow_with_their_load() {
    if !cluster_is_built() {
        return;
    }
    let mut command = xtask();
    command.arg("up");
    let mut running = Running::start(command);
    running.until("The local cluster is up");
    running.until_all(&[
        // By the real relay, which the played profiler's Job has beside it.
        &["dgdr rapid ", "Profiling: SweepingPrefill"],
        &["dgd  rapid-dgd ", "successful"],
        &["dgdr rapid ", "Deployed"],
        &["dgdr review ", "Ready"],
        // Overrides are merged, the name among them.
        &["dgd  chat ", "successful"],
        // The one that no node suits says so.
        &["dgdr thorough ", "Profiling", "0/8 nodes are available"],
        &["llsd simple ", "Ready"],
        // By what a real Prometheus has scraped, and by what it has of the operator.
        &["va   llama-l40s ", "has 1, wants 2", "scale-up"],
        &["played: the HPA of llama-l40s-decode goes from 1 to 2"],
        &["va   llama-l40s ", "has 2, "],
    ]);
    let id = Pid::from_raw(i32::try_from(running.id()).unwrap()).unwrap();
    kill_process(id, Signal::INT).unwrap();
    assert_eq!(running.child.wait().unwrap().code(), Some(130));
}
