//! What a full cluster holds before anyone uses it: rights of kwok's own user, the policy that lets a namespace steer its
//! pods, and proof that the controllers are at work.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::Cluster;
use crate::play::{PLAY, Play};
use crate::{apply, wait};

/// The user that kwok acts as: it has what a kubelet needs and no more.
pub(super) const KWOK_USER: &str = "steersman:kwok";

/// How many volumes a full cluster has to hand out, and how large each is. A volume that was used is not used again.
const VOLUMES: usize = 40;
const VOLUME_SIZE: &str = "100Gi";

pub(super) async fn apply_rules(client: &Client) -> Result<()> {
    let files = [
        ("rules.yaml", include_str!("rules.yaml")),
        ("policy.yaml", include_str!("policy.yaml")),
        ("storage.yaml", include_str!("storage.yaml")),
    ];
    for (name, manifests) in files {
        apply::manifests(client, None, manifests).await.with_context(|| format!("cannot apply {name}"))?;
    }
    stock_volumes(client).await
}

/// Nothing is ever written to them: pods are played, not run.
async fn stock_volumes(client: &Client) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let create = (0..VOLUMES).map(|index| {
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

/// The API server reads policies from a cache: until it has seen ours, pods slip past. A pod that is created but not kept
/// shows when it has.
pub(super) async fn wait_for_policy(client: &Client) -> Result<()> {
    let annotations = BTreeMap::from([(PLAY.to_owned(), Play::Pending.value().to_owned())]);
    let metadata =
        ObjectMeta { name: Some("steersman-probe".into()), annotations: Some(annotations), ..ObjectMeta::default() };
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "steersman-probe");
    let container = json!({ "name": "main", "image": "example.com/main:1" });
    // The account is named because the namespace may not have its default one yet.
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
    let mut refused = None;
    let effect = wait::eventually("the policy that lets a namespace steer its pods has an effect", async || match pods
        .create(&dry_run, &probe)
        .await
    {
        Ok(answer) => answer.annotations().contains_key(PLAY).then_some(()),
        Err(error) => {
            refused = Some(error);
            None
        }
    });
    let effect = effect.await;
    effect.map_err(|error| match refused {
        Some(refused) => error.context(refused),
        None => error,
    })?;
    namespaces.delete("steersman-probe", &DeleteParams::default()).await?;
    Ok(())
}

/// The first thing that a working controller manager does in a new cluster is to give namespaces their default account.
pub(super) async fn wait_for_controllers(cluster: &mut Cluster) -> Result<()> {
    let waited = cluster.wait_for_default_account("default").await;
    // A program that ended explains the wait better than the wait itself.
    cluster.ensure_running()?;
    waited.context("the controller manager does not work")
}
