//! The command line.
//! Comes in: arguments; goes out: one value that says what to do, or clap's explanation of what is wrong with them.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use steersman_api::{Family, crds};

use crate::settings::Settings;

/// One Kubernetes operator for serving language models
#[derive(Clone, Debug, Parser)]
#[command(name = "steersman", version, after_help = EXIT_STATUS, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_STATUS: &str = "Exit status: 0 all is well, 1 not ready or failed, 2 wrong usage.";

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the operator until SIGTERM or SIGINT. This version has no controllers yet: it acts on no object
    #[command(after_help = EXIT_STATUS)]
    Run(Box<Settings>),
    /// Say whether a cluster can run Steersman and what is there already; changes nothing
    #[command(after_help = EXIT_STATUS)]
    Preflight(PreflightArgs),
    /// Print the CustomResourceDefinitions, as manifests for `kubectl apply --server-side -f -`
    Crds(CrdsArgs),
    /// Print the rights that Steersman needs, as manifests for `kubectl apply -f -`
    Rbac,
}

#[derive(Clone, Debug, Args)]
pub struct PreflightArgs {
    /// Form of the report: text for people, json for scripts
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t = Output::Text)]
    pub output: Output,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Text,
    Json,
}

#[derive(Clone, Debug, Args)]
pub struct CrdsArgs {
    /// Print only the CRDs of these families; without a name, all
    #[arg(value_name = "FAMILY", value_parser = family_with_crd())]
    pub families: Vec<Family>,
    /// Form of the manifests: YAML documents, or one JSON list
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t = Manifests::Yaml)]
    pub output: Manifests,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Manifests {
    Yaml,
    Json,
}

fn family_with_crd() -> impl TypedValueParser<Value = Family> {
    PossibleValuesParser::new(crds::FAMILIES.map(Family::short_name)).try_map(|name| name.parse::<Family>())
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

fn seconds(given: &str) -> Result<Duration, String> {
    match given.parse() {
        Ok(seconds @ 1..=300) => Ok(Duration::from_secs(seconds)),
        _ => Err("give a whole number of seconds from 1 to 300".to_owned()),
    }
}
