//! The commands of the binary and their flags.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use steersman_api::{Family, crds};

use crate::admission::WebhooksArgs;
use crate::args::{ClusterArgs, ConverterArgs, ManifestFormat};
use crate::init::{MergeProvidersArgs, StorageEnvArgs};
use crate::offline;
use crate::overrides::OverridesArgs;
use crate::rbac::RbacArgs;
use crate::relay::RelayArgs;
use crate::settings::Settings;

/// A Kubernetes operator for serving language models
#[derive(Clone, Debug, Parser)]
#[command(name = "steersman", version, after_help = EXIT_STATUS, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_STATUS: &str = "Exit status: 0 success, 1 not ready or failed, 2 wrong usage.";

const RELAY_EXIT_STATUS: &str = "Exit status: 0 the profiler's result is delivered, even if the profiler failed; 1 there is no result, or it cannot be delivered; 2 wrong usage.";

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the operator until SIGTERM or SIGINT
    #[command(after_help = EXIT_STATUS)]
    Run(Box<Settings>),
    /// Check whether a cluster can run Steersman, and report what is installed; changes nothing
    #[command(after_help = EXIT_STATUS)]
    Preflight(PreflightArgs),
    /// Print the CustomResourceDefinitions for `kubectl apply --server-side -f -`, install or update them (--apply), or
    /// prepare them for an uninstall (--detach)
    #[command(after_help = EXIT_STATUS)]
    Crds(CrdsArgs),
    /// Print the admission webhook configurations for `kubectl apply --server-side -f -`, install or update them (--apply),
    /// or delete them (--remove)
    #[command(after_help = EXIT_STATUS)]
    Webhooks(WebhooksArgs),
    /// Print the RBAC manifests that Steersman needs, for `kubectl apply -f -`; the flags make the role smaller
    Rbac(RbacArgs),
    /// In an init container of a Llama Stack server: split the addresses of its databases into variables
    #[command(hide = true)]
    StorageEnv(StorageEnvArgs),
    /// In an init container of a Llama Stack server: add providers from images to its configuration
    #[command(hide = true)]
    MergeProviders(MergeProvidersArgs),
    /// In the sidecar of a profiling Job: write the status and the result of the profiler into the request's ConfigMap
    #[command(hide = true, after_help = RELAY_EXIT_STATUS)]
    Relay(RelayArgs),
    /// In a profiling Job, called by the profiler: merge overrides into a generated graph, from standard input to output
    #[command(hide = true, after_help = EXIT_STATUS)]
    DgdApplyOverrides(OverridesArgs),
    /// Print manifests in another version of their API; fields that it cannot represent are listed on standard error
    #[command(after_help = offline::EXIT_STATUS)]
    Convert(offline::ConvertArgs),
    /// Check without a cluster whether the API server and Steersman would accept manifests
    #[command(after_help = offline::EXIT_STATUS)]
    Validate(offline::ValidateArgs),
    /// Print without a cluster what Steersman would create for a LlamaStackDistribution: config.yaml, variables, children
    #[command(after_help = offline::EXIT_STATUS)]
    Render(offline::RenderArgs),
}

#[derive(Clone, Debug, Args)]
pub struct PreflightArgs {
    /// Output format: text for people, json for scripts
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Output::Text)]
    pub output: Output,
    #[command(flatten, next_help_heading = "Rights to check")]
    pub rbac: RbacArgs,
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
    /// Families whose CRDs to print, apply or detach; default: all that have one
    #[arg(value_name = "FAMILY", value_parser = family_with_crd())]
    pub families: Vec<Family>,
    /// Output format: YAML documents, or one JSON List
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = ManifestFormat::Yaml)]
    pub output: ManifestFormat,
    /// Install or update the CRDs. Objects are kept; the operator migrates those that are stored in an older version
    #[arg(long, conflicts_with_all = ["detach", "output"])]
    pub apply: bool,
    /// Prepare for an uninstall: store all objects in the storage version, serve only that version, and remove the finalizer
    /// nvidia.com/finalizer, so that objects can be read and deleted without an operator. If objects are stored in an older
    /// version, the operator must still run. A CRD with another conversion webhook is skipped; Steersman's is the one that
    /// --apply set, that of a Service steersman-webhook, or the one that the --webhook flags name. --apply attaches the CRDs
    /// again
    #[arg(long, conflicts_with = "output")]
    pub detach: bool,
    /// With --apply: longest time to wait until the API server serves the CRDs, in seconds; 0: do not wait
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

fn wait(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 0..=600) => Ok(Duration::from_secs(seconds)),
        _ => Err("give a whole number of seconds from 0 to 600".to_owned()),
    }
}
