//! The operator as two pods behind its Service: failover and upgrade.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::real_node::RealCluster;
use steersman_testkit::real_node::scenario::{OPERATOR, OPERATOR_NAMESPACE};
use steersman_testkit::wait;

use crate::env::{exclusive, objects, wait_for_status};

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

async fn is_reconciled(cluster: &RealCluster, name: &str) {
    cluster.apply(&stopped_server(name).to_string()).await.unwrap();
    let observed = |status: &Value| status["phase"].as_str().is_some_and(|phase| !phase.is_empty());
    wait_for_status(cluster, Family::Llsd, name, "is reconciled", observed).await;
    objects(cluster, Family::Llsd).await.delete(name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn deleted_leader_is_replaced_by_other_replica() {
    let Some(exclusive) = exclusive().await else { return };
    let cluster = exclusive.cluster;
    let pods: Api<Pod> = api(cluster).await;
    let names = || async {
        let listed = pods.list(&ListParams::default().labels("app.kubernetes.io/name=steersman")).await.unwrap();
        listed.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    };
    let (before, first) = (names().await, leader(cluster).await);
    let other = before.iter().find(|name| !first.contains(name.as_str())).unwrap().clone();
    let pod = before
        .iter()
        .find(|name| first.contains(name.as_str()))
        .unwrap_or_else(|| panic!("{first} is none of {before:?}"));
    pods.delete(pod, &DeleteParams::default()).await.unwrap();
    let leases_other = wait::eventually("the other pod holds the Lease", async || {
        leader(cluster).await.contains(&other).then_some(())
    });
    leases_other.await.unwrap();
    is_reconciled(cluster, "after-failover").await;
    cluster.wait_for_rollout(OPERATOR_NAMESPACE, OPERATOR, 2).await.unwrap();
}

#[tokio::test]
async fn upgrade_to_other_tag_keeps_objects() {
    let Some(exclusive) = exclusive().await else { return };
    let cluster = exclusive.cluster;
    let deployments: Api<Deployment> = api(cluster).await;
    let image = |deployment: &Deployment| {
        deployment.spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers[0].image.clone().unwrap()
    };
    let old = image(&deployments.get(OPERATOR).await.unwrap());
    let kept = stopped_server("kept");
    cluster.apply(&kept.to_string()).await.unwrap();
    let new = format!("{}-next", old);
    assert!(!old.ends_with("-next"), "{old}");
    cluster.tag(&old, &new).await.unwrap();
    cluster.install_operator(&new).await.unwrap();
    assert_eq!(image(&deployments.get(OPERATOR).await.unwrap()), new);
    let spec = objects(cluster, Family::Llsd).await.get("kept").await.unwrap().data["spec"].clone();
    assert_eq!(spec["workload"]["replicas"], 0);
    is_reconciled(cluster, "after-upgrade").await;
    // The previous version is installed again for the other tests.
    cluster.install_operator(&old).await.unwrap();
    objects(cluster, Family::Llsd).await.delete("kept", &DeleteParams::default()).await.unwrap();
}
