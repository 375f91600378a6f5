//! Starts the cluster of a test binary with one operator, once for all tests. CRDs, webhooks and roles are installed as by
//! `cargo xtask up`.

use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::json;
use steersman::admission;
use steersman::installation::SecretAccess;
use steersman::rbac::RbacArgs;
use steersman_api::Family;
use steersman_testkit::operator::LONG_LEASE_ARGS;
use steersman_testkit::{
    Cluster, Flavour, NodePool, Operator, OperatorAccount, OperatorCommand, Options, ProcessCluster, WebhookFamilies,
    skip, start_process_cluster,
};
use tokio::sync::OnceCell;

/// Image of containers that run the operator's binary.
pub const OPERATOR_IMAGE: &str = "example.com/steersman:test";

/// Suffix of the user agent in all requests of the operator.
pub const IDENTITY: &str = "scenarios";

/// Label of namespaces without the validating webhook. Tests use it to store objects that admission would reject, such as
/// those of a time without the webhook.
const NO_ADMISSION_LABEL: &str = "scenarios.steersman.dev/unjudged";

/// A cluster with a running operator.
pub struct TestEnv {
    pub cluster: Cluster,
    pub operator: Operator,
}

/// The environment in `cell`, started at the first call. None if the cluster is not built; the test is then listed as
/// skipped.
pub async fn get_or_start(
    cell: &'static OnceCell<Option<TestEnv>>,
    start: impl AsyncFn() -> Result<Option<TestEnv>>,
) -> Option<&'static TestEnv> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let env = cell
        .get_or_try_init(|| start())
        .await
        .unwrap_or_else(|error| panic!("cannot start the test environment: {error:?}"));
    if env.is_none() {
        skip::skip(&test, "the local cluster is not built; `cargo xtask test` builds it");
    }
    env.as_ref()
}

/// Starts a separate cluster, because other test binaries install and remove CRDs in the shared one.
pub async fn start(family: Family, fleet: Vec<NodePool>) -> Result<Option<TestEnv>> {
    let options = Options { node_pools: fleet, ..Options::new(Flavour::Full) };
    let Some(ProcessCluster { cluster, folder }) = start_process_cluster(&options).await? else { return Ok(None) };
    let operator = start_operator(&cluster, family, &folder).await?;
    Ok(Some(TestEnv { cluster, operator }))
}

async fn start_operator(cluster: &Cluster, family: Family, folder: &Path) -> Result<Operator> {
    // Scenarios of servers expect that a new or changed Secret has effect at once; `suite/references` tests the default. The
    // other families run with the shipped role.
    let secrets = if family == Family::Llsd { SecretAccess::Watch } else { SecretAccess::default() };
    let roles = RbacArgs { secrets, ..RbacArgs::default() };
    let account = OperatorAccount::install_with(cluster, &roles.manifests()?).await?;
    let program = Path::new(env!("CARGO_BIN_EXE_steersman"));
    let launch = OperatorCommand::new(program, &account.kubeconfig, IDENTITY).args(&LONG_LEASE_ARGS);
    let launch = launch.args(&["--operator-image", OPERATOR_IMAGE, "--secrets", secrets.flag_value()]);
    let families = [family.short_name()];
    let has_admission = admission::FAMILIES.contains(&family);
    let webhooks = WebhookFamilies { crds: &families, admission: has_admission.then_some(&families) };
    let (operator, _) = launch.start_with_webhooks(cluster, &webhooks, &folder.join("log")).await?;
    if has_admission {
        exempt_labelled_namespaces(&cluster.admin().await?, family).await?;
    }
    Ok(operator)
}

async fn exempt_labelled_namespaces(admin: &Client, family: Family) -> Result<()> {
    let patch = json!([{ "op": "add", "path": "/webhooks/0/namespaceSelector",
        "value": { "matchExpressions": [{ "key": NO_ADMISSION_LABEL, "operator": "DoesNotExist" }] } }]);
    let patch: Patch<ValidatingWebhookConfiguration> = Patch::Json(serde_json::from_value(patch)?);
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(admin.clone());
    let patched = configurations.patch(admission::name(family), &PatchParams::default(), &patch).await;
    patched.context("cannot exempt labelled namespaces from admission")?;
    Ok(())
}

/// Exempts the namespace from admission. The API server may need a moment to observe the label.
#[allow(dead_code, reason = "VariantAutoscalings have no admission webhook")]
pub async fn disable_admission(admin: &Client, namespace: &str) {
    let label = Patch::Merge(json!({ "metadata": { "labels": { NO_ADMISSION_LABEL: "true" } } }));
    Api::<Namespace>::all(admin.clone()).patch(namespace, &PatchParams::default(), &label).await.unwrap();
}

/// The objects of a family in a namespace, in one version of the API.
pub fn objects(client: &Client, family: Family, namespace: &str, version: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(family.group(), version, family.kind());
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, family.plural()))
}
