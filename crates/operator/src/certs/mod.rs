//! The webhook's certificate, from its making to its successor.
//! Comes in: the names we are reached by; goes out: a certificate that the listener shows and that every CRD and every
//! configuration of admission which names us trusts, at every moment of a rotation.
//!
//! State is in one Secret, so that any replica can make the first certificate, every replica serves the same one, and a
//! rotation goes on where a dead leader left it: new CA into the Secret, from there into every bundle, then the new leaf,
//! then the old CA out. Every replica follows the Secret and fills bundles (`follow`); only the leader rotates (`rotate`).

pub mod bundles;
pub mod check;
pub mod decide;
pub mod directory;
mod follow;
pub mod generation;
pub mod kept;
mod rotate;
pub mod served;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use steersman_api::Family;
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::rbac::Rule;
use steersman_runtime::serve::health::Readiness;
use tokio::sync::watch;

use crate::webhooks::admission::Route;
use crate::webhooks::endpoint::Reach;
use crate::{admission, installation};
use bundles::Holder;
use decide::Lives;
use generation::{NotMade, make};
use kept::Kept;
use served::Served;

/// The Secret that holds the certificate, in the operator's namespace.
pub const SECRET: &str = "steersman-webhook-certificate";

/// What is awaited before this process is ready; each follows "waiting for".
pub const CERTIFICATE: &str = "the certificate of the webhook";
pub const BUNDLES: &str = "its CA bundle to be in every CRD and webhook configuration that names this webhook";

/// How long to wait after a failure.
const AGAIN: Duration = Duration::from_secs(2);

/// How often to try against others who write the same Secret.
const TRIES: usize = 5;

/// What bundles need, in the whole cluster.
pub fn rules() -> Vec<Rule> {
    let bundle = |group, resource, names, why| Rule {
        group,
        resource,
        names,
        verbs: &["get", "list", "watch", "patch"],
        namespaced: false,
        why,
    };
    vec![
        bundle(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            Family::ALL.map(Family::crd_name).to_vec(),
            "keep the CA bundle of its conversion webhook in CRDs that name it",
        ),
        bundle(
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
            admitting(Route::Validate),
            "keep the CA bundle of its admission webhook in configurations that name it",
        ),
        bundle(
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations",
            admitting(Route::Mutate),
            "keep the CA bundle of its admission webhook in configurations that name it",
        ),
    ]
}

fn admitting(route: Route) -> Vec<&'static str> {
    admission::ALL.into_iter().filter(|of| of.route == route).map(admission::Configuration::name).collect()
}

/// What the certificate needs, in the operator's own namespace.
pub fn own_rules() -> Vec<Rule> {
    let secret = |names, verbs| Rule {
        group: "",
        resource: "secrets",
        names,
        verbs,
        namespaced: true,
        why: "keep the certificate of its webhook",
    };
    // A right to create cannot be limited to a name: the name is not known when it is checked.
    vec![secret(vec![SECRET], &["get", "list", "watch", "update"]), secret(vec![], &["create"])]
}

/// Why something about the certificate could not be done. It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("cannot read the Secret {SECRET}: {0}")]
    Read(CallError),
    #[error("cannot write the Secret {SECRET}: {0}")]
    Write(CallError),
    #[error("others write the Secret {SECRET} all the time")]
    Contended,
    #[error("cannot read {0}: {1}")]
    ReadHolder(Holder, CallError),
    #[error("cannot put the CA bundle into {0}: {1}")]
    WriteHolder(Holder, CallError),
    #[error("{0} does not hold the new CA yet")]
    NotEverywhere(Holder),
    #[error(transparent)]
    NotMade(#[from] NotMade),
}

/// The certificate of this process and of its fellow replicas. Clones share it.
#[derive(Clone)]
pub struct Certificates {
    shared: Arc<Shared>,
}

struct Shared {
    server: Server,
    reach: Reach,
    lives: Lives,
    served: Arc<Served>,
    readiness: Readiness,
    /// What is served: should the Secret vanish, nobody needs to stop trusting us.
    memory: Mutex<Option<Kept>>,
    /// Moves whenever the Secret or a holder of the bundle was looked at.
    passes: watch::Sender<u64>,
}

impl Certificates {
    /// Not ready until [`Certificates::follow`] has done its first work.
    pub fn new(server: Server, reach: Reach, lives: Lives, served: Arc<Served>, readiness: Readiness) -> Self {
        readiness.awaits(CERTIFICATE);
        readiness.awaits(BUNDLES);
        let (memory, passes) = (Mutex::default(), watch::Sender::new(0));
        Self { shared: Arc::new(Shared { server, reach, lives, served, readiness, memory, passes }) }
    }
}

impl Shared {
    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.server.client.clone(), &self.reach.namespace)
    }

    /// What the Secret holds. Where there is none, or none that can be served from, it is made.
    async fn kept(&self) -> Result<Kept, CertificateError> {
        let secrets = self.secrets();
        for _ in 0..TRIES {
            let found = self.server.call(secrets.get_opt(SECRET)).await.map_err(CertificateError::Read)?;
            let written = match found {
                Some(secret) => match Kept::read(&secret) {
                    Ok(kept) => return Ok(kept),
                    Err(why) => {
                        tracing::warn!(secret = SECRET, cause = %why, "the secret of the webhook certificate is replaced");
                        let mut wanted = secret;
                        let kept = self.substitute()?;
                        kept.write(&mut wanted);
                        let replaced = self.server.call(secrets.replace(SECRET, &PostParams::default(), &wanted)).await;
                        replaced.map(|_| kept)
                    }
                },
                None => {
                    let kept = self.substitute()?;
                    let secret = first(&kept);
                    let created = self.server.call(secrets.create(&PostParams::default(), &secret)).await;
                    created.map(|_| kept).inspect(|_| tracing::info!(secret = SECRET, "made a webhook certificate"))
                }
            };
            match written {
                Ok(kept) => return Ok(kept),
                // Another replica was quicker: what it wrote is as good.
                Err(CallError::Answered { code: 409, .. }) => {}
                Err(error) => return Err(CertificateError::Write(error)),
            }
        }
        Err(CertificateError::Contended)
    }

    /// What to put where the Secret was. Who serves already goes on doing so, and begins a rotation: whoever deleted the
    /// Secret wants another certificate, and nobody wants a failed request.
    fn substitute(&self) -> Result<Kept, CertificateError> {
        let made = make(&self.reach.names(), self.lives.life, Timestamp::now())?;
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(memory.as_ref().map_or_else(|| Kept::fresh(made.clone()), |served| served.begun(made.clone())))
    }
}

fn first(kept: &Kept) -> Secret {
    let labels = BTreeMap::from([("app.kubernetes.io/name".to_owned(), installation::NAME.to_owned())]);
    let metadata = ObjectMeta { name: Some(SECRET.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    let mut secret = Secret { metadata, type_: Some("kubernetes.io/tls".to_owned()), ..Secret::default() };
    kept.write(&mut secret);
    secret
}
