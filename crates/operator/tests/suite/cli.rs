//! The command line as a user meets it: words, streams and exit status.

use std::process::Output;

use clap::CommandFactory;
use steersman::cli::Cli;

use crate::command;

/// Runs the binary where no kubeconfig and no pod can be found.
fn steersman(args: &[&str]) -> Output {
    let nowhere = tempfile::tempdir().unwrap();
    command::steersman(args).env("HOME", nowhere.path()).current_dir(nowhere.path()).output().unwrap()
}

fn said(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_declaration_of_the_command_line_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn help_and_version_are_on_standard_output() {
    let help = steersman(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    for line in [
        "run        Run the operator until SIGTERM or SIGINT",
        "preflight  Say whether a cluster can run Steersman",
        "crds       Print the CustomResourceDefinitions",
        "webhooks   Print the webhook configurations",
        "rbac       Print the rights",
        "Exit status: 0",
    ] {
        assert!(said(&help.stdout).contains(line), "{}", said(&help.stdout));
    }
    let version = steersman(&["--version"]);
    assert_eq!(said(&version.stdout), format!("steersman {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_is_status_2_and_names_what_is_accepted() {
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
        assert!(said(&output.stderr).contains(expected), "{args:?}: {}", said(&output.stderr));
        assert_eq!(said(&output.stdout), "", "{args:?}");
    }
}

#[test]
fn rbac_prints_the_manifests_and_needs_no_cluster() {
    let output = steersman(&["rbac"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(said(&output.stdout), steersman::rbac::manifests().unwrap());
}

#[test]
fn without_a_cluster_preflight_fails_with_one_sentence() {
    let output = steersman(&["preflight"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(said(&output.stdout), "");
    assert_eq!(
        said(&output.stderr),
        "steersman: no kubeconfig found and not running in a pod; pass --kubeconfig FILE or set KUBECONFIG\n"
    );
}
