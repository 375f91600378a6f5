//! A reconcile that blocks or panics affects only its own object. The fault is planted in the plan of a real reconciler.

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event as KubeEvent;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::core::admission::AdmissionRequest;
use serde_json::{Value, json};
use steersman::llamastack::LlamaStack;
use steersman::webhooks::admission::{Handlers, Response, handler, lookup_handler};
use steersman_api::Family;
use steersman_api::convert::convert;
use steersman_reconcile::{Event, NamespacedName, Outcome, Plan};
use steersman_runtime::client::Server;
use steersman_runtime::controller::{
    self, ControllerContext, Observed, ReconcileContext, ReconcileError, ReconcileOutcome, Reconciler,
};
use steersman_runtime::leader::{Election, LeaseThread, Timing};
use steersman_runtime::resource::CustomResource;
use steersman_runtime::store::Scope;
use steersman_runtime::store::cache::Watched;
use steersman_runtime::telemetry::metrics::Metrics;
use steersman_testkit::{Cluster, Namespace, object, wait};
use tokio_util::sync::CancellationToken;

use crate::schemas::api_resource;
use crate::server::server;
use crate::webhooks::WebhookRoutes;
use crate::{dynamo, llamastack};

/// Name of the object whose plan has the fault.
const FAULTY: &str = "faulty";

const BLOCK_DURATION: Duration = Duration::from_secs(30);

const TIMING: Timing =
    Timing { lease: Duration::from_secs(9), deadline: Duration::from_secs(6), retry: Duration::from_millis(200) };

#[derive(Clone, Copy)]
enum Fault {
    Panic,
    Block,
}

/// A reconciler whose plan has a fault for one object.
struct FaultyReconciler<R: Reconciler> {
    inner: R,
    name_of: fn(&R::Snapshot) -> &str,
    fault: Fault,
}

impl<R: Reconciler + Send + Sync> Reconciler for FaultyReconciler<R>
where
    R::Snapshot: Send + Sync,
{
    type Snapshot = R::Snapshot;
    type Resolution = R::Resolution;

    fn resource(&self) -> CustomResource {
        self.inner.resource()
    }

    fn field_manager(&self) -> &str {
        self.inner.field_manager()
    }

    fn children(&self) -> Vec<Watched> {
        self.inner.children()
    }

    fn is_deferrable(&self, context: &ReconcileContext, object: &DynamicObject) -> bool {
        self.inner.is_deferrable(context, object)
    }

    async fn observe(
        &self,
        context: &ReconcileContext,
        object: &DynamicObject,
    ) -> Result<Observed<R::Snapshot>, ReconcileError> {
        self.inner.observe(context, object).await
    }

    fn plan(&self, snapshot: &R::Snapshot) -> Plan<R::Resolution> {
        if (self.name_of)(snapshot) == FAULTY {
            match self.fault {
                Fault::Panic => panic!("planted"),
                Fault::Block => std::thread::sleep(BLOCK_DURATION),
            }
        }
        self.inner.plan(snapshot)
    }

    fn events(&self, snapshot: &R::Snapshot, plan: &Plan<R::Resolution>, outcome: &Outcome) -> Vec<Event> {
        self.inner.events(snapshot, plan, outcome)
    }

    fn publishes_failures(&self) -> bool {
        self.inner.publishes_failures()
    }

    fn status(
        &self,
        snapshot: &R::Snapshot,
        plan: &Plan<R::Resolution>,
        outcome: &Outcome,
    ) -> Result<Value, ReconcileError> {
        self.inner.status(snapshot, plan, outcome)
    }

    async fn run_watches(&self, context: &ReconcileContext, scope: &Scope, stop: CancellationToken) {
        self.inner.run_watches(context, scope, stop).await;
    }

    fn on_end(&self, object: &DynamicObject, result: &Result<ReconcileOutcome, ReconcileError>, time: Duration) {
        self.inner.on_end(object, result, time);
    }

    fn forget(&self, object: &NamespacedName) {
        self.inner.forget(object);
    }
}

