//! The relay's life beside one profiler.
//! Comes in: the folder, the pod and a signal to stop; goes out: the output ConfigMap, up to date until the profiler has ended,
//! and how that was.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use steersman_runtime::client::{CallError, Server};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::PROFILING_ROLE;
use crate::relay::decide::{self, Data, Ending, Look, Next};
use crate::relay::deliver::{DeliverError, Request, Written};
use crate::relay::files::{self, Files};
use crate::relay::pod::{self, Profiler};
use crate::relay::status::Verdict;

/// How often and how long.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Between looks at the folder.
    pub look: Duration,
    /// Between looks at the pod, while nothing hints at the profiler's end: many relays ask the same API server.
    pub pod: Duration,
    /// For files, once the profiler has ended.
    pub patience: Duration,
    /// The same for a folder on the network.
    pub long_patience: Duration,
    /// The longest pause after calls that failed.
    pub longest_pause: Duration,
    /// For rights that are still to be given to the account, once there is nothing else to wait for.
    pub rights: Duration,
    /// For the last write once told to stop. Shorter than a pod's usual grace of 30 s.
    pub flush: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            look: Duration::from_secs(2),
            pod: Duration::from_secs(10),
            patience: Duration::from_secs(5),
            long_patience: Duration::from_secs(120),
            longest_pause: Duration::from_secs(30),
            rights: Duration::from_secs(15 * 60),
            flush: Duration::from_secs(20),
        }
    }
}

/// Where everything is.
#[derive(Clone, Debug)]
pub struct Place {
    pub request: Request,
    pub pod: String,
    pub container: String,
    pub folder: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    #[error("cannot write ConfigMap {name}: {cause}")]
    Refused { name: String, cause: DeliverError },
    #[error("gave up after {} min without the right to write ConfigMap {name}: {cause}{}", after.as_secs() / 60, remedy(.cause))]
    Denied { name: String, after: Duration, cause: DeliverError },
    #[error("told to stop before ConfigMap {name} could be written: {cause}")]
    Unwritten { name: String, cause: String },
}

/// Says where the right is, if it is one that a role can give.
fn remedy(cause: &DeliverError) -> String {
    if !cause.names_right() {
        return String::new();
    }
    let rules = super::rules();
    let verbs: Vec<&str> =
        rules.iter().filter(|rule| rule.resource == "configmaps").flat_map(|rule| rule.verbs).copied().collect();
    format!(
        "; the account needs {} of configmaps, and all that ClusterRole {PROFILING_ROLE} gives: bind it to that role in this \
         namespace",
        verbs.join(", ")
    )
}

/// Follows the profiler to its end. A result is given up only where the account has no right to deliver it, and gets none.
pub async fn follow(
    server: &Server,
    place: &Place,
    pace: &Pace,
    stop: &CancellationToken,
) -> Result<Ending, FollowError> {
    let mut relay = Relay {
        server,
        place,
        pace,
        seen: Seen::default(),
        written: None,
        pause: pace.look,
        trouble: None,
        denied: None,
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        ended = relay.run(false) => return ended,
    }
    let flushed = tokio::time::timeout(pace.flush, relay.run(true)).await;
    flushed.unwrap_or_else(|_| {
        let cause = relay.trouble.take().unwrap_or_else(|| "the API server has not answered".to_owned());
        Err(FollowError::Unwritten { name: place.request.output(), cause })
    })
}

/// What was seen so far.
#[derive(Default)]
struct Seen {
    profiler: Profiler,
    asked: Option<Instant>,
    /// Since when it is over with the profiler.
    over: Option<Instant>,
    /// The last look at the files hints at the profiler's end.
    hinted: bool,
    /// Since when the API server does not let us see the pod.
    refused: Option<Instant>,
    /// Trouble with the pod, as told last.
    told: Option<String>,
}

struct Relay<'a> {
    server: &'a Server,
    place: &'a Place,
    pace: &'a Pace,
    seen: Seen,
    /// The data that was written last.
    written: Option<Data>,
    pause: Duration,
    /// Why the last write failed.
    trouble: Option<String>,
    /// Since when the account has had no right to write.
    denied: Option<Instant>,
}

