//! Generates, serves and rotates the certificate of the webhook; every CRD and webhook configuration that names this operator
//! trusts the served certificate at every moment of a rotation.
//!
//! State is in one Secret, so that any replica can generate the first certificate, every replica serves the same one, and a
//! rotation continues after the death of a leader: new CA into the Secret, from there into every bundle, then the new leaf,
//! then the old CA out. Every replica serves the Secret and fills bundles (`follow`); only the leader rotates (`rotate`).

pub mod bundles;
pub mod check;
pub mod decide;
pub mod directory;
mod follow;
pub mod generation;
mod rotate;
pub mod served;
pub mod state;

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

use crate::webhooks::endpoint::Reach;
use crate::{admission, installation};
use bundles::BundleTarget;
use decide::RotationTiming;
use generation::{GenerateError, generate};
use served::ServedCertificate;
use state::CertificateState;

/// Secret with the certificate, in the operator's namespace.
pub const SECRET: &str = "steersman-webhook-certificate";

/// Conditions of readiness; each follows "waiting for".
pub const CERTIFICATE: &str = "the webhook certificate";
pub const BUNDLES: &str = "the CA bundle in every CRD and webhook configuration that names this webhook";

const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Attempts that may end in a conflict with another writer.
const MAX_ATTEMPTS: usize = 5;

/// Rules of the bundles, for the whole cluster.
pub fn rules() -> Vec<Rule> {
    // The CRDs of all families: a CRD whose controller is off still names this webhook, and needs the bundle after a rotation.
    let crds = Family::ALL.map(Family::crd_name).to_vec();
    let conversion = "set the CA bundle of its conversion webhook in CRDs that name it";
    vec![bundle_rule("apiextensions.k8s.io", "customresourcedefinitions", crds, conversion)]
}

/// The access to the webhook configurations of a family.
pub fn admission_rules(family: Family) -> Vec<Rule> {
    let why = "set the CA bundle of its admission webhook in configurations that name it";
    let of_family = admission::ALL.into_iter().filter(|of| of.family == family);
    of_family.map(|of| bundle_rule("admissionregistration.k8s.io", of.plural(), vec![of.name()], why)).collect()
}

fn bundle_rule(group: &'static str, resource: &'static str, names: Vec<&'static str>, why: &'static str) -> Rule {
    Rule { group, resource, names, verbs: &["get", "list", "watch", "patch"], namespaced: false, why }
}

/// Rules of the Secret, for the operator's own namespace.
pub fn own_rules() -> Vec<Rule> {
    let secret = |names, verbs| Rule {
        group: "",
        resource: "secrets",
        names,
        verbs,
        namespaced: true,
        why: "store the certificate of its webhook",
    };
    // RBAC cannot limit `create` to a name: authorization does not see the name of a new object.
    vec![secret(vec![SECRET], &["get", "list", "watch", "update"]), secret(vec![], &["create"])]
}

/// Failure of a sync or a rotation step, which is retried.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("cannot read the Secret {SECRET}: {0}")]
    Read(CallError),
    #[error("cannot write the Secret {SECRET}: {0}")]
    Write(CallError),
    #[error(
        "other writers changed the Secret {SECRET}, or an object with its CA bundle, during {MAX_ATTEMPTS} attempts in a row"
    )]
    Contended,
    #[error("cannot read {0}: {1}")]
    ReadTarget(BundleTarget, CallError),
    #[error("cannot set the CA bundle of {0}: {1}")]
    WriteTarget(BundleTarget, CallError),
    #[error("{0} does not have the new CA bundle yet")]
    BundleMissing(BundleTarget),
    #[error(transparent)]
    Generate(#[from] GenerateError),
}

/// The certificate that the replicas share. Clones share their state.
#[derive(Clone)]
pub struct Certificates {
    inner: Arc<CertificatesInner>,
}

struct CertificatesInner {
    server: Server,
    reach: Reach,
    timing: RotationTiming,
    served: Arc<ServedCertificate>,
    readiness: Readiness,
    /// State of the served certificate, from which a deleted Secret is restored.
    memory: Mutex<Option<CertificateState>>,
    /// Incremented after each read of the Secret and the bundles.
    syncs: watch::Sender<u64>,
}

impl Certificates {
    /// The process is not ready until [`Certificates::follow`] has loaded the certificate and filled the bundles.
    pub fn new(
        server: Server,
        reach: Reach,
        timing: RotationTiming,
        served: Arc<ServedCertificate>,
        readiness: Readiness,
    ) -> Self {
        readiness.awaits(CERTIFICATE);
        readiness.awaits(BUNDLES);
        let (memory, syncs) = (Mutex::default(), watch::Sender::new(0));
        Self { inner: Arc::new(CertificatesInner { server, reach, timing, served, readiness, memory, syncs }) }
    }
}

impl CertificatesInner {
    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.server.client.clone(), &self.reach.namespace)
    }

    /// Reads the Secret; creates it if it is missing, and replaces it if it cannot be used.
    async fn state(&self) -> Result<CertificateState, CertificateError> {
        let (secrets, params) = (self.secrets(), PostParams::default());
        for _ in 0..MAX_ATTEMPTS {
            let found = self.server.call(secrets.get_opt(SECRET)).await.map_err(CertificateError::Read)?;
            if let Some(secret) = &found {
                match CertificateState::read(secret) {
                    Ok(state) => return Ok(state),
                    Err(why) => {
                        tracing::warn!(secret = SECRET, cause = %why, "replacing the webhook certificate, because its Secret cannot be used");
                    }
                }
            }
            let state = self.substitute()?;
            let written = match found {
                Some(mut secret) => {
                    state.write(&mut secret);
                    self.server.call(secrets.replace(SECRET, &params, &secret)).await
                }
                None => {
                    let created = self.server.call(secrets.create(&params, &new_secret(&state))).await;
                    created
                        .inspect(|_| tracing::info!(secret = SECRET, "created the Secret of the webhook certificate"))
                }
            };
            match written {
                Ok(_) => return Ok(state),
                // Conflict: another replica has written the Secret. Read that one.
                Err(CallError::Answered { code: 409, .. }) => {}
                Err(error) => return Err(CertificateError::Write(error)),
            }
        }
        Err(CertificateError::Contended)
    }

    /// The state for a missing Secret. A replica that serves already keeps its certificate and begins a rotation: the user
    /// who deleted the Secret gets a new certificate, and no request fails.
    fn substitute(&self) -> Result<CertificateState, CertificateError> {
        let generated = generate(&self.reach.names(), self.timing.validity, Timestamp::now())?;
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(memory.as_ref().map_or_else(
            || CertificateState::first(generated.clone()),
            |served| served.with_successor(generated.clone()),
        ))
    }
}

fn new_secret(state: &CertificateState) -> Secret {
    let labels = installation::labels();
    let metadata = ObjectMeta { name: Some(SECRET.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    let mut secret = Secret { metadata, type_: Some("kubernetes.io/tls".to_owned()), ..Secret::default() };
    state.write(&mut secret);
    secret
}
