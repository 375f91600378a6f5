//! Runs `steersman run`, from the installation of signal handlers until the servers have stopped.
//!
//! Start order: signals, log, limit of open files, crypto provider, client, webhook, servers, Lease, controllers. Stop order:
//! controllers, Lease, servers, and the webhook last.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use steersman_api::Family;
use steersman_runtime::client::{self, CallError, ConnectError, Server};
use steersman_runtime::controller::ControllerContext;
use steersman_runtime::http::Inside;
use steersman_runtime::leader::{Election, Fence, LeaseThread};
use steersman_runtime::open_files;
use steersman_runtime::rbac::Rule;
use steersman_runtime::serve::allowed_tokens::ReviewValidity;
use steersman_runtime::serve::health::{self, Readiness};
use steersman_runtime::serve::scrape::{self, Guard};
use steersman_runtime::serve::{self, ServeError, Serving, Transport};
use steersman_runtime::signals;
use steersman_runtime::telemetry::logs::{self, AlreadySetUp};
use steersman_runtime::telemetry::metrics::Metrics;
use tokio::time;
use tokio_util::sync::CancellationToken;

use crate::controllers::{self, OperatorContext};
use crate::metrics::FamilyMetrics;
use crate::settings::{Settings, Switch};
use crate::webhook_server::ListenerError;
use crate::{crds, llamastack, variant, webhook_server};

/// Lease of all controllers.
pub const LEASE: &str = "steersman";

/// Environment variable that names this operator among several for VariantAutoscalings; each reconciles the objects with its
/// label.
pub const INSTANCE: &str = "CONTROLLER_INSTANCE";

/// Last word of the user agent of admission's lookups.
const LOOKUPS: &str = "lookups";

/// Time for reconciles in progress to finish at shutdown. Shorter than a pod's usual grace period of 30 s.
const CONTROLLERS_STOP: Duration = Duration::from_secs(10);

/// Time for responses in progress to finish at shutdown.
const SERVERS_STOP: Duration = Duration::from_secs(2);

/// Longest time from the first signal to the end of the process. It covers the times for controllers, the Lease and servers,
/// and is shorter than a pod's usual grace period of 30 s.
const STOP_LIMIT: Duration = Duration::from_secs(26);

const FIRST_ANSWER_RETRY: Duration = Duration::from_secs(2);

const API_SERVER: &str = "a response of the API server";
const SHUTDOWN: &str = "the end of the shutdown";

/// Rules of the election, for the operator's own namespace.
pub fn rules() -> Vec<Rule> {
    // The rule names no Lease: operators of several instances have one each, whose name is not known in advance.
    let why = "elect the replica that reconciles";
    vec![Rule::namespaced("coordination.k8s.io", "leases", &["get", "list", "watch", "create", "update"], why)]
}

