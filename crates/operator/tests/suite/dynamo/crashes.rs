//! A crash, an error or silence at any call, and then again: one Job, one graph, and no result lost.

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Resource;
use kube::api::{ApiResource, ListParams};
use steersman_testkit::cut::{Cut, crash_everywhere};

use super::*;

async fn all(client: &Client, namespace: &str, resource: &ApiResource) -> Result<Vec<Value>> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let listed = api.list(&ListParams::default()).await?;
    Ok(listed.items.iter().map(serde_json::to_value).collect::<serde_json::Result<_>>()?)
}

/// Everything that a pass may have touched.
async fn snapshot(client: &Client, namespace: &Namespace) -> Result<Vec<Value>> {
    fn of<K: Resource<DynamicType = ()>>() -> ApiResource {
        ApiResource::erase::<K>(&())
    }
    let kinds = [
        of::<Job>(),
        of::<ConfigMap>(),
        of::<ServiceAccount>(),
        of::<RoleBinding>(),
        resource(Family::Dgd, VERSION),
        resource(Family::Dgdr, VERSION),
    ];
    let mut left = Vec::new();
    for kind in kinds {
        left.extend(all(client, namespace.name(), &kind).await?);
    }
    Ok(left)
}

#[tokio::test]
async fn a_request_comes_to_its_one_job_wherever_it_is_cut() {
    let Some((cluster, admin)) = with_crds().await else { return };
    let crashes = crash_everywhere(
        cluster,
        "crash-job",
        &Cut::ALL,
        async |namespace: &Namespace| create(&admin, namespace.name(), spec(json!({}))).await.map(|_| ()),
        async |client, namespace: &Namespace, ()| pass_once(cluster, client, namespace.name()).await.map(|_| ()),
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    )
    .await
    .unwrap();
    assert!(crashes.calls >= 8, "events, status, mark, account, binding, Job: {crashes:?}");
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
}

#[tokio::test]
async fn a_result_becomes_its_one_graph_wherever_it_is_cut() {
    let Some((cluster, admin)) = with_crds().await else { return };
    let prepare = async |namespace: &Namespace| {
        create(&admin, namespace.name(), spec(json!({}))).await?;
        while !matches!(pass_once(cluster, admin.clone(), namespace.name()).await?, Passed::Done { written: 0, .. }) {}
        let uid = requests(&admin, namespace.name()).get(NAME).await?.uid().unwrap();
        let data = json!({ "phase": "Done", "profiler_status": "success", "final_config.yaml": RESULT });
        deliver(&admin, namespace.name(), &uid, data).await;
        job_status(
            namespace,
            json!({ "succeeded": 1, "completionTime": "2026-11-16T06:01:00Z", "conditions": [
            { "type": "SuccessCriteriaMet", "status": "True" }, { "type": "Complete", "status": "True" }] }),
        )
        .await;
        Ok(())
    };
    let crashes = crash_everywhere(
        cluster,
        "crash-graph",
        &Cut::ALL,
        prepare,
        async |client, namespace: &Namespace, ()| pass_once(cluster, client, namespace.name()).await.map(|_| ()),
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    )
    .await
    .unwrap();
    assert!(crashes.calls >= 6, "annotations, status, ConfigMap, graph, mark, adoption: {crashes:?}");
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
}
