//! Requests after a crash, an error or a timeout at each write: exactly one Job, one graph, and no lost result.

use std::collections::HashMap;
use std::sync::Mutex;

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Resource;
use kube::api::{ApiResource, DeleteParams, ListParams};
use steersman_testkit::fault_injection::{
    CallFault, CountedCalls, SweepReport, crash_at_every_call_with_invariant, stale_view_at_every_reconcile,
};

use super::*;

/// Process deaths: before a write, or after it and before its response.
const CRASHES: [CallFault; 2] = [CallFault::NotSent, CallFault::ResponseLost];

/// Process deaths and failed calls: a conflict, a server error, a timeout.
const FAULTS: [CallFault; 5] =
    [CallFault::NotSent, CallFault::ResponseLost, CallFault::Status(409), CallFault::Status(500), CallFault::Timeout];

async fn list_all(client: &Client, namespace: &str, resource: &ApiResource) -> Result<Vec<Value>> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let listed = api.list(&ListParams::default()).await?;
    Ok(listed.items.iter().map(serde_json::to_value).collect::<serde_json::Result<_>>()?)
}

/// Every object that a reconcile may write.
async fn snapshot(client: &Client, namespace: &Namespace) -> Result<Vec<Value>> {
    fn of<K: Resource<DynamicType = ()>>() -> ApiResource {
        ApiResource::erase::<K>(&())
    }
    let kinds = [
        of::<Job>(),
        of::<ConfigMap>(),
        of::<ServiceAccount>(),
        of::<RoleBinding>(),
        api_resource(Family::Dgd, VERSION),
        api_resource(Family::Dgdr, VERSION),
    ];
    let mut objects = Vec::new();
    for kind in kinds {
        objects.extend(list_all(client, namespace.name(), &kind).await?);
    }
    Ok(objects)
}

/// The UIDs of all observed Jobs and graphs, by namespace and name. A second UID for a name means a duplicate.
#[derive(Default)]
struct UniqueObjects(Mutex<HashMap<(String, String), String>>);

impl UniqueObjects {
    async fn check(&self, client: &Client, namespace: &Namespace) -> Result<()> {
        for kind in [ApiResource::erase::<Job>(&()), api_resource(Family::Dgd, VERSION)] {
            for object in list_all(client, namespace.name(), &kind).await? {
                let (name, uid) = (&object["metadata"]["name"], object["metadata"]["uid"].to_string());
                let key = (namespace.name().to_owned(), format!("{} {name}", kind.kind));
                let first = self.0.lock().unwrap().entry(key.clone()).or_insert_with(|| uid.clone()).clone();
                anyhow::ensure!(first == uid, "{} was created twice", key.1);
            }
        }
        Ok(())
    }
}

/// Reconciles the request from `prepare` with each of `faults` at each write.
async fn run_with_faults(
    prefix: &str,
    faults: &[CallFault],
    prepare: impl AsyncFn(&RequestFixture<'_>) -> Result<()>,
) -> Option<SweepReport> {
    let (cluster, admin) = cluster_with_crds().await?;
    let unique = UniqueObjects::default();
    let crashes = crash_at_every_call_with_invariant(
        cluster,
        prefix,
        (CountedCalls::Writes, faults),
        async |namespace: &Namespace| {
            let fixture = RequestFixture { cluster, admin: &admin, namespace };
            prepare(&fixture).await?;
            Ok(())
        },
        async |client, namespace: &Namespace, ()| reconcile_once(cluster, client, namespace.name()).await.map(|_| ()),
        async |namespace: &Namespace| unique.check(&admin, namespace).await,
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    );
    let crashes = crashes.await.unwrap();
    assert!(crashes.failures.is_empty(), "{:#?}", crashes.failures);
    Some(crashes)
}

/// Brings one request to the state in which the faults begin.
struct RequestFixture<'a> {
    cluster: &'a Cluster,
    admin: &'a Client,
    namespace: &'a Namespace,
}

