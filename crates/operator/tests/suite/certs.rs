//! The webhook certificate on a real API server: created, added to the CRDs that name this webhook, and rotated without a
//! failed request, by processes with exactly the shipped rights.

mod clock;
mod files;
pub mod forward;
mod load;
mod rotation;
mod secret;

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, ServiceReference, WebhookClientConfig,
};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;
use steersman::certs::SECRET;
use steersman::installation::NAMESPACE;
use steersman_api::Family;
use steersman_api::crds::{self, Options};
use steersman_testkit::{Cluster, ExclusiveCluster, Flavour, exclusive_cluster, wait};

use crate::process::operator::{OperatorProcess, TestInstallation};
use crate::schemas::{api_resource, install_crd, uninstall_crd};
use forward::Forwarder;

/// The operator's namespace without a certificate, and an address at which API servers reach the operators that run there.
pub struct WebhookEnv {
    pub cluster: &'static Cluster,
    pub admin: Client,
    pub installation: TestInstallation,
    pub forwarder: Forwarder,
    _exclusive: ExclusiveCluster,
}

impl WebhookEnv {
    pub async fn prepare() -> Option<Self> {
        let exclusive = exclusive_cluster(Flavour::Bare).await?;
        let cluster = exclusive.cluster;
        let installation = TestInstallation::create(cluster).await;
        let admin = cluster.admin().await.unwrap();
        let env = Self { cluster, admin, installation, forwarder: Forwarder::start().await, _exclusive: exclusive };
        // An earlier test may have left the Secret.
        let _ = env.secrets().delete(SECRET, &DeleteParams::default()).await;
        Some(env)
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    pub fn crds(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.admin.clone())
    }

    /// Starts an operator with webhooks that the API server reaches through the forwarder.
    pub async fn start(&self, identity: &str, more: &[&str]) -> OperatorProcess {
        self.start_behind_service(identity, &[&["--webhook-url", &self.forwarder.url()], more].concat()).await
    }

    /// Starts an operator with webhooks at the forwarder that knows only the name of its Service.
    pub async fn start_behind_service(&self, identity: &str, more: &[&str]) -> OperatorProcess {
        let flags = ["--webhooks", "on", "--webhook-address", "127.0.0.1:0"];
        let operator = self.installation.start(identity, &[&flags, more].concat()).await;
        self.route_to(&operator).await;
        operator
    }

    /// Adds the operator to the backends of the forwarder.
    pub async fn route_to(&self, operator: &OperatorProcess) {
        let address = async || operator.address("webhook");
        let address = wait::eventually("the webhook listens", address).await.unwrap();
        self.forwarder.add_backend(address.trim_start_matches("https://").parse().unwrap());
    }

    /// Installs the CRD of `family`, converted by the operators behind the forwarder.
    async fn install(&self, family: Family) {
        self.install_with(family, client_config_for(&self.forwarder.url())).await;
    }

    async fn install_with(&self, family: Family, client: WebhookClientConfig) {
        let crd = crds::crd(family, &Options { conversion: Some(client) }).unwrap();
        install_crd(&self.admin, &crd, &api_resource(family, family.storage_version())).await;
    }

    async fn uninstall(&self, family: Family) {
        uninstall_crd(&self.admin, family).await;
    }

    /// Waits until the data of the Secret satisfy `holds`, and returns them.
    async fn wait_for_secret(&self, what: &str, holds: impl Fn(&SecretData) -> bool) -> SecretData {
        let holds = |secret: &Secret| secret.data.as_ref().is_some_and(&holds);
        wait::until(self.secrets(), SECRET, what, wait::TIMEOUT, holds).await.unwrap().data.unwrap()
    }

    async fn secret(&self) -> SecretData {
        self.wait_for_secret("holds data", |_| true).await
    }

    /// The CA certificates of the operator.
    pub async fn ca_bundle(&self) -> ByteString {
        self.secret().await["ca.crt"].clone()
    }

    /// The data of the Secret now, and a watch of all later versions.
    async fn watch_secret(&self) -> (SecretData, SecretVersions) {
        let secrets = self.secrets();
        let listed = secrets.list(&ListParams::default().fields(&format!("metadata.name={SECRET}"))).await.unwrap();
        let version = listed.metadata.resource_version.unwrap();
        let secret = listed.items.into_iter().next().expect("the Secret with the certificate exists");
        (secret.data.unwrap(), SecretVersions { secrets, version })
    }

    /// Waits until the CRD holds the bundle of the Secret, and returns the bundle.
    async fn wait_until_trusted(&self, family: Family) -> ByteString {
        let trusted = async || {
            let bundle = self.secrets().get_opt(SECRET).await.ok()??.data?.remove("ca.crt")?;
            let crd = self.crds().get(family.crd_name()).await.ok()?;
            (ca_bundle(&crd) == Some(&bundle)).then_some(bundle)
        };
        wait::eventually("the CRD holds the bundle of the Secret", trusted).await.unwrap()
    }

    /// Requests a rotation with the annotation that users set.
    async fn request_rotation(&self) {
        let annotation = json!({ "metadata": { "annotations": { "steersman.dev/rotate": "now" } } });
        self.secrets().patch(SECRET, &PatchParams::default(), &Patch::Merge(annotation)).await.unwrap();
    }
}

type SecretData = BTreeMap<String, ByteString>;

