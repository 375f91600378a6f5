//! Reads the base configurations in the labels of images in the background: no reconcile waits for a registry.

mod entries;
mod logins;
pub mod registry;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steersman_plan::oci::ObservedLabels;
use steersman_reconcile::NamespacedName;
use steersman_runtime::client::Server;
use steersman_runtime::http::{Http, HttpSettings};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use logins::{ClusterLogins, Gathered, Logins, rules};

use crate::polling::sleep_until;
use entries::Entries;
use registry::Registry;

/// Time for the read of one image.
const READING: Duration = Duration::from_secs(30);

/// The image of an object, and the credentials of its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    pub namespace: String,
    pub name: String,
    pub image: String,
    /// Service account of the pods; empty: the namespace's default.
    pub service_account: String,
    /// Pull secrets of the pods. With any, those of the service account do not count.
    pub pull_secrets: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    /// Interval after an answer, if the image has a tag. A digest is read once.
    pub moved: Duration,
    /// Interval after the first failure; each further one doubles it.
    pub first_retry: Duration,
    pub last_retry: Duration,
    /// Images read at a time; each may hold a layer in memory.
    pub at_once: usize,
}

impl Default for Rhythm {
    fn default() -> Self {
        Self {
            moved: Duration::from_secs(15 * 60),
            first_retry: Duration::from_secs(5),
            last_retry: Duration::from_secs(5 * 60),
            at_once: 2,
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
    logins: Box<dyn Logins>,
    rhythm: Rhythm,
    known: Mutex<Known>,
    /// A read is due.
    work: Notify,
    /// Objects have a changed result.
    change: Notify,
}

#[derive(Default)]
struct Known {
    entries: Entries,
    /// Objects with a result that [`Bases::changed`] has not returned yet.
    changed: BTreeSet<NamespacedName>,
}

impl Bases {
    /// Reads from the registries that the images name, with the pull secrets of the cluster. None, with a log line: TLS cannot
    /// be set up.
    pub fn of_registries(server: Server) -> Option<Self> {
        match Http::new(HttpSettings::from_env()) {
            Ok(http) => Some(Self::new(Registry::new(http, READING), ClusterLogins::new(server), Rhythm::default())),
            Err(error) => {
                tracing::error!(%error, "the labels of images are not looked at: no TLS");
                None
            }
        }
    }

    /// Reads start with [`Bases::run`].
    pub fn new(registry: Registry, logins: impl Logins + 'static, rhythm: Rhythm) -> Self {
        let inner = Inner {
            registry,
            logins: Box::new(logins),
            rhythm,
            known: Mutex::default(),
            work: Notify::new(),
            change: Notify::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The last result, without waiting. A new want starts reads; other credentials after a failure cause a read at once.
    pub fn seen(&self, want: &Want) -> ObservedLabels {
        let (seen, due) = self.known().entries.want(want, Instant::now());
        if due {
            self.inner.work.notify_one();
        }
        seen
    }

    /// Stops the reads for an object.
    pub fn forget(&self, namespace: &str, name: &str) {
        let mut known = self.known();
        known.entries.release(namespace, name, None);
        known.changed.remove(&NamespacedName::new(namespace, name));
    }

    /// Waits for changed results, and returns their objects. For a single caller.
    pub async fn changed(&self) -> BTreeSet<NamespacedName> {
        loop {
            let changed = std::mem::take(&mut self.known().changed);
            if !changed.is_empty() {
                return changed;
            }
            self.inner.change.notified().await;
        }
    }

    /// Reads images until `stop`. May run again after that, but not twice at the same time.
    pub async fn run(&self, stop: CancellationToken) {
        self.known().entries.interrupted(Instant::now());
        let mut reading = JoinSet::new();
        loop {
            let free = self.inner.rhythm.at_once.max(1).saturating_sub(reading.len());
            let (jobs, next) = self.known().entries.take_due(Instant::now(), free);
            for want in jobs {
                let bases = self.clone();
                reading.spawn(async move { bases.read(want).await });
            }
            // At the limit, the end of a read starts the next one.
            let next = next.filter(|_| reading.len() < self.inner.rhythm.at_once.max(1));
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.inner.work.notified() => {}
                () = sleep_until(next) => {}
                Some(ended) = reading.join_next() => {
                    // The image of a panicked task is lost, so that all reads in progress are repeated.
                    if ended.is_err() {
                        self.known().entries.interrupted(Instant::now() + self.inner.rhythm.first_retry);
                    }
                }
            }
        }
    }

    async fn read(&self, want: Want) {
        let Want { namespace, image, .. } = &want;
        let Gathered { credentials, remarks } = self.inner.logins.of(&want).await;
        let answer = self.inner.registry.labelled(image, &credentials).await;
        let answer = answer.map_err(|error| {
            // A pull secret that cannot be used may be the cause of the failure.
            let remarks: String = remarks.iter().map(|remark| format!(" ({remark})")).collect();
            format!("the labels of image {image} cannot be read: {error}{remarks}")
        });
        let mut known = self.known();
        if let Some(changed) = known.entries.answer(&want, answer, Instant::now(), &self.inner.rhythm) {
            match changed.trouble {
                Some(cause) => tracing::warn!(namespace, image, cause, "a base stays as it is known"),
                None => tracing::info!(namespace, image, digest = changed.digest, "the labels of an image were read"),
            }
            known.changed.extend(changed.objects);
            drop(known);
            self.inner.change.notify_one();
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
