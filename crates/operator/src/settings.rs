//! The settings of `steersman run`, read once from flags and environment variables.

mod election;
mod requests;

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use http::uri::Authority;
use jiff::{SignedDuration, Span, SpanRelativeTo};
use steersman_api::Family;
use steersman_plan::llamastack::validate::Missing;
use steersman_runtime::leader::Timing;
use steersman_runtime::store::Scope;

use crate::args::{ClusterArgs, LogLevel};
use crate::dynamo::RequestOptions;
use crate::installation::{self, Installation, SecretAccess};
use crate::variant::DebounceConfig;
use crate::webhooks::endpoint;
use crate::{controllers, crds};
use election::ElectionArgs;
use requests::RequestArgs;

#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Controllers to run, as a list such as dgdr,va; default: all of this version
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = controller)]
    controllers: Vec<Family>,
    /// Namespace of this operator, with its Lease, its webhook Service and the Secret of its certificate
    #[arg(long, env = "POD_NAMESPACE", hide_env_values = true, default_value = installation::NAMESPACE,
        value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub namespace: String,
    /// Name of this process in the Lease, different for each replica; default: the host name and a random number
    #[arg(long, env = "POD_NAME", hide_env_values = true, value_name = "NAME",
        value_parser = NonEmptyStringValueParser::new())]
    identity: Option<String>,
    /// Lowest level of log lines
    #[arg(long, env = "LOG_LEVEL", hide_env_values = true, value_enum, ignore_case = true, value_name = "LEVEL",
        default_value_t = LogLevel::Info)]
    pub log_level: LogLevel,
    /// Image of this operator, for the containers that it adds to pods of Llama Stack servers and to profiling Jobs
    #[arg(long, env = "OPERATOR_IMAGE", hide_env_values = true, value_name = "IMAGE")]
    operator_image: Option<String>,
    /// Namespace of the ConfigMaps with settings for all objects, such as llama-stack-operator-config; default: the namespace
    /// of this operator. Whoever may write ConfigMaps there configures the operator
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    config_namespace: Option<String>,
    /// Profiler image of DynamoGraphDeploymentRequests without spec.image; default: that of the Dynamo version which this
    /// release supports
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    dgdr_default_image: Option<String>,
    /// Reconcile only objects of this namespace; default, or if empty: those of all namespaces
    #[arg(long, env = "WATCH_NAMESPACE", hide_env_values = true, value_name = "NAME")]
    watch_namespace: Option<String>,
    /// What the operator may do with Secrets of users' namespaces; `steersman rbac --secrets` prints the role for the same value
    #[arg(long, value_enum, value_name = "ACCESS", default_value_t = SecretAccess::default())]
    secrets: SecretAccess,
    /// Gateway for all requests to servers inside the cluster, which routes them by their Host header; for operators outside
    /// the cluster network
    #[arg(long, hide = true, alias = "reach-through", value_name = "HOST:PORT", value_parser = host_and_port)]
    pub cluster_gateway: Option<Authority>,
    /// Whether to read base configurations from image labels in registries, for images that are not part of this release. If
    /// off, servers with spec.distribution.image get no generated configuration; use overrideConfig
    #[arg(long, value_enum, value_name = "SWITCH", default_value_t = Switch::On)]
    pub image_labels: Switch,
    /// Allow a Prometheus address that begins with http:// for VariantAutoscalings. Without this flag such an address is a
    /// configuration error, because anyone who can change the responses on the network could scale the fleet
    #[arg(long)]
    pub prometheus_allow_http: bool,
    /// Quiet period before a reconcile of all VariantAutoscalings, such as 200ms or 1s: changes of these objects, their settings
    /// and workloads that follow each other within this time cause one reconcile
    #[arg(long, alias = "variant-settle", value_name = "TIME", default_value = "200ms", value_parser = debounce)]
    variant_debounce: Duration,
    #[command(flatten)]
    requests: RequestArgs,
    #[command(flatten)]
    election: ElectionArgs,
    #[command(flatten)]
    pub addresses: Addresses,
    #[command(flatten)]
    pub webhooks: WebhookArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// The address of the webhooks, and the source of their certificate.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Webhooks")]