impl RequestFixture<'_> {
    async fn create_request(&self, overrides: Value) -> Result<()> {
        create(self.admin, self.namespace.name(), spec(overrides)).await.map(|_| ())
    }

    async fn settle(&self) -> Result<()> {
        let reconcile = async || reconcile_once(self.cluster, self.admin.clone(), self.namespace.name()).await;
        while !matches!(reconcile().await?, ReconcileOutcome::Reconciled { written: 0, .. }) {}
        Ok(())
    }

    async fn deliver_output(&self, data: Value) -> Result<()> {
        let uid = requests(self.admin, self.namespace.name()).get(NAME).await?.uid().unwrap();
        deliver_output(self.admin, self.namespace.name(), &uid, data).await;
        Ok(())
    }

    async fn complete_job(&self) {
        let conditions = json!([{ "type": "SuccessCriteriaMet", "status": "True" },
            { "type": "Complete", "status": "True" }]);
        let status = json!({ "succeeded": 1, "completionTime": "2026-11-16T06:01:00Z", "conditions": conditions });
        patch_job_status(self.namespace, status).await;
    }

    /// Completes the Job with a result that no reconcile has observed yet.
    async fn profile(&self, overrides: Value) -> Result<()> {
        self.create_request(overrides).await?;
        self.settle().await?;
        self.deliver_output(
            json!({ "phase": "Done", "profiler_status": "success", "final_config.yaml": SAMPLE_RESULT }),
        )
        .await?;
        self.complete_job().await;
        Ok(())
    }

    fn graphs(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), self.namespace.name(), &api_resource(Family::Dgd, VERSION))
    }

    async fn deploy(&self) -> Result<()> {
        self.profile(json!({})).await?;
        self.settle().await?;
        patch_graph_status(&self.graphs(), "successful").await;
        self.settle().await
    }
}

#[tokio::test]
async fn new_request_creates_one_job_despite_crashes() {
    let crashes = run_with_faults("crash-job", &FAULTS, async |request| request.create_request(json!({})).await);
    let Some(crashes) = crashes.await else { return };
    assert!(crashes.calls >= 7, "annotation, account, binding, Job, two events, status: {crashes:?}");
}

#[tokio::test]
async fn profiling_result_creates_one_graph_despite_crashes() {
    let crashes = run_with_faults("crash-graph", &FAULTS, async |request| request.profile(json!({})).await);
    let Some(crashes) = crashes.await else { return };
    assert!(crashes.calls >= 6, "annotations, status, ConfigMap, graph, annotation, adoption: {crashes:?}");
}

#[tokio::test]
async fn late_auto_apply_creates_one_graph_despite_crashes() {
    let prepare = async |request: &RequestFixture<'_>| {
        request.profile(json!({ "autoApply": false })).await?;
        request.settle().await?;
        let patch = Patch::Merge(json!({ "spec": { "autoApply": true } }));
        requests(request.admin, request.namespace.name()).patch(NAME, &PatchParams::default(), &patch).await?;
        Ok(())
    };
    let Some(crashes) = run_with_faults("crash-ready", &CRASHES, prepare).await else { return };
    assert!(crashes.calls >= 4, "status, graph, annotation, adoption: {crashes:?}");
}

#[tokio::test]
async fn profiler_failure_is_reported_despite_crashes() {
    let prepare = async |request: &RequestFixture<'_>| {
        request.create_request(json!({})).await?;
        request.settle().await?;
        let data = json!({ "phase": "SweepingDecode", "profiler_status": "failed", "profiler_error": "no plan" });
        request.deliver_output(data).await?;
        request.complete_job().await;
        Ok(())
    };
    let Some(crashes) = run_with_faults("crash-verdict", &CRASHES, prepare).await else { return };
    assert!(crashes.calls >= 2, "event, status: {crashes:?}");
}

#[tokio::test]
async fn degraded_graph_is_reported_despite_crashes() {
    let prepare = async |request: &RequestFixture<'_>| {
        request.deploy().await?;
        patch_graph_status(&request.graphs(), "pending").await;
        Ok(())
    };
    let Some(crashes) = run_with_faults("crash-degraded", &CRASHES, prepare).await else { return };
    assert!(crashes.calls >= 2, "event, status: {crashes:?}");
}

#[tokio::test]
async fn deleted_graph_is_not_recreated_despite_crashes() {
    let prepare = async |request: &RequestFixture<'_>| {
        request.deploy().await?;
        request.graphs().delete(GRAPH, &DeleteParams::default()).await?;
        Ok(())
    };
    let Some(crashes) = run_with_faults("crash-deleted", &CRASHES, prepare).await else { return };
    assert!(crashes.calls >= 2, "event, status: {crashes:?}");
}

#[tokio::test]
async fn deleted_job_is_recreated_once_despite_crashes() {
    let prepare = async |request: &RequestFixture<'_>| {
        request.create_request(json!({})).await?;
        request.settle().await?;
        request.deliver_output(json!({ "phase": "SweepingDecode", "message": "Benchmarking 1/2" })).await?;
        request.settle().await?;
        request.namespace.api::<Job>().delete("profile-qwen", &DeleteParams::background()).await?;
        Ok(())
    };
    let Some(crashes) = run_with_faults("crash-again", &CRASHES, prepare).await else { return };
    assert!(crashes.calls >= 4, "old output, Job, event, status: {crashes:?}");
}

