//! The command line as a user sees it: help texts, output streams and exit status.

use std::process::Output;

use clap::CommandFactory;
use steersman::cli::Cli;

use crate::command;

/// Runs the binary in an empty folder, where it finds neither a kubeconfig nor a service account.
fn steersman(args: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    command::steersman(args).env("HOME", folder.path()).current_dir(folder.path()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn command_line_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn help_and_version_go_to_stdout() {
    let help = steersman(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    for line in [
        "run        Run the operator until SIGTERM or SIGINT",
        "preflight  Check whether a cluster can run Steersman",
        "crds       Print the CustomResourceDefinitions",
        "webhooks   Print the admission webhook configurations",
        "rbac       Print the RBAC manifests",
        "Exit status: 0",
    ] {
        assert!(text(&help.stdout).contains(line), "{}", text(&help.stdout));
    }
    let version = steersman(&["--version"]);
    assert_eq!(text(&version.stdout), format!("steersman {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_exits_2_and_lists_values() {
    let cases: [(&[&str], &str); 11] = [
        (&[], "Usage: steersman <COMMAND>"),
        (&["prefligth"], "'preflight'"),
        (&["preflight", "-o", "yaml"], "[possible values: text, json]"),
        (&["crds", "dgd"], "[possible values: dgdr, llsd, va]"),
        (&["crds", "-o", "text"], "[possible values: yaml, json]"),
        (&["run", "--controllers", "llsd,dgd"], "has no controller for dgd; it has dgdr, llsd"),
        (&["run", "--controllers", "pods"], "there is no controller \"pods\"; the names are dgdr, dgd, llsd, va"),
        (&["run", "--metrics-address", "8080"], "give an IP address and a port"),
        (&["run", "--renew-deadline", "20"], "give a shorter --renew-deadline or a longer --lease-duration"),
        (&["preflight", "--request-timeout", "0"], "give a whole number of seconds from 1 to 300"),
        (&["preflight", "--request-timeout", "301"], "give a whole number of seconds from 1 to 300"),
    ];
    for (args, expected) in cases {
        let output = steersman(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(expected), "{args:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{args:?}");
    }
}

#[test]
fn rbac_prints_manifests_without_a_cluster() {
    let output = steersman(&["rbac"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), steersman::rbac::manifests().unwrap());
}

#[test]
fn preflight_without_kubeconfig_fails_in_one_sentence() {
    let output = steersman(&["preflight"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
    assert_eq!(
        text(&output.stderr),
        "steersman: no kubeconfig found and not running in a pod; pass --kubeconfig FILE or set KUBECONFIG\n"
    );
}
