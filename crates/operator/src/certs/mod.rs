//! Makes, serves and rotates the certificate of the webhook; every CRD and webhook configuration that names this operator
//! trusts the served certificate at every moment of a rotation.
//!
//! State is in one Secret, so that any replica can make the first certificate, every replica serves the same one, and a
//! rotation continues after the death of a leader: new CA into the Secret, from there into every bundle, then the new leaf,
//! then the old CA out. Every replica serves the Secret and fills bundles (`follow`); only the leader rotates (`rotate`).

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

/// Secret with the certificate, in the operator's namespace.
pub const SECRET: &str = "steersman-webhook-certificate";

/// Conditions of readiness; each follows "waiting for".
pub const CERTIFICATE: &str = "the certificate of the webhook";
pub const BUNDLES: &str = "its CA bundle to be in every CRD and webhook configuration that names this webhook";

const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Attempts that may end in a conflict with another writer.
const TRIES: usize = 5;

/// Rules of the bundles, for the whole cluster.
pub fn rules() -> Vec<Rule> {
    let bundle = |group, resource, names, why| Rule {
        group,
        resource,
        names,
        verbs: &["get", "list", "watch", "patch"],
        namespaced: false,
        why,
    };
    let crds = Family::ALL.map(Family::crd_name).to_vec();
    let conversion = "keep the CA bundle of its conversion webhook in CRDs that name it";
    let group = "admissionregistration.k8s.io";
    let admission = "keep the CA bundle of its admission webhook in configurations that name it";
    vec![
        bundle("apiextensions.k8s.io", "customresourcedefinitions", crds, conversion),
        bundle(group, "validatingwebhookconfigurations", admitting(Route::Validate), admission),
        bundle(group, "mutatingwebhookconfigurations", admitting(Route::Mutate), admission),
    ]
}

fn admitting(route: Route) -> Vec<&'static str> {
    admission::ALL.into_iter().filter(|of| of.route == route).map(admission::Configuration::name).collect()
}

/// Rules of the Secret, for the operator's own namespace.
pub fn own_rules() -> Vec<Rule> {
    let secret = |names, verbs| Rule {
        group: "",
        resource: "secrets",
        names,
        verbs,
        namespaced: true,
        why: "keep the certificate of its webhook",
    };
    // RBAC cannot limit `create` to a name: authorization does not see the name of a new object.
    vec![secret(vec![SECRET], &["get", "list", "watch", "update"]), secret(vec![], &["create"])]
}

/// Failure of a step, which is retried.
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

/// The certificate that the replicas share. Clones share their state.
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
    /// State of the served certificate, from which a deleted Secret is restored.
    memory: Mutex<Option<Kept>>,
    /// Incremented after each read of the Secret and the bundles.
    passes: watch::Sender<u64>,
}

impl Certificates {
    /// The process is not ready until [`Certificates::follow`] has loaded the certificate and filled the bundles.
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

    /// Reads the Secret; creates it if it is missing, and replaces it if it cannot be used.
    async fn kept(&self) -> Result<Kept, CertificateError> {
        let (secrets, params) = (self.secrets(), PostParams::default());
        for _ in 0..TRIES {
            let found = self.server.call(secrets.get_opt(SECRET)).await.map_err(CertificateError::Read)?;
            if let Some(secret) = &found {
                match Kept::read(secret) {
                    Ok(kept) => return Ok(kept),
                    Err(why) => {
                        tracing::warn!(secret = SECRET, cause = %why, "the secret of the webhook certificate is replaced");
                    }
                }
            }
            let kept = self.substitute()?;
            let written = match found {
                Some(mut secret) => {
                    kept.write(&mut secret);
                    self.server.call(secrets.replace(SECRET, &params, &secret)).await
                }
                None => {
                    let created = self.server.call(secrets.create(&params, &first(&kept))).await;
                    created.inspect(|_| tracing::info!(secret = SECRET, "made a webhook certificate"))
                }
            };
            match written {
                Ok(_) => return Ok(kept),
                // Conflict: another replica has written the Secret. Read that one.
                Err(CallError::Answered { code: 409, .. }) => {}
                Err(error) => return Err(CertificateError::Write(error)),
            }
        }
        Err(CertificateError::Contended)
    }

    /// The state for a missing Secret. A replica that serves already keeps its certificate and begins a rotation: the user
    /// who deleted the Secret gets a new certificate, and no request fails.
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
