//! `steersman preflight` on the local cluster: as the operator's account under the role that is shipped, and as somebody
//! without rights.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use steersman_testkit::{Cluster, Flavour, apply, shared};

fn preflight(kubeconfig: &Path, output: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_steersman"))
        .args(["preflight", "-o", output, "--kubeconfig"])
        .arg(kubeconfig)
        .output()
        .unwrap()
}

/// Applies the role as it is shipped and returns a kubeconfig of the account that has it.
async fn shipped_account(cluster: &Cluster) -> std::path::PathBuf {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac.yaml");
    let manifests = std::fs::read_to_string(shipped).unwrap();
    apply::manifests(&cluster.admin().await.unwrap(), None, &manifests).await.unwrap();
    cluster.service_account_kubeconfig(steersman::rbac::NAMESPACE, steersman::rbac::NAME).await.unwrap()
}

#[tokio::test]
async fn the_shipped_role_is_enough() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let kubeconfig = shipped_account(cluster).await;
    // The authorizer reads roles from its own cache, which follows within moments.
    for attempt in 0.. {
        let output = preflight(&kubeconfig, "json");
        if output.status.success() {
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(report["ready"], true, "{report:#}");
            return;
        }
        assert!(attempt < 50, "{}", String::from_utf8_lossy(&output.stdout));
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_user_without_rights_is_told_which_are_missing() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let output = preflight(&cluster.user_kubeconfig("bob").unwrap(), "text");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    let missing = "BLOCKER  bob may not list llamastackdistributions.llamastack.io in all namespaces";
    assert!(said.contains(missing) && said.contains("deploy/rbac.yaml"), "{said}");
    assert!(said.contains("Not ready: "), "{said}");
}

/// Nothing answers there: one sentence, and an exit code that says so.
#[tokio::test]
async fn a_cluster_that_is_gone_is_one_sentence() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let port = steersman_testkit::ports::HeldPort::any().unwrap();
    let text = std::fs::read_to_string(cluster.admin_kubeconfig()).unwrap();
    let gone = text.replace(&cluster.description().api_url, &format!("https://127.0.0.1:{}", port.number()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, gone).unwrap();
    let output = preflight(&path, "text");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(&port.number().to_string()), "{said}");
}
