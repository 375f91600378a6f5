//! Rotates the certificate, on the leader. After a crash between two steps the next leader continues from the Secret.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, PostParams};
use steersman_runtime::leader::Fence;
use tokio::time;
use tokio_util::sync::CancellationToken;

use crate::certs::decide::{Step, step};
use crate::certs::generation::make;
use crate::certs::kept::Kept;
use crate::certs::{CertificateError, Certificates, RETRY_INTERVAL, SECRET, Shared, check};

impl Certificates {
    /// Rotates whenever it is due, until `stop`.
    pub async fn keep(&self, fence: Fence, stop: CancellationToken) {
        let shared = &self.shared;
        let writer = fence.around(&shared.server.client);
        let mut passes = shared.passes.subscribe();
        let work = async {
            loop {
                passes.mark_unchanged();
                let wait = match shared.advance(&writer).await {
                    Ok(true) => continue,
                    Ok(false) => shared.lives.check,
                    Err(error) => {
                        tracing::info!(%error, "the webhook certificate is not rotated yet");
                        RETRY_INTERVAL
                    }
                };
                tokio::select! { _ = passes.changed() => {}, () = time::sleep(wait) => {} }
            }
        };
        tokio::select! { () = stop.cancelled() => {}, () = work => {} }
    }
}

impl Shared {
    /// Takes one step; false: none is due.
    async fn advance(&self, writer: &Client) -> Result<bool, CertificateError> {
        let found = self.server.call(self.secrets().get_opt(SECRET)).await.map_err(CertificateError::Read)?;
        // `follow` creates a missing Secret and replaces an unusable one.
        let Some(secret) = found else { return Ok(false) };
        let Ok(kept) = Kept::read(&secret) else { return Ok(false) };
        let (names, now) = (self.reach.names(), Timestamp::now());
        match step(&kept, &names, &self.lives, now) {
            Step::Nothing => return Ok(false),
            Step::Begin(because) => {
                let begun = kept.begun(make(&names, self.lives.life, now)?);
                self.write(writer, secret, &begun).await?;
                tracing::info!(because, "rotating the webhook certificate: its new CA goes into the bundles");
            }
            Step::Turn => {
                self.everywhere(&kept).await?;
                // A certificate that no client trusts is replaced without delay.
                if check::holds(&kept.leaf.certificate, &kept.bundle, &names, now).is_ok() {
                    time::sleep(self.lives.settle).await;
                    // A CRD or a webhook configuration may have been created or changed in the meantime.
                    self.everywhere(&kept).await?;
                }
                self.write(writer, secret, &kept.turned(Timestamp::now())).await?;
                tracing::info!("rotating the webhook certificate: all bundles have its CA, the new one is served");
            }
            Step::Retire => {
                self.write(writer, secret, &kept.retired()).await?;
                tracing::info!("rotated the webhook certificate: the CA before is trusted no longer");
            }
        }
        Ok(true)
    }

    /// Fails unless every object that names this operator has the bundle, which `follow` sets.
    async fn everywhere(&self, kept: &Kept) -> Result<(), CertificateError> {
        let bundle = kept.ca_bundle();
        match self.held().await?.iter().find(|held| !held.holds(&bundle)) {
            Some(held) => Err(CertificateError::NotEverywhere(held.holder)),
            None => Ok(()),
        }
    }

    /// Replaces the Secret as it was read. A write in between makes this one fail with a conflict.
    async fn write(&self, writer: &Client, mut secret: Secret, kept: &Kept) -> Result<(), CertificateError> {
        kept.write(&mut secret);
        let secrets: Api<Secret> = Api::namespaced(writer.clone(), &self.reach.namespace);
        let replaced = self.server.call(secrets.replace(SECRET, &PostParams::default(), &secret)).await;
        replaced.map(|_| ()).map_err(CertificateError::Write)
    }
}
