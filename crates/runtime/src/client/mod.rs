//! A client of the API server whose every call ends in bounded time, and whose errors are one plain sentence each.

mod access;
mod requests;

use std::error::Error;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, header};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::Status;
use kube::runtime::watcher;
use kube::{Client, Config};

use crate::proxy;
use crate::telemetry::metrics::Metrics;

pub use access::is_allowed;

/// A server that runs accepts connections at once; a longer wait would only hide a wrong address.
const MAX_CONNECT_TIME: Duration = Duration::from_secs(5);

/// kube ends a watch after 290 s and gives the server some time to do so first; a connection silent beyond that is dead.
const MAX_WATCH_SILENCE: Duration = Duration::from_secs(330);

/// Our user agent in requests to the API server.
const AGENT: &str = concat!("steersman/", env!("CARGO_PKG_VERSION"));

/// Causes of a failed client setup.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("no kubeconfig found and not running in a pod; pass --kubeconfig FILE or set KUBECONFIG")]
    NoKubeconfig,
    #[error("cannot read the kubeconfig {}: {cause}", path.display())]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("the kubeconfig has no context {wanted:?}; it has {known}")]
    NoSuchContext { wanted: String, known: String },
    #[error("the kubeconfig names no current context; pass --context NAME, one of: {known}")]
    NoCurrentContext { known: String },
    #[error("cannot use the kubeconfig: {cause}")]
    BadKubeconfig { cause: String },
    #[error("cannot set up the connection to {address}: {cause}")]
    BadSettings { address: String, cause: kube::Error },
    // The output of the plugin is not quoted: it is a credential.
    #[error(
        "cannot get the credentials of the kubeconfig: its credential plugin or token file failed; try the same context with \
         kubectl"
    )]
    NoCredentials,
    #[error("the credential plugin of the kubeconfig did not respond within {} s", limit.as_secs())]
    SlowCredentials { limit: Duration },
}

/// Causes of a failed call. Each text is a phrase that can stand alone or follow a colon.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("the API server at {address} did not answer the request within {} s; check the address and the network", limit.as_secs())]
    TooSlow { address: String, limit: Duration },
    #[error(
        "the API server at {address} refuses connections; check that it runs and that the kubeconfig has its address"
    )]
    Refused { address: String },
    #[error(
        "the certificate of the API server at {address} is not trusted ({cause}); check certificate-authority-data in the kubeconfig"
    )]
    NotTrusted { address: String, cause: String },
    #[error(
        "the API server at {address} does not accept the credentials (401); renew the token or certificate in the kubeconfig"
    )]
    Unauthorized { address: String },
    #[error("the API server answered {code}: {message}")]
    Answered { code: u16, reason: String, fields: Box<[String]>, message: String },
    /// Refused by our own fence.
    #[error("{0}")]
    NotLeading(String),
    #[error("the request to the API server at {address} failed: {cause}")]
    Failed { address: String, cause: String },
}

/// A write that the leader's fence refused, because the Lease is lost.
#[derive(Debug, thiserror::Error)]
#[error("no longer the leader: {method} {path} was not sent")]
pub struct NotLeading {
    pub method: Method,
    pub path: String,
}

/// The cluster to connect to, and the time limit of a call.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// `None` tries $KUBECONFIG, then ~/.kube/config, then the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// `None` selects the current context of the kubeconfig.
    pub context: Option<String>,
    /// Time limit of one request, retries included.
    pub request_timeout: Duration,
}

/// An API server, with the time limit of a call to it.
#[derive(Clone)]
pub struct Server {
    pub client: Client,
    address: String,
    limit: Duration,
}

impl Server {
    /// `address` is for messages only.
    pub fn new(client: Client, address: String, limit: Duration) -> Self {
        Self { client, address, limit }
    }

    /// The same server through another client, such as one that refuses writes.
    pub fn with_client(&self, client: Client) -> Self {
        Self { client, ..self.clone() }
    }

    /// The same server, whose requests are counted.
    pub fn counted(&self, metrics: &Arc<Metrics>) -> Self {
        Self { client: requests::counted(&self.client, metrics.clone()), ..self.clone() }
    }

    /// Every call goes through here: kube has no time limit of its own and retries a busy server for minutes.
    pub async fn call<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
        match tokio::time::timeout(self.limit, call).await {
            Ok(answer) => answer.map_err(|error| self.explain(&error)),
            Err(_) => Err(self.too_slow(self.limit)),
        }
    }

    /// The error of a call that took longer than `limit`.
    pub fn too_slow(&self, limit: Duration) -> CallError {
        CallError::TooSlow { address: self.address.clone(), limit }
    }

    fn explain(&self, error: &kube::Error) -> CallError {
        let address = self.address.clone();
        if let kube::Error::Api(status) = error {
            return match status.code {
                401 => CallError::Unauthorized { address },
                code => CallError::Answered {
                    code,
                    reason: status.reason.clone(),
                    fields: invalid_fields(status),
                    message: status.message.trim_end_matches('.').to_owned(),
                },
            };
        }
        let mut deepest = error.to_string();
        for cause in causes(error) {
            deepest = cause.to_string();
            if let Some(fenced) = cause.downcast_ref::<NotLeading>() {
                return CallError::NotLeading(fenced.to_string());
            }
            if let Some(rustls::Error::InvalidCertificate(problem)) = cause.downcast_ref() {
                return CallError::NotTrusted { address, cause: problem.to_string() };
            }
            match cause.downcast_ref().map(io::Error::kind) {
                Some(io::ErrorKind::ConnectionRefused) => return CallError::Refused { address },
                Some(io::ErrorKind::TimedOut) => return self.too_slow(self.limit),
                _ => {}
            }
        }
        CallError::Failed { address, cause: deepest }
    }
}

