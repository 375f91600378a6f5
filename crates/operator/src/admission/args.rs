//! The flags of `steersman webhooks`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use steersman_api::Family;

use crate::admission::{FAMILIES, Policy};
use crate::args::{ClusterArgs, ConverterArgs, Manifests};
use crate::crds::{Given, TargetError};
use crate::webhooks::endpoint;

#[derive(Clone, Debug, Args)]
pub struct WebhooksArgs {
    /// Only the configurations of these families; without a name, all
    #[arg(value_name = "FAMILY", value_parser = judged())]
    pub families: Vec<Family>,
    /// Form of the manifests: YAML documents, or one JSON list
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t = Manifests::Yaml)]
    pub output: Manifests,
    /// Install the configurations, or bring those that are there up to date. Best once the operator is ready: until it has
    /// put its CA bundle in, objects of these families cannot be written
    #[arg(long, conflicts_with_all = ["remove", "output"])]
    pub apply: bool,
    /// Remove the configurations: before the operator is removed, or when a controller is switched off for good
    #[arg(long, conflicts_with = "output")]
    pub remove: bool,
    /// What the API server does while no operator answers
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = Policy::Fail, conflicts_with = "remove")]
    pub failure_policy: Policy,
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Where the API server finds the operator.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Webhook")]
pub struct TargetArgs {
    /// Namespace of the Service in front of the operator. Without any of these flags, --apply keeps whom the configuration
    /// asks already
    #[arg(long = "webhook-namespace", value_name = "NAME")]
    pub namespace: Option<String>,
    /// Name of the Service in front of the operator
    #[arg(long = "webhook-service", value_name = "NAME")]
    pub service: Option<String>,
    /// Address of an operator outside of the cluster, as the API server reaches it: https://HOST:PORT
    #[arg(long = "webhook-url", value_name = "URL", value_parser = address, conflicts_with_all = ["namespace", "service"])]
    pub url: Option<String>,
    /// PEM file with the certificates by which the API server knows the operator; without it those are kept that are there,
    /// put there by the operator itself
    #[arg(long = "webhook-ca", value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

impl TargetArgs {
    /// The server that `steersman crds` uses for the same flags.
    pub fn read(&self) -> Result<Given, TargetError> {
        Given::read(&ConverterArgs {
            namespace: self.namespace.clone(),
            service: self.service.clone(),
            url: self.url.clone(),
            ca: self.ca.clone(),
        })
    }
}

fn judged() -> impl TypedValueParser<Value = Family> {
    PossibleValuesParser::new(FAMILIES.map(Family::short_name)).try_map(|name| name.parse::<Family>())
}

/// Accepts the value for `steersman crds` as well, which may end in the path of conversion.
fn address(given: &str) -> Result<String, String> {
    endpoint::url(given.strip_suffix("/convert").unwrap_or(given))
}
