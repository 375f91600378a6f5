//! However a command ends, none of its processes survives, and the next start works.

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use steersman_testkit::process::is_running;
use steersman_testkit::process_tree;

use crate::support::{Running, cluster_is_built, eventually, xtask};

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap()).unwrap()
}

/// Process id of the guard's worker.
fn worker(guard: &Running) -> u32 {
    let all = process_tree::descendants(guard.id());
    let name = |id: &u32| std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
    *all.iter().find(|id| name(id).starts_with("steersman-worker")).expect("the guard has a worker")
}

fn up() -> Running {
    let mut command = xtask();
    command.arg("up");
    // Its own process group, so that a signal to the group does not reach the tests.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut running = Running::start(command);
    running.wait_for_line("The local cluster is up");
    running
}

/// Ends `running` with `kill` and checks that none of its processes is left.
fn end_and_check_processes(mut running: Running, what: &str, kill: impl FnOnce(&Running)) -> std::process::ExitStatus {
    let processes = running.processes();
    assert!(processes.len() >= 8, "expected guard, worker and the programs of the cluster: {processes:?}");
    kill(&running);
    let status = running.child.wait().unwrap();
    eventually(&format!("{what}: all of {processes:?} have ended"), || !processes.iter().any(|id| is_running(*id)));
    status
}

#[test]
fn ctrl_c_ends_all_processes() {
    if !cluster_is_built() {
        return;
    }
    let status =
        end_and_check_processes(up(), "Ctrl-C", |running| kill_process(pid(running.id()), Signal::INT).unwrap());
    assert_eq!(status.code(), Some(130));
}

#[test]
fn sigterm_ends_all_processes() {
    if !cluster_is_built() {
        return;
    }
    let status =
        end_and_check_processes(up(), "TERM", |running| kill_process(pid(running.id()), Signal::TERM).unwrap());
    assert_eq!(status.code(), Some(143));
}

#[test]
fn killed_guard_leaves_no_process() {
    if !cluster_is_built() {
        return;
    }
    end_and_check_processes(up(), "KILL of the guard", |running| {
        kill_process(pid(running.id()), Signal::KILL).unwrap()
    });
    // The next start works.
    end_and_check_processes(up(), "HUP after a KILL", |running| kill_process(pid(running.id()), Signal::HUP).unwrap());
}

#[test]
fn killed_worker_leaves_no_process() {
    if !cluster_is_built() {
        return;
    }
    let status = end_and_check_processes(up(), "KILL of the worker", |running| {
        kill_process(pid(worker(running)), Signal::KILL).unwrap()
    });
    assert_eq!(status.code(), Some(137), "the guard reports the signal that ended its worker");
}

#[test]
fn killed_process_group_leaves_no_process() {
    if !cluster_is_built() {
        return;
    }
    end_and_check_processes(up(), "KILL of the group", |running| {
        kill_process_group(pid(running.id()), Signal::KILL).unwrap()
    });
}

/// A worker that a terminal has stopped does not react.
#[test]
fn stopped_worker_does_not_block_the_end() {
    if !cluster_is_built() {
        return;
    }
    let status = end_and_check_processes(up(), "INT with a stopped worker", |running| {
        kill_process(pid(worker(running)), Signal::STOP).unwrap();
        kill_process(pid(running.id()), Signal::INT).unwrap();
    });
    assert_eq!(status.code(), Some(130));
}

#[test]
fn killed_guard_and_worker_leave_no_cluster() {
    if !cluster_is_built() {
        return;
    }
    end_and_check_processes(up(), "KILL of guard and worker", |running| {
        let worker = worker(running);
        kill_process(pid(running.id()), Signal::KILL).unwrap();
        kill_process(pid(worker), Signal::KILL).unwrap();
    });
}

#[test]
fn killed_etcd_fails_the_command() {
    if !cluster_is_built() {
        return;
    }
    let status = end_and_check_processes(up(), "KILL of etcd", |running| {
        let etcd = process_tree::descendants(running.id())
            .into_iter()
            .find(|id| std::fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.trim() == "etcd"));
        kill_process(pid(etcd.expect("etcd is running")), Signal::KILL).unwrap();
    });
    assert_eq!(status.code(), Some(1));
}

/// `cargo xtask test` runs compilers and test binaries, which have no parent-death signal.
#[test]
fn killed_test_run_leaves_no_process() {
    if !cluster_is_built() {
        return;
    }
    for kill in ["guard", "worker", "both"] {
        let mut command: Command = xtask();
        command.args(["test", "--suite", "cluster"]);
        let mut running = Running::start(command);
        running.wait_for_line("running ");
        end_and_check_processes(running, kill, |running| {
            let worker = worker(running);
            if kill != "worker" {
                kill_process(pid(running.id()), Signal::KILL).unwrap();
            }
            if kill != "guard" {
                kill_process(pid(worker), Signal::KILL).unwrap();
            }
        });
    }
}
