//! The cluster of this suite, its Prometheus, and the operator that all tests share.
//! Comes in: nothing; goes out: a world in which every fleet is looked at once a second.

use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::prometheus::{Door, Prometheus};
use steersman_testkit::{Cluster, Gpu, NodePool, apply, object, wait};
use tokio::sync::{Mutex, OnceCell};

use crate::operator::Voice;
use crate::scene::spec;
use crate::stage;

pub const MAIN: &str = "workload-variant-autoscaler-variantautoscaling-config";
pub const ZERO: &str = "model-scale-to-zero-config";
pub const SATURATION: &str = "workload-variant-autoscaler-saturation-scaling-config";

/// Where users of the Go operator have their settings: they stay there.
const FORMER: &str = "workload-variant-autoscaler-system";

/// Namespace and name of an object that nobody can read.
pub const UNREADABLE: (&str, &str) = ("of-another-time", "unreadable");

/// Of which the limiter's test has all.
pub const SCARCE: Gpu = Gpu::T4;

/// A Prometheus that players tell of their pods, and that a test may stop.
pub type Meter = Arc<Mutex<Prometheus>>;

pub struct World {
    pub cluster: &'static Cluster,
    pub meter: Meter,
    pub voice: Voice,
}

/// None (after saying so) where the cluster's programs are not built.
pub async fn world() -> Option<&'static World> {
    static STAGE: OnceCell<Option<stage::World>> = OnceCell::const_new();
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let stage = stage::world(&STAGE, start).await?;
    let world = WORLD.get_or_try_init(|| furnish(stage)).await;
    Some(world.unwrap_or_else(|error| panic!("no world to act in: {error:?}\n{}", stage.operator.log_end())))
}

async fn start() -> Result<Option<stage::World>> {
    let nodes = vec![NodePool::usual(SCARCE, 2), NodePool::plain("plain", 4)];
    stage::start(Family::Va, nodes).await
}

async fn furnish(stage: &'static stage::World) -> Result<World> {
    let prometheus = Prometheus::start(Door::Open).await?.context("Prometheus is not built")?;
    let admin = stage.cluster.admin().await?;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": FORMER } });
    apply::manifests(&admin, None, &namespace.to_string()).await?;
    settle(&admin, FORMER, &prometheus).await?;
    leave_behind(&admin).await?;
    let (meter, voice) = (Arc::new(Mutex::new(prometheus)), Voice::of(&stage.operator));
    Ok(World { cluster: &stage.cluster, meter, voice })
}

/// Stores an object that this version cannot read, as one of another version may have.
async fn leave_behind(admin: &Client) -> Result<()> {
    let (namespace, name) = UNREADABLE;
    let manifest = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    apply::manifests(admin, None, &manifest.to_string()).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(admin.clone());
    let crd = format!("{}.{}", Family::Va.plural(), Family::Va.group());
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/variantCost";
    let stored = json!(crds.get(&crd).await?);
    let strict = stored.pointer(path).context("the schema of variantCost")?.clone();
    let replace = async |schema: &Value| {
        let patch = serde_json::from_value(json!([{ "op": "replace", "path": path, "value": schema }]))?;
        crds.patch(&crd, &PatchParams::default(), &Patch::<()>::Json(patch)).await?;
        anyhow::Ok(())
    };
    let objects = stage::objects(admin, Family::Va, namespace, "v1alpha1");
    let object: DynamicObject = object(json!({ "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": { "name": name }, "spec": spec("decode", "llama", json!({ "variantCost": 7 })) }));
    replace(&json!({ "type": "integer" })).await?;
    let store = async || objects.create(&PostParams::default(), &object).await.ok();
    wait::eventually("an object of another version is stored", store).await?;
    replace(&strict).await?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let other: DynamicObject = DynamicObject {
        metadata: ObjectMeta { name: Some("other".to_owned()), ..ObjectMeta::default() },
        ..object.clone()
    };
    let refused = async || {
        let tried = objects.create(&dry_run, &other).await;
        matches!(tried, Err(kube::Error::Api(status)) if status.code == 422).then_some(())
    };
    wait::eventually("such an object is refused again", refused).await
}

/// The settings of an operator that asks this Prometheus once a second.
pub async fn settle(admin: &Client, namespace: &str, prometheus: &Prometheus) -> Result<()> {
    let data = json!({
        "GLOBAL_OPT_INTERVAL": "1s",
        "PROMETHEUS_BASE_URL": prometheus.url(),
        "PROMETHEUS_CA_CERT_PATH": prometheus.file("ca.pem"),
    });
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": MAIN }, "data": data });
    apply::manifests(admin, Some(namespace), &map.to_string()).await?;
    Ok(())
}
