//! The settings of `steersman run`.
//! Comes in: flags and the environment variables that stand in for them, read once; goes out: one value that the process
//! keeps to for its whole life.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use steersman_api::Family;
use tracing::Level;

use crate::cli::ClusterArgs;
use crate::{rbac, run};

#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Controllers to run, as a list such as dgdr,llsd; without it all that this version has. It has none yet: it elects a
    /// leader and answers on its addresses, and acts on no object
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = controller)]
    controllers: Vec<Family>,
    /// The namespace that Steersman runs in; its Lease is there
    #[arg(long, env = "POD_NAMESPACE", hide_env_values = true, default_value = rbac::NAMESPACE,
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
    #[command(flatten)]
    pub addresses: Addresses,
    #[command(flatten)]
    pub cluster: ClusterArgs,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

impl LogLevel {
    pub fn as_level(self) -> Level {
        match self {
            Self::Debug => Level::DEBUG,
            Self::Info => Level::INFO,
            Self::Warn => Level::WARN,
            Self::Error => Level::ERROR,
        }
    }
}

impl Settings {
    /// Each once, in the order in which families are listed everywhere.
    pub fn controllers(&self) -> Vec<Family> {
        let all = self.controllers.is_empty();
        run::AVAILABLE.iter().copied().filter(|family| all || self.controllers.contains(family)).collect()
    }

    /// A name of its own for each call, unless one was given.
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
    if run::AVAILABLE.contains(&family) {
        return Ok(family);
    }
    let has = match run::AVAILABLE.iter().map(|family| family.short_name()).collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "no controller yet; leave --controllers out".to_owned(),
        names => names,
    };
    Err(format!("this version of Steersman has no controller for {family}; it has {has}"))
}

/// Also takes `:8080`, which those who come from other operators write.
fn address(given: &str) -> Result<SocketAddr, String> {
    let whole = if given.starts_with(':') { format!("0.0.0.0{given}") } else { given.to_owned() };
    whole.parse().map_err(|_| "give an IP address and a port, such as 0.0.0.0:8080 or [::1]:8080".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_ip_and_a_port() {
        for (given, expected) in [("127.0.0.1:1", "127.0.0.1:1"), (":8080", "0.0.0.0:8080"), ("[::1]:9", "[::1]:9")] {
            assert_eq!(address(given).unwrap().to_string(), expected);
        }
        for given in ["", "8080", "localhost:8080", "127.0.0.1", ":", "127.0.0.1:99999"] {
            assert!(address(given).unwrap_err().starts_with("give an IP address and a port"), "{given}");
        }
    }

    #[test]
    fn a_controller_is_known_and_built() {
        let unknown = controller("llama").unwrap_err();
        assert_eq!(unknown, "there is no controller \"llama\"; the names are dgdr, dgd, llsd, va");
        for family in Family::ALL {
            match controller(family.short_name()) {
                Ok(accepted) => assert!(run::AVAILABLE.contains(&accepted)),
                Err(said) => {
                    assert!(said.starts_with(&format!("this version of Steersman has no controller for {family}")))
                }
            }
        }
    }
}
