//! A controller that follows the Secrets and ConfigMaps that its objects refer to, under the operator's ServiceAccount
//! with the role for `--secrets watch`. A change triggers a reconcile; without a change, nothing is read.

mod config_maps;
mod operator_config;
mod permissions;

use std::sync::{Arc, Mutex};

use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::{Value, json};
use steersman::controllers::{self, OperatorContext};
use steersman::installation::{Installation, NAME, NAMESPACE, SecretAccess};
use steersman::metrics::FamilyMetrics;
use steersman::rbac::RbacArgs;
use steersman_api::Family;
use steersman_reconcile::NamespacedName;
use steersman_runtime::client::Server;
use steersman_runtime::controller::ControllerContext;
use steersman_runtime::http::Inside;
use steersman_runtime::store::Scope;
use steersman_runtime::store::references::{ReferenceKind, ReferenceStore};
use steersman_runtime::telemetry::metrics::Metrics;
use steersman_testkit::{Cluster, ExclusiveCluster, Flavour, Namespace, condition, exclusive_cluster, object, wait};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::process::operator::TestInstallation;
use crate::schemas::{api_resource, install_crd, single_version_crd, uninstall_crd};
use crate::server::server;

const VERSION: &str = "v1alpha2";

struct TestEnv {
    cluster: &'static Cluster,
    admin: Client,
    namespace: Namespace,
    /// The shipped roles. No other operator may run on the cluster at the same time.
    _installation: TestInstallation,
    _exclusive: ExclusiveCluster,
}

async fn test_env(prefix: &str) -> Option<TestEnv> {
    let exclusive = exclusive_cluster(Flavour::Bare).await?;
    let cluster = exclusive.cluster;
    let roles = RbacArgs { secrets: SecretAccess::Watch, ..RbacArgs::default() };
    let installation = TestInstallation::create_with(cluster, &roles).await;
    let admin = cluster.admin().await.unwrap();
    install_crd(&admin, &single_version_crd(Family::Llsd, VERSION), &api_resource(Family::Llsd, VERSION)).await;
    let namespace = cluster.namespace(prefix).await.unwrap();
    Some(TestEnv { cluster, admin, namespace, _installation: installation, _exclusive: exclusive })
}

/// A running controller, with its metrics and calls.
struct RunningController {
    metrics: Arc<Metrics>,
    sent: RecordedCalls,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// The calls of a client, as in `GET /api/v1/namespaces/a/secrets/b`.
#[derive(Clone, Default)]
struct RecordedCalls(Arc<Mutex<Vec<String>>>);

impl RecordedCalls {
    /// Wraps the client so that each call is recorded.
    fn around(&self, client: &Client) -> Client {
        let (inner, sent) = (client.clone(), self.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, call) = (inner.clone(), format!("{} {}", request.method(), request.uri().path()));
            sent.0.lock().unwrap().push(call);
            async move { Ok::<_, tower::BoxError>(client.send(request).await?) }
        });
        Client::new(service, client.default_namespace().to_owned())
    }
}

impl RunningController {
    fn calls(&self) -> usize {
        self.sent.0.lock().unwrap().len()
    }

    fn calls_since(&self, count: usize) -> Vec<String> {
        self.sent.0.lock().unwrap()[count..].to_vec()
    }

    /// Number of completed reconciles.
    fn reconciles(&self) -> usize {
        let text = self.metrics.text().unwrap();
        let line = text.lines().find_map(|line| {
            line.strip_prefix("controller_runtime_reconcile_time_seconds_count{controller=\"llsd\"} ")
        });
        line.map_or(0, |count| count.parse().unwrap())
    }

    /// Whether any reconcile requested a requeue after some time.
    fn has_timed_requeue(&self) -> bool {
        self.metrics.text().unwrap().contains("result=\"requeue_after\"")
    }

    async fn until_reconciles(&self, count: usize) {
        let enough = async || (self.reconciles() >= count).then_some(());
        wait::eventually(&format!("{count} reconciles"), enough).await.unwrap();
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

impl TestEnv {
    async fn account(&self) -> Client {
        self.cluster.service_account(NAMESPACE, NAME).await.unwrap()
    }

    fn server(&self, client: Client) -> Server {
        server(self.cluster, client)
    }

    /// Runs a controller that watches Secrets.
    fn run(&self, client: &Client, scope: Scope) -> RunningController {
        self.run_with(client, scope, Installation { secrets: SecretAccess::Watch, ..Installation::default() })
    }

    fn run_with(&self, client: &Client, scope: Scope, installation: Installation) -> RunningController {
        let sent = RecordedCalls::default();
        let server = self.server(sent.around(client));
        let (metrics, families) = Metrics::new(Timestamp::now(), FamilyMetrics::register);
        let metrics = Arc::new(metrics);
        let context = OperatorContext {
            controller: ControllerContext { server, scope, identity: "test".into(), metrics: metrics.clone() },
            metrics: families,
            installation,
            inside: steersman::llamastack::observe::server::http(Inside { through: None }).unwrap(),
            requests: Default::default(),
            image_labels: false,
            fleet: Default::default(),
            fleet_debounce: Default::default(),
        };
        let stop = CancellationToken::new();
        let task = tokio::spawn(controllers::run(Family::Llsd, context, stop.clone()));
        RunningController { metrics, sent, stop, task }
    }

    fn objects(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), self.namespace.name(), &api_resource(Family::Llsd, VERSION))
    }

