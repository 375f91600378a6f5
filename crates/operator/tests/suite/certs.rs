//! The webhook's certificate on a real API server: made, trusted where we are named, and rotated without a failed request,
//! by processes with exactly the rights that are shipped.

mod clock;
mod files;
mod forward;
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
use steersman_testkit::{Cluster, Flavour, Turn, turn, wait};

use crate::process::operator::{Operator, Place};
use crate::schemas::{install, resource, uninstall};
use forward::Forwarder;

/// The operator's namespace without a certificate, and an address under which API servers reach whatever runs there.
pub struct Site {
    pub cluster: &'static Cluster,
    pub admin: Client,
    pub place: Place,
    pub forwarder: Forwarder,
    _turn: Turn,
}

impl Site {
    pub async fn prepared() -> Option<Self> {
        let turn = turn(Flavour::Bare).await?;
        let cluster = turn.cluster;
        let place = Place::of(cluster).await;
        let admin = cluster.admin().await.unwrap();
        let site = Self { cluster, admin, place, forwarder: Forwarder::start().await, _turn: turn };
        // Left behind by an earlier test.
        let _ = site.secrets().delete(SECRET, &DeleteParams::default()).await;
        Some(site)
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    pub fn crds(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.admin.clone())
    }

    /// An operator that is reached through the forwarder.
    pub async fn start(&self, identity: &str, more: &[&str]) -> Operator {
        let url = self.forwarder.url();
        let flags = ["--webhooks", "on", "--webhook-address", "127.0.0.1:0", "--webhook-url", &url];
        let operator = self.place.start(identity, &[&flags, more].concat()).await;
        self.route_to(&operator).await;
        operator
    }

    /// From now on the operator is one of those behind the forwarder.
    pub async fn route_to(&self, operator: &Operator) {
        let address = async || operator.address("webhook");
        let address = wait::eventually("the webhook listens", address).await.unwrap();
        self.forwarder.to(address.trim_start_matches("https://").parse().unwrap());
    }

    /// The CRD of a family whose objects are converted by whoever is behind the forwarder.
    async fn install(&self, family: Family) {
        self.install_with(family, by_url(&self.forwarder.url())).await;
    }

    async fn install_with(&self, family: Family, client: WebhookClientConfig) {
        let crd = crds::crd(family, &Options { conversion: Some(client) }).unwrap();
        install(&self.admin, &crd, &resource(family, family.storage_version())).await;
    }

    async fn uninstall(&self, family: Family) {
        uninstall(&self.admin, family).await;
    }

    /// The Secret as soon as it is as expected.
    async fn until_secret(&self, what: &str, holds: impl Fn(&Data) -> bool) -> Data {
        let holds = |secret: &Secret| secret.data.as_ref().is_some_and(&holds);
        wait::until(self.secrets(), SECRET, what, wait::LIMIT, holds).await.unwrap().data.unwrap()
    }

    async fn secret(&self) -> Data {
        self.until_secret("holds data", |_| true).await
    }

    /// The Secret as it is, and all that it becomes from now on.
    async fn follow_secret(&self) -> (Data, Versions) {
        let secrets = self.secrets();
        let listed = secrets.list(&ListParams::default().fields(&format!("metadata.name={SECRET}"))).await.unwrap();
        let version = listed.metadata.resource_version.unwrap();
        let secret = listed.items.into_iter().next().expect("a Secret with the certificate");
        (secret.data.unwrap(), Versions { secrets, version })
    }

    /// Waits until the CRD holds the bundle of the Secret, and returns the bundle.
    async fn until_trusted(&self, family: Family) -> ByteString {
        let trusted = async || {
            let bundle = self.secrets().get_opt(SECRET).await.ok()??.data?.remove("ca.crt")?;
            let crd = self.crds().get(family.crd_name()).await.ok()?;
            (ca_bundle(&crd) == Some(&bundle)).then_some(bundle)
        };
        wait::eventually("the CRD holds the bundle of the Secret", trusted).await.unwrap()
    }

    /// Asks for a rotation, as a user would.
    async fn ask(&self) {
        let asked = json!({ "metadata": { "annotations": { "steersman.dev/rotate": "now" } } });
        self.secrets().patch(SECRET, &PatchParams::default(), &Patch::Merge(asked)).await.unwrap();
    }
}

type Data = BTreeMap<String, ByteString>;

/// The versions of the Secret in their order, none left out: whoever looks at it now and then misses those that come and go
/// in between.
struct Versions {
    secrets: Api<Secret>,
    /// Up to which all were looked at.
    version: String,
}

impl Versions {
    /// The next version that is as expected.
    async fn until(&mut self, what: &str, holds: impl Fn(&Data) -> bool) -> Data {
        let found = tokio::time::timeout(wait::LIMIT, self.next(holds)).await;
        found.unwrap_or_else(|_| panic!("within {:?} no version of the Secret {what}", wait::LIMIT))
    }