/// A Job may finish and be deleted while the operator is down.
#[tokio::test]
async fn result_of_unobserved_job_survives_crashes() {
    let prepare = async |request: &RequestFixture<'_>| {
        request.create_request(json!({})).await?;
        while request.namespace.api::<Job>().get_opt("profile-qwen").await?.is_none() {
            reconcile_once(request.cluster, request.admin.clone(), request.namespace.name()).await?;
        }
        request
            .deliver_output(
                json!({ "phase": "Done", "profiler_status": "success", "final_config.yaml": SAMPLE_RESULT }),
            )
            .await?;
        request.namespace.api::<Job>().delete("profile-qwen", &DeleteParams::background()).await?;
        Ok(())
    };
    let Some(crashes) = run_with_faults("crash-unseen", &CRASHES, prepare).await else { return };
    assert!(crashes.calls >= 6, "status, annotations, ConfigMap, graph, annotation, adoption: {crashes:?}");
}

/// A cached state of the request and its children.
struct View {
    object: DynamicObject,
    cache: Arc<Cache>,
}

async fn view(cluster: &Cluster, client: &Client, namespace: &str) -> Result<View> {
    let object = requests(client, namespace).get(NAME).await?;
    let cache = Arc::new(Cache::new(reconciler().children()));
    cache.fill(&server(cluster, client.clone()), &Scope::Namespace(namespace.to_owned())).await?;
    Ok(View { object, cache })
}

async fn reconcile_view(cluster: &Cluster, client: Client, view: &View) -> Result<()> {
    let server = server(cluster, client);
    let context =
        ReconcileContext { cache: view.cache.clone(), ..ReconcileContext::new(&reconciler(), server, "test") };
    reconcile(&reconciler(), &context, &view.object).await.map(|_| ()).context("reconcile failed")
}

/// Reconciles from stale caches, first after `prepare` and then after `change`.
async fn run_with_stale_cache(
    prefix: &str,
    prepare: impl AsyncFn(&RequestFixture<'_>) -> Result<()>,
    change: impl AsyncFn(&RequestFixture<'_>) -> Result<()>,
) -> Option<SweepReport> {
    let (cluster, admin) = cluster_with_crds().await?;
    let unique = UniqueObjects::default();
    let crashes = stale_view_at_every_reconcile(
        cluster,
        prefix,
        async |namespace: &Namespace| prepare(&RequestFixture { cluster, admin: &admin, namespace }).await,
        async |namespace: &Namespace| change(&RequestFixture { cluster, admin: &admin, namespace }).await,
        async |namespace: &Namespace| {
            unique.check(&admin, namespace).await?;
            view(cluster, &admin, namespace.name()).await
        },
        async |client, view: &View| reconcile_view(cluster, client, view).await,
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    );
    let crashes = crashes.await.unwrap();
    assert!(crashes.failures.is_empty(), "{:#?}", crashes.failures);
    Some(crashes)
}

#[tokio::test]
async fn stale_cache_creates_no_duplicate_job_or_graph() {
    let finish_profiling = async |request: &RequestFixture<'_>| {
        request
            .deliver_output(
                json!({ "phase": "Done", "profiler_status": "success", "final_config.yaml": SAMPLE_RESULT }),
            )
            .await?;
        request.complete_job().await;
        Ok(())
    };
    let create = async |request: &RequestFixture<'_>| request.create_request(json!({})).await;
    let Some(crashes) = run_with_stale_cache("stale-life", create, finish_profiling).await else { return };
    assert!(crashes.runs >= 5, "Job, nothing, graph, adoption, nothing: {crashes:?}");
}

#[tokio::test]
async fn stale_cache_does_not_recreate_deleted_graph() {
    let deploy = async |request: &RequestFixture<'_>| {
        request.profile(json!({})).await?;
        request.settle().await?;
        patch_graph_status(&request.graphs(), "successful").await;
        Ok(())
    };
    let delete = async |request: &RequestFixture<'_>| {
        request.graphs().delete(GRAPH, &DeleteParams::default()).await?;
        Ok(())
    };
    let Some(crashes) = run_with_stale_cache("stale-deleted", deploy, delete).await else { return };
    assert!(crashes.runs >= 3, "{crashes:?}");
}
