//! Follows one profiler to its end and keeps the output ConfigMap up to date.

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

#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Interval between reads of the folder.
    pub look: Duration,
    /// Interval between reads of the pod while the files show no verdict: many relays use the same API server.
    pub pod: Duration,
    /// Wait for files after the profiler's end.
    pub patience: Duration,
    /// Wait for files in a folder that outlives the pod, which may be on the network.
    pub long_patience: Duration,
    /// Longest pause after failed calls.
    pub longest_pause: Duration,
    /// Wait for missing rights after the profiler's end.
    pub rights: Duration,
    /// Time for the last write after a signal to stop. Shorter than a pod's usual grace period of 30 s.
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
    #[error("gave up after {} min without permission to write ConfigMap {name}: {cause}{}", after.as_secs() / 60, remedy(.cause))]
    Denied { name: String, after: Duration, cause: DeliverError },
    #[error("stopped before ConfigMap {name} could be written: {cause}")]
    Unwritten { name: String, cause: String },
}

/// Names the role with the missing right, if RBAC denied the write.
fn remedy(cause: &DeliverError) -> String {
    if !cause.names_right() {
        return String::new();
    }
    let rules = super::rules();
    let verbs: Vec<&str> =
        rules.iter().filter(|rule| rule.resource == "configmaps").flat_map(|rule| rule.verbs).copied().collect();
    format!(
        "; bind the ServiceAccount of the Job to ClusterRole {PROFILING_ROLE} in this namespace, which grants {} on \
         configmaps",
        verbs.join(", ")
    )
}

/// Follows the profiler to its end. A result is discarded only if the account is never granted the right to deliver it.
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

#[derive(Default)]
struct Seen {
    profiler: Profiler,
    /// Time of the last read of the pod.
    asked: Option<Instant>,
    /// Time since which the profiler writes no more.
    over: Option<Instant>,
    /// Whether the files show a verdict, after which the profiler ends soon.
    hinted: bool,
    /// Time since which the API server denies reading the pod.
    refused: Option<Instant>,
    /// Last logged error of reading the pod.
    logged: Option<String>,
}

struct Relay<'a> {
    server: &'a Server,
    place: &'a Place,
    pace: &'a Pace,
    seen: Seen,
    written: Option<Data>,
    pause: Duration,
    /// Error of the last write.
    trouble: Option<String>,
    /// Time since which the account has no right to write.
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
            // The grace period leaves no time for long pauses.
            sleep(if stopping { self.pace.look } else { self.pause }).await;
        }
    }

    fn is_hopeless(&self, cause: &DeliverError) -> bool {
        let since = |time: &Option<Instant>| time.map(|time| time.elapsed());
        // A quota or a policy is likely to be changed while we wait; a missing right was probably forgotten.
        let limit = if cause.names_right() { self.pace.rights } else { decide::LONGEST };
        decide::is_hopeless(since(&self.denied), since(&self.seen.over), &self.seen.profiler, limit)
    }

    /// Reads pod and files once, and writes if necessary.
    async fn step(&mut self, stopping: bool) -> Result<Next, DeliverError> {
        // The pod is read first: once the profiler has ended, its files are final.
        if self.must_ask() {
            self.ask().await;
        }
        let files = self.look().await;
        let over = decide::is_over(&files, &self.seen.profiler);
        self.seen.hinted = files.has_verdict();
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

    /// Writes new data. The `last` write always compares with the live ConfigMap, which others may have changed.
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
                let (profiler_message, error) = (word("message"), word("profiler_error"));
                tracing::info!(
                    phase,
                    status,
                    profiler_message,
                    error,
                    config_map = request.output(),
                    "wrote the ConfigMap"
                );
            }
            Err(error) => {
                if error.is_denied() {
                    self.denied.get_or_insert_with(Instant::now);
                }
                self.pause = (self.pause * 2).min(self.pace.longest_pause);
                tracing::warn!(%error, config_map = request.output(), retry_in = ?self.pause, "cannot write the ConfigMap");
                return Err(error);
            }
        }
        self.denied = None;
        self.written = Some(data);
        Ok(())
    }

    async fn look(&self) -> Files {
        // A folder on the network may hang, which must not block the handling of signals.
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
                self.seen.logged = None;
                self.seen.refused = None;
            }
            Err(CallError::Answered { code: 403 | 404, message, .. }) => {
                // A right that was just granted may take a moment to have effect. An earlier observation stays valid.
                let since = *self.seen.refused.get_or_insert_with(Instant::now);
                if self.seen.profiler == Profiler::Unknown && since.elapsed() >= self.pace.patience {
                    self.seen.profiler = Profiler::Hidden;
                }
                self.log_once(&message);
            }
            Err(error) => self.log_once(&error.to_string()),
        }
    }

    /// Logs an error, unless it was the last one logged.
    fn log_once(&mut self, cause: &str) {
        if self.seen.logged.as_deref() != Some(cause) {
            tracing::warn!(
                cause,
                pod = self.place.pod,
                "cannot read the pod of the profiler; its end is taken from its status file until the account may get \
                 pods"
            );
            self.seen.logged = Some(cause.to_owned());
        }
    }
}
