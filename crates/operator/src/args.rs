//! Flags that several commands share.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use steersman_runtime::client::ConnectOptions;
use tracing::Level;

/// Where the API server finds the operator that converts objects between their versions.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Conversion")]
pub struct ConverterArgs {
    /// Namespace of the Service in front of the operator. Without any of these flags, --apply keeps what the last --apply
    /// was told, unless the CRD was detached since
    #[arg(long = "webhook-namespace", value_name = "NAME")]
    pub namespace: Option<String>,
    /// Name of the Service in front of the operator
    #[arg(long = "webhook-service", value_name = "NAME")]
    pub service: Option<String>,
    /// Address of an operator outside of the cluster, as the API server reaches it: https://HOST:PORT/convert
    #[arg(long = "webhook-url", value_name = "URL", value_parser = https, conflicts_with_all = ["namespace", "service"])]
    pub url: Option<String>,
    /// PEM file with the certificates by which the API server knows the operator; without it those are kept that are there,
    /// put there by the operator itself
    #[arg(long = "webhook-ca", value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Manifests {
    Yaml,
    Json,
}

/// Which cluster, and how long to wait for it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// Kubeconfig to use; without it $KUBECONFIG, then ~/.kube/config, then the pod's service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; without it the current one
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// How many seconds one request may take, retries included
    #[arg(long = "request-timeout", value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub request_timeout: Duration,
}

impl ClusterArgs {
    pub fn connect_options(&self) -> ConnectOptions {
        ConnectOptions {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            request_timeout: self.request_timeout,
        }
    }
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

fn https(given: &str) -> Result<String, String> {
    match given.strip_prefix("https://") {
        Some(rest) if !rest.is_empty() && !given.contains(['#', '?', '@']) => Ok(given.to_owned()),
        _ => Err("give an address that begins with https://, without user, query or fragment".to_owned()),
    }
}

fn seconds(given: &str) -> Result<Duration, String> {
    match given.parse() {
        Ok(seconds @ 1..=300) => Ok(Duration::from_secs(seconds)),
        _ => Err("give a whole number of seconds from 1 to 300".to_owned()),
    }
}