impl Relay<'_> {
    async fn run(&mut self, stopping: bool) -> Result<Ending, FollowError> {
        self.pause = self.pace.look;
        loop {
            match self.step(stopping).await {
                Ok(Next::End(ending)) => return Ok(ending),
                Ok(Next::Look) => {}
                Err(cause) if cause.is_final() => {
                    return Err(FollowError::Refused { name: self.place.request.output(), cause });
                }
                Err(cause) if cause.is_denied() && self.is_hopeless(&cause) => {
                    let (name, after) =
                        (self.place.request.output(), self.denied.map_or(Duration::ZERO, |since| since.elapsed()));
                    return Err(FollowError::Denied { name, after, cause });
                }
                Err(cause) => self.trouble = Some(cause.to_string()),
            }
            // There is no time for long pauses once it is told to stop.
            sleep(if stopping { self.pace.look } else { self.pause }).await;
        }
    }

    fn is_hopeless(&self, cause: &DeliverError) -> bool {
        let since = |time: &Option<Instant>| time.map(|time| time.elapsed());
        // A quota or a policy is soon changed by whoever finds out; a right that nobody gave was forgotten.
        let limit = if cause.names_right() { self.pace.rights } else { decide::LONGEST };
        decide::is_hopeless(since(&self.denied), since(&self.seen.over), &self.seen.profiler, limit)
    }

    /// One look, and the write that it leads to.
    async fn step(&mut self, stopping: bool) -> Result<Next, DeliverError> {
        // First the pod: once the profiler has ended, the files are as it left them.
        if self.must_ask() {
            self.ask().await;
        }
        let files = self.look().await;
        let over = decide::is_over(&files, &self.seen.profiler);
        self.seen.hinted = files.status().is_some_and(|status| !matches!(status.verdict, Verdict::None(_)));
        if over {
            self.seen.over.get_or_insert_with(Instant::now);
        }
        let lasting = self.seen.profiler.lasting();
        let decision = decide::decide(&Look {
            files: &files,
            profiler: &self.seen.profiler,
            over_for: self.seen.over.map_or(Duration::ZERO, |since| since.elapsed()),
            patience: if lasting { self.pace.long_patience } else { self.pace.patience },
            stopping,
            folder: &self.place.folder.display().to_string(),
        });
        if let Some(data) = decision.data {
            self.write(data, decision.next != Next::Look).await?;
        }
        self.pause = self.pace.look;
        Ok(decision.next)
    }

    /// The same content is not written twice; in the end what is there is looked at, whoever wrote it.
    async fn write(&mut self, data: Data, last: bool) -> Result<(), DeliverError> {
        if !last && self.written.as_ref() == Some(&data) {
            return Ok(());
        }
        let request = &self.place.request;
        match request.deliver(self.server, &data).await {
            Ok(Written::Nothing) => {}
            Ok(_) => {
                let word = |key: &str| data.get(key).map(String::as_str).unwrap_or_default();
                let (phase, status) = (word("phase"), word("profiler_status"));
                let (said, error) = (word("message"), word("profiler_error"));
                tracing::info!(phase, status, said, error, config_map = request.output(), "relayed");
            }
            Err(error) => {
                if error.is_denied() {
                    self.denied.get_or_insert_with(Instant::now);
                }
                self.pause = (self.pause * 2).min(self.pace.longest_pause);
                tracing::warn!(%error, config_map = request.output(), again = ?self.pause, "cannot write the ConfigMap");
                return Err(error);
            }
        }
        self.denied = None;
        self.written = Some(data);
        Ok(())
    }

    async fn look(&self) -> Files {
        // A folder on the network may hang, which must not keep us from hearing a signal.
        let folder = self.place.folder.clone();
        tokio::task::spawn_blocking(move || files::look(&folder)).await.unwrap_or_default()
    }

    fn must_ask(&self) -> bool {
        let known = match &self.seen.profiler {
            Profiler::Seen(life) => life.started.is_some() && !self.seen.hinted,
            Profiler::Hidden => !self.seen.hinted,
            Profiler::Unknown => false,
        };
        let ended = self.seen.profiler.ended().is_some();
        !ended && (!known || self.seen.asked.is_none_or(|asked| asked.elapsed() >= self.pace.pod))
    }

    async fn ask(&mut self) {
        let place = self.place;
        let pods: Api<Pod> = Api::namespaced(self.server.client.clone(), &place.request.namespace);
        self.seen.asked = Some(Instant::now());
        match self.server.call(pods.get(&place.pod)).await {
            Ok(pod) => {
                let folder = place.folder.to_string_lossy();
                self.seen.profiler = pod::profiler(&pod, &place.container, folder.trim_end_matches('/'));
                self.seen.told = None;
                self.seen.refused = None;
            }
            Err(CallError::Answered { code: 403 | 404, message, .. }) => {
                // A right that was given a moment ago may not be known everywhere. What was seen before stays true.
                let since = *self.seen.refused.get_or_insert_with(Instant::now);
                if self.seen.profiler == Profiler::Unknown && since.elapsed() >= self.pace.patience {
                    self.seen.profiler = Profiler::Hidden;
                }
                self.tell(&message);
            }
            Err(error) => self.tell(&error.to_string()),
        }
    }

    /// Each trouble once, until it is over.
    fn tell(&mut self, cause: &str) {
        if self.seen.told.as_deref() != Some(cause) {
            tracing::warn!(
                cause,
                pod = self.place.pod,
                "cannot see whether the profiler has ended; its own word counts until the account may get its pod"
            );
            self.seen.told = Some(cause.to_owned());
        }
    }
}
