//! Serves the certificate of the Secret and copies its CA bundle into CRDs and webhook configurations, on every replica.

use std::convert::Infallible;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::PoisonError;

use futures::stream::{BoxStream, select_all};
use futures::{FutureExt, StreamExt};
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use kube::api::{Api, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use steersman_runtime::client::CallError;
use tokio::time;

use crate::certs::bundles::{self, Held, Holder};
use crate::certs::kept::Kept;
use crate::certs::{
    BUNDLES, CERTIFICATE, CertificateError, Certificates, RETRY_INTERVAL, SECRET, Shared, TRIES, check,
};
use crate::webhooks::admission::Route;

impl Certificates {
    pub async fn follow(&self) -> Infallible {
        let shared = &self.shared;
        let mut changes = pin!(shared.changes());
        let mut said = String::new();
        loop {
            let wait = match shared.pass().await {
                Ok(()) => {
                    said.clear();
                    shared.lives.check
                }
                Err(error) => {
                    let error = error.to_string();
                    // A repeated error is logged once: a missing right may be missing for long.
                    if error != said {
                        tracing::warn!(error, "the certificate of the webhook is not in order yet");
                        said = error;
                    }
                    RETRY_INTERVAL
                }
            };
            shared.passes.send_modify(|passes| *passes += 1);
            tokio::select! { _ = changes.next() => {}, () = time::sleep(wait) => {} }
            // The next pass covers all changes up to now.
            while let Some(Some(())) = changes.next().now_or_never() {}
        }
    }
}

impl Shared {
    /// Triggers without a payload: the objects are read again, because an event may be older than the last read.
    fn changes(&self) -> impl futures::Stream<Item = ()> + use<> {
        let secret = watcher::watch_object(self.secrets(), SECRET).default_backoff();
        let secret: BoxStream<'static, ()> = secret.filter_map(|change| async { noted(change) }).boxed();
        let holders = Holder::all().into_iter().map(|holder| match holder {
            Holder::Crd(_) => self.changes_of::<CustomResourceDefinition>(holder),
            Holder::Admission(configuration) => match configuration.route {
                Route::Validate => self.changes_of::<ValidatingWebhookConfiguration>(holder),
                Route::Mutate => self.changes_of::<MutatingWebhookConfiguration>(holder),
            },
        });
        select_all([secret].into_iter().chain(holders))
    }

    fn changes_of<K>(&self, holder: Holder) -> BoxStream<'static, ()>
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + Send + 'static,
    {
        let objects: Api<PartialObjectMeta<K>> = Api::all(self.server.client.clone());
        let changes = watcher::watch_object(objects, holder.name()).default_backoff();
        changes.filter_map(|change| async { noted(change) }).boxed()
    }

    /// Reads the holders *before* the Secret, and writes a holder only if it has not changed since: a replica with a stale
    /// Secret cannot undo the write of a replica with a newer one.
    async fn pass(&self) -> Result<(), CertificateError> {
        for _ in 0..TRIES {
            let held = self.held().await;
            let kept = self.kept().await?;
            self.serve(&kept);
            if self.fill(&held?, &kept).await? {
                self.readiness.has(BUNDLES);
                return Ok(());
            }
        }
        Err(CertificateError::Contended)
    }

    /// The objects that name this operator.
    pub(super) async fn held(&self) -> Result<Vec<Held>, CertificateError> {
        let mut named = Vec::new();
        for holder in Holder::all() {
            let held = bundles::read(&self.server, holder, &self.reach).await;
            named.extend(held.map_err(|error| CertificateError::ReadHolder(holder, error))?);
        }
        Ok(named)
    }

    fn serve(&self, kept: &Kept) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.as_ref().is_none_or(|known| known.leaf != kept.leaf) {
            // `Kept::read` has made this check before, so that it does not fail here.
            let Ok(key) = check::certified(&kept.leaf) else { return };
            self.served.put(key);
            tracing::info!(secret = SECRET, "serving the webhook with the certificate of the secret");
        }
        *memory = Some(kept.clone());
        self.readiness.has(CERTIFICATE);
    }

    /// False: an object has changed since it was read, and the pass must start again.
    async fn fill(&self, all: &[Held], kept: &Kept) -> Result<bool, CertificateError> {
        let bundle = kept.ca_bundle();
        for held in all.iter().filter(|held| !held.holds(&bundle)) {
            let (kind, name) = (held.holder.kind(), held.holder.name());
            match bundles::put(&self.server, held, &bundle).await {
                Ok(()) => tracing::info!(kind, name, "put the CA bundle of the webhook where it is named"),
                Err(CallError::Answered { code: 404 | 409, message, .. }) => {
                    tracing::debug!(kind, name, message, "it has changed before the CA bundle was in");
                    return Ok(false);
                }
                Err(error) => return Err(CertificateError::WriteHolder(held.holder, error)),
            }
        }
        Ok(true)
    }
}

fn noted<K>(change: Result<Option<K>, watcher::Error>) -> Option<()> {
    // A broken watch is restarted; until then passes run at intervals.
    change.inspect_err(|error| tracing::debug!(%error, "a watch for the webhook certificate broke")).ok().map(|_| ())
}
