//! A controller that follows what its objects refer to, on a real API server, as the operator's account with the shipped
//! rights: a change is acted on when it comes, and nothing is asked for otherwise.

mod config_maps;
mod operator_config;
mod rights;

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
use steersman::installation::{Installation, NAME, NAMESPACE};
use steersman::metrics::FamilyMetrics;
use steersman_api::Family;
use steersman_reconcile::NamespacedName;
use steersman_runtime::client::Server;
use steersman_runtime::controller::ControllerContext;
use steersman_runtime::http::Inside;
use steersman_runtime::store::Scope;
use steersman_runtime::store::references::{Kind, ReferenceStore};
use steersman_runtime::telemetry::metrics::Metrics;
use steersman_testkit::{Cluster, Flavour, Namespace, Turn, condition, object, turn, wait};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::process::operator::Place;
use crate::schemas::{install, only, resource, uninstall};
use crate::server::server;

const VERSION: &str = "v1alpha2";

struct World {
    cluster: &'static Cluster,
    admin: Client,
    namespace: Namespace,
    /// The shipped roles, and the promise that no other operator acts meanwhile.
    _place: Place,
    _turn: Turn,
}

async fn world(prefix: &str) -> Option<World> {
    let turn = turn(Flavour::Bare).await?;
    let cluster = turn.cluster;
    let place = Place::of(cluster).await;
    let admin = cluster.admin().await.unwrap();
    install(&admin, &only(Family::Llsd, VERSION), &resource(Family::Llsd, VERSION)).await;
    let namespace = cluster.namespace(prefix).await.unwrap();
    Some(World { cluster, admin, namespace, _place: place, _turn: turn })
}

/// A controller under way, and what it has done so far.
struct Running {
    metrics: Arc<Metrics>,
    sent: Sent,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// The calls of a client, as in `GET /api/v1/namespaces/a/secrets/b`.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<String>>>);

impl Sent {
    /// The same client, which leaves a note of each call.
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

impl Running {
    fn calls(&self) -> usize {
        self.sent.0.lock().unwrap().len()
    }

    fn calls_since(&self, count: usize) -> Vec<String> {
        self.sent.0.lock().unwrap()[count..].to_vec()
    }

    /// How many passes have ended.
    fn passes(&self) -> usize {
        let text = self.metrics.text().unwrap();
        let line = text.lines().find_map(|line| {
            line.strip_prefix("controller_runtime_reconcile_time_seconds_count{controller=\"llsd\"} ")
        });
        line.map_or(0, |count| count.parse().unwrap())
    }

    /// Whether any pass asked to be made again by the clock.
    fn clocked(&self) -> bool {
        self.metrics.text().unwrap().contains("result=\"requeue_after\"")
    }

    async fn until_passes(&self, count: usize) {
        let enough = async || (self.passes() >= count).then_some(());
        wait::eventually(&format!("{count} passes"), enough).await.unwrap();
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

impl World {
    async fn account(&self) -> Client {
        self.cluster.service_account(NAMESPACE, NAME).await.unwrap()
    }

    fn server(&self, client: Client) -> Server {
        server(self.cluster, client)
    }

    fn run(&self, client: &Client, scope: Scope) -> Running {
        self.run_told(client, scope, Installation::default())
    }

    fn run_told(&self, client: &Client, scope: Scope, told: Installation) -> Running {
        let sent = Sent::default();
        let server = self.server(sent.around(client));
        let (metrics, families) = Metrics::new(Timestamp::now(), FamilyMetrics::register);
        let metrics = Arc::new(metrics);
        let given = OperatorContext {
            controller: ControllerContext { server, scope, identity: "test".into(), metrics: metrics.clone() },
            metrics: families,
            installation: told,
            inside: steersman::llamastack::observe::server::http(Inside { through: None }).unwrap(),
            requests: Default::default(),
            image_labels: false,
            fleet: Default::default(),
            fleet_rhythm: Default::default(),
        };
        let stop = CancellationToken::new();
        let task = tokio::spawn(controllers::run(Family::Llsd, given, stop.clone()));
        Running { metrics, sent, stop, task }
    }

    fn objects(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), self.namespace.name(), &resource(Family::Llsd, VERSION))
    }

