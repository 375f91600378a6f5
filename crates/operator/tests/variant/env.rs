//! The cluster of these tests, with a Prometheus and an operator that reconciles the fleet every second.

use std::fs;
use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use steersman::installation;
use steersman_api::Family;
use steersman_testkit::prometheus::{ClientAuth, PrometheusServer};
use steersman_testkit::{Cluster, Gpu, NodePool, apply, object, wait};
use tokio::sync::{Mutex, OnceCell};

use crate::operator::OperatorProbe;
use crate::shared_env;
use crate::test_namespace::spec;

pub const MAIN_CONFIG_MAP: &str = "workload-variant-autoscaler-variantautoscaling-config";
pub const SCALE_TO_ZERO_CONFIG_MAP: &str = "model-scale-to-zero-config";
pub const SATURATION_CONFIG_MAP: &str = "workload-variant-autoscaler-saturation-scaling-config";

/// Namespace and name of an object that cannot be decoded.
pub const INVALID_OBJECT: (&str, &str) = ("of-another-time", "unreadable");

/// GPU that only the test of the limiter uses.
pub const SCARCE_GPU: Gpu = Gpu::T4;

/// A Prometheus to which load generators add their pods, and which a test may stop.
pub type SharedPrometheus = Arc<Mutex<PrometheusServer>>;

/// A cluster with a Prometheus and a running operator.
pub struct FleetEnv {
    pub cluster: &'static Cluster,
    pub prometheus: SharedPrometheus,
    pub probe: OperatorProbe,
}

/// None if the cluster is not built; the test is then listed as skipped.
pub async fn test_env() -> Option<&'static FleetEnv> {
    static SHARED: OnceCell<Option<shared_env::TestEnv>> = OnceCell::const_new();
    static ENV: OnceCell<FleetEnv> = OnceCell::const_new();
    let shared = shared_env::get_or_start(&SHARED, start).await?;
    let env = ENV.get_or_try_init(|| add_prometheus(shared)).await;
    Some(
        env.unwrap_or_else(|error| {
            panic!("cannot start the test environment: {error:?}\n{}", shared.operator.log_end())
        }),
    )
}

async fn start() -> Result<Option<shared_env::TestEnv>> {
    let nodes = vec![NodePool::with_gpus(SCARCE_GPU, 2), NodePool::without_gpus("plain", 4)];
    shared_env::start(Family::Va, nodes).await
}

async fn add_prometheus(shared: &'static shared_env::TestEnv) -> Result<FleetEnv> {
    let prometheus = PrometheusServer::start(ClientAuth::NotRequired).await?.context("Prometheus is not built")?;
    let admin = shared.cluster.admin().await?;
    apply_settings(&admin, installation::NAMESPACE, &prometheus).await?;
    store_invalid_object(&admin).await?;
    let (prometheus, probe) = (Arc::new(Mutex::new(prometheus)), OperatorProbe::new(&shared.operator));
    Ok(FleetEnv { cluster: &shared.cluster, prometheus, probe })
}

/// Stores an object that this version cannot decode, as another version of the CRD may have allowed it.
async fn store_invalid_object(admin: &Client) -> Result<()> {
    let (namespace, name) = INVALID_OBJECT;
    let manifest = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    apply::apply_manifests(admin, None, &manifest.to_string()).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(admin.clone());
    let crd = format!("{}.{}", Family::Va.plural(), Family::Va.group());
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/variantCost";
    let stored = json!(crds.get(&crd).await?);
    let strict = stored.pointer(path).context("the CRD has no schema of variantCost")?.clone();
    let replace = async |schema: &Value| {
        let patch = serde_json::from_value(json!([{ "op": "replace", "path": path, "value": schema }]))?;
        crds.patch(&crd, &PatchParams::default(), &Patch::<()>::Json(patch)).await?;
        anyhow::Ok(())
    };
    let objects = shared_env::objects(admin, Family::Va, namespace, "v1alpha1");
    let object: DynamicObject = object(json!({ "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": { "name": name }, "spec": spec("decode", "llama", json!({ "variantCost": 7 })) }));
    replace(&json!({ "type": "integer" })).await?;
    let store = async || objects.create(&PostParams::default(), &object).await.ok();
    wait::eventually("the object is stored with the changed schema", store).await?;
    replace(&strict).await?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let other: DynamicObject = DynamicObject {
        metadata: ObjectMeta { name: Some("other".to_owned()), ..ObjectMeta::default() },
        ..object.clone()
    };
    let rejected = async || {
        let created = objects.create(&dry_run, &other).await;
        matches!(created, Err(kube::Error::Api(status)) if status.code == 422).then_some(())
    };
    wait::eventually("the original schema is enforced again", rejected).await
}

/// Applies settings with which the operator queries this Prometheus every second. The percentage engine decides within
/// seconds; the default engine measures for minutes.
pub async fn apply_settings(admin: &Client, namespace: &str, prometheus: &PrometheusServer) -> Result<()> {
    let data = json!({
        "GLOBAL_OPT_INTERVAL": "1s",
        "PROMETHEUS_BASE_URL": prometheus.url(),
        "PROMETHEUS_CA_CERT": fs::read_to_string(prometheus.file("ca.pem"))?,
    });
    let engine = json!({ "default": "analyzerName: percentage" });
    for (name, data) in [(MAIN_CONFIG_MAP, data), (SATURATION_CONFIG_MAP, engine)] {
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data });
        apply::apply_manifests(admin, Some(namespace), &map.to_string()).await?;
    }
    Ok(())
}
