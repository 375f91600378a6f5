//! The webhooks as parts of the process.
//! Comes in: settings; goes out: a listener that answers from the moment it is made, and the keeper of its certificate.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use steersman_api::Family;
use steersman_api::convert::answer;
use steersman_plan::dynamo::validate::{DYNAMO_VERSION, default_image};
use steersman_runtime::client::Server;
use steersman_runtime::leader::Fence;
use steersman_runtime::serve::health::Readiness;
use steersman_runtime::serve::{self, ServeError, Serving, Wire};
use steersman_runtime::telemetry::metrics::Metrics;
use tokio::time;
use tokio_util::sync::CancellationToken;

use crate::admission;
use crate::certs::decide::Lives;
use crate::certs::served::Served;
use crate::certs::{CERTIFICATE, Certificates, directory};
use crate::metrics::FamilyMetrics;
use crate::settings::{Settings, Switch};
use crate::webhooks::admission::{Handler, Handlers, Response, handler};
use crate::webhooks::endpoint::Reach;
use crate::webhooks::{dynamo, llamastack, routes};

/// How long to answer on after we have said that we are not ready: that news takes its time to reach those who send, and a
/// conversion that fails is a read that fails.
const LINGER: Duration = Duration::from_secs(3);

/// How long answers under way may take at the end.
const DRAIN: Duration = Duration::from_secs(5);

/// The listener, if webhooks are on.
pub struct Listener {
    serving: Option<Serving>,
    leaving: CancellationToken,
}

/// Who keeps the certificate.
#[derive(Clone)]
pub enum Keeper {
    /// Nobody: webhooks are off.
    Nobody,
    /// We do, with all other replicas.
    Ourselves(Certificates),
    /// Somebody who writes files.
    Files { folder: PathBuf, served: Arc<Served>, readiness: Readiness },
}

/// Listens, if webhooks are on. Handshakes succeed once [`Keeper::follow`] has found a certificate.
pub fn start(
    settings: &Settings,
    server: &Server,
    readiness: &Readiness,
    metrics: &Arc<Metrics>,
    families: &FamilyMetrics,
) -> Result<(Listener, Keeper), ServeError> {
    let (args, leaving) = (&settings.webhooks, CancellationToken::new());
    if args.serve == Switch::Off {
        return Ok((Listener { serving: None, leaving }, Keeper::Nobody));
    }
    let served = Arc::new(Served::default());
    let routes =
        routes(answer, handlers(settings, server), metrics.clone(), families.requests.clone(), leaving.clone());
    let serving = serve::start("webhook", args.address, Wire::Resolved(served.clone()), routes)?;
    let keeper = match &args.certificate_directory {
        Some(folder) => {
            readiness.awaits(CERTIFICATE);
            Keeper::Files { folder: folder.clone(), served, readiness: readiness.clone() }
        }
        None => {
            let (namespace, service) = (settings.namespace.clone(), args.service.clone());
            let reach = Reach { namespace, service, url: args.url.clone() };
            let lives = Lives::of(args.certificate_life);
            Keeper::Ourselves(Certificates::new(server.clone(), reach, lives, served, readiness.clone()))
        }
    };
    Ok((Listener { serving: Some(serving), leaving }, keeper))
}

/// The handlers of all families. A configuration may outlive its controller; objects can be written all the same, and their
/// authors hear what is wrong.
fn handlers(settings: &Settings, server: &Server) -> Handlers {
    let running = settings.controllers();
    let validator = |family: Family| match family {
        Family::Dgdr if running.contains(&family) => dynamo::validator(admission_settings(settings)),
        Family::Llsd if running.contains(&family) => {
            llamastack::validator(server.clone(), &settings.namespace, settings.webhooks.missing_references.into())
        }
        _ => nobody(family),
    };
    let defaults = match running.contains(&Family::Dgdr) {
        true => dynamo::defaulter(admission_settings(settings)),
        false => nobody(Family::Dgdr),
    };
    let validate = Family::ALL.map(|family| (family, validator(family)));
    Handlers { validate: validate.into(), mutate: [(Family::Dgdr, defaults)].into() }
}

/// What the controller of requests is told, as far as it counts here.
fn admission_settings(settings: &Settings) -> dynamo::AdmissionSettings {
    let options = settings.requests();
    let default_image = default_image(options.default_image.as_deref(), DYNAMO_VERSION);
    dynamo::AdmissionSettings { default_image, discovery: options.by_labels }
}

fn nobody(family: Family) -> Handler {
    let configuration = admission::name(family);
    let warning = format!("not checked, for Steersman runs without {family}: delete the configuration {configuration}");
    handler(move |_| Response::allow().warn(warning.as_str()))
}

impl Keeper {
    /// What every replica does, for as long as it is polled.
    pub async fn follow(&self) -> Infallible {
        match self {
            Self::Nobody => std::future::pending().await,
            Self::Ourselves(certificates) => certificates.follow().await,
            Self::Files { folder, served, readiness } => {
                directory::follow(folder, served.clone(), readiness.clone()).await
            }
        }
    }

    /// What only the leader does, until `stop`.
    pub async fn keep(&self, fence: Fence, stop: CancellationToken) {
        match self {
            Self::Ourselves(certificates) => certificates.keep(fence, stop).await,
            Self::Nobody | Self::Files { .. } => stop.cancelled().await,
        }
    }
}

impl Listener {
    /// Waits until the listener ends, which it does not do by itself.
    pub async fn ended(&mut self) -> ServeError {
        match &mut self.serving {
            Some(serving) => serving.ended().await,
            None => std::future::pending().await,
        }
    }

    /// Answers for a little longer, so that clients leave by themselves, then finishes what is under way.
    pub async fn stop(self) {
        if let Some(serving) = self.serving {
            self.leaving.cancel();
            time::sleep(LINGER).await;
            serving.stop(DRAIN).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::webhooks::admission::Verdict;

    #[tokio::test]
    async fn a_configuration_that_outlives_its_controller_refuses_nothing() {
        let kind = json!({ "group": "llamastack.io", "version": "v1alpha2", "kind": "LlamaStackDistribution" });
        let resource =
            json!({ "group": "llamastack.io", "version": "v1alpha2", "resource": "llamastackdistributions" });
        let request = json!({ "uid": "u", "kind": kind, "resource": resource, "operation": "CREATE", "userInfo": {},
                              "object": { "metadata": { "name": "stack" } }, "oldObject": null });
        let answer = nobody(Family::Llsd)(serde_json::from_value(request).unwrap()).await;
        assert_eq!(answer.verdict, Verdict::Allow);
        assert_eq!(
            answer.warnings,
            ["not checked, for Steersman runs without llsd: delete the configuration steersman-llsd"]
        );
    }
}
