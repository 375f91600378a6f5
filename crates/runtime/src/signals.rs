//! Handles SIGTERM and SIGINT on a thread of their own, so that they work even while every worker thread is blocked.

use std::future;
use std::io;
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time;
use tokio_util::sync::CancellationToken;

/// The first signal cancels the token. The second one exits the process at once; so does the end of `limit`.
pub fn stop_token(limit: Option<Duration>) -> io::Result<CancellationToken> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // The handlers are registered before this function returns: no signal is missed.
    let (mut terminate, mut interrupt) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let stop = CancellationToken::new();
    let first = stop.clone();
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let signal = next(&mut terminate, &mut interrupt).await;
            tracing::info!(signal, "stopping");
            first.cancel();
            let late = async {
                match limit {
                    Some(limit) => time::sleep(limit).await,
                    None => future::pending().await,
                }
            };
            tokio::select! {
                signal = next(&mut terminate, &mut interrupt) => {
                    tracing::warn!(signal, "second signal: exiting at once");
                }
                () = late => tracing::error!("did not stop in time: exiting at once"),
            }
            std::process::exit(1);
        });
    })?;
    Ok(stop)
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! { _ = terminate.recv() => "SIGTERM", _ = interrupt.recv() => "SIGINT" }
}