    async fn create(&self, name: &str, spec: Value) {
        let wish: DynamicObject = object(json!({ "apiVersion": "llamastack.io/v1alpha2",
            "kind": "LlamaStackDistribution", "metadata": { "name": name }, "spec": spec }));
        self.objects().create(&PostParams::default(), &wish).await.unwrap();
    }

    /// A change that asks for nothing but a pass.
    async fn touch(&self, name: &str) {
        let now = Timestamp::now().to_string();
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "touched": now } } }));
        self.objects().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn until_condition(&self, name: &str, type_: &str, holds: impl Fn(&Value) -> bool) {
        let what = format!("the condition {type_} of {name}");
        let seen = wait::eventually(&what, async || {
            let object = self.objects().get(name).await.ok()?;
            Some(condition(&object.data, type_)).filter(|found| found.is_object() && holds(found)).cloned()
        });
        seen.await.unwrap();
    }

    /// Until the status says what became of the newest Deployment: then nothing is left to do.
    async fn until_settled(&self, name: &str) {
        wait::eventually(&format!("{name} is settled"), async || {
            let object = self.objects().get(name).await.ok()?;
            (object.data["status"]["phase"] == "Initializing").then_some(())
        })
        .await
        .unwrap();
    }

    async fn until_deployment(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let deployments = self.namespace.all::<Deployment>();
        let is = |live: &Deployment| holds(&json!(live.spec.as_ref().unwrap().template));
        json!(wait::until(deployments, name, what, wait::LIMIT, is).await.unwrap())
    }

    async fn secret(&self, name: &str, value: &str) {
        let secret: Secret = object(json!({ "metadata": { "name": name }, "stringData": { "token": value } }));
        let patch = PatchParams::apply("test").force();
        self.namespace.all::<Secret>().patch(name, &patch, &Patch::Apply(typed("Secret", &secret))).await.unwrap();
    }

    async fn config_map(&self, namespace: &str, name: &str, labels: Value, data: Value) {
        let map: ConfigMap = object(json!({ "metadata": { "name": name, "labels": labels }, "data": data }));
        let maps: Api<ConfigMap> = Api::namespaced(self.admin.clone(), namespace);
        maps.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(typed("ConfigMap", &map))).await.unwrap();
    }

    async fn end(self, running: Running) {
        running.stop().await;
        uninstall(&self.admin, Family::Llsd).await;
    }
}

fn typed(kind: &str, of: &impl serde::Serialize) -> Value {
    let mut value = json!(of);
    value["apiVersion"] = json!("v1");
    value["kind"] = json!(kind);
    value
}

fn with_secret(name: &str) -> Value {
    json!({ "distribution": { "name": "starter" }, "providers": { "inference": { "provider": "vllm",
        "endpoint": "http://vllm:8000", "apiKey": { "secretKeyRef": { "name": name, "key": "token" } } } } })
}

fn plain() -> Value {
    json!({ "distribution": { "name": "starter" } })
}

#[tokio::test]
async fn a_secret_that_appears_heals_its_object_and_nobody_else_and_a_settled_object_costs_nothing() {
    for namespaced in [false, true] {
        let Some(world) = world("late-secret").await else { return };
        let scope = if namespaced { Scope::Namespace(world.namespace.name().to_owned()) } else { Scope::Cluster };
        for name in ["a", "b"] {
            world.create(name, with_secret(name)).await;
        }
        let running = world.run(&world.account().await, scope);
        for name in ["a", "b"] {
            world.until_condition(name, "SecretsResolved", |found| found["reason"] == "SecretNotFound").await;
        }
        assert!(!running.clocked(), "nobody has to look at the clock");
        for name in ["a", "b"] {
            world.secret(name, "hush").await;
            world.until_deployment(name, "exists", |_| true).await;
            world.until_settled(name).await;
            world.until_condition(name, "SecretsResolved", |found| found["status"] == "True").await;
        }

        // A pass over a settled object asks for nothing.
        let (calls, passes) = (running.calls(), running.passes());
        world.touch("a").await;
        running.until_passes(passes + 1).await;
        assert_eq!(running.calls_since(calls), [""; 0], "settled means silent");

        // A change of one Secret is one look at that Secret.
        let look = |name: &str| format!("GET /api/v1/namespaces/{}/secrets/{name}", world.namespace.name());
        for name in ["b", "nobody-names-it", "a"] {
            world.secret(name, "another").await;
            if name != "nobody-names-it" {
                let looked = async || running.calls_since(calls).contains(&look(name)).then_some(());
                wait::eventually(&format!("a look at {name}"), looked).await.unwrap();
            }
        }
        assert_eq!(running.calls_since(calls), [look("b"), look("a")]);

        // One that goes is told of, and leaves what runs.
        let before = world.namespace.all::<Deployment>().get("a").await.unwrap();
        world.namespace.all::<Secret>().delete("a", &DeleteParams::default()).await.unwrap();
        world.until_condition("a", "SecretsResolved", |found| found["reason"] == "SecretNotFound").await;
        let after = world.namespace.all::<Deployment>().get("a").await.unwrap();
        assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
        world.end(running).await;
    }
}

