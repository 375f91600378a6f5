//! `steersman preflight` on the local cluster: as the operator's account under the role that is shipped, and as somebody
//! without rights.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use steersman_testkit::{Cluster, Flavour, apply, shared, wait};

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
    let (namespace, name) = (steersman::rbac::NAMESPACE, steersman::rbac::NAME);
    let account = cluster.service_account(namespace, name).await.unwrap();
    // One rule of the role stands for all: they come with the same object.
    wait::until_allowed(&account, "list", "llmd.ai", "variantautoscalings", None).await.unwrap();
    cluster.service_account_kubeconfig(namespace, name).await.unwrap()
}

#[tokio::test]
async fn the_shipped_role_is_enough() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let kubeconfig = shipped_account(cluster).await;
    let output = preflight(&kubeconfig, "json");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["ready"], true, "{report:#}");
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
