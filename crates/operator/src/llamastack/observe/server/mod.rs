//! What running servers say of themselves, kept up to date beside the passes: no pass ever waits for a server.
//! Comes in: which server an object has; goes out: what is known of it now, and later which objects should look again.

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

use entries::{Entries, Job};

/// For one of the three requests of a poll, with its answer.
const ANSWER: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(3);

/// When a server is asked again.
#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    /// After an answer.
    pub again: Duration,
    /// After the first failure; each further one doubles it.
    pub first_retry: Duration,
    pub last_retry: Duration,
    /// How many servers are asked at the same time.
    pub at_once: usize,
    /// How many of these may be servers that gave no answer the last time: each of those may take the whole time that there
    /// is for an answer, and those that do answer shall not wait for them.
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

/// The way to servers inside the cluster.
pub fn http(inside: Inside) -> Result<Http, rustls::Error> {
    Http::new(HttpSettings { connect: CONNECT, answer: ANSWER, inside: Some(inside), ..HttpSettings::default() })
}

/// What is known of the servers of objects. Clones know the same.
#[derive(Clone)]
pub struct Servers {
    inner: Arc<Inner>,
}

struct Inner {
    http: Http,
    rhythm: Rhythm,
    entries: Mutex<Entries>,
    /// There is something to ask.
    work: Notify,
}

impl Servers {
    /// Nothing is asked until [`Servers::run`] runs.
    pub fn new(http: Http, rhythm: Rhythm) -> Self {
        Self { inner: Arc::new(Inner { http, rhythm, entries: Mutex::default(), work: Notify::new() }) }
    }

    /// What is known now, at once. A new question is looked into from here on; without one, what was known is forgotten.
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

    /// The object is gone, or its server is not to be asked now.
    pub fn forget(&self, place: &NamespacedName) {
        self.entries().forget(place);
    }

    /// Asks servers until `stop`, and wakes the objects for which there is something new. May run again after that, but not
    /// twice at the same time.
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
                () = at(next) => {}
                Some(ended) = asking.join_next() => match ended {
                    Ok((job, said)) => self.hear(&job, said, &wake),
                    // Which question it was is lost with its task. What is asked twice is answered twice, no more.
                    Err(_) => self.entries().interrupted(Instant::now() + self.inner.rhythm.first_retry),
                },
            }
        }
    }

    fn hear(&self, job: &Job, said: ObservedServer, wake: &impl Fn(NamespacedName)) {
        let NamespacedName { namespace, name } = &job.place;
        let told = self.entries().answer(job, said, Instant::now(), &self.inner.rhythm);
        match told {
            None => return,
            Some(ObservedServer::Silent(cause)) => tracing::warn!(namespace, name, cause, "a server gives no answer"),
            Some(_) => tracing::debug!(namespace, name, "a server has told something new"),
        }
        wake(job.place.clone());
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.inner.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