fn faulty_llamastack(fault: Fault) -> FaultyReconciler<LlamaStack> {
    FaultyReconciler { inner: LlamaStack::shipped(), name_of: |snapshot| &snapshot.object.name, fault }
}

/// Runs the controller on one namespace until the guard is dropped.
fn run<R: Reconciler + Send + Sync + 'static>(
    reconciler: FaultyReconciler<R>,
    server: Server,
    namespace: &Namespace,
) -> tokio_util::sync::DropGuard
where
    R::Snapshot: Send + Sync,
{
    let stop = CancellationToken::new();
    let context = ControllerContext {
        server,
        scope: Scope::Namespace(namespace.name().to_owned()),
        identity: "test".to_owned(),
        metrics: Arc::new(Metrics::new(Timestamp::now(), |_| ()).0),
    };
    tokio::spawn(controller::run(reconciler, context, stop.clone()));
    stop.drop_guard()
}

async fn create_starter(admin: &Client, namespace: &Namespace, name: &str) {
    let mut starter = llamastack::starter();
    starter["metadata"]["name"] = json!(name);
    let starter: DynamicObject = object(starter);
    let api: Api<DynamicObject> =
        Api::namespaced_with(admin.clone(), namespace.name(), &api_resource(Family::Llsd, llamastack::VERSION));
    api.create(&PostParams::default(), &starter).await.unwrap();
}

async fn until_deployment(namespace: &Namespace, name: &str) {
    let deployments = namespace.api::<Deployment>();
    wait::eventually(&format!("the Deployment {name}"), async || deployments.get_opt(name).await.unwrap())
        .await
        .unwrap();
}

async fn panic_event(namespace: &Namespace) -> KubeEvent {
    let events = namespace.api::<KubeEvent>();
    let found = async || {
        let listed = events.list(&ListParams::default()).await.unwrap();
        listed.items.into_iter().find(|event| event.reason.as_deref() == Some("ReconcilePanicked"))
    };
    wait::eventually("the event of the panic", found).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_of_one_server_affects_no_other() {
    let Some((cluster, admin)) = llamastack::cluster_with_crd().await else { return };
    let namespace = cluster.namespace("panic").await.unwrap();
    let _running = run(faulty_llamastack(Fault::Panic), server(cluster, admin.clone()), &namespace);
    create_starter(&admin, &namespace, FAULTY).await;
    let event = panic_event(&namespace).await;
    assert_eq!(event.regarding.unwrap().name.as_deref(), Some(FAULTY));
    let note = event.note.unwrap();
    assert!(note.contains("operator's log") && !note.contains("planted"), "{note}");
    create_starter(&admin, &namespace, "sound").await;
    until_deployment(&namespace, "sound").await;
    assert!(namespace.api::<Deployment>().get_opt(FAULTY).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_of_one_request_affects_no_other() {
    let Some((cluster, admin)) = dynamo::cluster_with_crds().await else { return };
    let namespace = cluster.namespace("panic").await.unwrap();
    let reconciler = FaultyReconciler {
        inner: dynamo::reconciler(),
        name_of: |snapshot| &snapshot.object.name,
        fault: Fault::Panic,
    };
    let _running = run(reconciler, server(cluster, admin.clone()), &namespace);
    dynamo::create_named(&admin, namespace.name(), FAULTY, dynamo::spec(json!({}))).await.unwrap();
    let event = panic_event(&namespace).await;
    assert_eq!(event.regarding.unwrap().name.as_deref(), Some(FAULTY));
    dynamo::create_named(&admin, namespace.name(), "sound", dynamo::spec(json!({}))).await.unwrap();
    let jobs = namespace.api::<Job>();
    wait::eventually("the Job", async || jobs.get_opt("profile-sound").await.unwrap()).await.unwrap();
    assert!(jobs.get_opt(&format!("profile-{FAULTY}")).await.unwrap().is_none());
}

/// The whole process leads by a Lease that expires after 9 s without a renewal. It has one worker thread, which would be
/// blocked with the plan.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn blocked_reconcile_keeps_lease_and_delays_nothing() {
    let Some((cluster, admin)) = llamastack::cluster_with_crd().await else { return };
    let namespace = cluster.namespace("blocked").await.unwrap();
    let mut leader = spawn_election(cluster, &namespace).await;
    let fence = leader.acquired().await.unwrap();
    let _running = run(faulty_llamastack(Fault::Block), fence.guard(&server(cluster, admin.clone())), &namespace);
    let started = Instant::now();
    create_starter(&admin, &namespace, FAULTY).await;
    for number in 0..4 {
        let name = format!("sound-{number}");
        create_starter(&admin, &namespace, &name).await;
        until_deployment(&namespace, &name).await;
    }
    assert!(started.elapsed() < BLOCK_DURATION, "other objects must not wait: {:?}", started.elapsed());
    until_deployment(&namespace, FAULTY).await;
    assert!(started.elapsed() >= BLOCK_DURATION && fence.is_open());
    let lease = namespace.api::<Lease>().get("steersman").await.unwrap().spec.unwrap();
    assert_eq!((lease.holder_identity.as_deref(), lease.lease_transitions), (Some("test"), Some(0)));
    leader.release().await;
}

async fn spawn_election(cluster: &'static Cluster, namespace: &Namespace) -> LeaseThread {
    let name = namespace.name().to_owned();
    let connect = async move || {
        let admin = cluster.admin().await?;
        anyhow::Ok(Election::new(server(cluster, admin), &name, "steersman", "test", TIMING))
    };
    LeaseThread::spawn(connect, CancellationToken::new(), Duration::ZERO).await.unwrap().unwrap()
}

/// A review of a family whose handler blocks at one of its steps.
fn blocking_review(family: Family, name: &str) -> Value {
    let (group, version) = (family.group(), family.storage_version());
    let object =
        json!({ "apiVersion": format!("{group}/{version}"), "kind": family.kind(), "metadata": { "name": name } });
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "CREATE", "userInfo": { "username": "alice" }, "namespace": "team-a", "name": name,
        "kind": { "group": group, "version": version, "kind": family.kind() },
        "resource": { "group": group, "version": version, "resource": family.plural() },
        "object": object, "oldObject": null } })
}

