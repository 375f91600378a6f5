//! The operator, installed by the chart, as two pods behind its Service: webhooks, failover, upgrade and removal.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::real_node::RealCluster;
use steersman_testkit::real_node::scenario::{NAMESPACE, OPERATOR, OPERATOR_NAMESPACE};
use steersman_testkit::{apply, wait};

use crate::env::{exclusive, objects, shared, wait_for_status};
use crate::running_server::{RunningServer, assert_all_answered};

/// A server that names a Secret which does not exist. Only the webhook looks for it.
const INVALID_SERVER: &str = include_str!("../../../../examples/llamastack/invalid/secret-missing.yaml");

/// Labels of the operator's pods.
const OPERATOR_PODS: &str = "app.kubernetes.io/name=steersman";

async fn api<K>(cluster: &RealCluster) -> Api<K>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
    K::DynamicType: Default,
{
    Api::namespaced(cluster.cluster.admin().await.unwrap(), OPERATOR_NAMESPACE)
}

/// The pod that holds the Lease.
async fn leader(cluster: &RealCluster) -> String {
    let leases: Api<Lease> = api(cluster).await;
    let holder = wait::eventually("a pod holds the Lease", async || {
        let leases = leases.list(&ListParams::default()).await.ok()?;
        leases.items.into_iter().find_map(|lease| lease.spec?.holder_identity.filter(|holder| !holder.is_empty()))
    });
    holder.await.unwrap()
}

/// A server that is admitted through the webhook and reconciled by the leader. It needs no image.
fn stopped_server(name: &str) -> Value {
    json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": Family::Llsd.kind(), "metadata": { "name": name },
        "spec": { "distribution": { "name": "starter" }, "workload": { "replicas": 0 } } })
}

/// The same in the older version, which needs conversion.
fn older_stopped_server(name: &str) -> Value {
    json!({ "apiVersion": "llamastack.io/v1alpha1", "kind": Family::Llsd.kind(), "metadata": { "name": name },
        "spec": { "replicas": 0, "server": { "distribution": { "name": "starter" } } } })
}

async fn operator_pods(cluster: &RealCluster) -> Vec<Pod> {
    let pods: Api<Pod> = api(cluster).await;
    pods.list(&ListParams::default().labels(OPERATOR_PODS)).await.unwrap().items
}

/// The images of the operator's pods by their names. Pods that are being deleted are left out.
async fn running_pods(cluster: &RealCluster) -> BTreeMap<String, String> {
    let pods = operator_pods(cluster).await.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    pods.map(|pod| (pod.name_any(), pod.spec.unwrap().containers[0].image.clone().unwrap())).collect()
}

async fn operator_deployment(cluster: &RealCluster) -> Deployment {
    api(cluster).await.get(OPERATOR).await.unwrap()
}

/// The image of the operator, and the image that it gives to other pods.
async fn images(cluster: &RealCluster) -> (String, String) {
    let pod = operator_deployment(cluster).await.spec.unwrap().template.spec.unwrap();
    let container = &pod.containers[0];
    let variable = container.env.iter().flatten().find(|variable| variable.name == "OPERATOR_IMAGE").unwrap();
    (container.image.clone().unwrap(), variable.value.clone().unwrap())
}

