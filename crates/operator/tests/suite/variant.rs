//! The fleet of VariantAutoscalings on a real API server. Single passes are made by hand, each with new eyes, as after a
//! start; what makes passes by itself is `steersman run`, as a process.

mod crashes;
mod examples;
mod leaders;
mod limits;
mod lines;
mod metrics;
mod process;
mod rights;
mod settings;
mod targets;
mod triggers;
mod unreadable;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use steersman::installation::Installation;
use steersman::metrics::FamilyMetrics;
use steersman::rbac;
use steersman::variant::observe::Options;
use steersman::variant::{DebounceConfig, FleetContext, FleetController, FleetOutcome};
use steersman_api::Family;
use steersman_runtime::controller::ControllerContext;
use steersman_runtime::store::Scope;
use steersman_runtime::telemetry::metrics::Metrics;
use steersman_testkit::cut::Cutter;
use steersman_testkit::{Cluster, Namespace, alone, apply, object, statement};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::process::operator::Place;
use crate::schemas::{install, only, resource};
use crate::server::server;

const VERSION: &str = "v1alpha1";
const MAIN: &str = "workload-variant-autoscaler-variantautoscaling-config";
const ZERO: &str = "model-scale-to-zero-config";

/// A cluster of these tests alone, with the CRD and the shipped roles: each test acts in namespaces of its own.
async fn with_crd() -> Option<(&'static Cluster, Client)> {
    static CLUSTER: OnceCell<Option<Cluster>> = OnceCell::const_new();
    let cluster = alone(&CLUSTER, async |cluster| {
        let admin = cluster.admin().await?;
        install(&admin, &only(Family::Va, VERSION), &resource(Family::Va, VERSION)).await;
        apply::manifests(&admin, None, &rbac::manifests()?).await?;
        Ok(())
    });
    let cluster = cluster.await?;
    Some((cluster, cluster.admin().await.unwrap()))
}

/// A namespace with objects, and one with settings.
struct Scene {
    cluster: &'static Cluster,
    admin: Client,
    namespace: Namespace,
    settings: Namespace,
}

impl Scene {
    async fn new(prefix: &str) -> Option<Self> {
        let (cluster, admin) = with_crd().await?;
        let namespace = cluster.namespace(prefix).await.unwrap();
        let settings = cluster.namespace(&format!("{prefix}-settings")).await.unwrap();
        Some(Self { cluster, admin, namespace, settings })
    }

    fn objects(&self) -> Api<DynamicObject> {
        objects(&self.admin, self.namespace.name())
    }

    async fn create(&self, name: &str, spec: Value) {
        create(&self.admin, self.namespace.name(), name, spec).await.unwrap();
    }

    async fn deploy(&self, name: &str, replicas: i32) {
        deploy(&self.namespace, name, replicas).await.unwrap();
    }

    async fn scale(&self, name: &str, replicas: i32) {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        self.namespace.all::<Deployment>().patch_scale(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Creates or changes a ConfigMap of the settings.
    async fn set(&self, name: &str, data: Value) {
        set(&self.settings, name, data).await;
    }

    async fn status(&self, name: &str) -> Value {
        self.objects().get(name).await.unwrap().data["status"].clone()
    }

    async fn desired(&self, name: &str) -> Option<i64> {
        self.status(name).await["desiredOptimizedAlloc"]["numReplicas"].as_i64()
    }

    /// Where operators compete for the cluster's one Lease: those of one test at a time.
    async fn place(&self) -> (MutexGuard<'static, ()>, Place) {
        static TURN: Mutex<()> = Mutex::const_new(());
        let turn = TURN.lock().await;
        (turn, Place::of(self.cluster).await)
    }

    /// Flags of an operator for this scene alone.
    fn flags(&self) -> Vec<&str> {
        let own = ["--controllers", "va", "--watch-namespace", self.namespace.name()];
        [&own[..], &["--config-namespace", self.settings.name()]].concat()
    }

    fn controller(&self, client: Client) -> FleetController {
        let scope = Scope::Namespace(self.namespace.name().to_owned());
        let given = given(self.cluster, client, scope, self.settings.name(), &[]);
        FleetController::new(&given, DebounceConfig::default())
    }

    /// With new eyes.
    async fn pass(&self) -> FleetOutcome {
        pass(&self.controller(self.admin.clone())).await.unwrap()
    }

    async fn assert_silent(&self) {
        let counter = Cutter::counting();
        pass(&self.controller(counter.around(&self.admin))).await.unwrap();
        assert_eq!(counter.calls(), 0, "settled means silent");
    }
}

/// What a controller is given: settings in one namespace, and these variables.
fn given(
    cluster: &Cluster,
    client: Client,
    scope: Scope,
    settings: &str,
    environment: &[(&str, &str)],
) -> FleetContext {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let (metrics, families) = Metrics::new(Timestamp::UNIX_EPOCH, FamilyMetrics::register);
    let controller = ControllerContext {
        server: server(cluster, client),
        scope,
        identity: "test".to_owned(),
        metrics: Arc::new(metrics),
    };
    FleetContext {
        controller,
        installation: Installation { config_namespace: Some(settings.to_owned()), ..Installation::default() },
        options: Options { environment: environment.iter().map(own).collect::<BTreeMap<_, _>>(), allow_http: false },
        gauges: families.fleet,
    }
}

/// One pass, which must get to its end.
async fn pass(variants: &FleetController) -> Result<FleetOutcome> {
    variants.fill().await.context("a look")?;
    let passed = variants.reconcile().await;
    ensure!(passed.failed == 0 && passed.conflicts == 0, "{passed:?}");
    Ok(passed)
}

fn objects(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource(Family::Va, VERSION))
}

/// For the workload `target`.
fn spec(target: &str) -> Value {
    json!({ "scaleTargetRef": { "kind": "Deployment", "name": target }, "modelID": "meta/llama", "accelerator": "A100" })
}

async fn create(client: &Client, namespace: &str, name: &str, spec: Value) -> Result<DynamicObject> {
    let wish: DynamicObject = object(json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling", "metadata": { "name": name }, "spec": spec,
    }));
    Ok(objects(client, namespace).create(&PostParams::default(), &wish).await?)
}

async fn deploy(namespace: &Namespace, name: &str, replicas: i32) -> Result<()> {
    let deployment: Deployment = object(json!({
        "metadata": { "name": name }, "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": name } },
        "template": template(name) },
    }));
    namespace.all().create(&PostParams::default(), &deployment).await?;
    Ok(())
}

fn template(name: &str) -> Value {
    let gpus = json!({ "limits": { "nvidia.com/gpu": "1" } });
    json!({ "metadata": { "labels": { "app": name } },
        "spec": { "containers": [{ "name": "vllm", "image": "vllm:1", "resources": gpus }] } })
}

async fn set(namespace: &Namespace, name: &str, data: Value) {
    let maps: Api<ConfigMap> = namespace.all();
    match maps.get_opt(name).await.unwrap() {
        None => {
            let map = json!({ "metadata": { "name": name }, "data": data });
            maps.create(&PostParams::default(), &object(map)).await.unwrap();
        }
        Some(_) => {
            let patch = Patch::Merge(json!({ "data": data }));
            maps.patch(name, &PatchParams::default(), &patch).await.unwrap();
        }
    }
}

/// Status, reason and message.
fn condition(status: &Value, type_: &str) -> (String, String, String) {
    let (known, reason, message) = statement(status, type_);
    (known.to_owned(), reason.to_owned(), message.to_owned())
}
