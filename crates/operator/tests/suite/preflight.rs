//! `steersman preflight` on the local cluster: as the operator's account under the role that is shipped, and as somebody
//! without rights.

use std::path::Path;

use serde_json::Value;
use steersman_testkit::{Account, Flavour, shared};

use crate::command::{Said, asks, said};

fn preflight(kubeconfig: &Path, output: &str) -> Said {
    said(&mut asks(kubeconfig, &["preflight", "-o", output]))
}

#[tokio::test]
async fn the_shipped_role_is_enough() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let account = Account::install(cluster).await.unwrap();
    let report: Value = serde_json::from_str(&preflight(&account.kubeconfig, "json").ok()).unwrap();
    assert_eq!(report["ready"], true, "{report:#}");
}

#[tokio::test]
async fn a_user_without_rights_is_told_which_are_missing() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let Said { code, out: said, .. } = preflight(&cluster.user_kubeconfig("bob").unwrap(), "text");
    assert_eq!(code, Some(1));
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
    let said = preflight(&path, "text").sentence();
    assert!(said.contains(&port.number().to_string()), "{said}");
}
