//! Prepares a full cluster: permissions of kwok's user, volumes, and the policy that copies the annotations of a namespace
//! to its pods. Waits until the controllers work.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::Cluster;
use crate::pod_behaviour::{BEHAVIOUR_ANNOTATION, PodBehaviour};
use crate::{apply, wait};

/// The user of kwok, with the permissions of a kubelet.
pub(super) const KWOK_USER: &str = "steersman:kwok";

/// Number of volumes of a full cluster. A released volume is not reused.
const VOLUME_COUNT: usize = 40;
const VOLUME_SIZE: &str = "100Gi";

pub(super) async fn apply_rules(client: &Client) -> Result<()> {
    let files = [
        ("rules.yaml", include_str!("rules.yaml")),
        ("policy.yaml", include_str!("policy.yaml")),
        ("storage.yaml", include_str!("storage.yaml")),
    ];
    for (name, manifests) in files {
        apply::apply_manifests(client, None, manifests).await.with_context(|| format!("cannot apply {name}"))?;
    }
    create_volumes(client).await
}

/// Creates volumes. No data is ever written to them, because pods are simulated.
async fn create_volumes(client: &Client) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let create = (0..VOLUME_COUNT).map(|index| {
        let volume = json!({ "metadata": { "name": format!("stock-{index}") }, "spec": {
            "storageClassName": "stock", "capacity": { "storage": VOLUME_SIZE },
            "accessModes": ["ReadWriteOnce", "ReadWriteMany"], "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": { "path": format!("/stock/{index}") } } });
        let volumes = volumes.clone();
        async move { anyhow::Ok(volumes.create(&PostParams::default(), &serde_json::from_value(volume)?).await?) }
    });
    futures::future::try_join_all(create).await.context("cannot create the volumes")?;
    Ok(())
}

/// Waits until the policy is effective: the API server reads policies from a cache. A dry run of a pod shows whether the
/// policy applies.
pub(super) async fn wait_for_policy(client: &Client) -> Result<()> {
    let annotations =
        BTreeMap::from([(BEHAVIOUR_ANNOTATION.to_owned(), PodBehaviour::Pending.annotation_value().to_owned())]);
    let metadata =
        ObjectMeta { name: Some("steersman-probe".into()), annotations: Some(annotations), ..ObjectMeta::default() };
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "steersman-probe");
    let container = json!({ "name": "main", "image": "example.com/main:1" });
    // The namespace may not have its default service account yet.
    let spec =
        json!({ "serviceAccountName": "probe", "automountServiceAccountToken": false, "containers": [container] });
    let probe: Pod = serde_json::from_value(json!({ "metadata": { "name": "probe" }, "spec": spec }))?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "steersman-probe");
    let account = ServiceAccount {
        metadata: ObjectMeta { name: Some("probe".into()), ..ObjectMeta::default() },
        ..ServiceAccount::default()
    };
    accounts.create(&PostParams::default(), &account).await?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let mut last_error = None;
    let effect = wait::eventually("the policy copies annotations of a namespace to its pods", async || {
        match pods.create(&dry_run, &probe).await {
            Ok(answer) => answer.annotations().contains_key(BEHAVIOUR_ANNOTATION).then_some(()),
            Err(error) => {
                last_error = Some(error);
                None
            }
        }
    });
    let effect = effect.await;
    effect.map_err(|error| match last_error {
        Some(last_error) => error.context(last_error),
        None => error,
    })?;
    namespaces.delete("steersman-probe", &DeleteParams::default()).await?;
    Ok(())
}

/// Waits for the default service account of a namespace, which shows that the controller manager works.
pub(super) async fn wait_for_controllers(cluster: &mut Cluster) -> Result<()> {
    let result = cluster.wait_for_default_account("default").await;
    // If a program has ended, its error is more useful than the timeout.
    cluster.ensure_running()?;
    result.context("the controller manager does not work")
}
