//! The ValidatingWebhookConfigurations and MutatingWebhookConfigurations of the families: printed, applied or removed.
//!
//! Writes are refused while no operator answers (`failurePolicy: Fail`), so the configurations match as little as possible:
//! no kind that the operator itself needs to start, no subresources, no deletions, no objects that are being deleted and no
//! changes of metadata alone, except of the annotation that counts as a field of the spec. A finalizer can therefore be removed
//! without an operator.

mod apply;
mod args;
mod matching;

use std::fmt;

use clap::ValueEnum;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhook;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{ServiceReference, WebhookClientConfig};
use serde_json::{Value, json};
use steersman_api::Family;

use crate::crds::target::{self, TargetFlags};
use crate::installation;
use crate::webhooks::admission::Route;

pub use apply::{AdmissionError, apply, remove};
pub use args::{TargetArgs, WebhooksArgs};

/// Families with an admission webhook.
pub const FAMILIES: [Family; 2] = [Family::Dgdr, Family::Llsd];

/// All configurations, in the order in which API servers call them.
pub const ALL: [WebhookConfiguration; 3] = [
    WebhookConfiguration { route: Route::Mutate, family: Family::Dgdr },
    WebhookConfiguration { route: Route::Validate, family: Family::Dgdr },
    WebhookConfiguration { route: Route::Validate, family: Family::Llsd },
];

/// Webhook configuration of a family, with a single webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebhookConfiguration {
    pub route: Route,
    pub family: Family,
}

pub const MANAGER: &str = "steersman/webhooks";

/// Time that API servers wait for a response. Handlers give up two seconds earlier, so that the user sees the reason.
pub const TIMEOUT_SECONDS: i32 = 10;

const API_VERSION: &str = "admissionregistration.k8s.io/v1";

const HEADER: &str = "\
# Generated from the code by `steersman webhooks`; do not edit. `cargo xtask check` fails if this file differs.
";

/// Behaviour of API servers while no operator answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FailurePolicy {
    /// Reject new objects and changes of a spec
    #[default]
    Fail,
    /// Accept them without validation and defaults
    Ignore,
}

impl FailurePolicy {
    const fn word(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WebhookRenderError {
    #[error("cannot serialize a webhook configuration as YAML: {0}")]
    Yaml(#[from] serde_saphyr::ser_error::Error),
    #[error("cannot serialize the webhook configurations as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Name of the configurations of a family, of either kind.
pub const fn name(family: Family) -> &'static str {
    match family {
        Family::Dgdr => "steersman-dgdr",
        Family::Dgd => "steersman-dgd",
        Family::Llsd => "steersman-llsd",
        Family::Va => "steersman-va",
    }
}

impl WebhookConfiguration {
    pub fn kind(self) -> &'static str {
        match self.route {
            Route::Validate => "ValidatingWebhookConfiguration",
            Route::Mutate => "MutatingWebhookConfiguration",
        }
    }

    pub fn plural(self) -> &'static str {
        match self.route {
            Route::Validate => "validatingwebhookconfigurations",
            Route::Mutate => "mutatingwebhookconfigurations",
        }
    }

    pub const fn name(self) -> &'static str {
        name(self.family)
    }

    /// Path of the collection on the API server.
    pub fn url_path(self) -> String {
        format!("/apis/{API_VERSION}/{}", self.plural())
    }

    /// Name of the webhook, as the API server quotes it in errors.
    pub fn webhook_name(self) -> String {
        match self.route {
            Route::Validate => format!("validate.{}.steersman.dev", self.family),
            Route::Mutate => format!("default.{}.steersman.dev", self.family),
        }
    }

    /// Path of the webhook on the operator.
    pub fn path(self) -> String {
        match self.route {
            Route::Validate => format!("/validate/{}", self.family),
            Route::Mutate => format!("/mutate/{}", self.family),
        }
    }

    /// Turns the `clientConfig` of a conversion webhook into that of this configuration: the same server, another path.
    fn client(self, conversion: WebhookClientConfig) -> WebhookClientConfig {
        let path = self.path();
        let url = conversion.url.map(|url| format!("{}{path}", url.strip_suffix(target::PATH).unwrap_or(&url)));
        let service = conversion.service.map(|service| ServiceReference { path: Some(path), ..service });
        WebhookClientConfig { url, service, ca_bundle: conversion.ca_bundle }
    }

    /// The manifest. Both kinds of webhook have the fields that are set here.
    fn manifest(self, client: &WebhookClientConfig, policy: FailurePolicy) -> Value {
        let mut webhook = json!(ValidatingWebhook {
            name: self.webhook_name(),
            admission_review_versions: vec!["v1".to_owned()],
            failure_policy: Some(policy.word().to_owned()),
            match_conditions: Some(matching::conditions(self)),
            match_policy: Some("Equivalent".to_owned()),
            rules: Some(matching::rules(self)),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(TIMEOUT_SECONDS),
            ..ValidatingWebhook::default()
        });
        webhook["clientConfig"] = json!(client);
        json!({
            "apiVersion": API_VERSION,
            "kind": self.kind(),
            "metadata": { "name": self.name(), "labels": installation::labels() },
            "webhooks": [webhook],
        })
    }
}

impl fmt::Display for WebhookConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.route {
            Route::Validate => f.write_str(self.name()),
            Route::Mutate => write!(f, "{} (defaults)", self.name()),
        }
    }
}

/// The configurations of `families` as YAML documents; an empty list means all.
pub fn yaml(families: &[Family], flags: &TargetFlags, policy: FailurePolicy) -> Result<String, WebhookRenderError> {
    let documents = manifests(families, flags, policy);
    let documents = documents.iter().map(serde_saphyr::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(documents.join("---\n"))
}

pub fn json(families: &[Family], flags: &TargetFlags, policy: FailurePolicy) -> Result<String, WebhookRenderError> {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": manifests(families, flags, policy) });
    Ok(format!("{}\n", serde_json::to_string_pretty(&list)?))
}

/// The file `deploy/webhooks.yaml`.
pub fn file() -> Result<String, WebhookRenderError> {
    Ok(format!("{HEADER}{}", yaml(&[], &TargetFlags::default(), FailurePolicy::default())?))
}

pub fn manifests(families: &[Family], flags: &TargetFlags, policy: FailurePolicy) -> Vec<Value> {
    wanted(families).map(|one| one.manifest(&one.client(flags.or_default()), policy)).collect()
}

fn wanted(families: &[Family]) -> impl Iterator<Item = WebhookConfiguration> {
    ALL.into_iter().filter(move |one| families.is_empty() || families.contains(&one.family))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_has_path_of_the_family() {
        let llsd = WebhookConfiguration { route: Route::Validate, family: Family::Llsd };
        let by_service = llsd.client(TargetFlags::default().or_default());
        assert_eq!(target::describe(&by_service), "Service steersman-system/steersman-webhook");
        assert_eq!(by_service.service.unwrap().path.as_deref(), Some("/validate/llsd"));
        let dgdr = WebhookConfiguration { route: Route::Mutate, family: Family::Dgdr };
        let by_url = WebhookClientConfig { url: Some("https://10.0.0.1:9443/convert".into()), ..Default::default() };
        assert_eq!(dgdr.client(by_url).url.as_deref(), Some("https://10.0.0.1:9443/mutate/dgdr"));
    }
}
