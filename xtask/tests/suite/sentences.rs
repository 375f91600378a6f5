//! One clear sentence for each thing that is missing.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::{Running, cluster_is_built, xtask};

/// Runs `up` in an empty cache folder with a `go` that does what `script` says, and returns what it prints on failing.
fn up_with_go(script: Option<&str>) -> String {
    with_go(&["up"], script)
}

fn with_go(arguments: &[&str], script: Option<&str>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bin");
    fs::create_dir(&path).unwrap();
    if let Some(script) = script {
        let go = path.join("go");
        fs::write(&go, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&go, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = xtask();
    // Nothing else on the path: the machine's own Go must not be found.
    command.args(arguments).env("PATH", &path);
    fails(command, &folder.path().join("cache"))
}

fn fails(mut command: Command, cache: &Path) -> String {
    let output = command.env("STEERSMAN_CACHE", cache).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

/// The error is the last line, alone.
fn sentence(said: &str) -> &str {
    said.lines().rev().find(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("no error in {said}"))
}

#[test]
fn go_is_missing() {
    let said = up_with_go(None);
    assert!(sentence(&said).starts_with("error: Go is missing"), "{said}");
    assert!(said.contains("install Go 1."), "{said}");
}

/// Before anything is compiled, and with the way to go on.
#[test]
fn a_whole_test_run_without_go_says_so_at_once() {
    let said = with_go(&["test"], None);
    assert!(sentence(&said).starts_with("error: Go is missing"), "{said}");
    assert!(sentence(&said).ends_with("such as `cargo xtask test --suite unit`"), "{said}");
    assert!(!said.contains("==="), "no part was begun: {said}");
}

#[test]
fn go_is_too_old() {
    let said = up_with_go(Some("echo go1.22.3"));
    assert!(sentence(&said).starts_with("error: this Go is too old for the local cluster (go1.22.3)"), "{said}");
    let strict = "echo 'go: go.mod requires go >= 1.26.0 (running go 1.25.1; GOTOOLCHAIN=local)' >&2; exit 1";
    let said = up_with_go(Some(strict));
    assert!(sentence(&said).contains("running go 1.25.1"), "{said}");
}

#[test]
fn the_disk_is_full() {
    let script = "case $1 in env) echo go1.26.8;; list) echo fmt;; build) echo 'write _pkg_.a: no space left on device' >&2; exit 1;; esac";
    let said = up_with_go(Some(script));
    assert!(sentence(&said).starts_with("error: the disk is full"), "{said}");
}

/// The real Go, with empty caches and a proxy that is not there.
#[test]
fn the_module_proxy_is_out_of_reach() {
    if Command::new("go").arg("version").output().is_err() {
        return steersman_testkit::skip::skip("sentences::the_module_proxy_is_out_of_reach", "no Go on the PATH");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = xtask();
    command
        .arg("up")
        .env("GOPROXY", "http://127.0.0.1:1")
        .env("GOMODCACHE", folder.path().join("modules"))
        .env("GOCACHE", folder.path().join("builds"))
        .env("GOTOOLCHAIN", "local");
    let said = fails(command, &folder.path().join("cache"));
    assert!(sentence(&said).starts_with("error: the Go module proxy cannot be reached"), "{said}");
}

#[test]
fn a_port_is_busy() {
    if !cluster_is_built() {
        return;
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for flag in ["--api-port", "--prometheus-port"] {
        let output = xtask().args(["up", flag, &port.to_string()]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(sentence(&said).contains(&format!("port {port} on 127.0.0.1 is taken")), "{said}");
    }
}

/// A developer behind a proxy: the cluster on this machine is reached without it.
#[test]
fn a_proxy_is_not_in_the_way() {
    if !cluster_is_built() {
        return;
    }
    let mut command = xtask();
    command.arg("up").env("HTTPS_PROXY", "http://127.0.0.1:9").env("https_proxy", "http://127.0.0.1:9");
    Running::start(command).until("The local cluster is up");
}

#[test]
fn a_kubeconfig_is_not_there() {
    let output = xtask().args(["up", "--kubeconfig", "/nowhere/config"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(sentence(&said), "error: --kubeconfig: there is no file /nowhere/config");
}

#[test]
fn an_unknown_suite_is_refused_with_the_names_of_the_known_ones() {
    let output = xtask().args(["test", "--suite", "nonsense"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let help = String::from_utf8(xtask().args(["test", "--help"]).output().unwrap().stdout).unwrap();
    for name in ["format", "clippy", "unit", "cluster", "commands"] {
        assert!(said.contains(name), "{said}");
        assert!(help.contains(&format!("- {name}: ")), "{name} is explained in: {help}");
    }
}

#[test]
fn benchmarks_refuse_what_they_would_ignore_or_only_miss_later() {
    let said = |arguments: &[&str]| {
        let output = xtask().arg("bench").args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (arguments, expected) in [
        (&["dynamo", "--operator", "/nowhere/steersman"][..], "error: --operator: there is no file /nowhere/steersman"),
        (
            &["variant-plan", "--objects", "10"],
            "error: --objects goes with benchmarks on the local cluster: llamastack, dynamo, variant",
        ),
        (&["variant-plan", "--operator", "/bin/true"], "error: --operator goes with benchmarks on the local cluster"),
    ] {
        let (code, said) = said(arguments);
        assert_eq!(code, Some(1), "{said}");
        assert!(sentence(&said).starts_with(expected), "{said}");
    }
    for arguments in [&[][..], &["nonsense"]] {
        let (code, said) = said(arguments);
        assert_eq!(code, Some(2), "{said}");
        for name in ["llamastack-config", "dynamo-convert", "llamastack", "dynamo", "variant-plan", "variant"] {
            assert!(said.contains(name), "{name}: {said}");
        }
    }
    let (_, said) = said(&["variant", "--objects", "ten"]);
    assert!(said.contains("give whole numbers from 1 on, such as 10,1000"), "{said}");
}
