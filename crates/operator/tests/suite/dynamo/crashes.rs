//! A crash, an error or silence at any call, and then again: one Job, one graph, and no result lost.

use std::collections::HashMap;
use std::sync::Mutex;

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Resource;
use kube::api::{ApiResource, DeleteParams, ListParams};
use steersman_testkit::cut::{Calls, Crashes, Cut, crash_everywhere_and, stale_everywhere};

use super::*;

/// A process dies before a write, or after one without knowing.
const DEATHS: [Cut; 2] = [Cut::NotSent, Cut::AnswerLost];

/// The same, and what a process lives through: refused for a change, refused for no reason, no answer.
const CUTS: [Cut; 5] = [Cut::NotSent, Cut::AnswerLost, Cut::Status(409), Cut::Status(500), Cut::Timeout];

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

/// The Jobs and graphs that were ever seen, by namespace and name. Each is the only one of its name for ever.
#[derive(Default)]
struct Once(Mutex<HashMap<(String, String), String>>);

impl Once {
    async fn look(&self, client: &Client, namespace: &Namespace) -> Result<()> {
        for kind in [ApiResource::erase::<Job>(&()), resource(Family::Dgd, VERSION)] {
            for object in all(client, namespace.name(), &kind).await? {
                let (name, uid) = (&object["metadata"]["name"], object["metadata"]["uid"].to_string());
                let key = (namespace.name().to_owned(), format!("{} {name}", kind.kind));
                let first = self.0.lock().unwrap().entry(key.clone()).or_insert_with(|| uid.clone()).clone();
                anyhow::ensure!(first == uid, "{} was made twice", key.1);
            }
        }
        Ok(())
    }
}

/// Passes over what `prepare` left, with each of the cuts at each write.
async fn crashed(prefix: &str, cuts: &[Cut], prepare: impl AsyncFn(&Life<'_>) -> Result<()>) -> Option<Crashes> {
    let (cluster, admin) = with_crds().await?;
    let once = Once::default();
    let crashes = crash_everywhere_and(
        cluster,
        prefix,
        (Calls::Writes, cuts),
        async |namespace: &Namespace| {
            let life = Life { cluster, admin: &admin, namespace };
            prepare(&life).await?;
            Ok(())
        },
        async |client, namespace: &Namespace, ()| pass_once(cluster, client, namespace.name()).await.map(|_| ()),
        async |namespace: &Namespace| once.look(&admin, namespace).await,
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    );
    let crashes = crashes.await.unwrap();
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
    Some(crashes)
}

/// What happens to one request before the crash.
struct Life<'a> {
    cluster: &'a Cluster,
    admin: &'a Client,
    namespace: &'a Namespace,
}

impl Life<'_> {
    async fn begins(&self, more: Value) -> Result<()> {
        create(self.admin, self.namespace.name(), spec(more)).await.map(|_| ())
    }

    async fn settles(&self) -> Result<()> {
        let pass = async || pass_once(self.cluster, self.admin.clone(), self.namespace.name()).await;
        while !matches!(pass().await?, ReconcileOutcome::Reconciled { written: 0, .. }) {}
        Ok(())
    }

    async fn delivers(&self, data: Value) -> Result<()> {
        let uid = requests(self.admin, self.namespace.name()).get(NAME).await?.uid().unwrap();
        deliver(self.admin, self.namespace.name(), &uid, data).await;
        Ok(())
    }

    async fn job_ends(&self) {
        let conditions = json!([{ "type": "SuccessCriteriaMet", "status": "True" },
            { "type": "Complete", "status": "True" }]);
        let status = json!({ "succeeded": 1, "completionTime": "2026-11-16T06:01:00Z", "conditions": conditions });
        job_status(self.namespace, status).await;
    }

    /// The Job has a result, which nobody has looked at.
    async fn profiled(&self, more: Value) -> Result<()> {
        self.begins(more).await?;
        self.settles().await?;
        self.delivers(json!({ "phase": "Done", "profiler_status": "success", "final_config.yaml": RESULT })).await?;
        self.job_ends().await;
        Ok(())
    }

    fn graphs(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), self.namespace.name(), &resource(Family::Dgd, VERSION))
    }

    async fn deployed(&self) -> Result<()> {
        self.profiled(json!({})).await?;
        self.settles().await?;
        graph_status(&self.graphs(), "successful").await;
        self.settles().await
    }
}

