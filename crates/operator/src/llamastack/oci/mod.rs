//! The bases that images carry, kept up to date beside the passes: no pass ever waits for a registry.
//! Comes in: which image an object wants; goes out: what is known of its labels now, and later which objects should look
//! again.

mod entries;
mod logins;
pub mod registry;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steersman_plan::oci::LabelsSeen;
use steersman_reconcile::NamespacedName;
use steersman_runtime::client::Server;
use steersman_runtime::http::{Http, HttpSettings};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use logins::{ClusterLogins, Gathered, Logins, rules};

use entries::{Entries, Job};
use registry::Registry;

/// How long the reading of one image may take.
const READING: Duration = Duration::from_secs(30);

/// What an object wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    pub namespace: String,
    /// Of the object.
    pub name: String,
    pub image: String,
    /// Of the server's pods; empty: the namespace's default.
    pub service_account: String,
    /// Of the server's pods. With any, those of the service account do not count.
    pub pull_secrets: Vec<String>,
}

/// When a registry is asked again.
#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    /// After an answer, where the image is named by a tag. What a digest names never changes.
    pub moved: Duration,
    /// After the first failure; each further one doubles it.
    pub first_retry: Duration,
    pub last_retry: Duration,
    /// How many images are read at the same time; each may hold a layer in memory.
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

/// What is known of the images that objects want. Clones know the same.
#[derive(Clone)]
pub struct Bases {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Registry,
    logins: Box<dyn Logins>,
    rhythm: Rhythm,
    known: Mutex<Known>,
    /// There is something to ask.
    work: Notify,
    /// There is something to tell.
    news: Notify,
}

#[derive(Default)]
struct Known {
    entries: Entries,
    changed: BTreeSet<NamespacedName>,
}

impl Bases {
    /// The registries of the images' own names, with the pull secrets of the cluster. None, with a line in the log: this
    /// program can make no connections by TLS.
    pub fn of_registries(server: Server) -> Option<Self> {
        match Http::new(HttpSettings::from_env()) {
            Ok(http) => Some(Self::new(Registry::new(http, READING), ClusterLogins::new(server), Rhythm::default())),
            Err(error) => {
                tracing::error!(%error, "the labels of images are not looked at: no TLS");
                None
            }
        }
    }

    /// Nothing is asked until [`Bases::run`] runs.
    pub fn new(registry: Registry, logins: impl Logins + 'static, rhythm: Rhythm) -> Self {
        let inner = Inner {
            registry,
            logins: Box::new(logins),
            rhythm,
            known: Mutex::default(),
            work: Notify::new(),
            news: Notify::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// What is known now, at once. A new wish is looked into from here on, and so is one whose last answer was a failure and
    /// whose credentials have been named anew.
    pub fn seen(&self, want: &Want) -> LabelsSeen {
        let (seen, due) = self.known().entries.want(want, Instant::now());
        if due {
            self.inner.work.notify_one();
        }
        seen
    }

    /// The object is gone, or no longer looks at labels.
    pub fn forget(&self, namespace: &str, name: &str) {
        let mut known = self.known();
        known.entries.release(namespace, name, None);
        known.changed.remove(&NamespacedName::new(namespace, name));
    }

    /// Waits until something is known that some objects have not seen, and names them. For one listener.
    pub async fn changed(&self) -> BTreeSet<NamespacedName> {
        loop {
            let changed = std::mem::take(&mut self.known().changed);
            if !changed.is_empty() {
                return changed;
            }
            self.inner.news.notified().await;
        }
    }

    /// Asks registries until `stop`. May run again after that, but not twice at the same time.
    pub async fn run(&self, stop: CancellationToken) {
        self.known().entries.interrupted(Instant::now());
        let mut reading = JoinSet::new();
        loop {
            let free = self.inner.rhythm.at_once.max(1).saturating_sub(reading.len());
            let (jobs, next) = self.known().entries.take_due(Instant::now(), free);
            for job in jobs {
                let bases = self.clone();
                reading.spawn(async move { bases.read(job).await });
            }
            // With no place free there is nothing to do until one is.
            let next = next.filter(|_| reading.len() < self.inner.rhythm.at_once.max(1));
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.inner.work.notified() => {}
                () = at(next) => {}
                Some(ended) = reading.join_next() => {
                    // Which question it was is lost with its task. What is asked twice is answered twice, no more.
                    if ended.is_err() {
                        self.known().entries.interrupted(Instant::now() + self.inner.rhythm.first_retry);
                    }
                }
            }
        }
    }

    async fn read(&self, job: Job) {
        let Gathered { credentials, remarks } = self.inner.logins.of(&job.want).await;
        let answer = self.inner.registry.labelled(&job.want.image, &credentials).await;
        let answer = answer.map_err(|error| {
            // What hinders reading a pull secret may be the cause; where the answer is good, it is not.
            let remarks: String = remarks.iter().map(|remark| format!(" ({remark})")).collect();
            format!("the labels of image {} cannot be read: {error}{remarks}", job.want.image)
        });
        let Want { namespace, image, .. } = &job.want;
        let mut known = self.known();
        let told = known.entries.answer(&job, answer, Instant::now(), &self.inner.rhythm);
        if let Some(told) = told {
            match told.trouble {
                Some(cause) => tracing::warn!(namespace, image, cause, "a base stays as it is known"),
                None => tracing::info!(namespace, image, digest = told.digest, "the labels of an image were read"),
            }
            known.changed.extend(told.objects);
            drop(known);
            self.inner.news.notify_one();
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
