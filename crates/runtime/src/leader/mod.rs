//! Leader election by a Lease, with client-go's protocol. Each leadership is a term: it lasts until the Lease is lost, and is
//! released on a planned stop, so that the next replica takes over at once.

pub mod decide;
pub mod fence;
pub mod thread;

use std::pin::pin;
use std::time::{Duration, Instant};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::runtime::watcher;
use tokio::time;

use crate::client::{self, CallError, Server};
use decide::{ElectionStep, Sighting};
pub use fence::Fence;
pub use thread::LeaseThread;

/// Intervals of the election. The defaults are client-go's.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Time without a renewal after which other candidates take the Lease.
    pub lease: Duration,
    /// Time after the last successful renewal at which the leader stops. Shorter than `lease`, so that it stops first.
    pub deadline: Duration,
    /// Interval between renewals.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), deadline: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

/// A candidate for a Lease.
#[derive(Clone)]
pub struct Election {
    server: Server,
    namespace: String,
    name: String,
    identity: String,
    timing: Timing,
}

/// The right to lead. After a drop without [`Term::release`], other candidates wait until the Lease expires.
pub struct Term {
    election: Election,
    lease: Lease,
    renewed: Instant,
    fence: Fence,
}

/// Causes of the end of a term.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    #[error("the Lease is held by {0} now")]
    Taken(String),
    #[error("the Lease could not be renewed for {} s: {last}", deadline.as_secs())]
    NotRenewed { deadline: Duration, last: CallError },
}

impl Election {
    pub fn new(server: Server, namespace: &str, name: &str, identity: &str, timing: Timing) -> Self {
        let (namespace, name, identity) = (namespace.to_owned(), name.to_owned(), identity.to_owned());
        Self { server, namespace, name, identity, timing }
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.server.client.clone(), &self.namespace)
    }

    /// Waits until this candidate leads. The Lease is watched, so a release is seen at once.
    pub async fn acquire(&self) -> Term {
        // Kept when a watch breaks: an unchanged Lease does not become younger.
        let mut sighting: Option<Sighting> = None;
        // Set after a failed write: the Lease may differ from the sighting. It is read again before the next write, because the
        // watch may be silent, as after etcd was restored from a backup.
        let mut stale = false;
        let mut logged = String::new();
        loop {
            let mut changes = pin!(watcher::watch_object(self.api(), &self.name));
            loop {
                let now = Instant::now();
                let take_at = sighting.as_ref().filter(|_| !stale).map(|seen| {
                    match decide::next_step(&self.identity, seen, now) {
                        ElectionStep::Take => now,
                        ElectionStep::WaitUntil(then) => then,
                    }
                });
                tokio::select! {
                    // A change of the Lease takes precedence over a decision based on an earlier state.
                    biased;
                    change = changes.next() => match change {
                        Some(Ok(lease)) => {
                            sighting = Some(Sighting::renewed(sighting.take(), lease, Instant::now()));
                            stale = false;
                        }
                        // A broken watch does not change what is known of the Lease: restart it after a pause.
                        Some(Err(error)) => {
                            let error = client::watch_error_cause(&error);
                            // A repeated error is logged once: a missing permission may be missing for long.
                            if error != logged {
                                tracing::warn!(lease = self.name, error, "cannot watch the lease; retrying");
                                logged = error;
                            }
                            break;
                        }
                        None => break,
                    },
                    () = time::sleep_until(take_at.unwrap_or(now).into()), if take_at.is_some() => {
                        match self.take(sighting.as_ref().and_then(|seen| seen.lease.clone())).await {
                            Ok(term) => return term,
                            Err(error) => tracing::info!(lease = self.name, %error, "did not acquire the lease; retrying"),
                        }
                        stale = true;
                        break;
                    }
                }
            }
            time::sleep(self.timing.retry).await;
        }
    }

    /// Writes our name into the Lease as it was seen. Anyone else's write in between makes this one fail.
    async fn take(&self, seen: Option<Lease>) -> Result<Term, CallError> {
        let began = Instant::now();
        let api = self.api();
        let transitions = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0);
        let now = MicroTime(Timestamp::now());
        let spec = |transitions| LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.timing.lease.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now.clone()),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        };
        let lease = match seen {
            Some(lease) => {
                let taken = Lease { spec: Some(spec(transitions(&lease) + 1)), metadata: lease.metadata };
                self.server.call(api.replace(&self.name, &PostParams::default(), &taken)).await?
            }
            None => {
                let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                let fresh = Lease { metadata, spec: Some(spec(0)) };
                self.server.call(api.create(&PostParams::default(), &fresh)).await?
            }
        };
        let fence = Fence::default();
        fence.open_until(began + self.timing.deadline);
        tracing::info!(lease = self.name, identity = self.identity, "leading");
        Ok(Term { election: self.clone(), lease, renewed: began, fence })
    }
}