/// The only worker thread of the runtime would be blocked with the handler.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn expensive_review_delays_no_other_review() {
    let (release, released) = mpsc::channel::<()>();
    let (begin, mut began) = tokio::sync::mpsc::unbounded_channel();
    let released = Arc::new(Mutex::new(released));
    let block = move || {
        begin.send(()).unwrap();
        released.lock().unwrap().recv_timeout(BLOCK_DURATION).expect("another review is answered meanwhile");
    };
    let steps = |blocking: &'static str| {
        let (read_block, decide_block) = (block.clone(), block.clone());
        lookup_handler(
            move |request: AdmissionRequest<DynamicObject>| {
                (blocking == "read" && request.name == FAULTY).then(&read_block);
                Ok(request)
            },
            |_| std::future::ready(()),
            move |request, ()| {
                (blocking == "decide" && request.name == FAULTY).then(&decide_block);
                Response::allow()
            },
        )
    };
    let simple = block.clone();
    let simple = handler(move |request| {
        (request.name == FAULTY).then(&simple);
        Response::allow()
    });
    for slow in [steps("read"), steps("decide"), simple] {
        let validate = [(Family::Llsd, slow), (Family::Dgdr, handler(|_| Response::allow()))].into();
        let webhooks = Arc::new(WebhookRoutes::new(convert, Handlers { validate, ..Handlers::default() }));
        let blocked = tokio::spawn({
            let webhooks = webhooks.clone();
            async move { webhooks.post("/validate/llsd", blocking_review(Family::Llsd, FAULTY).to_string()).await }
        });
        began.recv().await.unwrap();
        let other = webhooks.post("/validate/dgdr", blocking_review(Family::Dgdr, "sound").to_string()).await;
        assert_eq!(other["allowed"], true, "{other}");
        let other = webhooks.post("/validate/llsd", blocking_review(Family::Llsd, "sound").to_string()).await;
        assert_eq!(other["allowed"], true, "{other}");
        release.send(()).unwrap();
        assert_eq!(blocked.await.unwrap()["allowed"], true);
    }
}
