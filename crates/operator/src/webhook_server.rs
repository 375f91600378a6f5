//! Starts and stops the webhook listener, and chooses the source of its certificate.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use steersman_api::Family;
use steersman_api::convert::convert_for_review;
use steersman_plan::dynamo::validate::{DYNAMO_VERSION, default_image};
use steersman_runtime::client::Server;
use steersman_runtime::leader::Fence;
use steersman_runtime::serve::health::Readiness;
use steersman_runtime::serve::{self, ClientCertificates, ServeError, Serving, Transport};
use steersman_runtime::telemetry::metrics::Metrics;
use tokio::time;
use tokio_util::sync::CancellationToken;

use crate::admission;
use crate::certs::decide::RotationTiming;
use crate::certs::served::ServedCertificate;
use crate::certs::{CERTIFICATE, Certificates, directory};
use crate::metrics::FamilyMetrics;
use crate::settings::{Settings, Switch};
use crate::webhooks::admission::{Handler, Handlers, Response, handler};
use crate::webhooks::client_ca::{ClientCa, ClientCaError};
use crate::webhooks::endpoint::Reach;
use crate::webhooks::{dynamo, llamastack, routes};

/// Time to serve on after readiness is withdrawn: API servers learn of it with a delay, and a failed conversion is a
/// failed read.
const LINGER_TIME: Duration = Duration::from_secs(3);

/// Time for responses in progress to finish at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

pub struct Listener {
    /// None if webhooks are off.
    serving: Option<Serving>,
    client_ca: Option<Arc<ClientCa>>,
    leaving: CancellationToken,
}

/// Causes of a listener that does not start.
#[derive(Debug, thiserror::Error)]
pub enum ListenerError {
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    ClientCa(#[from] ClientCaError),
}

#[derive(Clone)]
pub enum CertificateSource {
    /// Webhooks are off.
    Off,
    /// A Secret that the replicas of the operator share.
    Managed(Certificates),
    /// Files that another program writes, such as cert-manager.
    Files { folder: PathBuf, served: Arc<ServedCertificate>, readiness: Readiness },
}

/// Starts the listener if webhooks are on. Handshakes succeed once [`CertificateSource::follow`] has found a
/// certificate. Admission looks up other objects through `lookups`.
pub fn start(
    settings: &Settings,
    server: &Server,
    lookups: &Server,
    readiness: &Readiness,
    metrics: &Arc<Metrics>,
    families: &FamilyMetrics,
) -> Result<(Listener, CertificateSource), ListenerError> {
    let (args, leaving) = (&settings.webhooks, CancellationToken::new());
    if args.serve == Switch::Off {
        return Ok((Listener { serving: None, client_ca: None, leaving }, CertificateSource::Off));
    }
    let served = Arc::new(ServedCertificate::new(metrics.clone()));
    let client_ca = args.client_ca.as_deref().map(ClientCa::load).transpose()?.map(Arc::new);
    let of_clients = match client_ca {
        Some(_) => ClientCertificates::Requested,
        None => ClientCertificates::NotRequested,
    };
    let routes = routes(
        convert_for_review,
        Handlers { client_ca: client_ca.clone(), ..handlers(settings, lookups) },
        metrics.clone(),
        families.requests.clone(),
        leaving.clone(),
    );
    let serving = serve::start("webhook", args.address, Transport::Resolved(served.clone(), of_clients), routes)?;
    let source = match &args.certificate_directory {
        Some(folder) => {
            readiness.awaits(CERTIFICATE);
            CertificateSource::Files { folder: folder.clone(), served, readiness: readiness.clone() }
        }
        None => {
            let (namespace, service) = (settings.namespace.clone(), args.service.clone());
            let reach = Reach { namespace, service, url: args.url.clone() };
            let timing = RotationTiming::of(args.certificate_validity);
            CertificateSource::Managed(Certificates::new(server.clone(), reach, timing, served, readiness.clone()))
        }
    };
    Ok((Listener { serving: Some(serving), client_ca, leaving }, source))
}

/// The handlers of all families. A webhook configuration may outlive its controller: it then accepts objects, with a
/// warning.
fn handlers(settings: &Settings, lookups: &Server) -> Handlers {
    let running = settings.controllers();
    let validator = |family: Family| match family {
        Family::Dgdr if running.contains(&family) => dynamo::validator(admission_settings(settings)),
        Family::Llsd if running.contains(&family) => {
            let missing = settings.webhooks.missing_references.into();
            llamastack::validator(lookups.clone(), missing, settings.installation().secrets)
        }
        _ => unchecked(family),
    };
    let defaults = match running.contains(&Family::Dgdr) {
        true => dynamo::defaulter(admission_settings(settings)),
        false => unchecked(Family::Dgdr),
    };
    let validate = Family::ALL.map(|family| (family, validator(family)));
    Handlers { validate: validate.into(), mutate: [(Family::Dgdr, defaults)].into(), client_ca: None }
}

fn admission_settings(settings: &Settings) -> dynamo::AdmissionSettings {
    let options = settings.requests();
    let default_image = default_image(options.default_image.as_deref(), DYNAMO_VERSION);
    dynamo::AdmissionSettings { default_image, discovery: options.by_labels }
}

fn unchecked(family: Family) -> Handler {
    let configuration = admission::name(family);
    let warning = format!(
        "not validated, because Steersman runs without {family}; delete the webhook configuration {configuration}"
    );
    handler(move |_| Response::allow().warn(warning.as_str()))
}

impl CertificateSource {
    /// Loads the certificate and its successors, on every replica.
    pub async fn follow(&self) -> Infallible {
        match self {
            Self::Off => std::future::pending().await,
            Self::Managed(certificates) => certificates.follow().await,
            Self::Files { folder, served, readiness } => {
                directory::follow(folder, served.clone(), readiness.clone()).await
            }
        }
    }

