//! The pure crates depend on no client, runtime or randomness, not even indirectly.

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
fn pure_crates_have_no_side_effect_dependency() {
    for package in ["steersman-api", "steersman-reconcile", "steersman-plan", "steersman-sim"] {
        let all = dependencies(package);
        assert!(all.contains(&package.to_owned()));
        let found: Vec<_> = all.iter().filter(|name| FORBIDDEN.contains(&name.as_str())).collect();
        assert!(found.is_empty(), "{package} depends on {found:?}; pass the data in with `Snapshot` instead");
    }
}

#[test]
fn runtime_depends_on_no_family() {
    let all = dependencies("steersman-runtime");
    assert!(all.contains(&"steersman-reconcile".to_owned()));
    let families = ["steersman-api", "steersman-plan", "steersman"];
    let found: Vec<_> = all.iter().filter(|name| families.contains(&name.as_str())).collect();
    assert!(found.is_empty(), "steersman-runtime depends on {found:?}; let the family pass the data in instead");
}

/// Shows that the checks above would find a client.
#[test]
fn operator_depends_on_a_client() {
    assert!(dependencies("steersman").contains(&"kube-client".to_owned()));
}