/// The fields that an answer 422 names.
fn invalid_fields(status: &Status) -> Box<[String]> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.map(|cause| cause.field.clone()).collect()
}

/// The cause of a broken watch: the API server's message if there is one, otherwise the innermost error.
pub fn watch_error_cause(error: &watcher::Error) -> String {
    let answer = causes(error).find_map(|cause| match cause.downcast_ref() {
        Some(kube::Error::Api(status)) => Some(status.message.clone()),
        _ => cause.downcast_ref::<Status>().map(|status| status.message.clone()),
    });
    answer.unwrap_or_else(|| causes(error).last().map_or_else(|| error.to_string(), ToString::to_string))
}

/// Whether a watch broke because we have no right to it.
pub fn is_forbidden(error: &watcher::Error) -> bool {
    causes(error).any(|cause| match cause.downcast_ref() {
        Some(kube::Error::Api(status)) => status.is_forbidden(),
        _ => cause.downcast_ref::<Status>().is_some_and(Status::is_forbidden),
    })
}

/// The chain of causes. `io::Error` hides the error it wraps from `source`, and TLS errors arrive wrapped so.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source())
    })
}

/// Sets up a client; nothing is sent yet.
pub async fn connect(options: &ConnectOptions) -> Result<Server, ConnectError> {
    connect_with(options, options.request_timeout, AGENT).await
}

/// Sets up a client with connections of its own, so that its requests do not wait for those of other clients. `name` goes into
/// the user agent.
pub async fn connect_named(options: &ConnectOptions, name: &str) -> Result<Server, ConnectError> {
    connect_with(options, options.request_timeout, &format!("{AGENT} {name}")).await
}

/// Sets up a client for watches, which may be silent for as long as nothing changes. `identity` goes into the user
/// agent, because nothing else distinguishes replicas in the API server's audit log.
pub async fn connect_to_watch(options: &ConnectOptions, identity: &str) -> Result<Server, ConnectError> {
    connect_with(options, MAX_WATCH_SILENCE, &format!("{AGENT} {identity}")).await
}

async fn connect_with(options: &ConnectOptions, silence: Duration, agent: &str) -> Result<Server, ConnectError> {
    // Fails only if a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = config(options).await?;
    config.connect_timeout = Some(options.request_timeout.min(MAX_CONNECT_TIME));
    config.read_timeout = Some(silence);
    config.write_timeout = Some(options.request_timeout);
    let agent = HeaderValue::from_str(agent).unwrap_or(HeaderValue::from_static(AGENT));
    config.headers.push((header::USER_AGENT, agent));
    let address = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    if proxy::is_bypassed(&config.cluster_url, &no_proxy()) {
        config.proxy_url = None;
    }
    // A credential plugin is a program, run right here: it gets a thread and a limit of its own.
    let client = tokio::task::spawn_blocking(move || Client::try_from(config));
    match tokio::time::timeout(options.request_timeout, client).await {
        Ok(Ok(Ok(client))) => Ok(Server::new(client, address, options.request_timeout)),
        Ok(Ok(Err(kube::Error::Auth(_)))) | Ok(Err(_)) => Err(ConnectError::NoCredentials),
        Ok(Ok(Err(cause))) => Err(ConnectError::BadSettings { address, cause }),
        Err(_) => Err(ConnectError::SlowCredentials { limit: options.request_timeout }),
    }
}

async fn config(options: &ConnectOptions) -> Result<Config, ConnectError> {
    let read = options.kubeconfig.as_ref().map_or_else(Kubeconfig::read, Kubeconfig::read_from);
    let kubeconfig = match read {
        Ok(kubeconfig) => kubeconfig,
        Err(error) if options.kubeconfig.is_none() && is_absent(&error) => {
            return Config::incluster().map_err(|_| ConnectError::NoKubeconfig);
        }
        Err(KubeconfigError::ReadConfig(cause, path)) => return Err(ConnectError::Unreadable { path, cause }),
        Err(error) => return Err(unusable(&error)),
    };
    let names: Vec<&str> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let chosen = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(kubeconfig, &chosen).await.map_err(|error| match error {
        KubeconfigError::LoadContext(wanted) => ConnectError::NoSuchContext { wanted, known },
        KubeconfigError::CurrentContextNotSet => ConnectError::NoCurrentContext { known },
        error => unusable(&error),
    })
}

/// Hosts that are reached without a proxy, as the environment lists them for every program.
fn no_proxy() -> String {
    let listed = std::env::var("NO_PROXY").or_else(|_| std::env::var("no_proxy"));
    listed.unwrap_or_default()
}

/// Keeps the first line only: the YAML reader goes on to quote the file, which may hold a token.
fn unusable(error: &KubeconfigError) -> ConnectError {
    let text = match error {
        KubeconfigError::Parse(problem) => problem.to_string(),
        other => other.to_string(),
    };
    let first = text.lines().next().unwrap_or_default();
    ConnectError::BadKubeconfig { cause: first.strip_prefix("error: ").unwrap_or(first).to_owned() }
}

fn is_absent(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(cause, _) => cause.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}