async fn is_reconciled(cluster: &RealCluster, name: &str) {
    cluster.apply(&stopped_server(name).to_string()).await.unwrap();
    let observed = |status: &Value| status["phase"].as_str().is_some_and(|phase| !phase.is_empty());
    wait_for_status(cluster, Family::Llsd, name, "is reconciled", observed).await;
    objects(cluster, Family::Llsd).await.delete(name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn webhooks_behind_service_reject_and_convert() {
    let Some(shared) = shared().await else { return };
    let cluster = shared.cluster;
    let client = cluster.cluster.admin().await.unwrap();
    let slices: Api<EndpointSlice> = api(cluster).await;
    let of_service = ListParams::default().labels("kubernetes.io/service-name=steersman-webhook");
    // Pods of an earlier version may still be ending.
    let both_serve = wait::eventually("two pods are behind the Service of the webhooks", async || {
        let slices = slices.list(&of_service).await.ok()?.items;
        let ready = slices
            .into_iter()
            .flat_map(|slice| slice.endpoints)
            .filter(|endpoint| endpoint.conditions.as_ref().is_some_and(|conditions| conditions.ready == Some(true)));
        let backends: BTreeSet<String> = ready.filter_map(|endpoint| endpoint.target_ref?.name).collect();
        (backends.len() == 2 && backends == running_pods(cluster).await.keys().cloned().collect()).then_some(())
    });
    both_serve.await.unwrap();

    cluster.apply(&older_stopped_server("older").to_string()).await.unwrap();
    let newer = objects(cluster, Family::Llsd).await.get("older").await.unwrap();
    assert_eq!(newer.data["spec"]["distribution"]["name"], "starter", "{:#}", newer.data);
    assert_eq!(newer.data["spec"]["workload"]["replicas"], 0, "{:#}", newer.data);
    let kind = GroupVersionKind::gvk(Family::Llsd.group(), "v1alpha1", Family::Llsd.kind());
    let resource = ApiResource::from_gvk_with_plural(&kind, Family::Llsd.plural());
    let older: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &resource);
    let older = older.get("older").await.unwrap();
    assert_eq!(older.data["spec"]["server"]["distribution"]["name"], "starter", "{:#}", older.data);

    // The webhook was reached by the object before.
    let refusal = apply::apply_manifests(&client, Some(NAMESPACE), INVALID_SERVER).await.unwrap_err();
    let refusal = format!("{refusal:#}");
    assert!(refusal.contains("admission webhook"), "{refusal}");
    assert!(refusal.contains("Secret \"vllm-creds\" not found in namespace"), "{refusal}");
    objects(cluster, Family::Llsd).await.delete("older", &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn deleted_leader_is_replaced_by_other_replica() {
    let Some(exclusive) = exclusive().await else { return };
    let cluster = exclusive.cluster;
    // A pod of an earlier version may lead until it has ended.
    let leads = wait::eventually("a running pod holds the Lease", async || {
        let holder = leader(cluster).await;
        running_pods(cluster).await.into_keys().find(|name| holder.contains(name.as_str()))
    });
    let first = leads.await.unwrap();
    api::<Pod>(cluster).await.delete(&first, &DeleteParams::default()).await.unwrap();
    let leads = wait::eventually("another pod holds the Lease", async || {
        let holder = leader(cluster).await;
        let mut others = running_pods(cluster).await.into_keys().filter(|name| *name != first);
        others.find(|name| holder.contains(name.as_str()))
    });
    leads.await.unwrap();
    is_reconciled(cluster, "after-failover").await;
    cluster.wait_for_rollout(OPERATOR_NAMESPACE, OPERATOR, 2).await.unwrap();
}

#[tokio::test]
async fn helm_upgrade_keeps_servers_running() {
    let Some(exclusive) = exclusive().await else { return };
    let cluster = exclusive.cluster;
    let server = RunningServer::start(cluster).await;
    let pods = server.pods().await;
    cluster.apply(&stopped_server("kept").to_string()).await.unwrap();
    let (old, of_other_pods) = images(cluster).await;
    assert_eq!(old, of_other_pods);
    let new = format!("{old}-next");
    cluster.tag(&old, &new).await.unwrap();

    let load = server.start_load();
    cluster.install_operator(&new).await.unwrap();
    assert_eq!(images(cluster).await, (new.clone(), new.clone()));
    let running: Vec<String> = running_pods(cluster).await.into_values().collect();
    assert_eq!(running, [new.clone(), new]);
    let spec = objects(cluster, Family::Llsd).await.get("kept").await.unwrap().data["spec"].clone();
    assert_eq!(spec["workload"]["replicas"], 0);
    is_reconciled(cluster, "after-upgrade").await;
    assert_all_answered(&load.stop().await);
    assert_eq!(server.pods().await, pods, "the upgrade has replaced the server");

    // The previous version is installed again for the other tests.
    cluster.install_operator(&old).await.unwrap();
    objects(cluster, Family::Llsd).await.delete("kept", &DeleteParams::default()).await.unwrap();
}

/// Objects of users in all families. The image of the request does not exist, so that no profiler runs.
fn users_objects() -> [(Family, Value); 3] {
    let request = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": Family::Dgdr.kind(), "metadata": { "name": "kept" },
        "spec": { "model": "m", "backend": "vllm", "image": "localhost/absent:1.5.1",
            "hardware": { "gpuSku": "h100_sxm", "vramMb": 81920, "numGpusPerNode": 8, "totalGpus": 8 } } });
    let variant = json!({ "apiVersion": "llmd.ai/v1alpha1", "kind": Family::Va.kind(), "metadata": { "name": "kept" },
        "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "absent" }, "modelID": "m" } });
    [(Family::Llsd, older_stopped_server("kept")), (Family::Dgdr, request), (Family::Va, variant)]
}

/// Checks that nothing of the operator is left but the CRDs, which convert nothing any more.
async fn is_removed(cluster: &RealCluster) {
    let client = cluster.cluster.admin().await.unwrap();
    let ended = wait::eventually("the operator's pods have ended", async || {
        operator_pods(cluster).await.is_empty().then_some(())
    });
    ended.await.unwrap();
    let all = ListParams::default();
    let jobs = api::<Job>(cluster).await.list(&all).await.unwrap().items;
    assert!(jobs.is_empty(), "a hook has not succeeded: {jobs:#?}");
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let webhooks: Vec<_> = webhooks.list(&all).await.unwrap().items.iter().map(ResourceExt::name_any).collect();
    assert!(webhooks.is_empty(), "{webhooks:?}");
    let crds: Api<CustomResourceDefinition> = Api::all(client);
    for family in [Family::Llsd, Family::Dgdr] {
        let conversion = crds.get(family.crd_name()).await.unwrap().spec.conversion;
        assert_eq!(conversion.map_or_else(|| "None".to_owned(), |found| found.strategy), "None", "{family}");
    }
}

#[tokio::test]
async fn helm_uninstall_leaves_objects_and_servers() {
    let Some(exclusive) = exclusive().await else { return };
    let cluster = exclusive.cluster;
    let server = RunningServer::start(cluster).await;
    let pods = server.pods().await;
    for (family, manifest) in users_objects() {
        cluster.apply(&manifest.to_string()).await.unwrap();
        let observed =
            |status: &Value| status["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty());
        wait_for_status(cluster, family, "kept", "has conditions", observed).await;
    }
    let (image, _) = images(cluster).await;

    let load = server.start_load();
    cluster.uninstall_operator().await.unwrap();
    is_removed(cluster).await;
    for (family, _) in users_objects() {
        let objects = objects(cluster, family).await;
        let kept = objects.get("kept").await.unwrap();
        assert!(!kept.data["status"]["conditions"].as_array().unwrap().is_empty(), "{family}: {:#}", kept.data);
        let note = json!({ "metadata": { "annotations": { "example.com/seen": "yes" } } });
        objects.patch("kept", &PatchParams::default(), &Patch::Merge(note)).await.unwrap();
        objects.delete("kept", &DeleteParams::default()).await.unwrap();
        let deleted = async || objects.get_opt("kept").await.ok()?.is_none().then_some(());
        wait::eventually(&format!("{family} kept is deleted"), deleted).await.unwrap();
    }
    assert_all_answered(&load.stop().await);
    assert_eq!(server.pods().await, pods, "the removal has replaced the server");

    // It is installed again for the other tests, and finds the server as it was.
    cluster.install_operator(&image).await.unwrap();
    is_reconciled(cluster, "after-reinstall").await;
    server.chat().await;
    assert_eq!(server.pods().await, pods, "the installation has replaced the server");
}
