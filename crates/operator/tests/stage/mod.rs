//! The cluster of a suite and the operator in it, started once: CRDs, webhooks and role as `cargo xtask up` installs them.
//! Comes in: the family that the suite is about; goes out: a cluster in which it is acted on, and judged where it has rules.

use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::json;
use steersman::admission;
use steersman_api::Family;
use steersman_testkit::operator::STEADY;
use steersman_testkit::{Account, Asked, Cluster, Flavour, Launch, NodePool, Operator, Options, Own, own, skip};
use tokio::sync::OnceCell;

/// The image of the containers that are programs of the operator.
pub const OPERATOR_IMAGE: &str = "example.com/steersman:test";

/// Ends the user agent of every call that the operator makes.
pub const IDENTITY: &str = "scenarios";

/// A namespace with this label is not judged: what is written there is what an object looks like that was stored while
/// nobody was asked.
const UNJUDGED: &str = "scenarios.steersman.dev/unjudged";

pub struct World {
    pub cluster: Cluster,
    pub operator: Operator,
}

/// The world that `cell` stands for; None (after saying so) where the cluster's programs are not built.
pub async fn world(
    cell: &'static OnceCell<Option<World>>,
    start: impl AsyncFn() -> Result<Option<World>>,
) -> Option<&'static World> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let world = cell.get_or_try_init(|| start()).await.unwrap_or_else(|error| panic!("no world to act in: {error:?}"));
    if world.is_none() {
        skip::skip(&test, "the local cluster is not built; `cargo xtask test` builds it");
    }
    world.as_ref()
}

/// A cluster of its own, because its CRDs stay, while other suites put theirs in and out.
pub async fn start(family: Family, fleet: Vec<NodePool>) -> Result<Option<World>> {
    let options = Options { fleet, ..Options::new(Flavour::Full) };
    let Some(Own { cluster, folder }) = own(&options).await? else { return Ok(None) };
    let operator = operate(&cluster, family, &folder).await?;
    Ok(Some(World { cluster, operator }))
}

async fn operate(cluster: &Cluster, family: Family, folder: &Path) -> Result<Operator> {
    let account = Account::install(cluster).await?;
    let program = Path::new(env!("CARGO_BIN_EXE_steersman"));
    let launch = Launch::new(program, &account.kubeconfig, IDENTITY).with(&STEADY);
    let launch = launch.with(&["--operator-image", OPERATOR_IMAGE]);
    let named = [family.short_name()];
    let judged = admission::FAMILIES.contains(&family);
    let asked = Asked { converted: &named, judged: judged.then_some(&named) };
    let (operator, _) = launch.start_asked(cluster, &asked, &folder.join("log")).await?;
    if judged {
        leave_out_unjudged(&cluster.admin().await?, family).await?;
    }
    Ok(operator)
}

async fn leave_out_unjudged(admin: &Client, family: Family) -> Result<()> {
    let judged = json!([{ "op": "add", "path": "/webhooks/0/namespaceSelector",
        "value": { "matchExpressions": [{ "key": UNJUDGED, "operator": "DoesNotExist" }] } }]);
    let judged: Patch<ValidatingWebhookConfiguration> = Patch::Json(serde_json::from_value(judged)?);
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(admin.clone());
    let patched = configurations.patch(admission::name(family), &PatchParams::default(), &judged).await;
    patched.context("letting namespaces out of admission")?;
    Ok(())
}

/// From now on nobody is asked about objects of this namespace, as soon as the API server has heard of it.
#[allow(dead_code, reason = "not every family has objects that admission would refuse")]
pub async fn unjudge(admin: &Client, namespace: &str) {
    let label = Patch::Merge(json!({ "metadata": { "labels": { UNJUDGED: "true" } } }));
    Api::<Namespace>::all(admin.clone()).patch(namespace, &PatchParams::default(), &label).await.unwrap();
}

/// The family's objects of a namespace in one version.
pub fn objects(client: &Client, family: Family, namespace: &str, version: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(family.group(), version, family.kind());
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, family.plural()))
}