#[tokio::test]
async fn a_request_comes_to_its_one_job_wherever_it_is_cut() {
    let crashes = crashed("crash-job", &CUTS, async |life| life.begins(json!({})).await);
    let Some(crashes) = crashes.await else { return };
    assert!(crashes.calls >= 7, "mark, account, binding, Job, two events, status: {crashes:?}");
}

#[tokio::test]
async fn a_result_becomes_its_one_graph_wherever_it_is_cut() {
    let crashes = crashed("crash-graph", &CUTS, async |life| life.profiled(json!({})).await);
    let Some(crashes) = crashes.await else { return };
    assert!(crashes.calls >= 6, "annotations, status, ConfigMap, graph, mark, adoption: {crashes:?}");
}

#[tokio::test]
async fn a_graph_that_is_asked_for_at_ready_is_made_once_wherever_it_is_cut() {
    let prepare = async |life: &Life<'_>| {
        life.profiled(json!({ "autoApply": false })).await?;
        life.settles().await?;
        let patch = Patch::Merge(json!({ "spec": { "autoApply": true } }));
        requests(life.admin, life.namespace.name()).patch(NAME, &PatchParams::default(), &patch).await?;
        Ok(())
    };
    let Some(crashes) = crashed("crash-ready", &DEATHS, prepare).await else { return };
    assert!(crashes.calls >= 4, "status, graph, mark, adoption: {crashes:?}");
}

#[tokio::test]
async fn a_verdict_is_told_wherever_it_is_cut() {
    let prepare = async |life: &Life<'_>| {
        life.begins(json!({})).await?;
        life.settles().await?;
        let data = json!({ "phase": "SweepingDecode", "profiler_status": "failed", "profiler_error": "no plan" });
        life.delivers(data).await?;
        life.job_ends().await;
        Ok(())
    };
    let Some(crashes) = crashed("crash-verdict", &DEATHS, prepare).await else { return };
    assert!(crashes.calls >= 2, "event, status: {crashes:?}");
}

#[tokio::test]
async fn a_degraded_graph_stays_the_same_wherever_it_is_cut() {
    let prepare = async |life: &Life<'_>| {
        life.deployed().await?;
        graph_status(&life.graphs(), "pending").await;
        Ok(())
    };
    let Some(crashes) = crashed("crash-degraded", &DEATHS, prepare).await else { return };
    assert!(crashes.calls >= 2, "event, status: {crashes:?}");
}

#[tokio::test]
async fn a_deleted_graph_is_not_made_again_wherever_it_is_cut() {
    let prepare = async |life: &Life<'_>| {
        life.deployed().await?;
        life.graphs().delete(GRAPH, &DeleteParams::default()).await?;
        Ok(())
    };
    let Some(crashes) = crashed("crash-deleted", &DEATHS, prepare).await else { return };
    assert!(crashes.calls >= 2, "event, status: {crashes:?}");
}

#[tokio::test]
async fn a_job_that_somebody_deleted_is_made_again_once_wherever_it_is_cut() {
    let prepare = async |life: &Life<'_>| {
        life.begins(json!({})).await?;
        life.settles().await?;
        life.delivers(json!({ "phase": "SweepingDecode", "message": "Benchmarking 1/2" })).await?;
        life.settles().await?;
        life.namespace.all::<Job>().delete("profile-qwen", &DeleteParams::background()).await?;
        Ok(())
    };
    let Some(crashes) = crashed("crash-again", &DEATHS, prepare).await else { return };
    assert!(crashes.calls >= 4, "old output, Job, event, status: {crashes:?}");
}

