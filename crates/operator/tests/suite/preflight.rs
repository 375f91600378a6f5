//! `steersman preflight` on the local cluster, as the operator's account with the shipped role and as a user without rights.

use std::path::Path;

use serde_json::Value;
use steersman_testkit::{Flavour, OperatorAccount, shared_cluster};

use crate::command::{CommandOutput, output_of, steersman_as};

fn preflight(kubeconfig: &Path, output: &str) -> CommandOutput {
    output_of(&mut steersman_as(kubeconfig, &["preflight", "-o", output]))
}

#[tokio::test]
async fn shipped_role_passes_preflight() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let account = OperatorAccount::install(cluster).await.unwrap();
    let report: Value = serde_json::from_str(&preflight(&account.kubeconfig, "json").ok()).unwrap();
    assert_eq!(report["ready"], true, "{report:#}");
}

#[tokio::test]
async fn preflight_lists_missing_rights() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let CommandOutput { code, stdout, .. } = preflight(&cluster.user_kubeconfig("bob").unwrap(), "text");
    assert_eq!(code, Some(1));
    let missing = "BLOCKER  bob may not list llamastackdistributions.llamastack.io in all namespaces";
    assert!(stdout.contains(missing) && stdout.contains("deploy/rbac.yaml"), "{stdout}");
    assert!(stdout.contains("Not ready: "), "{stdout}");
}

#[tokio::test]
async fn unreachable_cluster_fails_in_one_sentence() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let port = steersman_testkit::ports::ReservedPort::any_free().unwrap();
    let text = std::fs::read_to_string(cluster.admin_kubeconfig()).unwrap();
    let gone = text.replace(&cluster.description().api_url, &format!("https://127.0.0.1:{}", port.number()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, gone).unwrap();
    let sentence = preflight(&path, "text").one_line_failure();
    assert!(sentence.contains(&port.number().to_string()), "{sentence}");
}
