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
use crate::installation::{self, Installation};
use crate::variant::DebounceConfig;
use crate::webhooks::endpoint;
use crate::{controllers, crds};
use election::ElectionArgs;
use requests::RequestArgs;

#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Controllers to run, as a list such as dgdr,va; without it all that this version has
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = controller)]
    controllers: Vec<Family>,
    /// The namespace that Steersman runs in; its Lease is there
    #[arg(long, env = "POD_NAMESPACE", hide_env_values = true, default_value = installation::NAMESPACE,
        value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub namespace: String,
    /// The name under which this process holds the Lease; no two processes may share it. Without it the host's name and a
    /// random number
    #[arg(long, env = "POD_NAME", hide_env_values = true, value_name = "NAME",
        value_parser = NonEmptyStringValueParser::new())]
    identity: Option<String>,
    /// The least important lines to log
    #[arg(long, env = "LOG_LEVEL", hide_env_values = true, value_enum, ignore_case = true, value_name = "LEVEL",
        default_value_t = LogLevel::Info)]
    pub log_level: LogLevel,
    /// The image that Steersman itself runs from. Pods of servers that need a hand before they start run a container of it
    #[arg(long, env = "OPERATOR_IMAGE", hide_env_values = true, value_name = "IMAGE")]
    operator_image: Option<String>,
    /// The namespace of the ConfigMaps with settings for all objects, such as llama-stack-operator-config. Without it
    /// Steersman's own, and then the one in which the operator that defined the API has it
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    config_namespace: Option<String>,
    /// The profiler's image for DynamoGraphDeploymentRequests that name none. Without it the version of Dynamo that this
    /// release is made for
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    dgdr_default_image: Option<String>,
    /// Act on objects of this namespace alone; without it, or with nothing, on those of all
    #[arg(long, env = "WATCH_NAMESPACE", hide_env_values = true, value_name = "NAME")]
    watch_namespace: Option<String>,
    /// Ask all servers inside the cluster at this address, each by the name of its Service in the Host header: for operators
    /// that run where those names lead nowhere
    #[arg(long, hide = true, value_name = "HOST:PORT", value_parser = host_and_port)]
    pub reach_through: Option<Authority>,
    /// Whether registries are asked for base configurations in the labels of images that are not part of this release. Off:
    /// an image of the user's own needs overrideConfig
    #[arg(long, value_enum, value_name = "SWITCH", default_value_t = Switch::On)]
    pub image_labels: Switch,
    /// Ask Prometheus for the load of VariantAutoscalings also where its address begins with http://. Without it that is a
    /// wrong setting: whoever can change its answers on the way scales the fleet
    #[arg(long)]
    pub prometheus_allow_http: bool,
    /// How long changes to VariantAutoscalings, their settings and workloads are collected before all of them are looked at
    /// in one pass, such as 200ms or 1s
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = settle)]
    variant_settle: Duration,
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

