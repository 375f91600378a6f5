//! The Kustomize folders: kubectl renders each, and a real API server accepts every object.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use steersman::cli::Cli;
use steersman::install;
use steersman::installation::NAMESPACE;
use steersman_testkit::{Cluster, Flavour, shared_cluster};

use crate::command::{kubectl, output_of};

const FOLDERS: [&str; 4] = ["base", "overlays/cert-manager", "overlays/namespaced", "overlays/single-family"];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kustomize").join(name)
}

fn build(cluster: &Cluster, name: &str) -> String {
    output_of(&mut kubectl(cluster, &["kustomize", folder(name).to_str().unwrap()])).ok()
}

fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

fn kinds(objects: &[Value]) -> BTreeSet<&str> {
    objects.iter().map(|object| object["kind"].as_str().unwrap()).collect()
}

fn arguments(objects: &[Value]) -> Vec<String> {
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    arguments.iter().map(|argument| argument.as_str().unwrap().to_owned()).collect()
}

/// Identity and content of each object, to compare sets.
fn identities(objects: &[Value]) -> BTreeSet<String> {
    objects.iter().map(|object| format!("{} {}: {object}", object["kind"], object["metadata"]["name"])).collect()
}

#[tokio::test]
async fn api_server_accepts_every_rendered_object() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("kustomize").await.unwrap();
    let scratch = tempfile::tempdir().unwrap();
    for name in FOLDERS {
        // The namespace of the operator may not exist, and a dry run does not create it.
        let text = build(cluster, name).replace(NAMESPACE, namespace.name()).replace("team-a", namespace.name());
        // The cluster has no cert-manager.
        let known = |document: &Value| document["apiVersion"] != "cert-manager.io/v1";
        let objects: Vec<Value> = documents(&text).into_iter().filter(known).collect();
        let file = scratch.path().join("objects.json");
        std::fs::write(&file, json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string()).unwrap();
        let apply = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--dry-run=server",
            "--validate=strict",
            "-o",
            "name",
            "-f",
        ];
        let accepted = output_of(kubectl(cluster, &apply).arg(&file)).ok();
        assert_eq!(accepted.lines().count(), objects.len(), "{name}: {accepted}");
    }
}

#[tokio::test]
async fn operator_accepts_arguments_of_every_folder() {
    use clap::Parser;
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    for name in FOLDERS {
        let arguments = arguments(&documents(&build(cluster, name)));
        let parsed = Cli::try_parse_from(std::iter::once("steersman".to_owned()).chain(arguments));
        assert!(parsed.is_ok(), "{name}: {}", parsed.unwrap_err());
    }
}

#[tokio::test]
async fn base_equals_the_install_file() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let base = documents(&build(cluster, "base"));
    assert_eq!(identities(&base), identities(&documents(&install::file().unwrap())));
}

#[tokio::test]
async fn overlays_change_what_they_are_for() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespaced = documents(&build(cluster, "overlays/namespaced"));
    let expected = ["Deployment", "NetworkPolicy", "PodDisruptionBudget", "Role", "RoleBinding", "ServiceAccount"];
    assert_eq!(kinds(&namespaced), BTreeSet::from(expected), "nothing is cluster-wide");
    assert!(namespaced.iter().all(|object| object["metadata"]["namespace"] == "team-a"), "{namespaced:?}");
    let subjects = namespaced.iter().flat_map(|object| object["subjects"].as_array().into_iter().flatten());
    assert!(subjects.clone().count() >= 2 && subjects.into_iter().all(|subject| subject["namespace"] == "team-a"));

    let single = documents(&build(cluster, "overlays/single-family"));
    let crds: Vec<_> = single.iter().filter(|object| object["kind"] == "CustomResourceDefinition").collect();
    assert_eq!(crds.len(), 1);
    assert_eq!(crds[0]["metadata"]["name"], "variantautoscalings.llmd.ai");
    assert!(!kinds(&single).iter().any(|kind| kind.ends_with("WebhookConfiguration")));
    assert!(arguments(&single).contains(&"--controllers=va".to_owned()));
    let groups = single.iter().flat_map(|object| object["rules"].as_array().into_iter().flatten());
    let foreign = |rule: &Value| ["llamastack.io", "nvidia.com"].iter().any(|group| rule["apiGroups"][0] == *group);
    assert!(!groups.into_iter().any(foreign), "rules of other families");

    let with_cert_manager = documents(&build(cluster, "overlays/cert-manager"));
    let base = documents(&build(cluster, "base"));
    assert_eq!(with_cert_manager.len(), base.len() + 2, "an Issuer and a Certificate");
    let certificate = with_cert_manager.iter().find(|object| object["kind"] == "Certificate").unwrap();
    let deployment = with_cert_manager.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], certificate["spec"]["secretName"]);
    assert_eq!(certificate["spec"]["dnsNames"], json!([format!("steersman-webhook.{NAMESPACE}.svc")]));
    let injected = with_cert_manager.iter().filter(|object| {
        object["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] == "steersman-system/steersman-webhook"
    });
    let clients = with_cert_manager
        .iter()
        .filter(|object| !object["webhooks"].is_null() || !object["spec"]["conversion"]["webhook"].is_null());
    let names = |objects: Vec<&Value>| -> BTreeSet<String> {
        objects.iter().map(|object| format!("{} {}", object["kind"], object["metadata"]["name"])).collect()
    };
    assert_eq!(names(injected.collect()), names(clients.collect()), "every client of the webhooks gets the CA");
}