pub struct WebhookArgs {
    /// Whether to serve the conversion and admission webhooks. Turn them off for a second installation next to one that serves
    /// them; without any, objects can be read and written only in their storage version
    #[arg(long = "webhooks", value_enum, value_name = "SWITCH", default_value_t = Switch::On)]
    pub serve: Switch,
    /// Address of the HTTPS server with /convert, /validate and /mutate
    #[arg(long = "webhook-address", value_name = "IP:PORT", default_value = "0.0.0.0:9443", value_parser = address)]
    pub address: SocketAddr,
    /// Name of the webhook Service, in the namespace of this operator. CRDs and webhook configurations that name it get the CA
    /// bundle
    #[arg(long = "webhook-service", value_name = "NAME", default_value = crds::WEBHOOK_SERVICE,
        value_parser = NonEmptyStringValueParser::new())]
    pub service: String,
    /// URL at which API servers reach this process if it runs outside the cluster, such as https://127.0.0.1:9443. CRDs and
    /// webhook configurations that name it get the CA bundle
    #[arg(long = "webhook-url", value_name = "URL", value_parser = endpoint::url)]
    pub url: Option<String>,
    /// Folder with tls.crt and tls.key that another program maintains, such as cert-manager. Steersman then generates no
    /// certificate and sets no CA bundle
    #[arg(long = "webhook-certificate-directory", value_name = "FOLDER")]
    pub certificate_directory: Option<PathBuf>,
    /// PEM file with the CA certificates of clients that may send admission reviews. Clients without a certificate of such a CA
    /// are rejected, so give every API server one (docs/admission.md). The file is read again when it changes. Default:
    /// everybody who reaches the port
    #[arg(long = "webhook-client-ca", value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    /// Validity of certificates that Steersman generates, such as 90d or 12h. A certificate is replaced when a third of it is
    /// left
    #[arg(long = "webhook-certificate-validity", alias = "webhook-certificate-life", value_name = "TIME",
        default_value = "90d", value_parser = validity)]
    pub certificate_validity: Duration,
    /// What admission does with a LlamaStackDistribution that names a missing Secret, ConfigMap or key. On an update, only
    /// references that it adds are checked
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = MissingReferences::Refuse)]
    pub missing_references: MissingReferences,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MissingReferences {
    /// Reject the object
    Refuse,
    /// Accept the object with a warning
    Warn,
}