#[tokio::test]
async fn objects_that_refer_to_nothing_cost_no_look() {
    let Some(world) = world("no-looks").await else { return };
    let running = world.run(&world.account().await, Scope::Cluster);
    world.create("first", plain()).await;
    world.until_settled("first").await;
    let before = running.calls();
    let names: Vec<String> = (0..20).map(|index| format!("next-{index}")).collect();
    for name in &names {
        world.create(name, plain()).await;
    }
    for name in &names {
        world.until_settled(name).await;
    }
    let calls = running.calls_since(before);
    println!("{} calls for {} objects", calls.len(), names.len());
    let looks = |call: &&String| call.contains("/secrets") || call.contains("/configmaps");
    assert_eq!(calls.iter().filter(looks).collect::<Vec<_>>(), [""; 0]);
    world.end(running).await;
}

/// The news of one Secret after the other, and for each whom it concerns.
#[tokio::test]
async fn a_change_wakes_exactly_those_who_refer_to_it() {
    let Some(world) = world("wakes").await else { return };
    let place = |name: &str| NamespacedName::new(world.namespace.name(), name);
    let server = world.server(world.account().await);
    world.secret("a", "hush").await;
    let secrets = Arc::new(ReferenceStore::new(Kind::Secret, &[]));
    for name in ["a", "b"] {
        secrets.refer(&place(&format!("uses-{name}")), [place(name)].into());
    }
    let (enqueue, mut enqueued) = tokio::sync::mpsc::unbounded_channel();
    let watch = {
        let (secrets, server) = (secrets.clone(), server.clone());
        tokio::spawn(async move {
            secrets.follow(&server, &Scope::Cluster, |object| enqueue.send(object.name).unwrap()).await;
        })
    };
    let mut next = async || enqueued.recv().await.unwrap();
    assert_eq!(next().await, "uses-a", "it was not read before the first list, which has it");
    for (name, there) in [("a", true), ("b", false)] {
        let looked = secrets.get(&server, &place(name)).await.unwrap();
        assert_eq!((looked.content.is_some(), looked.followed), (there, true), "{name}");
    }
    world.secret("nobody-names-it", "hush").await;
    world.secret("b", "hush").await;
    assert_eq!(next().await, "uses-b");
    world.secret("nobody-names-it", "another").await;
    world.namespace.all::<Secret>().delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(next().await, "uses-a");
    secrets.forget(&place("uses-b"));
    world.secret("b", "another").await;
    world.secret("a", "hush").await;
    assert_eq!(next().await, "uses-a", "the other one is gone");
    watch.abort();
    uninstall(&world.admin, Family::Llsd).await;
}

/// An object that comes right after its Secret never says that the Secret is missing: what a watch has not seen yet is
/// asked for.
#[tokio::test]
async fn a_watch_that_lags_is_not_believed() {
    let Some(world) = world("lag").await else { return };
    let running = world.run(&world.account().await, Scope::Cluster);
    world.create("first", plain()).await;
    world.until_settled("first").await;
    for index in 0..10 {
        let name = format!("quick-{index}");
        world.secret(&name, "hush").await;
        world.create(&name, with_secret(&name)).await;
    }
    for index in 0..10 {
        world.until_settled(&format!("quick-{index}")).await;
    }
    let events: Api<k8s_openapi::api::core::v1::Event> = world.namespace.all();
    let told = events.list(&kube::api::ListParams::default()).await.unwrap();
    let missing = told.items.iter().filter(|event| event.reason.as_deref() == Some("SecretResolutionFailed"));
    assert_eq!(missing.count(), 0);
    world.end(running).await;
}
