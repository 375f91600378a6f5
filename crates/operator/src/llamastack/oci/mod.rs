//! Reads the base configurations in the labels of images in the background: no reconcile waits for a registry.

mod credentials;
mod entries;
pub mod registry;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steersman_plan::oci::ObservedLabels;
use steersman_reconcile::NamespacedName;
use steersman_runtime::client::Server;
use steersman_runtime::http::{Http, HttpSettings, Reach};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use credentials::{ClusterCredentials, CredentialSource, PullCredentials, rules, secret_rules};

use crate::installation::SecretAccess;
use crate::polling::sleep_until;
use entries::Entries;
use registry::Registry;

/// Time for the read of one image.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The image of an object, and the credentials of its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRequest {
    pub namespace: String,
    pub name: String,
    pub image: String,
    /// Service account of the pods; empty: the namespace's default.
    pub service_account: String,
    /// Pull secrets of the pods. With any, those of the service account do not count.
    pub pull_secrets: Vec<String>,
}

impl ImageRequest {
    fn has_credentials_of(&self, other: &Self) -> bool {
        self.service_account == other.service_account && self.pull_secrets == other.pull_secrets
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ReadSchedule {
    /// Interval after an answer, if the image has a tag. A digest is read once.
    pub tag_interval: Duration,
    /// Interval after the first failure; each further one doubles it.
    pub first_retry: Duration,
    pub last_retry: Duration,
    /// Images read at a time, each of another namespace; each may hold a layer in memory.
    pub max_concurrent: usize,
}

impl Default for ReadSchedule {
    fn default() -> Self {
        Self {
            tag_interval: Duration::from_secs(15 * 60),
            first_retry: Duration::from_secs(5),
            last_retry: Duration::from_secs(5 * 60),
            max_concurrent: 4,
        }
    }
}

/// Last results for the images of objects. Clones share them.
#[derive(Clone)]
pub struct Bases {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Registry,
    logins: Box<dyn CredentialSource>,
    schedule: ReadSchedule,
    state: Mutex<BaseState>,
    /// A read is due.
    work: Notify,
    /// Objects have a changed result.
    change: Notify,
}

#[derive(Default)]
struct BaseState {
    entries: Entries,
    /// Objects with a result that [`Bases::changed`] has not returned yet.
    changed: BTreeSet<NamespacedName>,
}

impl Bases {
    /// Reads from the registries that the images name, with the pull secrets of the cluster. None, with a log line: TLS cannot
    /// be set up.
    pub fn of_registries(server: Server, secrets: SecretAccess) -> Option<Self> {
        match Http::new(HttpSettings { reach: Reach::UserNamed, ..HttpSettings::from_env() }) {
            Ok(http) => Some(Self::new(
                Registry::new(http, READ_TIMEOUT),
                ClusterCredentials::new(server, secrets),
                ReadSchedule::default(),
            )),
            Err(error) => {
                tracing::error!(%error, "TLS cannot be set up: the labels of images are not read");
                None
            }
        }
    }

    /// Reads start with [`Bases::run`].
    pub fn new(registry: Registry, logins: impl CredentialSource + 'static, schedule: ReadSchedule) -> Self {
        let inner = Inner {
            registry,
            logins: Box::new(logins),
            schedule,
            state: Mutex::default(),
            work: Notify::new(),
            change: Notify::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The last result, without waiting. A new want starts reads; other credentials after a failure cause a read at once.
    pub fn observe(&self, want: &ImageRequest) -> ObservedLabels {
        let (observed, due) = self.state().entries.want(want, Instant::now());
        if due {
            self.inner.work.notify_one();
        }
        observed
    }

    /// Stops the reads for an object.
    pub fn forget(&self, namespace: &str, name: &str) {
        let mut known = self.state();
        known.entries.release(namespace, name, None);
        known.changed.remove(&NamespacedName::new(namespace, name));
    }

    /// Waits for changed results, and returns their objects. For a single caller.
    pub async fn changed(&self) -> BTreeSet<NamespacedName> {
        loop {
            let changed = std::mem::take(&mut self.state().changed);
            if !changed.is_empty() {
                return changed;
            }
            self.inner.change.notified().await;
        }
    }

    /// Reads images until `stop`. May run again after that, but not twice at the same time.
    pub async fn run(&self, stop: CancellationToken) {
        self.state().entries.interrupted(Instant::now());
        let mut reading = JoinSet::new();
        loop {
            let free = self.inner.schedule.max_concurrent.max(1).saturating_sub(reading.len());
            let (jobs, next) = self.state().entries.take_due(Instant::now(), free);
            for want in jobs {
                let bases = self.clone();
                reading.spawn(async move { bases.read(want).await });
            }
            // At the limit, the end of a read starts the next one.
            let next = next.filter(|_| reading.len() < self.inner.schedule.max_concurrent.max(1));
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.inner.work.notified() => {}
                () = sleep_until(next) => {}
                Some(ended) = reading.join_next() => {
                    // The image of a panicked task is lost, so that all reads in progress are repeated.
                    if ended.is_err() {
                        self.state().entries.interrupted(Instant::now() + self.inner.schedule.first_retry);
                    }
                }
            }
        }
    }

    async fn read(&self, want: ImageRequest) {
        let ImageRequest { namespace, image, .. } = &want;
        let PullCredentials { credentials, remarks } = self.inner.logins.of(&want).await;
        let answer = self.inner.registry.labelled(image, &credentials).await;
        let answer = answer.map_err(|error| {
            // A pull secret that cannot be used may be the cause of the failure.
            let remarks: String = remarks.iter().map(|remark| format!(" ({remark})")).collect();
            format!("the labels of image {image} cannot be read: {error}{remarks}")
        });
        let mut known = self.state();
        if let Some(changed) = known.entries.answer(&want, answer, Instant::now(), &self.inner.schedule) {
            match changed.failure {
                Some(cause) => tracing::warn!(
                    namespace,
                    image,
                    cause,
                    "cannot read the labels of an image; the last result stays in effect"
                ),
                None => tracing::info!(namespace, image, digest = changed.digest, "read the labels of an image"),
            }
            known.changed.extend(changed.objects);
            drop(known);
            self.inner.change.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, BaseState> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
