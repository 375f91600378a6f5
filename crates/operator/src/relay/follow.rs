//! Follows one profiler to its end and keeps the output ConfigMap up to date.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use steersman_runtime::client::{CallError, Server};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::PROFILING_ROLE;
use crate::relay::decide::{self, Data, Ending, NextStep, Observation};
use crate::relay::deliver::{DeliverError, OutputWrite, RequestRef};
use crate::relay::files::{self, Files};
use crate::relay::pod::{self, ProfilerState};

#[derive(Clone, Copy, Debug)]
pub struct RelayTiming {
    /// Interval between reads of the folder.
    pub read_files: Duration,
    /// Interval between reads of the pod while the files show no verdict: many relays use the same API server.
    pub read_pod: Duration,
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

impl Default for RelayTiming {
    fn default() -> Self {
        Self {
            read_files: Duration::from_secs(2),
            read_pod: Duration::from_secs(10),
            patience: Duration::from_secs(5),
            long_patience: Duration::from_secs(120),
            longest_pause: Duration::from_secs(30),
            rights: Duration::from_secs(15 * 60),
            flush: Duration::from_secs(20),
        }
    }
}

#[derive(Clone, Debug)]
pub struct RelayTarget {
    pub request: RequestRef,
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
        "; in this namespace, bind the ServiceAccount of the Job to ClusterRole {PROFILING_ROLE}, which grants {} on \
         configmaps",
        verbs.join(", ")
    )
}

/// Follows the profiler to its end. A result is discarded only if the account is never granted the right to deliver it.
pub async fn follow(
    server: &Server,
    target: &RelayTarget,
    timing: &RelayTiming,
    stop: &CancellationToken,
) -> Result<Ending, FollowError> {
    let mut relay = Relay {
        server,
        target,
        timing,
        observed: ObservedProfiler::default(),
        written: None,
        pause: timing.read_files,
        last_error: None,
        denied: None,
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        ended = relay.run(false) => return ended,
    }
    let flushed = tokio::time::timeout(timing.flush, relay.run(true)).await;
    flushed.unwrap_or_else(|_| {
        let cause = relay.last_error.take().unwrap_or_else(|| "the API server has not answered".to_owned());
        Err(FollowError::Unwritten { name: target.request.output(), cause })
    })
}

#[derive(Default)]
struct ObservedProfiler {
    profiler: ProfilerState,
    /// Time of the last read of the pod.
    pod_read_at: Option<Instant>,
    /// Time since which the profiler writes no more.
    over: Option<Instant>,
    /// Whether the files show a verdict, after which the profiler ends soon.
    has_verdict: bool,
    /// Time since which the API server denies reading the pod.
    refused: Option<Instant>,
    /// Last logged error of reading the pod.
    logged: Option<String>,
}

struct Relay<'a> {
    server: &'a Server,
    target: &'a RelayTarget,
    timing: &'a RelayTiming,
    observed: ObservedProfiler,
    written: Option<Data>,
    pause: Duration,
    /// Error of the last write.
    last_error: Option<String>,
    /// Time since which the account has no right to write.
    denied: Option<Instant>,
}

