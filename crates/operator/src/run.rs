//! `steersman run`: the life of the process, from the first signal handler to the last answer.
//! Comes in: settings; goes out: nothing while all is well, and on the way out either success or the one cause.
//!
//! Start: signals, log, crypto provider, client, webhook, servers, Lease, controllers. Stop: controllers, Lease, servers, and
//! the webhook last.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use steersman_api::Family;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time;
use tokio_util::sync::CancellationToken;

use crate::client::{self, CallError, ConnectError, Server};
use crate::controllers::{self, Given};
use crate::crds;
use crate::health::{self, Readiness};
use crate::leader::{Election, Fence};
use crate::observe;
use crate::rbac::Rule;
use crate::reach::Inside;
use crate::serve::{self, ServeError, Serving, Wire};
use crate::settings::{Settings, Switch};
use crate::telemetry::admitted::Trust;
use crate::telemetry::logs::{self, AlreadySetUp};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::scrape::{self, Guard};
use crate::webhooks;

/// One Lease for all controllers.
pub const LEASE: &str = "steersman";

/// Which of several operators for VariantAutoscalings this is, each with objects of its own by their label.
pub const INSTANCE: &str = "CONTROLLER_INSTANCE";

/// How long controllers may take to finish what they are at. Shorter than a pod's usual grace of 30 s.
const CONTROLLERS_STOP: Duration = Duration::from_secs(10);

/// How long answers under way may take at the end.
const SERVERS_STOP: Duration = Duration::from_secs(2);

/// How long giving back the Lease may take.
const RELEASE: Duration = Duration::from_secs(5);

const AGAIN: Duration = Duration::from_secs(2);

const API_SERVER: &str = "the API server to answer";
const NOTHING: &str = "nothing any more: it is shutting down";

/// What the election needs, in the operator's own namespace.
pub fn rules() -> Vec<Rule> {
    // Each of several operators for VariantAutoscalings has one of its own, whose name nobody knows before.
    vec![Rule::namespaced(
        "coordination.k8s.io",
        "leases",
        &["get", "list", "watch", "create", "update"],
        "let exactly one of its replicas act",
    )]
}

/// The Lease of this process. Operators of different instances act side by side, where VariantAutoscalings are all that they
/// act on: of other objects they would both be the operator.
pub fn lease(families: &[Family], instance: Option<&str>) -> String {
    let instance = instance.filter(|instance| !instance.is_empty() && families == [Family::Va]);
    let Some(instance) = instance else { return LEASE.to_owned() };
    let plain = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '-' | '.');
    let kept: String = instance.to_lowercase().chars().map(|letter| if plain(letter) { letter } else { '-' }).collect();
    let kept = kept.trim_matches(['-', '.']);
    if kept == instance {
        return format!("{LEASE}-{instance}");
    }
    // What a label may hold and a name may not must not make one Lease of two instances.
    let letters: String = instance.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{LEASE}-x{letters}")
}

/// Why the process ends otherwise than asked to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("cannot listen for signals: {0}")]
    Signals(io::Error),
    #[error(transparent)]
    Log(#[from] AlreadySetUp),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("cannot set up TLS to servers in the cluster: {0}")]
    Inside(#[from] rustls::Error),
}

/// Runs until SIGTERM or SIGINT.
pub async fn run(settings: &Settings) -> Result<(), RunError> {
    let stop = signals().map_err(RunError::Signals)?;
    logs::install(settings.log_level)?;
    let identity = settings.identity();
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(version, identity, namespace = settings.namespace, "starting");
    let controllers = settings.controllers();
    let instance = std::env::var(INSTANCE).ok();
    let lease = lease(&controllers, instance.as_deref());
    let metrics = Arc::new(Metrics::new(Timestamp::now()));
    let server = client::connect_to_watch(&settings.cluster, &identity).await?.counted(&metrics);
    let readiness = Readiness::default();
    readiness.awaits(API_SERVER);
    metrics.leads(&lease, false);
    let (mut webhook, keeper) = webhooks::start(settings, &server, &readiness, &metrics)?;
    let (mut health, mut scrapes) = serve(settings, &server, &readiness, &metrics)?;

    let inside = observe::llamastack::server::http(Inside { through: settings.reach_through.clone() })?;
    let election = Election::new(server.clone(), &settings.namespace, &lease, &identity, settings.timing());
    let act = |fence: Fence, stop: CancellationToken| {
        metrics.fleet().speak_while(&fence);
        let given = Given {
            server: server.behind(&fence),
            scope: settings.scope(),
            identity: identity.clone(),
            metrics: metrics.clone(),
            told: settings.told(),
            inside: inside.clone(),
            image_labels: settings.image_labels == Switch::On,
            fleet: observe::variant::Options::of_process(settings.prometheus_allow_http),
            fleet_rhythm: settings.fleet_rhythm(),
        };
        act(controllers.clone(), given, stop)
    };
    let outcome = tokio::select! {
        () = lead(&election, &lease, &metrics, &stop, |fence, stop| {
            futures::future::join(keeper.keep(fence.clone(), stop.clone()), act(fence, stop)).map(|_| ())
        }) => Ok(()),
        never = first_answer(&server, &readiness) => match never {},
        never = keeper.follow() => match never {},
        ended = webhook.ended() => Err(ended.into()),
        ended = health.ended() => Err(ended.into()),
        ended = scrapes.ended() => Err(ended.into()),
    };
    readiness.awaits(NOTHING);
    tokio::join!(health.stop(SERVERS_STOP), scrapes.stop(SERVERS_STOP), webhook.stop());
    tracing::info!("stopped");
    outcome
}

/// The token is cancelled by the first signal; the second ends the process on the spot.
pub(crate) fn signals() -> io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let first = stop.clone();
    tokio::spawn(async move {
        let mut next = async || tokio::select! { _ = terminate.recv() => "SIGTERM", _ = interrupt.recv() => "SIGINT" };
        let signal = next().await;
        tracing::info!(signal, "stopping");
        first.cancel();
        let signal = next().await;
        tracing::warn!(signal, "asked twice to stop: leaving at once");
        std::process::exit(1);
    });
    Ok(stop)
}