/// Every version of the Secret in order. Polling would miss versions that are replaced quickly.
struct SecretVersions {
    secrets: Api<Secret>,
    /// Resource version of the last event that was read.
    version: String,
}

impl SecretVersions {
    /// Waits for the next version that satisfies `holds`.
    async fn until(&mut self, what: &str, holds: impl Fn(&SecretData) -> bool) -> SecretData {
        let found = tokio::time::timeout(wait::TIMEOUT, self.next(holds)).await;
        found.unwrap_or_else(|_| panic!("no version of the Secret {what} within {:?}", wait::TIMEOUT))
    }

    async fn next(&mut self, holds: impl Fn(&SecretData) -> bool) -> SecretData {
        let params = WatchParams::default().fields(&format!("metadata.name={SECRET}"));
        loop {
            // The watch continues after the last version that was read.
            let mut changes = match self.secrets.watch(&params, &self.version).await {
                Ok(changes) => pin!(changes),
                Err(kube::Error::Api(status)) if status.code == 410 => {
                    panic!("versions of the Secret were missed: {status}")
                }
                // A busy API server refuses some watches.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            while let Some(Ok(change)) = changes.next().await {
                let exists = matches!(change, WatchEvent::Added(_) | WatchEvent::Modified(_));
                let secret = match change {
                    WatchEvent::Added(secret) | WatchEvent::Modified(secret) | WatchEvent::Deleted(secret) => secret,
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(status) => panic!("versions of the Secret were missed: {status}"),
                };
                self.version = secret.metadata.resource_version.unwrap();
                match secret.data {
                    Some(data) if exists && holds(&data) => return data,
                    _ => {}
                }
            }
        }
    }
}

fn client_config_for(url: &str) -> WebhookClientConfig {
    WebhookClientConfig { url: Some(format!("{url}/convert")), ..WebhookClientConfig::default() }
}

fn ca_bundle(crd: &CustomResourceDefinition) -> Option<&ByteString> {
    crd.spec.conversion.as_ref()?.webhook.as_ref()?.client_config.as_ref()?.ca_bundle.as_ref()
}

/// The number of CAs in a bundle.
fn ca_count(bundle: &ByteString) -> usize {
    String::from_utf8(bundle.0.clone()).unwrap().matches("-----END CERTIFICATE-----").count()
}

#[tokio::test]
async fn unready_webhook_reports_what_it_awaits() {
    let operator = OperatorProcess::without_api_server_with(
        "https://127.0.0.1:1",
        &["--webhooks", "on", "--webhook-address", "127.0.0.1:0"],
    );
    operator.until_answer("/healthz", 200).await;
    let expected = "waiting for a response of the API server\n\
                    waiting for the CA bundle in every CRD and webhook configuration that names this webhook\n\
                    waiting for the webhook certificate\n";
    assert_eq!(operator.health("/readyz").await.unwrap(), (503, expected.to_owned()));
}

/// A Service routes to ready pods only, and filling a cache may need conversion. Readiness must therefore not wait for caches.
#[tokio::test]
async fn webhook_is_ready_without_crds_and_leadership() {
    let Some(env) = WebhookEnv::prepare().await else { return };
    let leader = env.start("leader", &[]).await;
    env.installation.until_led_by("leader").await;
    leader.until_answer("/readyz", 200).await;
    let standby = env.start("standby", &[]).await;
    standby.until_answer("/readyz", 200).await;
    assert_eq!(env.installation.holder().await, "leader");
    for operator in [&leader, &standby] {
        operator.assert_log_is_json();
        assert!(!operator.log().contains("PRIVATE KEY"), "a private key is in the log");
    }
}

#[tokio::test]
async fn ca_bundle_is_added_to_own_crds_only() {
    let Some(env) = WebhookEnv::prepare().await else { return };
    let (own, other) = (Family::Llsd, Family::Dgdr);
    env.install(own).await;
    let service = ServiceReference {
        namespace: NAMESPACE.into(),
        name: "of-somebody-else".into(),
        ..ServiceReference::default()
    };
    env.install_with(other, WebhookClientConfig { service: Some(service), ..Default::default() }).await;
    let before = env.crds().get(own.crd_name()).await.unwrap().spec;
    let others = env.crds().get(other.crd_name()).await.unwrap().spec;

    let operator = env.start("alone", &[]).await;
    operator.until_answer("/readyz", 200).await;
    let crd = env.crds().get(own.crd_name()).await.unwrap();
    assert_eq!(ca_bundle(&crd), Some(&env.secret().await["ca.crt"]), "a ready operator has added the bundle");
    let mut after = crd.spec;
    let client = after.conversion.as_mut().unwrap().webhook.as_mut().unwrap().client_config.as_mut().unwrap();
    client.ca_bundle = None;
    assert_eq!(after, before, "only the bundle has changed");
    assert_eq!(env.crds().get(other.crd_name()).await.unwrap().spec, others, "it names another webhook");

    env.uninstall(other).await;
    env.install(other).await;
    env.wait_until_trusted(other).await;
    // The CRD is applied again without a bundle.
    let emptied = json!({ "spec": { "conversion": { "webhook": { "clientConfig": { "caBundle": null } } } } });
    env.crds().patch(own.crd_name(), &PatchParams::default(), &Patch::Merge(emptied)).await.unwrap();
    env.wait_until_trusted(own).await;
    operator.assert_log_is_json();
    env.uninstall(own).await;
    env.uninstall(other).await;
}
