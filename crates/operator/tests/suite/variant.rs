//! Tests the controller of VariantAutoscalings on a real API server: single reconciles of the fleet, each with newly
//! filled stores as after a start, and `steersman run` as a process.

mod crashes;
mod examples;
mod invalid_objects;
mod leaders;
mod limits;
mod log_lines;
mod metrics;
mod permissions;
mod process;
mod settings;
mod targets;
mod triggers;

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
use steersman::variant;
use steersman::variant::observe::Options;
use steersman::variant::{DebounceConfig, FleetContext, FleetController, FleetOutcome};
use steersman_api::Family;
use steersman_runtime::controller::ControllerContext;
use steersman_runtime::store::Scope;
use steersman_runtime::telemetry::metrics::Metrics;
use steersman_testkit::fault_injection::FaultInjector;
use steersman_testkit::{Cluster, Namespace, apply, condition_parts, object, prepared_cluster};
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use tokio_util::sync::CancellationToken;

use crate::pages::RecordedLists;
use crate::process::operator::TestInstallation;
use crate::schemas::{api_resource, install_crd, single_version_crd};
use crate::server::server;

const VERSION: &str = "v1alpha1";
const MAIN_CONFIG: &str = "workload-variant-autoscaler-variantautoscaling-config";
const SCALE_TO_ZERO_CONFIG: &str = "model-scale-to-zero-config";

/// The cluster of this module, with the CRD and the shipped roles. Each test uses namespaces of its own.
async fn cluster_with_crd() -> Option<(&'static Cluster, Client)> {
    static CLUSTER: OnceCell<Option<Cluster>> = OnceCell::const_new();
    let cluster = prepared_cluster(&CLUSTER, async |cluster| {
        let admin = cluster.admin().await?;
        install_crd(&admin, &single_version_crd(Family::Va, VERSION), &api_resource(Family::Va, VERSION)).await;
        apply::apply_manifests(&admin, None, &rbac::manifests()?).await?;
        Ok(())
    });
    let cluster = cluster.await?;
    Some((cluster, cluster.admin().await.unwrap()))
}

/// A namespace with objects, and one with the ConfigMaps of the operator's settings.
struct TestNamespace {
    cluster: &'static Cluster,
    admin: Client,
    namespace: Namespace,
    settings: Namespace,
}

impl TestNamespace {
    async fn new(prefix: &str) -> Option<Self> {
        let (cluster, admin) = cluster_with_crd().await?;
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
        self.namespace.api::<Deployment>().patch_scale(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Creates or patches a ConfigMap of the settings.
    async fn set_config(&self, name: &str, data: Value) {
        set_config_map(&self.settings, name, data).await;
    }

    async fn status(&self, name: &str) -> Value {
        self.objects().get(name).await.unwrap().data["status"].clone()
    }

    async fn desired(&self, name: &str) -> Option<i64> {
        self.status(name).await["desiredOptimizedAlloc"]["numReplicas"].as_i64()
    }

    /// The installation to start operators from. The lock serializes tests, because the cluster has one Lease for operators.
    async fn installation(&self) -> (MutexGuard<'static, ()>, TestInstallation) {
        static LEASE_LOCK: Mutex<()> = Mutex::const_new(());
        let lock = LEASE_LOCK.lock().await;
        (lock, TestInstallation::create(self.cluster).await)
    }

    /// Flags of an operator that watches only this namespace.
    fn flags(&self) -> Vec<&str> {
        let own = ["--controllers", "va", "--watch-namespace", self.namespace.name()];
        [&own[..], &["--config-namespace", self.settings.name()]].concat()
    }

    fn controller(&self, client: Client) -> FleetController {
        let scope = Scope::Namespace(self.namespace.name().to_owned());
        let context = fleet_context(self.cluster, client, scope, self.settings.name(), &[]);
        FleetController::new(&context, DebounceConfig::default())
    }

    /// Reconciles the fleet with a new controller, as after a start of the operator.
    async fn reconcile(&self) -> FleetOutcome {
        reconcile_fleet(&self.controller(self.admin.clone())).await.unwrap()
    }

    async fn assert_no_writes(&self) {
        let counter = FaultInjector::without_fault();
        reconcile_fleet(&self.controller(counter.wrap(&self.admin))).await.unwrap();
        assert_eq!(counter.call_count(), 0, "a settled fleet must cause no write");
    }
}

/// The context of a controller with its settings in one namespace, and with these environment variables.
fn fleet_context(
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
        options: Options { environment: environment.iter().map(own).collect::<BTreeMap<_, _>>(), ..Options::default() },
        gauges: families.fleet,
    }
}

/// Fills the stores and reconciles once. Failures and conflicts are errors.
async fn reconcile_fleet(variants: &FleetController) -> Result<FleetOutcome> {
    variants.fill().await.context("filling the stores failed")?;
    let outcome = variants.reconcile().await;
    ensure!(outcome.failed == 0 && outcome.conflicts == 0, "{outcome:?}");
    Ok(outcome)
}

fn objects(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &api_resource(Family::Va, VERSION))
}

/// A spec whose scale target is the Deployment `target`.
fn spec(target: &str) -> Value {
    json!({ "scaleTargetRef": { "kind": "Deployment", "name": target }, "modelID": "meta/llama", "accelerator": "A100" })
}

async fn create(client: &Client, namespace: &str, name: &str, spec: Value) -> Result<DynamicObject> {
    let variant: DynamicObject = object(json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling", "metadata": { "name": name }, "spec": spec,
    }));
    Ok(objects(client, namespace).create(&PostParams::default(), &variant).await?)
}

async fn deploy(namespace: &Namespace, name: &str, replicas: i32) -> Result<()> {
    let deployment: Deployment = object(json!({
        "metadata": { "name": name }, "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": name } },
        "template": template(name) },
    }));
    namespace.api().create(&PostParams::default(), &deployment).await?;
    Ok(())
}

fn template(name: &str) -> Value {
    let gpus = json!({ "limits": { "nvidia.com/gpu": "1" } });
    json!({ "metadata": { "labels": { "app": name } },
        "spec": { "containers": [{ "name": "vllm", "image": "vllm:1", "resources": gpus }] } })
}

async fn set_config_map(namespace: &Namespace, name: &str, data: Value) {
    let maps: Api<ConfigMap> = namespace.api();
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

/// Status, reason and message of a condition.
fn condition(status: &Value, type_: &str) -> (String, String, String) {
    let (truth, reason, message) = condition_parts(status, type_);
    (truth.to_owned(), reason.to_owned(), message.to_owned())
}

/// Variants, Deployments, StatefulSets, pods and ConfigMaps.
#[tokio::test]
async fn lists_of_fleet_are_read_in_pages() {
    let Some(test) = TestNamespace::new("pages").await else { return };
    let (lists, stop) = (RecordedLists::default(), CancellationToken::new());
    let scope = Scope::Namespace(test.namespace.name().to_owned());
    let context = fleet_context(test.cluster, lists.client(&test.admin), scope, test.settings.name(), &[]);
    let running = tokio::spawn(variant::run(context, DebounceConfig::default(), stop.clone()));
    lists.expect_pages(5).await;
    stop.cancel();
    running.await.unwrap();
}
