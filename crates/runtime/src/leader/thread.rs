//! The election on a thread, an async runtime and a connection of its own. A reconcile that blocks every worker thread, or a
//! connection that is busy with watches, delays no renewal.

use std::future::Future;
use std::io;
use std::thread;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::{Election, Fence, Term};

/// Time limit for releasing the Lease. An API server that does not respond must not delay the exit of the process: the
/// Lease expires anyway.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
enum Leadership {
    Standby,
    Leading(Fence),
}

/// The process's view of the election.
pub struct LeaseThread {
    leadership: watch::Receiver<Leadership>,
    /// Cancelled once everything that acts in the term has stopped.
    idle: CancellationToken,
    /// The fence of the term that the process knows of.
    term: Option<Fence>,
}

impl LeaseThread {
    /// Starts the thread, and returns once `election` has connected.
    ///
    /// `election` runs on the new thread, so that the connection that it opens is driven by this thread alone. After `stop`
    /// the Lease is kept until [`LeaseThread::release`], but for no longer than `grace`.
    pub async fn spawn<C, E>(
        election: impl FnOnce() -> C + Send + 'static,
        stop: CancellationToken,
        grace: Duration,
    ) -> io::Result<Result<Self, E>>
    where
        C: Future<Output = Result<Election, E>>,
        E: Send + 'static,
    {
        let (publish, leadership) = watch::channel(Leadership::Standby);
        let (connected, connection) = oneshot::channel();
        let idle = CancellationToken::new();
        let finished = idle.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("lease".to_owned()).spawn(move || {
            runtime.block_on(async {
                match election().await {
                    Ok(election) => {
                        // A caller that is gone has dropped the process's end of the election too.
                        let _ = connected.send(Ok(()));
                        campaign(&election, &publish, &stop, &finished, grace).await;
                    }
                    Err(error) => drop(connected.send(Err(error))),
                }
            });
            // A credential plugin that hangs must not keep the thread.
            runtime.shutdown_background();
        })?;
        match connection.await {
            Ok(Ok(())) => Ok(Ok(Self { leadership, idle, term: None })),
            Ok(Err(error)) => Ok(Err(error)),
            Err(_) => Err(io::Error::other("the thread of the Lease ended before it was connected")),
        }
    }

    /// Waits until this process leads. None: the thread has ended, after `stop` or by a panic.
    pub async fn acquired(&mut self) -> Option<Fence> {
        let leading = self.leadership.wait_for(|now| matches!(now, Leadership::Leading(_))).await.ok()?;
        self.term = match &*leading {
            Leadership::Leading(fence) => Some(fence.clone()),
            Leadership::Standby => None,
        };
        self.term.clone()
    }

    /// Waits until the term of the last [`LeaseThread::acquired`] is over. A next term may have begun by then.
    pub async fn lost(&mut self) {
        let Some(term) = self.term.clone() else { return };
        let over = |now: &Leadership| !matches!(now, Leadership::Leading(fence) if fence.is_same(&term));
        // Without a sender, no term goes on.
        let _ = self.leadership.wait_for(over).await;
    }

    /// Gives the Lease back. Nothing of this term may act any more when this is called.
    pub async fn release(&mut self) {
        self.idle.cancel();
        self.lost().await;
    }
}

/// Publishes `Standby` however the term ends, a panic included.
struct Published<'a>(&'a watch::Sender<Leadership>);

impl Drop for Published<'_> {
    fn drop(&mut self) {
        self.0.send_replace(Leadership::Standby);
    }
}

/// Leads whenever it can, until `stop`.
async fn campaign(
    election: &Election,
    publish: &watch::Sender<Leadership>,
    stop: &CancellationToken,
    idle: &CancellationToken,
    grace: Duration,
) {
    let lease = election.name.as_str();
    while !stop.is_cancelled() {
        tracing::info!(lease, "waiting for the lease");
        let mut term = tokio::select! {
            () = stop.cancelled() => return,
            term = election.acquire() => term,
        };
        publish.send_replace(Leadership::Leading(term.fence()));
        let _published = Published(publish);
        // The Lease is renewed until the last controller has finished.
        tokio::select! {
            lost = term.hold() => {
                let consequence = if stop.is_cancelled() { "lost the lease" } else { "lost the lease: standing by" };
                tracing::warn!(lease, %lost, "{consequence}");
            }
            () = idle.cancelled() => return release(term, lease).await,
            () = async { stop.cancelled().await; time::sleep(grace).await } => {
                let seconds = grace.as_secs();
                tracing::warn!(lease, seconds, "controllers did not stop in time: releasing the lease without them");
                return release(term, lease).await;
            }
        }
    }
}

async fn release(term: Term, lease: &str) {
    if time::timeout(RELEASE_TIMEOUT, term.release()).await.is_err() {
        tracing::warn!(lease, "could not release the lease in time; the next leader waits until it expires");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn term_that_is_retaken_at_once_is_lost() {
        let (publish, leadership) = watch::channel(Leadership::Standby);
        let mut thread = LeaseThread { leadership, idle: CancellationToken::new(), term: None };
        let (first, second) = (Fence::default(), Fence::default());
        publish.send_replace(Leadership::Leading(first.clone()));
        assert!(thread.acquired().await.is_some_and(|fence| fence.is_same(&first)));
        // The process is not polled between the end of the first term and the begin of the second.
        publish.send_replace(Leadership::Standby);
        publish.send_replace(Leadership::Leading(second.clone()));
        time::timeout(Duration::from_secs(5), thread.lost()).await.unwrap();
        assert!(thread.acquired().await.is_some_and(|fence| fence.is_same(&second)));
    }
}
