//! The shipped `install.yaml`: a real API server accepts every object of it, and its pods meet the level `restricted` of Pod
//! Security.

use std::collections::BTreeSet;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use steersman::install::{IMAGE, file};
use steersman::installation::{NAME, NAMESPACE};
use steersman_testkit::{Flavour, shared_cluster};

use crate::command::{kubectl, output_of};

fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

fn find<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    documents.iter().find(|document| document["kind"] == kind).unwrap_or_else(|| panic!("there is no {kind}"))
}

#[tokio::test]
async fn api_server_accepts_every_installed_object() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("install").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("install.yaml");
    // The namespace of the operator may not exist, and a dry run does not create it.
    let text = file().unwrap().replace(NAMESPACE, namespace.name());
    std::fs::write(&path, &text).unwrap();
    let apply =
        ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-o", "name", "-f"];
    let accepted = output_of(kubectl(cluster, &apply).arg(&path)).ok();
    assert_eq!(accepted.lines().count(), documents(&text).len(), "{accepted}");
    let kinds: BTreeSet<_> = accepted.lines().filter_map(|line| line.split('/').next()).collect();
    for kind in [
        "namespace",
        "serviceaccount",
        "clusterrole.rbac.authorization.k8s.io",
        "rolebinding.rbac.authorization.k8s.io",
        "customresourcedefinition.apiextensions.k8s.io",
        "networkpolicy.networking.k8s.io",
        "service",
        "poddisruptionbudget.policy",
        "deployment.apps",
        "validatingwebhookconfiguration.admissionregistration.k8s.io",
        "mutatingwebhookconfiguration.admissionregistration.k8s.io",
    ] {
        assert!(kinds.contains(kind), "{kind}: {accepted}");
    }
}

#[tokio::test]
async fn operator_pods_meet_restricted_level() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("restricted").await.unwrap();
    let label = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(cluster.admin().await.unwrap());
    namespaces.patch(namespace.name(), &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    let deployment = find(&documents(&file().unwrap()), "Deployment").clone();
    let mut pod = deployment["spec"]["template"].clone();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = NAME.into();
    output_of(&mut kubectl(cluster, &["create", "serviceaccount", NAME, "-n", namespace.name()])).ok();
    let folder = tempfile::tempdir().unwrap();
    let create = |pod: &Value| {
        let path = folder.path().join("pod.json");
        std::fs::write(&path, pod.to_string()).unwrap();
        let create = ["create", "--dry-run=server", "--validate=strict", "-n", namespace.name(), "-f"];
        output_of(kubectl(cluster, &create).arg(&path))
    };
    create(&pod).ok();
    // The level is enforced: the same pod without its security context is rejected.
    pod["spec"]["containers"][0]["securityContext"] = json!({});
    let rejected = create(&pod);
    assert!(rejected.stderr.contains("violates PodSecurity \"restricted"), "{}", rejected.stderr);
}

#[test]
fn installed_pods_know_their_image_and_serve_the_webhooks() {
    let documents = documents(&file().unwrap());
    let deployment = &find(&documents, "Deployment")["spec"];
    let container = &deployment["template"]["spec"]["containers"][0];
    assert_eq!((&deployment["replicas"], &container["image"]), (&json!(2), &json!(IMAGE)));
    let image = container["env"].as_array().unwrap().iter().find(|env| env["name"] == "OPERATOR_IMAGE").unwrap();
    assert_eq!(image["value"], IMAGE, "profiling Jobs wait without it");
    let service = find(&documents, "Service");
    let target = &service["spec"]["ports"][0];
    let ports = container["ports"].as_array().unwrap();
    assert!(ports.iter().any(|port| port["containerPort"] == target["targetPort"]), "{target}");
    assert_eq!(service["spec"]["selector"], deployment["template"]["metadata"]["labels"]);
    let webhooks = documents.iter().filter(|document| !document["webhooks"].is_null());
    let crds = documents.iter().filter(|document| !document["spec"]["conversion"]["webhook"].is_null());
    let clients = webhooks
        .flat_map(|document| document["webhooks"].as_array().unwrap())
        .map(|webhook| &webhook["clientConfig"]["service"])
        .chain(crds.map(|crd| &crd["spec"]["conversion"]["webhook"]["clientConfig"]["service"]));
    for client in clients {
        assert_eq!((&client["name"], &client["namespace"]), (&service["metadata"]["name"], &json!(NAMESPACE)));
        assert_eq!(client["port"], target["port"]);
    }
}