/// How API servers reach the webhooks, and who keeps their certificate.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Webhooks")]
pub struct WebhookArgs {
    /// Whether to serve webhooks. Without them objects can be read and written in the version that is stored, and in no
    /// other; off is for a second install beside one that serves them
    #[arg(long = "webhooks", value_enum, value_name = "SWITCH", default_value_t = Switch::On)]
    pub serve: Switch,
    /// Serves /convert, /validate and /mutate, by HTTPS
    #[arg(long = "webhook-address", value_name = "IP:PORT", default_value = "0.0.0.0:9443", value_parser = address)]
    pub address: SocketAddr,
    /// The Service in front of the webhooks, in Steersman's namespace. CRDs that name it get its CA bundle
    #[arg(long = "webhook-service", value_name = "NAME", default_value = crds::WEBHOOK_SERVICE,
        value_parser = NonEmptyStringValueParser::new())]
    pub service: String,
    /// Where API servers reach this process if it runs outside the cluster, such as https://127.0.0.1:9443. CRDs that name
    /// it get the CA bundle, too
    #[arg(long = "webhook-url", value_name = "URL", value_parser = endpoint::url)]
    pub url: Option<String>,
    /// A folder with tls.crt and tls.key that somebody else keeps, such as cert-manager. Steersman then makes no certificate
    /// and writes no CA bundle
    #[arg(long = "webhook-certificate-directory", value_name = "FOLDER")]
    pub certificate_directory: Option<PathBuf>,
    /// How long a certificate that Steersman makes is valid, such as 90d or 12h. It is replaced when a third of that is left
    #[arg(long = "webhook-certificate-life", value_name = "TIME", default_value = "90d", value_parser = life)]
    pub certificate_life: Duration,
    /// What becomes of an object that names a Secret, a ConfigMap or a key that is not there. References that were there
    /// before a change are not looked at again
    #[arg(long, value_enum, value_name = "VERDICT", default_value_t = MissingReferences::Refuse)]
    pub missing_references: MissingReferences,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MissingReferences {
    /// It is refused
    Refuse,
    /// It is accepted with a warning
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

/// Where the process answers.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Addresses")]
pub struct Addresses {
    /// Serves /healthz and /readyz
    #[arg(long = "health-address", value_name = "IP:PORT", default_value = "0.0.0.0:8081", value_parser = address)]
    pub health: SocketAddr,
    /// Serves /metrics: on a loopback address plain HTTP for everyone there; elsewhere HTTPS with a certificate made at the
    /// start, for those whose token may `get` the nonResourceURL /metrics
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

    pub fn fleet_debounce(&self) -> DebounceConfig {
        let usual = DebounceConfig::default();
        DebounceConfig { quiet_period: self.variant_settle, max_delay: usual.max_delay.max(self.variant_settle * 2) }
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

fn controller(given: &str) -> Result<Family, String> {
    let family: Family = given.trim().parse().map_err(|error: steersman_api::UnknownFamily| error.to_string())?;
    if controllers::AVAILABLE.contains(&family) {
        return Ok(family);
    }
    let has = controllers::AVAILABLE.iter().map(|family| family.short_name()).collect::<Vec<_>>().join(", ");
    Err(format!("this version of Steersman has no controller for {family}; it has {has}"))
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

/// Parses the life of a certificate, at least a minute: a rotation needs time to settle.
fn life(given: &str) -> Result<Duration, String> {
    let span = given.parse::<Span>().ok();
    let length = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    let length = length.and_then(|length| Duration::try_from(length).ok());
    let range = Duration::from_secs(60)..=Duration::from_secs(3650 * 24 * 3600);
    length.filter(|length| range.contains(length)).ok_or_else(|| "give a time from 1m to 3650d, such as 90d".to_owned())
}

/// Parses the settle time, at most a minute: a longer delay looks like a change without effect.
fn settle(given: &str) -> Result<Duration, String> {
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
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }

    #[test]
    fn flags_become_controller_options() {
        let settings = |flags: &[&str]| Line::parse_from([&["run"], flags].concat()).settings;
        let told = |flags: &[&str]| settings(flags).installation();
        let flags =
            "--namespace own --operator-image steersman:1 --config-namespace there --dgdr-default-image planner:1";
        let flags: Vec<_> = flags.split(' ').collect();
        let given = told(&flags);
        let expected = Installation {
            namespace: "own".to_owned(),
            operator_image: Some("steersman:1".to_owned()),
            config_namespace: Some("there".to_owned()),
        };
        assert_eq!(given, expected);
        let requests = RequestOptions { default_image: Some("planner:1".to_owned()), ..settings(&[]).requests() };
        assert_eq!(settings(&flags).requests(), requests);
        assert_eq!(told(&["--operator-image", ""]).operator_image, None, "nothing is no image");
        assert_eq!(given.config_namespaces("former"), ["there"]);
        assert_eq!(told(&["--namespace", "own"]).config_namespaces("former"), ["own", "former"]);
        assert_eq!(told(&["--namespace", "own"]).config_namespaces("own"), ["own"]);
    }

    #[test]
    fn certificate_life_has_unit_and_bounds() {
        for (given, seconds) in [("1m", 60), ("300s", 300), ("12h", 43_200), ("90d", 7_776_000), ("3650d", 315_360_000)]
        {
            assert_eq!(life(given).unwrap(), Duration::from_secs(seconds));
        }
        for given in ["", "90", "59s", "-1d", "3651d", "soon"] {
            assert_eq!(life(given).unwrap_err(), "give a time from 1m to 3650d, such as 90d", "{given}");
        }
    }

    #[test]
    fn settle_time_has_unit_and_bounds() {
        for (given, milliseconds) in [("1ms", 1), ("200ms", 200), ("1.5s", 1500), ("60s", 60_000)] {
            assert_eq!(settle(given).unwrap(), Duration::from_millis(milliseconds));
        }
        for given in ["", "200", "0s", "-1s", "61s"] {
            assert_eq!(settle(given).unwrap_err(), "give a time from 1ms to 60s, such as 200ms", "{given}");
        }
        let debounce = |flags: &[&str]| Line::parse_from([&["run"], flags].concat()).settings.fleet_debounce();
        assert_eq!(debounce(&[]), DebounceConfig::default());
        assert_eq!(debounce(&["--variant-settle", "3s"]).max_delay, Duration::from_secs(6));
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
                Err(said) => {
                    assert!(said.starts_with(&format!("this version of Steersman has no controller for {family}")))
                }
            }
        }
    }
}
