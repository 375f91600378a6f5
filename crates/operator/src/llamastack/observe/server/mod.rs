//! Polls running servers in the background: no reconcile waits for a server.

mod entries;
mod poll;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steersman_plan::llamastack::ObservedServer;
use steersman_plan::llamastack::server::PollTarget;
use steersman_reconcile::NamespacedName;
use steersman_runtime::http::{Http, HttpSettings, Inside, Reach};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::polling::sleep_until;
use entries::{Entries, Job};

/// Time for one of the three requests of a poll.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug)]
pub struct PollSchedule {
    /// Interval after an answer.
    pub interval: Duration,
    /// Interval after the first failure; each further one doubles it.
    pub first_retry: Duration,
    pub last_retry: Duration,
    /// Servers polled at a time.
    pub max_concurrent: usize,
    /// Servers among them that gave no answer the last time: each may take the whole time limit, and must not delay those
    /// that answer.
    pub max_concurrent_failing: usize,
}

impl Default for PollSchedule {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5 * 60),
            first_retry: Duration::from_secs(10),
            last_retry: Duration::from_secs(5 * 60),
            max_concurrent: 32,
            max_concurrent_failing: 16,
        }
    }
}

/// Client for servers inside the cluster.
pub fn http(inside: Inside) -> Result<Http, rustls::Error> {
    Http::new(HttpSettings {
        connect: CONNECT_TIMEOUT,
        answer: RESPONSE_TIMEOUT,
        reach: Reach::Inside(inside),
        ..HttpSettings::default()
    })
}

/// Last answers of the servers. Clones share them.
#[derive(Clone)]
pub struct Servers {
    inner: Arc<Inner>,
}

struct Inner {
    http: Http,
    schedule: PollSchedule,
    entries: Mutex<Entries>,
    /// A poll is due.
    work: Notify,
}

impl Servers {
    /// Polls start with [`Servers::run`].
    pub fn new(http: Http, schedule: PollSchedule) -> Self {
        Self { inner: Arc::new(Inner { http, schedule, entries: Mutex::default(), work: Notify::new() }) }
    }

    /// The last answer, without waiting. A new target starts polls; without a target the last answer is discarded.
    pub fn observe(&self, place: &NamespacedName, target: Option<PollTarget>) -> ObservedServer {
        let Some(target) = target else {
            self.forget(place);
            return ObservedServer::Pending;
        };
        let (observed, new) = self.entries().want(place, target, Instant::now());
        if new {
            self.inner.work.notify_one();
        }
        observed
    }

    /// Stops the polls of an object's server.
    pub fn forget(&self, place: &NamespacedName) {
        self.entries().forget(place);
    }

    /// Polls servers until `stop`, and calls `enqueue` for objects with a changed answer. May run again after that, but not twice
    /// at the same time.
    pub async fn run(&self, enqueue: impl Fn(NamespacedName), stop: CancellationToken) {
        self.entries().interrupted(Instant::now());
        let mut polling = JoinSet::new();
        loop {
            let (jobs, next) = self.entries().take_due(Instant::now(), &self.inner.schedule);
            for job in jobs {
                let http = self.inner.http.clone();
                polling.spawn(async move {
                    let observed = poll::server(&http, &job.target.url, &job.place).await;
                    (job, observed)
                });
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.inner.work.notified() => {}
                () = sleep_until(next) => {}
                Some(ended) = polling.join_next() => match ended {
                    Ok((job, observed)) => self.store(&job, observed, &enqueue),
                    // The target of a panicked task is lost, so that all polls in progress are repeated.
                    Err(_) => self.entries().interrupted(Instant::now() + self.inner.schedule.first_retry),
                },
            }
        }
    }

    fn store(&self, job: &Job, observed: ObservedServer, enqueue: &impl Fn(NamespacedName)) {
        let NamespacedName { namespace, name } = &job.place;
        let changed = self.entries().answer(job, observed, Instant::now(), &self.inner.schedule);
        match changed {
            None => return,
            Some(ObservedServer::Failed(cause) | ObservedServer::Unhealthy(cause)) => {
                tracing::warn!(namespace, name, cause, "the health check of a server failed")
            }
            Some(_) => tracing::debug!(namespace, name, "the response of a server changed"),
        }
        enqueue(job.place.clone());
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.inner.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
