//! The flags of `steersman webhooks`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use steersman_api::Family;

use crate::admission::{FAMILIES, FailurePolicy};
use crate::args::{ClusterArgs, ConverterArgs, ManifestFormat};
use crate::crds::{TargetError, TargetFlags};
use crate::webhooks::endpoint;

#[derive(Clone, Debug, Args)]
pub struct WebhooksArgs {
    /// Families whose webhook configurations to print, apply or remove; default: all
    #[arg(value_name = "FAMILY", value_parser = family_with_webhook())]
    pub families: Vec<Family>,
    /// Output format: YAML documents, or one JSON List
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = ManifestFormat::Yaml)]
    pub output: ManifestFormat,
    /// Install or update the webhook configurations. Do this once the operator is ready: with the failure policy `fail`, the
    /// API server rejects new objects of these families until the operator has set its CA bundle
    #[arg(long, conflicts_with_all = ["remove", "output"])]
    pub apply: bool,
    /// Delete the webhook configurations. Do this before you uninstall the operator, or after you switched a controller off
    #[arg(long, conflicts_with = "output")]
    pub remove: bool,
    /// What the API server does with requests while the operator does not respond
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = FailurePolicy::Fail, conflicts_with = "remove")]
    pub failure_policy: FailurePolicy,
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// The server that the API server calls.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Webhook")]
pub struct TargetArgs {
    /// Namespace of the operator's webhook Service. Without --webhook-namespace, --webhook-service and --webhook-url, --apply
    /// keeps the server that an installed configuration calls; otherwise the Service is steersman-system/steersman-webhook
    #[arg(long = "webhook-namespace", value_name = "NAME")]
    pub namespace: Option<String>,
    /// Name of the operator's webhook Service
    #[arg(long = "webhook-service", value_name = "NAME")]
    pub service: Option<String>,
    /// URL of an operator outside the cluster, as the API server reaches it: https://HOST:PORT
    #[arg(long = "webhook-url", value_name = "URL", value_parser = url, conflicts_with_all = ["namespace", "service"])]
    pub url: Option<String>,
    /// PEM file with the CA certificates that the API server trusts for the webhook. Without it, the installed bundle stays
    /// unless the server changes; a running operator sets its own
    #[arg(long = "webhook-ca", value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

impl TargetArgs {
    /// The server that `steersman crds` uses for the same flags.
    pub fn read(&self) -> Result<TargetFlags, TargetError> {
        TargetFlags::read(&ConverterArgs {
            namespace: self.namespace.clone(),
            service: self.service.clone(),
            url: self.url.clone(),
            ca: self.ca.clone(),
        })
    }
}

fn family_with_webhook() -> impl TypedValueParser<Value = Family> {
    PossibleValuesParser::new(FAMILIES.map(Family::short_name)).try_map(|name| name.parse::<Family>())
}

/// Accepts the value for `steersman crds` as well, which may end in the path of conversion.
fn url(text: &str) -> Result<String, String> {
    endpoint::url(text.strip_suffix("/convert").unwrap_or(text))
}