/// A Job may be gone with its work done before the operator is back.
#[tokio::test]
async fn a_result_is_not_lost_with_a_job_that_nobody_saw_wherever_it_is_cut() {
    let prepare = async |life: &Life<'_>| {
        life.begins(json!({})).await?;
        while life.namespace.all::<Job>().get_opt("profile-qwen").await?.is_none() {
            pass_once(life.cluster, life.admin.clone(), life.namespace.name()).await?;
        }
        life.delivers(json!({ "phase": "Done", "profiler_status": "success", "final_config.yaml": RESULT })).await?;
        life.namespace.all::<Job>().delete("profile-qwen", &DeleteParams::background()).await?;
        Ok(())
    };
    let Some(crashes) = crashed("crash-unseen", &DEATHS, prepare).await else { return };
    assert!(crashes.calls >= 6, "status, annotations, ConfigMap, graph, mark, adoption: {crashes:?}");
}

/// The request and its children as a watch has them; what no watch keeps is asked for.
struct View {
    object: DynamicObject,
    cache: Arc<Cache>,
}

async fn view(cluster: &Cluster, client: &Client, namespace: &str) -> Result<View> {
    let object = requests(client, namespace).get(NAME).await?;
    let cache = Arc::new(Cache::new(family().children()));
    cache.fill(&server(cluster, client.clone()), &Scope::Namespace(namespace.to_owned())).await?;
    Ok(View { object, cache })
}

async fn pass_on(cluster: &Cluster, client: Client, view: &View) -> Result<()> {
    let server = server(cluster, client);
    let context = ReconcileContext { cache: view.cache.clone(), ..ReconcileContext::new(&family(), server, "test") };
    reconcile(&family(), &context, &view.object).await.map(|_| ()).context("a pass")
}

/// From the request to the graph, and on: `change` is what happens when all has settled.
async fn held_back(
    prefix: &str,
    prepare: impl AsyncFn(&Life<'_>) -> Result<()>,
    change: impl AsyncFn(&Life<'_>) -> Result<()>,
) -> Option<Crashes> {
    let (cluster, admin) = with_crds().await?;
    let once = Once::default();
    let crashes = stale_everywhere(
        cluster,
        prefix,
        async |namespace: &Namespace| prepare(&Life { cluster, admin: &admin, namespace }).await,
        async |namespace: &Namespace| change(&Life { cluster, admin: &admin, namespace }).await,
        async |namespace: &Namespace| {
            once.look(&admin, namespace).await?;
            view(cluster, &admin, namespace.name()).await
        },
        async |client, view: &View| pass_on(cluster, client, view).await,
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    );
    let crashes = crashes.await.unwrap();
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
    Some(crashes)
}

#[tokio::test]
async fn a_watch_that_is_held_back_leads_to_no_second_job_and_no_second_graph() {
    let deliver = async |life: &Life<'_>| {
        life.delivers(json!({ "phase": "Done", "profiler_status": "success", "final_config.yaml": RESULT })).await?;
        life.job_ends().await;
        Ok(())
    };
    let begin = async |life: &Life<'_>| life.begins(json!({})).await;
    let Some(crashes) = held_back("stale-life", begin, deliver).await else { return };
    assert!(crashes.runs >= 5, "Job, nothing, graph, adoption, nothing: {crashes:?}");
}

#[tokio::test]
async fn a_watch_that_is_held_back_brings_no_deleted_graph_back() {
    let serve = async |life: &Life<'_>| {
        life.profiled(json!({})).await?;
        life.settles().await?;
        graph_status(&life.graphs(), "successful").await;
        Ok(())
    };
    let delete = async |life: &Life<'_>| {
        life.graphs().delete(GRAPH, &DeleteParams::default()).await?;
        Ok(())
    };
    let Some(crashes) = held_back("stale-deleted", serve, delete).await else { return };
    assert!(crashes.runs >= 3, "{crashes:?}");
}