fn serve(
    settings: &Settings,
    server: &Server,
    readiness: &Readiness,
    metrics: &Arc<Metrics>,
) -> Result<(Serving, Serving), ServeError> {
    let addresses = &settings.addresses;
    let (wire, guard) = if addresses.metrics.ip().is_loopback() {
        (Wire::Plain, Guard::Everyone)
    } else {
        (Wire::SelfSigned, Guard::Reviewed(server.clone(), Trust::default()))
    };
    let health = serve::start("health", addresses.health, Wire::Plain, health::routes(readiness.clone()))?;
    let scrapes = serve::start("metrics", addresses.metrics, wire, scrape::routes(metrics.clone(), guard))?;
    Ok((health, scrapes))
}

enum Never {}

/// Ready is who has talked to the API server: a wrong address or credential shows before the old replica is gone.
async fn first_answer(server: &Server, readiness: &Readiness) -> Never {
    loop {
        match server.call(server.client.apiserver_version()).await {
            // Who may not see the version has been answered all the same.
            Ok(_) | Err(CallError::Answered { code: 403, .. }) => break,
            Err(error) => tracing::warn!(%error, "waiting for the API server"),
        }
        time::sleep(AGAIN).await;
    }
    readiness.has(API_SERVER);
    std::future::pending().await
}

/// Leads whenever it can, until `stop`. What acts does so behind the fence of its term, and is dropped when that is lost.
async fn lead<A: Future<Output = ()>>(
    election: &Election,
    lease: &str,
    metrics: &Metrics,
    stop: &CancellationToken,
    act: impl Fn(Fence, CancellationToken) -> A,
) {
    loop {
        tracing::info!(lease, "waiting for the lease");
        let mut term = tokio::select! {
            () = stop.cancelled() => return,
            term = election.acquire() => term,
        };
        metrics.leads(lease, true);
        let finished = {
            let controllers = act(term.fence(), stop.clone());
            // The Lease is renewed until the last controller has finished.
            tokio::select! {
                lost = term.hold() => Err(lost),
                () = within(CONTROLLERS_STOP, stop, controllers) => Ok(()),
            }
        };
        metrics.leads(lease, false);
        match finished {
            Ok(()) => {
                // An API server that does not answer must not keep us: the Lease runs out by itself.
                if time::timeout(RELEASE, term.release()).await.is_err() {
                    tracing::warn!(lease, "could not release the lease in time");
                }
                return;
            }
            Err(lost) if stop.is_cancelled() => return tracing::warn!(lease, %lost, "lost the lease"),
            Err(lost) => tracing::warn!(lease, %lost, "lost the lease: standing by"),
        }
    }
}

/// Everything that only the leader does, until `stop`.
async fn act(families: Vec<Family>, given: Given, stop: CancellationToken) {
    let running = families.into_iter().map(|family| controllers::run(family, given.clone(), stop.clone()));
    tokio::join!(futures::future::join_all(running), crds::migrate::keep(given.server.clone(), stop.clone()));
    stop.cancelled().await;
}

/// Waits for the controllers, but not much longer than `stop`.
async fn within(limit: Duration, stop: &CancellationToken, controllers: impl Future<Output = ()>) {
    let late = async {
        stop.cancelled().await;
        time::sleep(limit).await;
        tracing::warn!(seconds = limit.as_secs(), "controllers did not stop in time: dropping them");
    };
    tokio::select! { () = controllers => {}, () = late => {} }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_have_a_lease_each_where_variants_are_all_that_they_act_on() {
        let va = [Family::Va];
        for (families, instance, name) in [
            (&va[..], None, "steersman"),
            (&va, Some(""), "steersman"),
            (&va, Some("blue"), "steersman-blue"),
            (&va, Some("team-a.blue"), "steersman-team-a.blue"),
            (&va, Some("Blue"), "steersman-x426c7565"),
            (&va, Some("blue_"), "steersman-x626c75655f"),
            (&[Family::Llsd, Family::Va], Some("blue"), "steersman"),
        ] {
            assert_eq!(lease(families, instance), name, "{instance:?}");
        }
    }
}
