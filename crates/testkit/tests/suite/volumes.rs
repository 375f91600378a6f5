use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::PostParams;
use serde_json::json;
use steersman_testkit::{object, wait};

use crate::support::full_cluster;

#[tokio::test]
async fn claim_without_class_is_bound() {
    let cluster = full_cluster!();
    let namespace = cluster.namespace("claims").await.unwrap();
    let claim: PersistentVolumeClaim = object(json!({ "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "20Gi" } } } }));
    namespace.api().create(&PostParams::default(), &claim).await.unwrap();
    let is_bound = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
    };
    let bound = wait::until(namespace.api(), "data", "is bound", wait::TIMEOUT, is_bound).await.unwrap();
    assert!(bound.spec.unwrap().volume_name.unwrap().starts_with("stock-"));
}
