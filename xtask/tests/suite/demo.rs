//! `cargo xtask up` with the examples of every family.

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Running, cluster_is_built, xtask};

#[test]
fn up_runs_examples_of_every_family() {
    if !cluster_is_built() {
        return;
    }
    let mut command = xtask();
    command.arg("up");
    let mut running = Running::start(command);
    running.wait_for_line("The local cluster is up");
    running.wait_for_lines(&[
        // The real relay reports the phase of the simulated profiler.
        &["dgdr rapid ", "Profiling: SweepingPrefill"],
        &["dgd  rapid-dgd ", "successful"],
        &["dgdr rapid ", "Deployed"],
        &["dgdr review ", "Ready"],
        // The overrides are merged into the graph, including its name.
        &["dgd  chat ", "successful"],
        // No node fits the pod of this request.
        &["dgdr thorough ", "Profiling", "0/8 nodes are available"],
        // The simulated servers answer, by TLS too.
        &["llsd simple ", "Ready", "llama-stack 0.7.1, ", " providers"],
        &["llsd full ", "Ready", "llama-stack 0.7.1, ", " providers"],
        // A real Prometheus scrapes the pods and the operator.
        &["va   llama-l40s ", "has 1, wants ", "scale-up: "],
        &["simulated: the HPA scales llama-l40s-decode from 1 to "],
    ]);
    let id = Pid::from_raw(i32::try_from(running.id()).unwrap()).unwrap();
    kill_process(id, Signal::INT).unwrap();
    assert_eq!(running.child.wait().unwrap().code(), Some(130));
}
