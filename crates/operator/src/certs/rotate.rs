//! Rotates the certificate, on the leader. After a crash between two steps the next leader continues from the Secret.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, PostParams};
use steersman_runtime::leader::Fence;
use tokio::time;
use tokio_util::sync::CancellationToken;

use crate::certs::decide::{RotationStep, next_step};
use crate::certs::generation::generate;
use crate::certs::state::CertificateState;
use crate::certs::{CertificateError, Certificates, CertificatesInner, RETRY_INTERVAL, SECRET, check};

impl Certificates {
    /// Rotates whenever it is due, until `stop`.
    pub async fn rotate(&self, fence: Fence, stop: CancellationToken) {
        let inner = &self.inner;
        let writer = fence.around(&inner.server.client);
        let mut syncs = inner.syncs.subscribe();
        let work = async {
            loop {
                syncs.mark_unchanged();
                let wait = match inner.advance(&writer).await {
                    Ok(true) => continue,
                    Ok(false) => inner.timing.check,
                    Err(error) => {
                        tracing::info!(%error, "the rotation of the webhook certificate cannot continue; retrying");
                        RETRY_INTERVAL
                    }
                };
                tokio::select! { _ = syncs.changed() => {}, () = time::sleep(wait) => {} }
            }
        };
        tokio::select! { () = stop.cancelled() => {}, () = work => {} }
    }
}

impl CertificatesInner {
    /// Takes one step; false: none is due.
    async fn advance(&self, writer: &Client) -> Result<bool, CertificateError> {
        let found = self.server.call(self.secrets().get_opt(SECRET)).await.map_err(CertificateError::Read)?;
        // `follow` creates a missing Secret and replaces an unusable one.
        let Some(secret) = found else { return Ok(false) };
        let Ok(state) = CertificateState::read(&secret) else { return Ok(false) };
        let (names, now) = (self.reach.names(), Timestamp::now());
        match next_step(&state, &names, &self.timing, now) {
            RotationStep::Wait => return Ok(false),
            RotationStep::Begin(cause) => {
                let rotating = state.with_successor(generate(&names, self.timing.validity, now)?);
                self.write(writer, secret, &rotating).await?;
                tracing::info!(cause, "rotating the webhook certificate: adding the new CA to the bundles");
            }
            RotationStep::Activate => {
                self.check_bundles(&state).await?;
                // A certificate that no client trusts is replaced without delay.
                if check::verify(&state.leaf.certificate, &state.bundle, &names, now).is_ok() {
                    time::sleep(self.timing.settle).await;
                    // A CRD or a webhook configuration may have been created or changed in the meantime.
                    self.check_bundles(&state).await?;
                }
                self.write(writer, secret, &state.activated(Timestamp::now())).await?;
                tracing::info!(
                    "rotating the webhook certificate: all bundles have the new CA, serving the new certificate"
                );
            }
            RotationStep::Retire => {
                self.write(writer, secret, &state.retired()).await?;
                tracing::info!("rotated the webhook certificate: removed the old CA from the bundles");
            }
        }
        Ok(true)
    }

    /// Fails unless every object that names this operator has the bundle, which `follow` sets.
    async fn check_bundles(&self, state: &CertificateState) -> Result<(), CertificateError> {
        let bundle = state.ca_bundle();
        match self.targets().await?.iter().find(|observed| !observed.has(&bundle)) {
            Some(observed) => Err(CertificateError::BundleMissing(observed.target)),
            None => Ok(()),
        }
    }

    /// Replaces the Secret as it was read. A write in between makes this one fail with a conflict.
    async fn write(
        &self,
        writer: &Client,
        mut secret: Secret,
        state: &CertificateState,
    ) -> Result<(), CertificateError> {
        state.write(&mut secret);
        let secrets: Api<Secret> = Api::namespaced(writer.clone(), &self.reach.namespace);
        let replaced = self.server.call(secrets.replace(SECRET, &PostParams::default(), &secret)).await;
        replaced.map(|_| ()).map_err(CertificateError::Write)
    }
}