/// The Lease of this process. Operators of different instances may lead at the same time only if they reconcile
/// VariantAutoscalings alone: objects of other kinds do not belong to an instance.
pub fn lease(families: &[Family], instance: Option<&str>) -> String {
    let instance = instance.filter(|instance| !instance.is_empty() && families == [Family::Va]);
    let Some(instance) = instance else { return LEASE.to_owned() };
    let plain = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '-' | '.');
    let kept: String = instance.to_lowercase().chars().map(|letter| if plain(letter) { letter } else { '-' }).collect();
    let kept = kept.trim_matches(['-', '.']);
    if kept == instance {
        return format!("{LEASE}-{instance}");
    }
    // Two instances whose labels differ only in characters that a name cannot have must not share a Lease.
    let letters: String = instance.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{LEASE}-x{letters}")
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("cannot start a thread for signals or for the lease: {0}")]
    Thread(io::Error),
    #[error("the thread that renews the lease has ended; this is a defect of the operator, please report it")]
    LeaseThreadEnded,
    #[error(transparent)]
    Log(#[from] AlreadySetUp),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Webhook(#[from] ListenerError),
    #[error("cannot set up TLS to servers in the cluster: {0}")]
    Inside(#[from] rustls::Error),
}

/// Runs until SIGTERM or SIGINT.
pub async fn run(settings: &Settings) -> Result<(), RunError> {
    let stop = signals::stop_token(Some(STOP_LIMIT)).map_err(RunError::Thread)?;
    logs::install(settings.log_level.as_level())?;
    let identity = settings.identity();
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(version, identity, namespace = settings.namespace, "starting");
    open_files::raise_limit();
    let controllers = settings.controllers();
    let instance = std::env::var(INSTANCE).ok();
    let lease = lease(&controllers, instance.as_deref());
    let (metrics, families) = Metrics::new(Timestamp::now(), FamilyMetrics::register);
    let metrics = Arc::new(metrics);
    let server = client::connect_to_watch(&settings.cluster.connect_options(), &identity).await?.counted(&metrics);
    let readiness = Readiness::default();
    readiness.awaits(API_SERVER);
    metrics.leads(&lease, false);
    // Users cause the lookups of admission. With connections of their own they do not delay the controllers.
    let lookups = format!("{identity} {LOOKUPS}");
    let lookups = client::connect_named(&settings.cluster.connect_options(), &lookups).await?.counted(&metrics);
    let (mut webhook, certificate) =
        webhook_server::start(settings, &server, &lookups, &readiness, &metrics, &families)?;
    let (mut health, mut scrapes) = serve(settings, &server, &readiness, &metrics)?;

    let inside = Inside { through: settings.cluster_gateway.clone() };
    let inside_client = llamastack::observe::server::http(inside.clone())?;
    let mut election = start_election(settings, &lease, &identity, &metrics, &stop).await?;
    let act = |fence: Fence, stop: CancellationToken| {
        families.fleet.set_fence(&fence);
        let context = OperatorContext {
            controller: ControllerContext {
                server: fence.guard(&server),
                scope: settings.scope(),
                identity: identity.clone(),
                metrics: metrics.clone(),
            },
            metrics: families.clone(),
            installation: settings.installation(),
            inside: inside_client.clone(),
            requests: settings.requests(),
            image_labels: settings.image_labels == Switch::On,
            fleet: variant::observe::Options::of_process(settings.prometheus_allow_http, inside.clone()),
            fleet_debounce: settings.fleet_debounce(),
        };
        act(controllers.clone(), context, settings.migrated(), stop)
    };
    let outcome = tokio::select! {
        led = lead(&mut election, &lease, &metrics, &stop, |fence, stop| {
            futures::future::join(certificate.rotate(fence.clone(), stop.clone()), act(fence, stop)).map(|_| ())
        }) => led,
        never = first_answer(&server, &readiness) => match never {},
        never = certificate.follow() => match never {},
        ended = webhook.ended() => Err(ended.into()),
        ended = health.ended() => Err(ended.into()),
        ended = scrapes.ended() => Err(ended.into()),
    };
    readiness.awaits(SHUTDOWN);
    tokio::join!(health.stop(SERVERS_STOP), scrapes.stop(SERVERS_STOP), webhook.stop());
    tracing::info!("stopped");
    outcome
}

fn serve(
    settings: &Settings,
    server: &Server,
    readiness: &Readiness,
    metrics: &Arc<Metrics>,
) -> Result<(Serving, Serving), ServeError> {
    let addresses = &settings.addresses;
    let (transport, guard) = if addresses.metrics.ip().is_loopback() {
        (Transport::Plain, Guard::Everyone)
    } else {
        (Transport::SelfSigned, Guard::Reviewed(server.clone(), ReviewValidity::default()))
    };
    let health = serve::start("health", addresses.health, Transport::Plain, health::routes(readiness.clone()))?;
    let scrapes = serve::start("metrics", addresses.metrics, transport, scrape::routes(metrics.clone(), guard))?;
    Ok((health, scrapes))
}

/// Starts the election, with its own connection to the API server.
async fn start_election(
    settings: &Settings,
    lease: &str,
    identity: &str,
    metrics: &Arc<Metrics>,
    stop: &CancellationToken,
) -> Result<LeaseThread, RunError> {
    let (cluster, namespace, timing) =
        (settings.cluster.connect_options(), settings.namespace.clone(), settings.timing());
    let (lease, identity, metrics) = (lease.to_owned(), identity.to_owned(), metrics.clone());
    let connect = async move || {
        let server = client::connect_to_watch(&cluster, &identity).await?.counted(&metrics);
        Ok(Election::new(server, &namespace, &lease, &identity, timing))
    };
    let started = LeaseThread::spawn(connect, stop.clone(), CONTROLLERS_STOP).await.map_err(RunError::Thread)?;
    started.map_err(RunError::Connect)
}

/// Makes the process ready after the first answer of the API server, so that a rollout with a wrong address or credential
/// stops before the old replica is removed.
async fn first_answer(server: &Server, readiness: &Readiness) -> Infallible {
    loop {
        match server.call(server.client.apiserver_version()).await {
            // A refusal is a response as well.
            Ok(_) | Err(CallError::Answered { code: 403, .. }) => break,
            Err(error) => tracing::warn!(%error, "the API server does not respond; retrying every 2 s"),
        }
        time::sleep(FIRST_ANSWER_RETRY).await;
    }
    readiness.has(API_SERVER);
    std::future::pending().await
}

/// Runs `act` whenever this process leads, until `stop`. `act` writes behind the fence of its term, and is dropped when the
/// Lease is lost.
async fn lead<A: Future<Output = ()>>(
    election: &mut LeaseThread,
    lease: &str,
    metrics: &Metrics,
    stop: &CancellationToken,
    act: impl Fn(Fence, CancellationToken) -> A,
) -> Result<(), RunError> {
    while let Some(fence) = election.acquired().await {
        metrics.leads(lease, true);
        tokio::select! {
            () = election.lost() => metrics.leads(lease, false),
            () = act(fence, stop.clone()) => {
                metrics.leads(lease, false);
                election.release().await;
            }
        }
    }
    if stop.is_cancelled() { Ok(()) } else { Err(RunError::LeaseThreadEnded) }
}

/// Runs the controllers, and the migration of stored versions of the families `migrated`, until `stop`.
async fn act(families: Vec<Family>, context: OperatorContext, migrated: Vec<Family>, stop: CancellationToken) {
    let running = families.into_iter().map(|family| controllers::run(family, context.clone(), stop.clone()));
    let migration = crds::migrate::keep(context.controller.server.clone(), &migrated, stop.clone());
    tokio::join!(futures::future::join_all(running), migration);
    stop.cancelled().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_of_variants_alone_has_own_lease() {
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
