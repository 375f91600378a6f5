//! Keeps records of an API that clusters may lack, because its CRD may be installed and removed at any time.

use std::future::{Future, pending};

use tokio::sync::watch::{self, Receiver};

use super::records::{Change, Record, Store};
use super::served::{self, Optional};
use crate::client::Server;

impl<R: Record> Store<R> {
    /// Runs `follow`, which keeps this store up to date, while the API of the objects is served. While it is not, the store is
    /// empty and its state is `NotServed`.
    pub async fn follow_while_served<F: Future>(
        &self,
        server: &Server,
        api: &Optional,
        follow: impl Fn() -> F,
        changed: impl Fn(Change<R>),
    ) {
        let not_served = || self.not_served().into_iter().for_each(&changed);
        let served = || {
            self.relist();
            follow()
        };
        while_served(server, api, not_served, served).await;
    }
}

/// Runs `follow` while an API is served, from the start each time that the API appears, and calls `not_served` each time that
/// it is known to be absent. Never returns.
pub async fn while_served<F: Future>(server: &Server, api: &Optional, not_served: impl Fn(), follow: impl Fn() -> F) {
    let (report, served) = watch::channel(None);
    let discover = served::follow(server, api, |served| {
        tracing::info!(crd = api.crd, "the cluster {} this API", if served { "serves" } else { "does not serve" });
        report.send_replace(Some(served));
    });
    tokio::join!(discover, alternate(served, not_served, follow));
}

async fn alternate<F: Future>(mut served: Receiver<Option<bool>>, not_served: impl Fn(), follow: impl Fn() -> F) {
    loop {
        let is_served = *served.borrow_and_update();
        let run = async {
            match is_served {
                Some(true) => _ = follow().await,
                Some(false) => not_served(),
                None => {}
            }
            pending::<()>().await;
        };
        tokio::select! {
            () = run => {}
            changed = served.changed() => if changed.is_err() { return },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Mutex;

    use futures::FutureExt;

    use super::*;

    #[test]
    fn api_is_followed_only_while_served() {
        let (report, served) = watch::channel(None);
        let calls = Mutex::new(Vec::new());
        let call = |name| calls.lock().unwrap().push(name);
        let follow = || async {
            call("start");
            pending::<()>().await;
        };
        let mut alternate = pin!(alternate(served, || call("clear"), follow));
        for served in [false, true, false, true] {
            report.send_replace(Some(served));
            assert_eq!(alternate.as_mut().now_or_never(), None);
        }
        assert_eq!(*calls.lock().unwrap(), ["clear", "start", "clear", "start"]);
    }
}
