//! The configurations by which API servers ask us whether an object may be written, and what to fill into it: those of one
//! controller at a time.
//! Comes in: the families wanted and where the operator is reached; goes out: ValidatingWebhookConfigurations and
//! MutatingWebhookConfigurations as manifests, or the same on an API server.
//!
//! They refuse when nobody answers (`failurePolicy: Fail`), so what they match is kept to what needs an answer. They name
//! no kind that the operator itself needs to start, in any namespace; they do not match subresources, deletions, objects
//! that are being deleted, nor changes of metadata alone. Whoever removes a finalizer therefore needs no operator.

mod apply;
mod args;
mod matching;
mod target;

use std::fmt;

use clap::ValueEnum;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::Resource;
use serde_json::{Value, json};
use steersman_api::Family;

use crate::crds::Given;
use crate::installation;
use crate::webhooks::admission::Route;

pub use apply::{AdmissionError, apply, remove};
pub use args::{TargetArgs, WebhooksArgs};

/// The families whose objects are judged.
pub const FAMILIES: [Family; 2] = [Family::Dgdr, Family::Llsd];

/// All configurations, in the order in which API servers ask.
pub const ALL: [Configuration; 3] = [
    Configuration { route: Route::Mutate, family: Family::Dgdr },
    Configuration { route: Route::Validate, family: Family::Dgdr },
    Configuration { route: Route::Validate, family: Family::Llsd },
];

/// One object that tells API servers what to ask about a family, with one webhook in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    pub route: Route,
    pub family: Family,
}

/// Our name as a writer of configurations.
pub const MANAGER: &str = "steersman/webhooks";

/// How long an API server waits for us. We give up two seconds earlier, so that the user hears why.
pub const TIMEOUT_SECONDS: i32 = 10;

const HEADER: &str = "\
# Generated from the code by `steersman webhooks`; do not edit. `cargo xtask check` fails where this file differs.
";

/// What an API server does while nobody answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// New objects and changes of a spec are refused
    #[default]
    Fail,
    /// They are accepted unseen
    Ignore,
}

impl Policy {
    const fn word(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    #[error("cannot write a webhook configuration as YAML: {0}")]
    Yaml(#[from] serde_saphyr::ser_error::Error),
    #[error("cannot write the webhook configurations as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// The name of a family's configurations, of either kind.
pub const fn name(family: Family) -> &'static str {
    match family {
        Family::Dgdr => "steersman-dgdr",
        Family::Dgd => "steersman-dgd",
        Family::Llsd => "steersman-llsd",
        Family::Va => "steersman-va",
    }
}

impl Configuration {
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

    /// Where all of its kind are.
    pub fn url_path(self) -> String {
        match self.route {
            Route::Validate => ValidatingWebhookConfiguration::url_path(&(), None),
            Route::Mutate => MutatingWebhookConfiguration::url_path(&(), None),
        }
    }

    /// The name of the one webhook in it, as refusals quote it.
    pub fn webhook_name(self) -> String {
        match self.route {
            Route::Validate => format!("validate.{}.steersman.dev", self.family),
            Route::Mutate => format!("default.{}.steersman.dev", self.family),
        }
    }

    /// Where its reviews are answered.
    pub fn path(self) -> String {
        match self.route {
            Route::Validate => format!("/validate/{}", self.family),
            Route::Mutate => format!("/mutate/{}", self.family),
        }
    }

    /// As a manifest. The two kinds of webhook have the same fields, but for those that we leave alone.
    fn manifest(self, client: WebhookClientConfig, policy: Policy) -> Value {
        let webhook = ValidatingWebhook {
            name: self.webhook_name(),
            admission_review_versions: vec!["v1".to_owned()],
            client_config: client,
            failure_policy: Some(policy.word().to_owned()),
            match_conditions: Some(matching::conditions(self)),
            match_policy: Some("Equivalent".to_owned()),
            rules: Some(matching::rules(self)),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(TIMEOUT_SECONDS),
            ..ValidatingWebhook::default()
        };
        json!({
            "apiVersion": ValidatingWebhookConfiguration::api_version(&()),
            "kind": self.kind(),
            "metadata": { "name": self.name(), "labels": { "app.kubernetes.io/name": installation::NAME } },
            "webhooks": [webhook],
        })
    }
}

/// As it stands in lines about it.
impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.route {
            Route::Validate => f.write_str(self.name()),
            Route::Mutate => write!(f, "{} (defaults)", self.name()),
        }
    }
}

/// One YAML document for each configuration of `families`, or of all that are judged if there is none.
pub fn yaml(families: &[Family], given: &Given, policy: Policy) -> Result<String, RenderError> {
    let documents = manifests(families, given, policy);
    let documents = documents.iter().map(serde_saphyr::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(documents.join("---\n"))
}

/// The same as one `List`.
pub fn json(families: &[Family], given: &Given, policy: Policy) -> Result<String, RenderError> {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": manifests(families, given, policy) });
    Ok(format!("{}\n", serde_json::to_string_pretty(&list)?))
}

/// The file `deploy/webhooks.yaml`.
pub fn file() -> Result<String, RenderError> {
    Ok(format!("{HEADER}{}", yaml(&[], &Given::default(), Policy::default())?))
}

fn manifests(families: &[Family], given: &Given, policy: Policy) -> Vec<Value> {
    let client = given.or_default();
    wanted(families).map(|one| one.manifest(target::at(&client, one), policy)).collect()
}

/// Those of the families named, or all if there is none.
fn wanted(families: &[Family]) -> impl Iterator<Item = Configuration> {
    ALL.into_iter().filter(move |one| families.is_empty() || families.contains(&one.family))
}