    /// Rotates the certificate, on the leader, until `stop`.
    pub async fn rotate(&self, fence: Fence, stop: CancellationToken) {
        match self {
            Self::Managed(certificates) => certificates.rotate(fence, stop).await,
            Self::Off | Self::Files { .. } => stop.cancelled().await,
        }
    }
}

impl Listener {
    /// Keeps the CA of the clients up to date until the listener ends, which it does not do by itself.
    pub async fn ended(&mut self) -> ServeError {
        let Some(serving) = &mut self.serving else { return std::future::pending().await };
        let Some(client_ca) = &self.client_ca else { return serving.ended().await };
        tokio::select! {
            ended = serving.ended() => ended,
            never = client_ca.follow() => match never {},
        }
    }

    /// Serves for [`LINGER_TIME`], closing each connection after its next response, then finishes the responses in progress.
    pub async fn stop(self) {
        if let Some(serving) = self.serving {
            self.leaving.cancel();
            time::sleep(LINGER_TIME).await;
            serving.stop(DRAIN_TIMEOUT).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::webhooks::admission::Verdict;

    #[tokio::test]
    async fn webhook_without_controller_allows_with_warning() {
        let kind = json!({ "group": "llamastack.io", "version": "v1alpha2", "kind": "LlamaStackDistribution" });
        let resource =
            json!({ "group": "llamastack.io", "version": "v1alpha2", "resource": "llamastackdistributions" });
        let request = json!({ "uid": "u", "kind": kind, "resource": resource, "operation": "CREATE", "userInfo": {},
                              "object": { "metadata": { "name": "stack" } }, "oldObject": null });
        let answer = unchecked(Family::Llsd)(serde_json::from_value(request).unwrap()).await;
        assert_eq!(answer.verdict, Verdict::Allow);
        assert_eq!(
            answer.warnings,
            ["not validated, because Steersman runs without llsd; delete the webhook configuration steersman-llsd"]
        );
    }
}
