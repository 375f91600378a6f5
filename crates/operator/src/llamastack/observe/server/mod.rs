//! Polls running servers in the background: no reconcile waits for a server.

mod ask;
mod entries;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steersman_plan::llamastack::ObservedServer;
use steersman_plan::llamastack::server::Question;
use steersman_reconcile::NamespacedName;
use steersman_runtime::http::{Http, HttpSettings, Inside};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::polling::sleep_until;
use entries::{Entries, Job};

/// Time for one of the three requests of a poll.
const ANSWER: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    /// Interval after an answer.
    pub again: Duration,
    /// Interval after the first failure; each further one doubles it.
    pub first_retry: Duration,
    pub last_retry: Duration,
    /// Servers polled at a time.
    pub at_once: usize,
    /// Servers among them that gave no answer the last time: each may take the whole time limit, and must not delay those
    /// that answer.
    pub silent_at_once: usize,
}

impl Default for Rhythm {
    fn default() -> Self {
        Self {
            again: Duration::from_secs(5 * 60),
            first_retry: Duration::from_secs(10),
            last_retry: Duration::from_secs(5 * 60),
            at_once: 32,
            silent_at_once: 16,
        }
    }
}

/// Client for servers inside the cluster.
pub fn http(inside: Inside) -> Result<Http, rustls::Error> {
    Http::new(HttpSettings { connect: CONNECT, answer: ANSWER, inside: Some(inside), ..HttpSettings::default() })
}

/// Last answers of the servers. Clones share them.
#[derive(Clone)]
pub struct Servers {
    inner: Arc<Inner>,
}

struct Inner {
    http: Http,
    rhythm: Rhythm,
    entries: Mutex<Entries>,
    /// A poll is due.
    work: Notify,
}

impl Servers {
    /// Polls start with [`Servers::run`].
    pub fn new(http: Http, rhythm: Rhythm) -> Self {
        Self { inner: Arc::new(Inner { http, rhythm, entries: Mutex::default(), work: Notify::new() }) }
    }

    /// The last answer, without waiting. A new question starts polls; without a question the last answer is discarded.
    pub fn seen(&self, place: &NamespacedName, question: Option<Question>) -> ObservedServer {
        let Some(question) = question else {
            self.forget(place);
            return ObservedServer::Awaited;
        };
        let (seen, new) = self.entries().want(place, question, Instant::now());
        if new {
            self.inner.work.notify_one();
        }
        seen
    }

    /// Stops the polls of an object's server.
    pub fn forget(&self, place: &NamespacedName) {
        self.entries().forget(place);
    }

    /// Polls servers until `stop`, and calls `wake` for objects with a changed answer. May run again after that, but not twice
    /// at the same time.
    pub async fn run(&self, wake: impl Fn(NamespacedName), stop: CancellationToken) {
        self.entries().interrupted(Instant::now());
        let mut asking = JoinSet::new();
        loop {
            let (jobs, next) = self.entries().take_due(Instant::now(), &self.inner.rhythm);
            for job in jobs {
                let http = self.inner.http.clone();
                asking.spawn(async move {
                    let said = ask::server(&http, &job.question.url, &job.place).await;
                    (job, said)
                });
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.inner.work.notified() => {}
                () = sleep_until(next) => {}
                Some(ended) = asking.join_next() => match ended {
                    Ok((job, said)) => self.store(&job, said, &wake),
                    // The question of a panicked task is lost, so that all polls in progress are repeated.
                    Err(_) => self.entries().interrupted(Instant::now() + self.inner.rhythm.first_retry),
                },
            }
        }
    }

    fn store(&self, job: &Job, said: ObservedServer, wake: &impl Fn(NamespacedName)) {
        let NamespacedName { namespace, name } = &job.place;
        let changed = self.entries().answer(job, said, Instant::now(), &self.inner.rhythm);
        match changed {
            None => return,
            Some(ObservedServer::Silent(cause)) => {
                tracing::warn!(namespace, name, cause, "the health check of a server failed")
            }
            Some(_) => tracing::debug!(namespace, name, "the response of a server changed"),
        }
        wake(job.place.clone());
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.inner.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
