//! The commands of the binary and their flags.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use steersman_api::{Family, crds};

use crate::admission::WebhooksArgs;
use crate::args::{ClusterArgs, ConverterArgs, Manifests};
use crate::init::{MergeProvidersArgs, StorageEnvArgs};
use crate::offline;
use crate::overrides::OverridesArgs;
use crate::relay::RelayArgs;
use crate::settings::Settings;

/// One Kubernetes operator for serving language models
#[derive(Clone, Debug, Parser)]
#[command(name = "steersman", version, after_help = EXIT_STATUS, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_STATUS: &str = "Exit status: 0 all is well, 1 not ready or failed, 2 wrong usage.";

const RELAY_EXIT_STATUS: &str =
    "Exit status: 0 the profiler's verdict is delivered, also that it failed; 1 there is none; 2 wrong usage.";

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the operator until SIGTERM or SIGINT
    #[command(after_help = EXIT_STATUS)]
    Run(Box<Settings>),
    /// Say whether a cluster can run Steersman and what is there already; changes nothing
    #[command(after_help = EXIT_STATUS)]
    Preflight(PreflightArgs),
    /// Print the CustomResourceDefinitions for `kubectl apply --server-side -f -`, or install them, or leave them behind
    #[command(after_help = EXIT_STATUS)]
    Crds(CrdsArgs),
    /// Print the webhook configurations by which the API server asks Steersman whether an object may be written, for `kubectl
    /// apply --server-side -f -`, or install or remove them
    #[command(after_help = EXIT_STATUS)]
    Webhooks(WebhooksArgs),
    /// Print the rights that Steersman needs, as manifests for `kubectl apply -f -`
    Rbac,
    /// In a pod, before its server: take the addresses of its databases apart
    #[command(hide = true)]
    StorageEnv(StorageEnvArgs),
    /// In a pod, before its server: put providers that came as images into its configuration
    #[command(hide = true)]
    MergeProviders(MergeProvidersArgs),
    /// In a profiling pod, beside its profiler: write what the profiler says and comes to into the request's ConfigMap
    #[command(hide = true, after_help = RELAY_EXIT_STATUS)]
    Relay(RelayArgs),
    /// In a profiling pod, called by its profiler: merge overrides into a generated graph, from standard input to output
    #[command(hide = true, after_help = EXIT_STATUS)]
    DgdApplyOverrides(OverridesArgs),
    /// Print manifests in another version of their API; what that version cannot say is told on standard error
    #[command(after_help = offline::EXIT_STATUS)]
    Convert(offline::ConvertArgs),
    /// Say whether manifests would be accepted, without a cluster
    #[command(after_help = offline::EXIT_STATUS)]
    Validate(offline::ValidateArgs),
    /// Print what Steersman would write for a LlamaStackDistribution, without a cluster: config.yaml, variables, children
    #[command(after_help = offline::EXIT_STATUS)]
    Render(offline::RenderArgs),
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
    /// Only the CRDs of these families; without a name, all
    #[arg(value_name = "FAMILY", value_parser = family_with_crd())]
    pub families: Vec<Family>,
    /// Form of the manifests: YAML documents, or one JSON list
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t = Manifests::Yaml)]
    pub output: Manifests,
    /// Install the CRDs, or bring those that are there up to date. Objects stay; the operator stores those of an older
    /// version anew
    #[arg(long, conflicts_with_all = ["detach", "output"])]
    pub apply: bool,
    /// Before the operator is removed: store all objects in the newest version and serve that one alone, so that they can be
    /// read and deleted without an operator. Needs the operator running if objects are stored in an older version; --apply
    /// attaches the CRDs again
    #[arg(long, conflicts_with = "output")]
    pub detach: bool,
    /// With --apply: how long to wait, at most, until the API server serves the CRDs; 0: not at all
    #[arg(long, value_name = "SECONDS", requires = "apply", default_value = "30", value_parser = wait,
          num_args = 0..=1, default_missing_value = "30")]
    pub wait: Duration,
    #[command(flatten)]
    pub webhook: ConverterArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

fn family_with_crd() -> impl TypedValueParser<Value = Family> {
    PossibleValuesParser::new(crds::FAMILIES.map(Family::short_name)).try_map(|name| name.parse::<Family>())
}

fn wait(given: &str) -> Result<Duration, String> {
    match given.parse() {
        Ok(seconds @ 0..=600) => Ok(Duration::from_secs(seconds)),
        _ => Err("give a whole number of seconds from 0 to 600".to_owned()),
    }
}
