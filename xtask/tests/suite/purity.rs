//! The crates that decide cannot see a client, a runtime or randomness: not even through a dependency of a dependency.

use std::process::Command;

const FORBIDDEN: [&str; 9] =
    ["kube", "kube-client", "kube-runtime", "tokio", "hyper", "reqwest", "rand", "getrandom", "tempfile"];

fn dependencies(package: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--package", package, "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn pure_crates_depend_on_nothing_that_acts() {
    for package in ["steersman-api", "steersman-reconcile", "steersman-plan", "steersman-sim"] {
        let all = dependencies(package);
        assert!(all.contains(&package.to_owned()));
        let found: Vec<_> = all.iter().filter(|name| FORBIDDEN.contains(&name.as_str())).collect();
        assert!(found.is_empty(), "{package} depends on {found:?}: what it needs from them belongs into `Seen`");
    }
}

#[test]
fn runtime_knows_no_family() {
    let all = dependencies("steersman-runtime");
    assert!(all.contains(&"steersman-reconcile".to_owned()));
    let families = ["steersman-api", "steersman-plan", "steersman"];
    let found: Vec<_> = all.iter().filter(|name| families.contains(&name.as_str())).collect();
    assert!(found.is_empty(), "steersman-runtime depends on {found:?}: a family passes in what it needs");
}

/// The check above would pass for ever if it looked at nothing.
#[test]
fn the_operator_does_depend_on_a_client() {
    assert!(dependencies("steersman").contains(&"kube-client".to_owned()));
}