impl Term {
    /// The fence for clients of whatever acts in this term.
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Renews the Lease until it is lost. The fence is closed when this returns.
    pub async fn hold(&mut self) -> Lost {
        let timing = self.election.timing;
        loop {
            time::sleep(timing.retry).await;
            // Measured from before the request: what the server saw cannot be later than that.
            let began = Instant::now();
            let deadline = self.renewed + timing.deadline;
            let renewed = time::timeout_at(deadline.into(), self.renew()).await;
            let error = match renewed {
                Ok(Ok(())) => {
                    self.renewed = began;
                    self.fence.open_until(began + timing.deadline);
                    continue;
                }
                Ok(Err(error)) => error,
                Err(_) => self.election.server.too_slow(timing.deadline),
            };
            if let Some(holder) = self.other_holder().await {
                self.fence.close();
                return Lost::Taken(holder);
            }
            if Instant::now() >= deadline {
                self.fence.close();
                return Lost::NotRenewed { deadline: timing.deadline, last: error };
            }
            tracing::warn!(lease = self.election.name, %error, "cannot renew the lease; retrying until the renew deadline");
        }
    }

    async fn renew(&mut self) -> Result<(), CallError> {
        let mut wanted = self.lease.clone();
        wanted.spec.get_or_insert_default().renew_time = Some(MicroTime(Timestamp::now()));
        self.put(wanted).await
    }

    async fn put(&mut self, wanted: Lease) -> Result<(), CallError> {
        let Election { server, name, .. } = &self.election;
        self.lease = server.call(self.election.api().replace(name, &PostParams::default(), &wanted)).await?;
        Ok(())
    }

    /// The holder of the Lease, if it is another process. Also refreshes our copy: a failed write may have been stored
    /// nevertheless, or a label may have been edited.
    async fn other_holder(&mut self) -> Option<String> {
        let Election { server, name, identity, .. } = &self.election;
        let Ok(lease) = server.call(self.election.api().get(name)).await else { return None };
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        let ours = holder == *identity;
        self.lease = lease;
        (!ours).then_some(holder)
    }

    /// Gives the Lease back. Nothing of this term may act any more when this is called.
    pub async fn release(mut self) {
        self.fence.close();
        let mut released = self.give_back().await;
        // A renewal that was cut off may have been done all the same: then our copy is old, and the Lease still ours.
        if released.is_err() && self.other_holder().await.is_none() {
            released = self.give_back().await;
        }
        match released {
            Ok(()) => tracing::info!(lease = self.election.name, "released the lease"),
            // Other candidates wait until it expires.
            Err(error) => {
                tracing::warn!(lease = self.election.name, %error, "could not release the lease; the next leader waits until it expires")
            }
        }
    }

    async fn give_back(&mut self) -> Result<(), CallError> {
        let mut wanted = self.lease.clone();
        let spec = wanted.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        self.put(wanted).await
    }
}
