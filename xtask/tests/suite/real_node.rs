//! `cargo xtask up --real`. The ignored tests need the programs and images of a real node; the suite `real` builds them and runs
//! these tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use steersman_testkit::process::is_running;
use steersman_testkit::{CLUSTERS_VARIABLE, skip};

use crate::screen::Session;
use crate::support::{Running, cluster_is_built, eventually, xtask};

/// Kernel settings that kubelet, kube-proxy or the pod network change on a machine of their own.
const KERNEL_SETTINGS: [&str; 10] = [
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/conf/all/forwarding",
    "net/ipv4/conf/all/route_localnet",
    "net/ipv4/ip_forward",
    "net/ipv6/conf/all/forwarding",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];

/// What a real node could change on this machine.
#[derive(Clone, Debug, PartialEq)]
struct Machine {
    /// Network interfaces with the names of ours.
    links: BTreeSet<String>,
    /// Control groups with the names of ours, in all hierarchies.
    groups: BTreeSet<PathBuf>,
    mounts: BTreeSet<String>,
    settings: BTreeMap<&'static str, String>,
}

impl Machine {
    fn observe() -> Self {
        let links = names(Path::new("/sys/class/net")).into_iter().filter(|name| name.starts_with("steer")).collect();
        let root = PathBuf::from("/sys/fs/cgroup");
        let hierarchies = names(&root).into_iter().map(|name| root.join(name)).chain([root.clone()]);
        let of_ours = |folder: PathBuf| {
            let own = names(&folder).into_iter().filter(|name| name.starts_with("steersman-"));
            own.map(move |name| folder.join(name)).collect::<Vec<_>>()
        };
        let groups = hierarchies.flat_map(of_ours).collect();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap().lines().map(str::to_owned).collect();
        let value = |name| (name, fs::read_to_string(Path::new("/proc/sys").join(name)).unwrap_or_default());
        Self { links, groups, mounts, settings: KERNEL_SETTINGS.map(value).into() }
    }
}

/// Names of the entries of a folder; none if it cannot be read.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn program(id: u32) -> String {
    fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default().trim().to_owned()
}

/// Checks that a running node has what [`check_nothing_is_left`] looks for.
fn check_node_runs(before: &Machine, processes: &[u32]) {
    let programs: BTreeSet<String> = processes.iter().map(|id| program(*id)).collect();
    for name in ["etcd", "kubelet", "containerd", "coredns", "steersman", "python3"] {
        assert!(programs.iter().any(|program| program.starts_with(name)), "{name} does not run: {programs:?}");
    }
    let during = Machine::observe();
    assert_eq!(during.links.difference(&before.links).count(), 1, "{:?}", during.links);
    assert!(during.groups.len() > before.groups.len(), "{:?}", during.groups);
    assert_eq!((&during.mounts, &during.settings), (&before.mounts, &before.settings));
}

fn check_nothing_is_left(before: &Machine, processes: &[u32], run: Option<&Path>) {
    eventually(&format!("all of {processes:?} have ended"), || !processes.iter().any(|id| is_running(*id)));
    // The kernel removes the link a moment after the last process of its network.
    eventually("the machine is as it was", || Machine::observe() == *before);
    if let Some(run) = run {
        assert!(!run.exists(), "{} is left", run.display());
    }
}

/// The developer command as a user without rights. The new user namespace has no root, but the files of root can still be read.
fn without_root() -> Command {
    let xtask = xtask();
    if !rustix::process::geteuid().is_root() {
        return xtask;
    }
    let mut command = Command::new("unshare");
    command.arg("--user").arg(xtask.get_program()).env_remove(CLUSTERS_VARIABLE).stdin(Stdio::null());
    command
}

#[test]
fn up_real_without_root_offers_simulated_cluster() {
    let output = without_root().args(["up", "--real"]).output().unwrap();
    let expected = "error: a real node cannot run here: it needs root, to create namespaces and control groups; \
                    `cargo xtask up` without --real starts the simulated cluster, which needs no root\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
}

#[test]
fn suite_real_without_root_is_reported_as_skipped() {
    if !cluster_is_built() {
        return;
    }
    // As in CI, where other skipped tests fail.
    let output = without_root().args(["test", "--suite", "real"]).env(skip::NO_SKIP_VARIABLE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let reported = "skipped: real: it needs root, to create namespaces and control groups";
    assert_eq!(text.lines().filter(|line| *line == reported).count(), 1, "{text}");
}

#[test]
#[ignore = "the suite `real` builds what it needs"]
fn killed_guard_leaves_machine_as_it_was() {
    let before = Machine::observe();
    let mut command = xtask();
    command.args(["up", "--real"]);
    let mut running = Running::start(command);
    let lines = running.wait_for_lines(&[
        &["the first chat completion through a LlamaStackDistribution"],
        &["steersman/echo-1b answers:"],
        &["time ", " to build, ", " to start"],
        &["memory ", " MB for the pods, ", " MB for the control plane and the node"],
        &["disk ", " MB for this run"],
        &["export KUBECONFIG="],
        &["llsd", "stack", "Ready"],
        &["dgdr", "profiled", "Deploying"],
        &["va", "engine"],
    ]);
    let kubeconfig = lines.iter().find_map(|line| line.trim().strip_prefix("export KUBECONFIG='")).unwrap();
    // The folder of the run has those of the control plane and of the node.
    let run = Path::new(kubeconfig.trim_end_matches('\'')).ancestors().find(|folder| folder.join("node").is_dir());
    let run = run.expect("the kubeconfig is in the folder of the run").to_owned();
    let processes = running.processes();
    check_node_runs(&before, &processes);
    kill_process(Pid::from_raw(i32::try_from(running.id()).unwrap()).unwrap(), Signal::KILL).unwrap();
    running.child.wait().unwrap();
    check_nothing_is_left(&before, &processes, Some(&run));
}

#[test]
#[ignore = "the suite `real` builds what it needs"]
fn screen_of_real_node_is_shown_until_ctrl_c() {
    let before = Machine::observe();
    let session = Session::start("--real");
    session.wait_for("the first chat completion through a LlamaStackDistribution");
    for text in ["Steersman on a real node", "Requests", "Servers", "Variants", "profiled", "stack", "port-forward"] {
        session.wait_for(text);
    }
    let processes = session.processes();
    check_node_runs(&before, &processes);
    session.terminal.press("\x03").unwrap();
    let after = session.check_end(&processes, 130);
    assert!(!after.contains("error"), "{after}");
    check_nothing_is_left(&before, &processes, None);
}
