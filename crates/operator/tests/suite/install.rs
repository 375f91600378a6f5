//! The shipped `install.yaml`: a real API server accepts every object of it, and its pods meet the level `restricted` of Pod
//! Security.

use std::collections::BTreeSet;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use steersman::install::{IMAGE, file};
use steersman::installation::NAMESPACE;
use steersman_testkit::{Flavour, shared_cluster, wait};

use crate::command::{kubectl, output_of};
use crate::installation::{FAMILIES, Installation, UsersObjects};
use crate::private_cluster::private_cluster;
use crate::shell::root;

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

/// The pods of Deployments and Jobs.
fn pods(documents: &[Value]) -> Vec<Value> {
    let templates = documents.iter().filter(|document| !document["spec"]["template"]["spec"].is_null());
    let pod = |document: &Value| {
        let mut pod = document["spec"]["template"].clone();
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        pod["metadata"]["name"] = document["metadata"]["name"].clone();
        pod
    };
    templates.map(pod).collect()
}

#[tokio::test]
async fn operator_pods_meet_restricted_level() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("restricted").await.unwrap();
    let label = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(cluster.admin().await.unwrap());
    namespaces.patch(namespace.name(), &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let create = |pod: &Value| {
        let path = folder.path().join("pod.json");
        std::fs::write(&path, pod.to_string()).unwrap();
        let create = ["create", "--dry-run=server", "--validate=strict", "-n", namespace.name(), "-f"];
        output_of(kubectl(cluster, &create).arg(&path))
    };
    let mut pods = pods(&documents(&file().unwrap()));
    if let Some(rendered) = crate::chart::render(&[]) {
        let of_chart = self::pods(&rendered);
        assert_eq!(of_chart.len(), 3, "the operator and two hooks");
        pods.extend(of_chart);
    }
    for pod in &pods {
        let account = pod["spec"]["serviceAccountName"].as_str().unwrap();
        let known =
            output_of(&mut kubectl(cluster, &["get", "serviceaccount", account, "-n", namespace.name()])).is_ok();
        if !known {
            output_of(&mut kubectl(cluster, &["create", "serviceaccount", account, "-n", namespace.name()])).ok();
        }
        create(pod).ok();
    }
    let mut pod = pods.remove(0);
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

/// CRDs with a conversion webhook.
const CONVERTED: [&str; 2] = ["llamastackdistributions.llamastack.io", "dynamographdeploymentrequests.nvidia.com"];

/// Objects of the file that have webhooks, with their CA bundles and generations.
fn webhook_clients(installation: &Installation) -> String {
    let kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations,customresourcedefinitions";
    let columns = "-o=jsonpath={range .items[*]}{.metadata.name}{\" \"}{.metadata.generation}{\" \"}\
                   {.webhooks[*].clientConfig.caBundle}{.spec.conversion.webhook.clientConfig.caBundle}{\"\\n\"}{end}";
    let listed = installation.kubectl(&["get", kinds, columns]).ok();
    let ours = |line: &&str| line.starts_with("steersman-") || CONVERTED.iter().any(|name| line.starts_with(name));
    listed.lines().filter(ours).map(|line| format!("{line}\n")).collect()
}

/// The file as it is in the repository, applied as the docs say, with the arguments, variables and account of its Deployment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn installed_file_runs_all_families() {
    let Some(private) = private_cluster().await else { return };
    let installation = Installation::new(private.cluster, NAMESPACE).await;
    let path = root().join("deploy/install.yaml").display().to_string();
    let apply = || installation.kubectl(&["apply", "--server-side", "-f", &path]).ok();
    apply();
    let folder = tempfile::tempdir().unwrap();
    let operator = installation.start_operator("installed", folder.path()).await;
    let trusted = async || {
        let clients = webhook_clients(&installation);
        let expected = steersman::admission::ALL.len() + CONVERTED.len();
        (clients.lines().count() == expected && clients.lines().all(|line| line.split(' ').nth(2) != Some("")))
            .then_some(clients)
    };
    let before = wait::eventually("every client of the webhooks has the CA", trusted).await.unwrap_or_else(|error| {
        panic!("{error}\n{}\n{}", webhook_clients(&installation), operator.log().text());
    });
    let generation = installation.deployment().await.metadata.generation;
    apply();
    assert_eq!(webhook_clients(&installation), before, "the file can be applied again without a change");
    assert_eq!(installation.deployment().await.metadata.generation, generation);

    let _forwarder = installation.forward_webhooks(&operator).await;
    installation.create_namespace("team-file").await;
    let users = UsersObjects::new(&installation, "team-file");
    users.create(&FAMILIES, &operator).await;
    users.wait_for_effects(&FAMILIES, &operator).await;
    users.delete(&FAMILIES).await;
    drop(operator);
    installation.kubectl(&["delete", "-f", &path, "--timeout=120s"]).ok();
}
