//! Sentences that events and conditions share.

use super::config::Generated;
use super::resolution::Config;

pub fn generated(generated: &Generated) -> String {
    let Generated { provider_count, resource_count, .. } = generated;
    format!("Generated config.yaml with {provider_count} providers and {resource_count} models")
}

pub fn deployed(config: &Config) -> String {
    format!("Deployment updated with config {}", config.name)
}
