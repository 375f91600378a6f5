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

use crate::certs::bundles::{self, BundleTarget, ObservedTarget};
use crate::certs::state::CertificateState;
use crate::certs::{
    BUNDLES, CERTIFICATE, CertificateError, Certificates, CertificatesInner, MAX_ATTEMPTS, RETRY_INTERVAL, SECRET,
    check,
};
use crate::webhooks::admission::Route;

impl Certificates {
    pub async fn follow(&self) -> Infallible {
        let inner = &self.inner;
        let mut changes = pin!(inner.changes());
        let mut logged = String::new();
        loop {
            let wait = match inner.sync().await {
                Ok(()) => {
                    logged.clear();
                    inner.timing.check
                }
                Err(error) => {
                    let error = error.to_string();
                    // A repeated error is logged once: a missing permission may be missing for long.
                    if error != logged {
                        tracing::warn!(error, "the webhook certificate is not ready; retrying");
                        logged = error;
                    }
                    RETRY_INTERVAL
                }
            };
            inner.syncs.send_modify(|syncs| *syncs += 1);
            tokio::select! { _ = changes.next() => {}, () = time::sleep(wait) => {} }
            // The next sync covers all changes up to now.
            while let Some(Some(())) = changes.next().now_or_never() {}
        }
    }
}

impl CertificatesInner {
    /// Triggers without a payload: the objects are read again, because an event may be older than the last read.
    fn changes(&self) -> impl futures::Stream<Item = ()> + use<> {
        let secret = watcher::watch_object(self.secrets(), SECRET).default_backoff();
        let secret: BoxStream<'static, ()> = secret.filter_map(|change| async { trigger(change) }).boxed();
        let targets = BundleTarget::all().into_iter().map(|target| match target {
            BundleTarget::Crd(_) => self.changes_of::<CustomResourceDefinition>(target),
            BundleTarget::Admission(configuration) => match configuration.route {
                Route::Validate => self.changes_of::<ValidatingWebhookConfiguration>(target),
                Route::Mutate => self.changes_of::<MutatingWebhookConfiguration>(target),
            },
        });
        select_all([secret].into_iter().chain(targets))
    }

    fn changes_of<K>(&self, target: BundleTarget) -> BoxStream<'static, ()>
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + Send + 'static,
    {
        let objects: Api<PartialObjectMeta<K>> = Api::all(self.server.client.clone());
        let changes = watcher::watch_object(objects, target.name()).default_backoff();
        changes.filter_map(|change| async { trigger(change) }).boxed()
    }

    /// Reads the targets *before* the Secret, and writes a target only if it has not changed since: a replica with a stale
    /// Secret cannot undo the write of a replica with a newer one.
    async fn sync(&self) -> Result<(), CertificateError> {
        for _ in 0..MAX_ATTEMPTS {
            let targets = self.targets().await;
            let state = self.state().await?;
            self.serve(&state);
            if self.set_bundles(&targets?, &state).await? {
                self.readiness.has(BUNDLES);
                return Ok(());
            }
        }
        Err(CertificateError::Contended)
    }

    /// The objects that name this operator.
    pub(super) async fn targets(&self) -> Result<Vec<ObservedTarget>, CertificateError> {
        let mut named = Vec::new();
        for target in BundleTarget::all() {
            let observed = bundles::read(&self.server, target, &self.reach).await;
            named.extend(observed.map_err(|error| CertificateError::ReadTarget(target, error))?);
        }
        Ok(named)
    }

    fn serve(&self, state: &CertificateState) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.as_ref().is_none_or(|known| known.leaf != state.leaf) {
            // `CertificateState::read` has checked the pair, so that this does not fail.
            let Ok(key) = check::certified_key(&state.leaf) else { return };
            self.served.set(key);
            tracing::info!(secret = SECRET, "loaded the webhook certificate from the Secret");
        }
        *memory = Some(state.clone());
        self.readiness.has(CERTIFICATE);
    }

    /// False: an object has changed since it was read, and the sync must start again.
    async fn set_bundles(
        &self,
        targets: &[ObservedTarget],
        state: &CertificateState,
    ) -> Result<bool, CertificateError> {
        let bundle = state.ca_bundle();
        for observed in targets.iter().filter(|observed| !observed.has(&bundle)) {
            let (kind, name) = (observed.target.kind(), observed.target.name());
            match bundles::set(&self.server, observed, &bundle).await {
                Ok(()) => tracing::info!(kind, name, "set the CA bundle of the webhook"),
                Err(CallError::Answered { code: 404 | 409, message, .. }) => {
                    tracing::debug!(kind, name, message, "the object changed before its CA bundle was set; retrying");
                    return Ok(false);
                }
                Err(error) => return Err(CertificateError::WriteTarget(observed.target, error)),
            }
        }
        Ok(true)
    }
}

fn trigger<K>(change: Result<Option<K>, watcher::Error>) -> Option<()> {
    // A broken watch is restarted; until then syncs run at intervals.
    change
        .inspect_err(|error| tracing::debug!(%error, "a watch of the webhook certificate failed; it is restarted"))
        .ok()
        .map(|_| ())
}
