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
use steersman::admission::{self, Policy};
use steersman::cli::{ClusterArgs, ConverterArgs};
use steersman::crds::{self, Given};
use steersman::{client, rbac};
use steersman_api::Family;
use steersman_testkit::ports::HeldPort;
use steersman_testkit::process::Process;
use steersman_testkit::{Cluster, Flavour, NodePool, Options, Own, apply, own, skip, wait};
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
    pub operator: Process,
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

async fn operate(cluster: &Cluster, family: Family, folder: &Path) -> Result<Process> {
    let admin = cluster.admin().await?;
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac.yaml");
    apply::manifests(&admin, None, &std::fs::read_to_string(shipped)?).await?;
    let account = cluster.service_account(rbac::NAMESPACE, rbac::NAME).await?;
    wait::until_allowed(&account, "list", family.group(), family.plural(), None).await?;
    // API servers reach the operator by this port; it is let go of at the last moment.
    let port = HeldPort::any()?;
    let url = format!("https://127.0.0.1:{}", port.number());
    install(cluster, &admin, family, &url).await?;
    let address = format!("127.0.0.1:{}", port.number());
    let kubeconfig = cluster.service_account_kubeconfig(rbac::NAMESPACE, rbac::NAME).await?.display().to_string();
    let own = ["run", "--kubeconfig", &kubeconfig, "--identity", IDENTITY, "--health-address", "127.0.0.1:0"];
    let webhook = ["--metrics-address", "127.0.0.1:0", "--webhook-address", &address, "--webhook-url", &url];
    drop(port);
    let program = Path::new(env!("CARGO_BIN_EXE_steersman"));
    let image = ["--operator-image", OPERATOR_IMAGE];
    let log = folder.join("log/steersman.log");
    Process::start("steersman", program, &[&own[..], &webhook, &image].concat(), folder, log)
}

/// As an administrator: the operator itself may not.
async fn install(cluster: &Cluster, admin: &Client, family: Family, url: &str) -> Result<()> {
    let args =
        ClusterArgs { kubeconfig: Some(cluster.admin_kubeconfig()), context: None, request_timeout: wait::LIMIT };
    let server = client::connect(&args).await?;
    let given = Given::read(&ConverterArgs { url: Some(url.to_owned()), ..ConverterArgs::default() })?;
    crds::apply(&server, &[family], &given, wait::LIMIT, &mut |_| {}).await?;
    if !admission::FAMILIES.contains(&family) {
        return Ok(());
    }
    admission::apply(&server, &[family], &given, Policy::Fail, &mut |_| {}).await?;
    let judged = json!([{ "op": "add", "path": "/webhooks/0/namespaceSelector",
        "value": { "matchExpressions": [{ "key": UNJUDGED, "operator": "DoesNotExist" }] } }]);
    let judged: Patch<ValidatingWebhookConfiguration> = Patch::Json(serde_json::from_value(judged)?);
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(admin.clone());
    let patched = configurations.patch(admission::name(family), &PatchParams::default(), &judged).await;
    patched.context("letting namespaces out of admission")?;
    Ok(())
}

/// From now on nobody is asked about objects of this namespace, as soon as the API server has heard of it.
#[allow(dead_code, reason = "not every suite has objects that admission would refuse")]
pub async fn unjudge(admin: &Client, namespace: &str) {
    let label = Patch::Merge(json!({ "metadata": { "labels": { UNJUDGED: "true" } } }));
    Api::<Namespace>::all(admin.clone()).patch(namespace, &PatchParams::default(), &label).await.unwrap();
}

/// The family's objects of a namespace in one version.
pub fn objects(client: &Client, family: Family, namespace: &str, version: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(family.group(), version, family.kind());
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, family.plural()))
}
