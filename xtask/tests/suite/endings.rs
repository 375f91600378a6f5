//! Whatever ends a command, nothing that it started survives, and the next start works.

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use steersman_testkit::process::is_running;
use steersman_testkit::tree;

use crate::support::{Running, cluster_is_built, eventually, xtask};

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap()).unwrap()
}

/// The process that does the work: the only child of the guard.
fn worker(guard: &Running) -> u32 {
    let all = tree::descendants(guard.id());
    let name = |id: &u32| std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
    *all.iter().find(|id| name(id).starts_with("steersman-worker")).expect("the guard has a worker")
}

fn up() -> Running {
    let mut command = xtask();
    command.arg("up");
    // A group of its own, so that a signal to the group does not hit the tests.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut running = Running::start(command);
    running.until("The local cluster is up");
    running
}

/// Ends `running` by `blow` and checks by their ids that all of its processes are gone.
fn ends(mut running: Running, what: &str, blow: impl FnOnce(&Running)) -> std::process::ExitStatus {
    let family = running.family();
    assert!(family.len() >= 8, "guard, worker and the cluster's programs: {family:?}");
    blow(&running);
    let status = running.child.wait().unwrap();
    eventually(&format!("{what}: all of {family:?} are gone"), || !family.iter().any(|id| is_running(*id)));
    status
}

#[test]
fn ctrl_c_ends_everything() {
    if !cluster_is_built() {
        return;
    }
    let status = ends(up(), "Ctrl-C", |running| kill_process(pid(running.id()), Signal::INT).unwrap());
    assert_eq!(status.code(), Some(130));
}

#[test]
fn a_termination_request_ends_everything() {
    if !cluster_is_built() {
        return;
    }
    let status = ends(up(), "TERM", |running| kill_process(pid(running.id()), Signal::TERM).unwrap());
    assert_eq!(status.code(), Some(143));
}

#[test]
fn a_killed_guard_leaves_nothing() {
    if !cluster_is_built() {
        return;
    }
    ends(up(), "KILL of the guard", |running| kill_process(pid(running.id()), Signal::KILL).unwrap());
    // And the next start works.
    ends(up(), "HUP after a KILL", |running| kill_process(pid(running.id()), Signal::HUP).unwrap());
}

#[test]
fn a_killed_worker_leaves_nothing() {
    if !cluster_is_built() {
        return;
    }
    let status = ends(up(), "KILL of the worker", |running| kill_process(pid(worker(running)), Signal::KILL).unwrap());
    assert_eq!(status.code(), Some(137), "the guard reports how its worker ended");
}

#[test]
fn a_killed_group_leaves_nothing() {
    if !cluster_is_built() {
        return;
    }
    ends(up(), "KILL of the group", |running| kill_process_group(pid(running.id()), Signal::KILL).unwrap());
}

/// A worker that cannot react, as one that a terminal has stopped.
#[test]
fn a_paused_worker_does_not_hold_up_the_end() {
    if !cluster_is_built() {
        return;
    }
    let status = ends(up(), "INT with a stopped worker", |running| {
        kill_process(pid(worker(running)), Signal::STOP).unwrap();
        kill_process(pid(running.id()), Signal::INT).unwrap();
    });
    assert_eq!(status.code(), Some(130));
}

#[test]
fn both_killed_at_once_leave_no_cluster() {
    if !cluster_is_built() {
        return;
    }
    ends(up(), "KILL of guard and worker", |running| {
        let worker = worker(running);
        kill_process(pid(running.id()), Signal::KILL).unwrap();
        kill_process(pid(worker), Signal::KILL).unwrap();
    });
}

#[test]
fn a_program_that_dies_ends_the_cluster_with_a_reason() {
    if !cluster_is_built() {
        return;
    }
    let status = ends(up(), "KILL of etcd", |running| {
        let etcd = tree::descendants(running.id())
            .into_iter()
            .find(|id| std::fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.trim() == "etcd"));
        kill_process(pid(etcd.expect("etcd runs")), Signal::KILL).unwrap();
    });
    assert_eq!(status.code(), Some(1));
}

/// `cargo xtask test` has compilers and test programs below it, which carry no parent-death signal.
#[test]
fn a_killed_test_run_leaves_nothing() {
    if !cluster_is_built() {
        return;
    }
    for blow in ["guard", "worker", "both"] {
        let mut command: Command = xtask();
        command.args(["test", "--suite", "cluster"]);
        let mut running = Running::start(command);
        running.until("running ");
        ends(running, blow, |running| {
            let worker = worker(running);
            if blow != "worker" {
                kill_process(pid(running.id()), Signal::KILL).unwrap();
            }
            if blow != "guard" {
                kill_process(pid(worker), Signal::KILL).unwrap();
            }
        });
    }
}