    async fn create(&self, name: &str, spec: Value) {
        let distribution: DynamicObject = object(json!({ "apiVersion": "llamastack.io/v1alpha2",
            "kind": "LlamaStackDistribution", "metadata": { "name": name }, "spec": spec }));
        self.objects().create(&PostParams::default(), &distribution).await.unwrap();
    }

    /// Changes an annotation, which triggers a reconcile and nothing else.
    async fn touch(&self, name: &str) {
        let now = Timestamp::now().to_string();
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "touched": now } } }));
        self.objects().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn until_condition(&self, name: &str, type_: &str, holds: impl Fn(&Value) -> bool) {
        let what = format!("the condition {type_} of {name}");
        let reached = wait::eventually(&what, async || {
            let object = self.objects().get(name).await.ok()?;
            Some(condition(&object.data, type_)).filter(|found| found.is_object() && holds(found)).cloned()
        });
        reached.await.unwrap();
    }

    /// Waits until the status reports the newest Deployment; then nothing is left to write.
    async fn until_settled(&self, name: &str) {
        wait::eventually(&format!("{name} is settled"), async || {
            let object = self.objects().get(name).await.ok()?;
            (object.data["status"]["phase"] == "Initializing").then_some(())
        })
        .await
        .unwrap();
    }

    async fn until_deployment(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let deployments = self.namespace.api::<Deployment>();
        let is = |live: &Deployment| holds(&json!(live.spec.as_ref().unwrap().template));
        json!(wait::until(deployments, name, what, wait::TIMEOUT, is).await.unwrap())
    }

    async fn apply_secret(&self, name: &str, value: &str) {
        let secret: Secret = object(json!({ "metadata": { "name": name }, "stringData": { "token": value } }));
        let patch = PatchParams::apply("test").force();
        self.namespace
            .api::<Secret>()
            .patch(name, &patch, &Patch::Apply(with_type_meta("Secret", &secret)))
            .await
            .unwrap();
    }

    async fn apply_config_map(&self, namespace: &str, name: &str, labels: Value, data: Value) {
        let map: ConfigMap = object(json!({ "metadata": { "name": name, "labels": labels }, "data": data }));
        let maps: Api<ConfigMap> = Api::namespaced(self.admin.clone(), namespace);
        maps.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(with_type_meta("ConfigMap", &map)))
            .await
            .unwrap();
    }

    async fn stop(self, controller: RunningController) {
        controller.stop().await;
        uninstall_crd(&self.admin, Family::Llsd).await;
    }
}

/// Adds apiVersion and kind, which typed objects do not serialize.
fn with_type_meta(kind: &str, object: &impl serde::Serialize) -> Value {
    let mut value = json!(object);
    value["apiVersion"] = json!("v1");
    value["kind"] = json!(kind);
    value
}

fn spec_with_secret(name: &str) -> Value {
    json!({ "distribution": { "name": "starter" }, "providers": { "inference": { "provider": "vllm",
        "endpoint": "http://vllm:8000", "apiKey": { "secretKeyRef": { "name": name, "key": "token" } } } } })
}

fn plain_spec() -> Value {
    json!({ "distribution": { "name": "starter" } })
}

#[tokio::test]
async fn created_secret_reconciles_only_its_object() {
    for namespaced in [false, true] {
        let Some(env) = test_env("late-secret").await else { return };
        let scope = if namespaced { Scope::Namespace(env.namespace.name().to_owned()) } else { Scope::Cluster };
        for name in ["a", "b"] {
            env.create(name, spec_with_secret(name)).await;
        }
        let controller = env.run(&env.account().await, scope);
        for name in ["a", "b"] {
            env.until_condition(name, "SecretsResolved", |found| found["reason"] == "SecretNotFound").await;
        }
        assert!(!controller.has_timed_requeue(), "no object may be requeued by time");
        for name in ["a", "b"] {
            env.apply_secret(name, "hush").await;
            env.until_deployment(name, "exists", |_| true).await;
            env.until_settled(name).await;
            env.until_condition(name, "SecretsResolved", |found| found["status"] == "True").await;
        }

        // A reconcile of a settled object makes no call.
        let (calls, reconciles) = (controller.calls(), controller.reconciles());
        env.touch("a").await;
        controller.until_reconciles(reconciles + 1).await;
        assert_eq!(controller.calls_since(calls), [""; 0], "a settled object must cause no call");

        // A change of a Secret causes one read of that Secret.
        let read = |name: &str| format!("GET /api/v1/namespaces/{}/secrets/{name}", env.namespace.name());
        for name in ["b", "nobody-names-it", "a"] {
            env.apply_secret(name, "another").await;
            if name != "nobody-names-it" {
                let was_read = async || controller.calls_since(calls).contains(&read(name)).then_some(());
                wait::eventually(&format!("a read of {name}"), was_read).await.unwrap();
            }
        }
        assert_eq!(controller.calls_since(calls), [read("b"), read("a")]);

        // A deleted Secret is reported, and the Deployment is kept.
        let before = env.namespace.api::<Deployment>().get("a").await.unwrap();
        env.namespace.api::<Secret>().delete("a", &DeleteParams::default()).await.unwrap();
        env.until_condition("a", "SecretsResolved", |found| found["reason"] == "SecretNotFound").await;
        let after = env.namespace.api::<Deployment>().get("a").await.unwrap();
        assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
        env.stop(controller).await;
    }
}

