//! Error messages of the commands: one sentence with the cause and the remedy.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::{Running, cluster_is_built, xtask};

/// Runs `up` with an empty cache folder and a `go` that runs `script`, expects it to fail and returns its stderr.
fn up_with_go(script: Option<&str>) -> String {
    run_with_go(&["up"], script)
}

fn run_with_go(arguments: &[&str], script: Option<&str>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bin");
    fs::create_dir(&path).unwrap();
    if let Some(script) = script {
        let go = path.join("go");
        fs::write(&go, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&go, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = xtask();
    // The PATH contains nothing else, so that the installed Go is not found.
    command.args(arguments).env("PATH", &path);
    run_failing(command, &folder.path().join("cache"))
}

fn run_failing(mut command: Command, cache: &Path) -> String {
    let output = command.env("STEERSMAN_CACHE", cache).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    stderr
}

/// The last line that reports an error.
fn error_line(stderr: &str) -> &str {
    stderr.lines().rev().find(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("no error in {stderr}"))
}

#[test]
fn missing_go_is_reported() {
    let stderr = up_with_go(None);
    assert!(error_line(&stderr).starts_with("error: Go is not installed"), "{stderr}");
    assert!(stderr.contains("install Go 1."), "{stderr}");
}

#[test]
fn missing_go_stops_test_run_early() {
    let stderr = run_with_go(&["test"], None);
    assert!(error_line(&stderr).starts_with("error: Go is not installed"), "{stderr}");
    assert!(error_line(&stderr).ends_with("such as `cargo xtask test --suite unit`"), "{stderr}");
    assert!(!stderr.contains("==="), "no step was started: {stderr}");
}

#[test]
fn outdated_go_is_reported() {
    let stderr = up_with_go(Some("echo go1.22.3"));
    assert!(
        error_line(&stderr).starts_with("error: the installed Go is too old for the local cluster (go1.22.3)"),
        "{stderr}"
    );
    let strict = "echo 'go: go.mod requires go >= 1.26.0 (running go 1.25.1; GOTOOLCHAIN=local)' >&2; exit 1";
    let stderr = up_with_go(Some(strict));
    assert!(error_line(&stderr).contains("running go 1.25.1"), "{stderr}");
}

#[test]
fn full_disk_is_reported() {
    let script = "case $1 in env) echo go1.26.8;; list) echo fmt;; build) echo 'write _pkg_.a: no space left on device' >&2; exit 1;; esac";
    let stderr = up_with_go(Some(script));
    assert!(error_line(&stderr).starts_with("error: the disk is full"), "{stderr}");
}

/// Uses the real Go, with empty caches and a proxy that does not exist.
#[test]
fn unreachable_module_proxy_is_reported() {
    if Command::new("go").arg("version").output().is_err() {
        return steersman_testkit::skip::skip(
            "error_messages::unreachable_module_proxy_is_reported",
            "no Go on the PATH",
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = xtask();
    command
        .arg("up")
        .env("GOPROXY", "http://127.0.0.1:1")
        .env("GOMODCACHE", folder.path().join("modules"))
        .env("GOCACHE", folder.path().join("builds"))
        .env("GOTOOLCHAIN", "local");
    let stderr = run_failing(command, &folder.path().join("cache"));
    assert!(error_line(&stderr).starts_with("error: cannot reach the Go module proxy"), "{stderr}");
}

#[test]
fn busy_port_is_reported() {
    if !cluster_is_built() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for flag in ["--api-port", "--prometheus-port"] {
        let output = xtask().args(["up", flag, &port.to_string()]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(error_line(&stderr).contains(&format!("port {port} on 127.0.0.1 is taken")), "{stderr}");
    }
}

/// The cluster on this machine is reached without the proxy that the environment names.
#[test]
fn proxy_is_not_used_for_local_cluster() {
    if !cluster_is_built() {
        return;
    }
    let mut command = xtask();
    command.arg("up").env("HTTPS_PROXY", "http://127.0.0.1:9").env("https_proxy", "http://127.0.0.1:9");
    Running::start(command).wait_for_line("The local cluster is up");
}

#[test]
fn missing_kubeconfig_is_reported() {
    let output = xtask().args(["up", "--kubeconfig", "/nowhere/config"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error_line(&stderr), "error: --kubeconfig: file /nowhere/config does not exist");
}

#[test]
fn unknown_suite_error_lists_known_suites() {
    let output = xtask().args(["test", "--suite", "nonsense"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    let help = String::from_utf8(xtask().args(["test", "--help"]).output().unwrap().stdout).unwrap();
    for name in ["format", "clippy", "unit", "cluster", "commands"] {
        assert!(stderr.contains(name), "{stderr}");
        assert!(help.contains(&format!("- {name}: ")), "the help does not explain {name}: {help}");
    }
}

#[test]
fn bench_rejects_unusable_arguments() {
    let run = |arguments: &[&str]| {
        let output = xtask().arg("bench").args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (arguments, expected) in [
        (
            &["dynamo", "--operator", "/nowhere/steersman"][..],
            "error: --operator: file /nowhere/steersman does not exist",
        ),
        (
            &["variant-plan", "--objects", "10"],
            "error: --objects needs a benchmark on the local cluster: llamastack, dynamo or variant",
        ),
        (&["variant-plan", "--operator", "/bin/true"], "error: --operator needs a benchmark on the local cluster"),
    ] {
        let (code, stderr) = run(arguments);
        assert_eq!(code, Some(1), "{stderr}");
        assert!(error_line(&stderr).starts_with(expected), "{stderr}");
    }
    for arguments in [&[][..], &["nonsense"]] {
        let (code, stderr) = run(arguments);
        assert_eq!(code, Some(2), "{stderr}");
        for name in [
            "llamastack-config",
            "dynamo-convert",
            "llamastack",
            "dynamo",
            "variant-plan",
            "variant-queueing",
            "variant",
        ] {
            assert!(stderr.contains(name), "{name}: {stderr}");
        }
    }
    let (_, stderr) = run(&["variant", "--objects", "ten"]);
    assert!(stderr.contains("expected whole numbers of at least 1, such as 10,1000"), "{stderr}");
}
