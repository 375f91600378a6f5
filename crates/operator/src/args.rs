//! Flags that several commands share.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use steersman_runtime::client::ConnectOptions;
use tracing::Level;

/// The server that converts objects between the versions of their API.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Conversion")]
pub struct ConverterArgs {
    /// Namespace of the operator's webhook Service. Without --webhook-namespace, --webhook-service and --webhook-url, --apply
    /// keeps the server that the last --apply set, unless the CRD was detached or changed by another program since; otherwise
    /// the Service is steersman-system/steersman-webhook
    #[arg(long = "webhook-namespace", value_name = "NAME")]
    pub namespace: Option<String>,
    /// Name of the operator's webhook Service
    #[arg(long = "webhook-service", value_name = "NAME")]
    pub service: Option<String>,
    /// URL of an operator outside the cluster, as the API server reaches it: https://HOST:PORT/convert
    #[arg(long = "webhook-url", value_name = "URL", value_parser = https, conflicts_with_all = ["namespace", "service"])]
    pub url: Option<String>,
    /// PEM file with the CA certificates that the API server trusts for the webhook. Without it, the installed bundle stays
    /// unless the server changes; a running operator sets its own
    #[arg(long = "webhook-ca", value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ManifestFormat {
    Yaml,
    Json,
}

/// The cluster, and the time limit of a request to it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// Kubeconfig file; default: $KUBECONFIG, then ~/.kube/config, then the service account of the pod
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; default: its current context
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Time limit of one request to the API server, retries included, in seconds
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

fn https(text: &str) -> Result<String, String> {
    match text.strip_prefix("https://") {
        Some(rest) if !rest.is_empty() && !text.contains(['#', '?', '@']) => Ok(text.to_owned()),
        _ => Err("give a URL that begins with https://, without user, query or fragment".to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 1..=300) => Ok(Duration::from_secs(seconds)),
        _ => Err("give a whole number of seconds from 1 to 300".to_owned()),
    }
}