#[tokio::test]
async fn objects_without_references_read_no_secrets() {
    let Some(env) = test_env("no-looks").await else { return };
    let controller = env.run(&env.account().await, Scope::Cluster);
    env.create("first", plain_spec()).await;
    env.until_settled("first").await;
    let before = controller.calls();
    let names: Vec<String> = (0..20).map(|index| format!("next-{index}")).collect();
    for name in &names {
        env.create(name, plain_spec()).await;
    }
    for name in &names {
        env.until_settled(name).await;
    }
    let calls = controller.calls_since(before);
    println!("{} calls for {} objects", calls.len(), names.len());
    let is_read = |call: &&String| call.contains("/secrets") || call.contains("/configmaps");
    assert_eq!(calls.iter().filter(is_read).collect::<Vec<_>>(), [""; 0]);
    env.stop(controller).await;
}

/// Changes several Secrets, and checks which objects are enqueued.
#[tokio::test]
async fn change_enqueues_exactly_its_referrers() {
    let Some(env) = test_env("wakes").await else { return };
    let key = |name: &str| NamespacedName::new(env.namespace.name(), name);
    let server = env.server(env.account().await);
    env.apply_secret("a", "hush").await;
    let secrets = Arc::new(ReferenceStore::new(ReferenceKind::Secret, &[]));
    for name in ["a", "b"] {
        secrets.refer(&key(&format!("uses-{name}")), [key(name)].into());
    }
    let (enqueue, mut enqueued) = tokio::sync::mpsc::unbounded_channel();
    let watch = {
        let (secrets, server) = (secrets.clone(), server.clone());
        tokio::spawn(async move {
            secrets.follow(&server, &Scope::Cluster, |object| enqueue.send(object.name).unwrap()).await;
        })
    };
    let mut next = async || enqueued.recv().await.unwrap();
    assert_eq!(next().await, "uses-a", "the first list contains a Secret that was not read before");
    for (name, exists) in [("a", true), ("b", false)] {
        let lookup = secrets.get(&server, &key(name)).await.unwrap();
        assert_eq!((lookup.content.is_some(), lookup.followed), (exists, true), "{name}");
    }
    env.apply_secret("nobody-names-it", "hush").await;
    env.apply_secret("b", "hush").await;
    assert_eq!(next().await, "uses-b");
    env.apply_secret("nobody-names-it", "another").await;
    env.namespace.api::<Secret>().delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(next().await, "uses-a");
    secrets.forget(&key("uses-b"));
    env.apply_secret("b", "another").await;
    env.apply_secret("a", "hush").await;
    assert_eq!(next().await, "uses-a", "a removed reference must not enqueue its object");
    watch.abort();
    uninstall_crd(&env.admin, Family::Llsd).await;
}

/// An object that is created right after its Secret never reports the Secret as missing: a Secret that the watch has not
/// delivered yet is read from the API server.
#[tokio::test]
async fn lagging_watch_is_not_trusted() {
    let Some(env) = test_env("lag").await else { return };
    let controller = env.run(&env.account().await, Scope::Cluster);
    env.create("first", plain_spec()).await;
    env.until_settled("first").await;
    for index in 0..10 {
        let name = format!("quick-{index}");
        env.apply_secret(&name, "hush").await;
        env.create(&name, spec_with_secret(&name)).await;
    }
    for index in 0..10 {
        env.until_settled(&format!("quick-{index}")).await;
    }
    let events: Api<k8s_openapi::api::core::v1::Event> = env.namespace.api();
    let events = events.list(&kube::api::ListParams::default()).await.unwrap();
    let missing = events.items.iter().filter(|event| event.reason.as_deref() == Some("SecretResolutionFailed"));
    assert_eq!(missing.count(), 0);
    env.stop(controller).await;
}