impl From<MissingReferences> for Missing {
    fn from(given: MissingReferences) -> Self {
        match given {
            MissingReferences::Refuse => Self::Refuse,
            MissingReferences::Warn => Self::Warn,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

/// The addresses of the servers of this process.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Addresses")]
pub struct Addresses {
    /// Address of the HTTP server with /healthz and /readyz
    #[arg(long = "health-address", value_name = "IP:PORT", default_value = "0.0.0.0:8081", value_parser = address)]
    pub health: SocketAddr,
    /// Address of the server with /metrics. On a loopback address it is plain HTTP without authentication. On any other
    /// address it is HTTPS with a self-signed certificate, for clients whose token may `get` the nonResourceURL /metrics
    #[arg(long = "metrics-address", value_name = "IP:PORT", default_value = "127.0.0.1:8080", value_parser = address)]
    pub metrics: SocketAddr,
}

impl Settings {
    /// The enabled controllers, each once, in the order of [`controllers::AVAILABLE`].
    pub fn controllers(&self) -> Vec<Family> {
        let all = self.controllers.is_empty();
        controllers::AVAILABLE.iter().copied().filter(|family| all || self.controllers.contains(family)).collect()
    }

    pub fn scope(&self) -> Scope {
        // Manifests set the variable to the empty string for all namespaces.
        self.watch_namespace.clone().filter(|name| !name.is_empty()).map_or(Scope::Cluster, Scope::Namespace)
    }

    /// The families whose objects this operator migrates to their storage version: of all that it converts, otherwise of those
    /// that it reconciles in the whole cluster. In a single namespace, it leaves them to the operator that converts them.
    pub fn migrated(&self) -> Vec<Family> {
        match (self.webhooks.serve, self.scope()) {
            (Switch::On, _) => Family::ALL.to_vec(),
            (Switch::Off, Scope::Cluster) => self.controllers(),
            (Switch::Off, Scope::Namespace(_)) => Vec::new(),
        }
    }

    pub fn fleet_debounce(&self) -> DebounceConfig {
        let usual = DebounceConfig::default();
        DebounceConfig {
            quiet_period: self.variant_debounce,
            max_delay: usual.max_delay.max(self.variant_debounce * 2),
        }
    }

    pub fn timing(&self) -> Timing {
        self.election.timing()
    }

    pub fn installation(&self) -> Installation {
        Installation {
            namespace: self.namespace.clone(),
            // Manifests set the variable to the empty string if the image is not known.
            operator_image: self.operator_image.clone().filter(|image| !image.is_empty()),
            config_namespace: self.config_namespace.clone(),
            secrets: self.secrets,
        }
    }

    pub fn requests(&self) -> RequestOptions {
        RequestOptions { default_image: self.dgdr_default_image.clone(), ..self.requests.options() }
    }

    /// The given identity, or a new one for each call.
    pub fn identity(&self) -> String {
        self.identity.clone().unwrap_or_else(|| {
            let host = rustix::system::uname();
            let random = RandomState::new().hash_one(std::process::id());
            format!("{}_{random:016x}", host.nodename().to_string_lossy())
        })
    }
}

/// Parses the name of a controller that this version has.
pub fn controller(given: &str) -> Result<Family, String> {
    let family: Family = given.trim().parse().map_err(|error: steersman_api::UnknownFamily| error.to_string())?;
    if controllers::AVAILABLE.contains(&family) {
        return Ok(family);
    }
    let available = controllers::AVAILABLE.iter().map(|family| family.short_name()).collect::<Vec<_>>().join(", ");
    Err(format!("this version of Steersman has no controller for {family}; it has {available}"))
}

/// Parses an address. `:8080` is accepted because other operators accept it.
fn address(given: &str) -> Result<SocketAddr, String> {
    let whole = if given.starts_with(':') { format!("0.0.0.0{given}") } else { given.to_owned() };
    whole.parse().map_err(|_| "give an IP address and a port, such as 0.0.0.0:8080 or [::1]:8080".to_owned())
}

fn host_and_port(given: &str) -> Result<Authority, String> {
    let authority: Option<Authority> = given.parse().ok();
    let whole = |authority: &Authority| authority.port_u16().is_some() && !authority.as_str().contains('@');
    authority.filter(whole).ok_or_else(|| "give a host and a port, such as 127.0.0.1:8080".to_owned())
}

/// Parses the validity of a certificate, at least a minute: a rotation needs time to settle.
fn validity(given: &str) -> Result<Duration, String> {
    let span = given.parse::<Span>().ok();
    let length = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    let length = length.and_then(|length| Duration::try_from(length).ok());
    let range = Duration::from_secs(60)..=Duration::from_secs(3650 * 24 * 3600);
    length.filter(|length| range.contains(length)).ok_or_else(|| "give a time from 1m to 3650d, such as 90d".to_owned())
}

/// Parses the debounce time, at most a minute: a longer delay looks like a change without effect.
fn debounce(given: &str) -> Result<Duration, String> {
    let length = given.parse::<SignedDuration>().ok().and_then(|length| Duration::try_from(length).ok());
    let range = Duration::from_millis(1)..=Duration::from_secs(60);
    length
        .filter(|length| range.contains(length))
        .ok_or_else(|| "give a time from 1ms to 60s, such as 200ms".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct SettingsLine {
        #[command(flatten)]
        settings: Settings,
    }

    #[test]
    fn flags_become_controller_options() {
        let settings = |flags: &[&str]| SettingsLine::parse_from([&["run"], flags].concat()).settings;
        let installation = |flags: &[&str]| settings(flags).installation();
        let flags = "--namespace own --operator-image steersman:1 --config-namespace there --secrets watch --dgdr-default-image planner:1";
        let flags: Vec<_> = flags.split(' ').collect();
        let given = installation(&flags);
        let expected = Installation {
            namespace: "own".to_owned(),
            operator_image: Some("steersman:1".to_owned()),
            config_namespace: Some("there".to_owned()),
            secrets: SecretAccess::Watch,
        };
        assert_eq!(given, expected);
        let requests = RequestOptions { default_image: Some("planner:1".to_owned()), ..settings(&[]).requests() };
        assert_eq!(settings(&flags).requests(), requests);
        assert_eq!(installation(&["--operator-image", ""]).operator_image, None, "an empty image is none");
        assert_eq!(given.config_namespace(), "there");
        assert_eq!(installation(&["--namespace", "own"]).config_namespace(), "own");
        assert_eq!(installation(&[]).secrets, SecretAccess::Get, "no watch by default");
    }

    #[test]
    fn certificate_validity_has_unit_and_bounds() {
        for (given, seconds) in [("1m", 60), ("300s", 300), ("12h", 43_200), ("90d", 7_776_000), ("3650d", 315_360_000)]
        {
            assert_eq!(validity(given).unwrap(), Duration::from_secs(seconds));
        }
        for given in ["", "90", "59s", "-1d", "3651d", "soon"] {
            assert_eq!(validity(given).unwrap_err(), "give a time from 1m to 3650d, such as 90d", "{given}");
        }
    }

    #[test]
    fn debounce_time_has_unit_and_bounds() {
        for (given, milliseconds) in [("1ms", 1), ("200ms", 200), ("1.5s", 1500), ("60s", 60_000)] {
            assert_eq!(debounce(given).unwrap(), Duration::from_millis(milliseconds));
        }
        for given in ["", "200", "0s", "-1s", "61s"] {
            assert_eq!(debounce(given).unwrap_err(), "give a time from 1ms to 60s, such as 200ms", "{given}");
        }
        let debounce = |flags: &[&str]| SettingsLine::parse_from([&["run"], flags].concat()).settings.fleet_debounce();
        assert_eq!(debounce(&[]), DebounceConfig::default());
        assert_eq!(debounce(&["--variant-debounce", "3s"]).max_delay, Duration::from_secs(6));
    }

    /// The shipped NetworkPolicy has these ports.
    #[test]
    fn default_addresses_have_known_ports() {
        let settings = SettingsLine::parse_from(["run"]).settings;
        let Addresses { health, metrics } = settings.addresses;
        let ports = [settings.webhooks.address, health, metrics].map(|address| address.port());
        assert_eq!(ports, [installation::WEBHOOK_PORT, installation::HEALTH_PORT, installation::METRICS_PORT]);
    }

    #[test]
    fn address_requires_ip_and_port() {
        for (given, expected) in [("127.0.0.1:1", "127.0.0.1:1"), (":8080", "0.0.0.0:8080"), ("[::1]:9", "[::1]:9")] {
            assert_eq!(address(given).unwrap().to_string(), expected);
        }
        for given in ["", "8080", "localhost:8080", "127.0.0.1", ":", "127.0.0.1:99999"] {
            assert!(address(given).unwrap_err().starts_with("give an IP address and a port"), "{given}");
        }
    }

    #[test]
    fn reach_through_requires_host_and_port() {
        for given in ["127.0.0.1:80", "proxy.example:8080", "[::1]:9"] {
            assert_eq!(host_and_port(given).unwrap().as_str(), given);
        }
        for given in ["", "127.0.0.1", "http://a:1", "a:b", "me@a:1", "a:1/x"] {
            assert_eq!(host_and_port(given).unwrap_err(), "give a host and a port, such as 127.0.0.1:8080", "{given}");
        }
    }

    #[test]
    fn unknown_controller_is_refused() {
        let unknown = controller("llama").unwrap_err();
        assert_eq!(unknown, "there is no controller \"llama\"; the names are dgdr, dgd, llsd, va");
        for family in Family::ALL {
            match controller(family.short_name()) {
                Ok(accepted) => assert!(controllers::AVAILABLE.contains(&accepted)),
                Err(error) => {
                    assert!(error.starts_with(&format!("this version of Steersman has no controller for {family}")))
                }
            }
        }
    }
}