impl Relay<'_> {
    async fn run(&mut self, stopping: bool) -> Result<Ending, FollowError> {
        self.pause = self.timing.read_files;
        loop {
            match self.step(stopping).await {
                Ok(NextStep::End(ending)) => return Ok(ending),
                Ok(NextStep::Continue) => {}
                Err(cause) if cause.is_final() => {
                    return Err(FollowError::Refused { name: self.target.request.output(), cause });
                }
                Err(cause) if cause.is_denied() && self.is_hopeless(&cause) => {
                    let (name, after) =
                        (self.target.request.output(), self.denied.map_or(Duration::ZERO, |since| since.elapsed()));
                    return Err(FollowError::Denied { name, after, cause });
                }
                Err(cause) => self.last_error = Some(cause.to_string()),
            }
            // The grace period leaves no time for long pauses.
            sleep(if stopping { self.timing.read_files } else { self.pause }).await;
        }
    }

    fn is_hopeless(&self, cause: &DeliverError) -> bool {
        let since = |time: &Option<Instant>| time.map(|time| time.elapsed());
        // A quota or a policy is likely to be changed while we wait; a missing right was probably forgotten.
        let limit = if cause.names_right() { self.timing.rights } else { decide::MAX_DENIED_WAIT };
        decide::is_hopeless(since(&self.denied), since(&self.observed.over), &self.observed.profiler, limit)
    }

    /// Reads pod and files once, and writes if necessary.
    async fn step(&mut self, stopping: bool) -> Result<NextStep, DeliverError> {
        // The pod is read first: once the profiler has ended, its files are final.
        if self.must_read_pod() {
            self.read_pod().await;
        }
        let files = self.read_files().await;
        let over = decide::is_over(&files, &self.observed.profiler);
        self.observed.has_verdict = files.has_verdict();
        if over {
            self.observed.over.get_or_insert_with(Instant::now);
        }
        let lasting = self.observed.profiler.lasting();
        let decision = decide::decide(&Observation {
            files: &files,
            profiler: &self.observed.profiler,
            over_for: self.observed.over.map_or(Duration::ZERO, |since| since.elapsed()),
            patience: if lasting { self.timing.long_patience } else { self.timing.patience },
            stopping,
            folder: &self.target.folder.display().to_string(),
        });
        if let Some(data) = decision.data {
            self.write(data, decision.next != NextStep::Continue).await?;
        }
        self.pause = self.timing.read_files;
        Ok(decision.next)
    }

    /// Writes new data. The `last` write always compares with the live ConfigMap, which others may have changed.
    async fn write(&mut self, data: Data, last: bool) -> Result<(), DeliverError> {
        if !last && self.written.as_ref() == Some(&data) {
            return Ok(());
        }
        let request = &self.target.request;
        match request.deliver(self.server, &data).await {
            Ok(OutputWrite::Nothing) => {}
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
                self.pause = (self.pause * 2).min(self.timing.longest_pause);
                tracing::warn!(%error, config_map = request.output(), retry_in = ?self.pause, "cannot write the ConfigMap");
                return Err(error);
            }
        }
        self.denied = None;
        self.written = Some(data);
        Ok(())
    }

    async fn read_files(&self) -> Files {
        // A folder on the network may hang, which must not block the handling of signals.
        let folder = self.target.folder.clone();
        tokio::task::spawn_blocking(move || files::read_folder(&folder)).await.unwrap_or_default()
    }

    fn must_read_pod(&self) -> bool {
        let known = match &self.observed.profiler {
            ProfilerState::Observed(life) => life.started.is_some() && !self.observed.has_verdict,
            ProfilerState::Hidden => !self.observed.has_verdict,
            ProfilerState::Unknown => false,
        };
        let ended = self.observed.profiler.ended().is_some();
        !ended
            && (!known
                || self.observed.pod_read_at.is_none_or(|pod_read_at| pod_read_at.elapsed() >= self.timing.read_pod))
    }

    async fn read_pod(&mut self) {
        let target = self.target;
        let pods: Api<Pod> = Api::namespaced(self.server.client.clone(), &target.request.namespace);
        self.observed.pod_read_at = Some(Instant::now());
        match self.server.call(pods.get(&target.pod)).await {
            Ok(pod) => {
                let folder = target.folder.to_string_lossy();
                self.observed.profiler = pod::profiler(&pod, &target.container, folder.trim_end_matches('/'));
                self.observed.logged = None;
                self.observed.refused = None;
            }
            Err(CallError::Answered { code: 403 | 404, message, .. }) => {
                // A right that was just granted may take a moment to have effect. An earlier observation stays valid.
                let since = *self.observed.refused.get_or_insert_with(Instant::now);
                if self.observed.profiler == ProfilerState::Unknown && since.elapsed() >= self.timing.patience {
                    self.observed.profiler = ProfilerState::Hidden;
                }
                self.log_once(&message);
            }
            Err(error) => self.log_once(&error.to_string()),
        }
    }

    /// Logs an error, unless it was the last one logged.
    fn log_once(&mut self, cause: &str) {
        if self.observed.logged.as_deref() != Some(cause) {
            tracing::warn!(
                cause,
                pod = self.target.pod,
                "cannot read the pod of the profiler; retrying. Without permission to get pods, the end of the profiler is \
                 taken from its status file"
            );
            self.observed.logged = Some(cause.to_owned());
        }
    }
}