    async fn next(&mut self, holds: impl Fn(&Data) -> bool) -> Data {
        let own = WatchParams::default().fields(&format!("metadata.name={SECRET}"));
        loop {
            // Begins where the last one was left, however long ago that was.
            let mut changes = match self.secrets.watch(&own, &self.version).await {
                Ok(changes) => pin!(changes),
                Err(kube::Error::Api(status)) if status.code == 410 => panic!("versions are lost: {status}"),
                // A busy API server refuses some.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            while let Some(Ok(change)) = changes.next().await {
                let there = matches!(change, WatchEvent::Added(_) | WatchEvent::Modified(_));
                let secret = match change {
                    WatchEvent::Added(secret) | WatchEvent::Modified(secret) | WatchEvent::Deleted(secret) => secret,
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(status) => panic!("versions are lost: {status}"),
                };
                self.version = secret.metadata.resource_version.unwrap();
                match secret.data {
                    Some(data) if there && holds(&data) => return data,
                    _ => {}
                }
            }
        }
    }
}

fn by_url(url: &str) -> WebhookClientConfig {
    WebhookClientConfig { url: Some(format!("{url}/convert")), ..WebhookClientConfig::default() }
}

fn ca_bundle(crd: &CustomResourceDefinition) -> Option<&ByteString> {
    crd.spec.conversion.as_ref()?.webhook.as_ref()?.client_config.as_ref()?.ca_bundle.as_ref()
}

/// How many CAs a bundle holds.
fn cas(bundle: &ByteString) -> usize {
    String::from_utf8(bundle.0.clone()).unwrap().matches("-----END CERTIFICATE-----").count()
}

#[tokio::test]
async fn before_it_is_ready_it_says_what_it_waits_for() {
    let operator =
        Operator::nowhere_with("https://127.0.0.1:1", &["--webhooks", "on", "--webhook-address", "127.0.0.1:0"]);
    operator.until_answer("/healthz", 200).await;
    let expected = "waiting for its CA bundle to be in every CRD and webhook configuration that names this webhook\n\
                    waiting for the API server to answer\n\
                    waiting for the certificate of the webhook\n";
    assert_eq!(operator.health("/readyz").await.unwrap(), (503, expected.to_owned()));
}

/// A Service routes to ready pods only, and what fills a cache may need the webhook: so nothing of the kind is awaited.
#[tokio::test]
async fn it_is_ready_where_no_crd_names_it_and_before_it_leads() {
    let Some(site) = Site::prepared().await else { return };
    let leader = site.start("leader", &[]).await;
    site.place.until_led_by("leader").await;
    leader.until_answer("/readyz", 200).await;
    let standby = site.start("standby", &[]).await;
    standby.until_answer("/readyz", 200).await;
    assert_eq!(site.place.holder().await, "leader");
    for operator in [&leader, &standby] {
        operator.assert_log_is_json();
        assert!(!operator.log().contains("PRIVATE KEY"), "a key is nobody's business");
    }
}

#[tokio::test]
async fn the_bundle_goes_where_we_are_named_and_nowhere_else() {
    let Some(site) = Site::prepared().await else { return };
    let (named, other) = (Family::Llsd, Family::Dgdr);
    site.install(named).await;
    let service = ServiceReference {
        namespace: NAMESPACE.into(),
        name: "of-somebody-else".into(),
        ..ServiceReference::default()
    };
    site.install_with(other, WebhookClientConfig { service: Some(service), ..Default::default() }).await;
    let before = site.crds().get(named.crd_name()).await.unwrap().spec;
    let others = site.crds().get(other.crd_name()).await.unwrap().spec;

    let operator = site.start("alone", &[]).await;
    operator.until_answer("/readyz", 200).await;
    let crd = site.crds().get(named.crd_name()).await.unwrap();
    assert_eq!(ca_bundle(&crd), Some(&site.secret().await["ca.crt"]), "ready says that the bundle is there");
    let mut after = crd.spec;
    let client = after.conversion.as_mut().unwrap().webhook.as_mut().unwrap().client_config.as_mut().unwrap();
    client.ca_bundle = None;
    assert_eq!(after, before, "nothing but the bundle has changed");
    assert_eq!(site.crds().get(other.crd_name()).await.unwrap().spec, others, "not ours to touch");

    site.uninstall(other).await;
    site.install(other).await;
    site.until_trusted(other).await;
    // Somebody applies the CRD anew, without a bundle.
    let emptied = json!({ "spec": { "conversion": { "webhook": { "clientConfig": { "caBundle": null } } } } });
    site.crds().patch(named.crd_name(), &PatchParams::default(), &Patch::Merge(emptied)).await.unwrap();
    site.until_trusted(named).await;
    operator.assert_log_is_json();
    site.uninstall(named).await;
    site.uninstall(other).await;
}
