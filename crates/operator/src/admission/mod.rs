//! The configurations by which API servers ask us whether an object may be written: one for each controller.
//! Comes in: the families wanted and where the operator is reached; goes out: ValidatingWebhookConfigurations as manifests,
//! or the same on an API server.
//!
//! They refuse when nobody answers (`failurePolicy: Fail`), so what they match is kept to what needs an answer. They name
//! no kind that the operator itself needs to start, in any namespace; they do not match subresources, deletions, objects
//! that are being deleted, nor changes of metadata alone. Whoever removes a finalizer therefore needs no operator.

mod apply;
mod args;
mod target;

use std::collections::BTreeMap;

use clap::ValueEnum;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, RuleWithOperations, ValidatingWebhook, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::WebhookClientConfig;
use kube::Resource;
use kube::api::ObjectMeta;
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_plan::llamastack::config::ANNOTATION;

use crate::crds::Given;
use crate::rbac;

pub use apply::{AdmissionError, apply, remove};
pub use args::{TargetArgs, WebhooksArgs};

/// The families whose objects are judged.
pub const FAMILIES: [Family; 1] = [Family::Llsd];

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

/// The name of a family's configuration.
pub const fn name(family: Family) -> &'static str {
    match family {
        Family::Dgdr => "steersman-dgdr",
        Family::Dgd => "steersman-dgd",
        Family::Llsd => "steersman-llsd",
        Family::Va => "steersman-va",
    }
}

/// The name of the one webhook in it, as refusals quote it.
pub fn webhook_name(family: Family) -> String {
    format!("validate.{family}.steersman.dev")
}

/// Where reviews of a family are answered.
pub fn path(family: Family) -> String {
    format!("/validate/{family}")
}

/// The configuration of one family. `client` is that of the whole operator: the path is the family's.
pub fn configuration(family: Family, client: &WebhookClientConfig, policy: Policy) -> ValidatingWebhookConfiguration {
    let words = |given: &[&str]| Some(given.iter().map(ToString::to_string).collect::<Vec<_>>());
    let rule = RuleWithOperations {
        api_groups: words(&[family.group()]),
        // The API server converts what is written in another version: `matchPolicy`.
        api_versions: words(&[family.storage_version()]),
        operations: words(&["CREATE", "UPDATE"]),
        resources: words(&[family.plural()]),
        scope: Some("Namespaced".to_owned()),
    };
    let webhook = ValidatingWebhook {
        name: webhook_name(family),
        admission_review_versions: vec!["v1".to_owned()],
        client_config: target::at(client, family),
        failure_policy: Some(policy.word().to_owned()),
        match_conditions: Some(match_conditions()),
        match_policy: Some("Equivalent".to_owned()),
        rules: Some(vec![rule]),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(TIMEOUT_SECONDS),
        ..ValidatingWebhook::default()
    };
    let labels = BTreeMap::from([("app.kubernetes.io/name".to_owned(), rbac::NAME.to_owned())]);
    ValidatingWebhookConfiguration {
        metadata: ObjectMeta { name: Some(name(family).to_owned()), labels: Some(labels), ..ObjectMeta::default() },
        webhooks: Some(vec![webhook]),
    }
}

/// Decided by the API server itself, so that they hold while nobody answers.
fn match_conditions() -> Vec<MatchCondition> {
    let condition = |name: &str, expression: String| MatchCondition { name: name.to_owned(), expression };
    let annotation = |object: &str| format!("{object}.metadata.?annotations[?'{ANNOTATION}']");
    let changed = format!(
        "request.operation == 'CREATE' || object.?spec != oldObject.?spec || {} != {}",
        annotation("object"),
        annotation("oldObject")
    );
    vec![
        condition("not-being-deleted", "!has(object.metadata.deletionTimestamp)".to_owned()),
        condition("new-or-changed", changed),
    ]
}

/// One YAML document for each of `families`, or for all that are judged if there is none.
pub fn yaml(families: &[Family], given: &Given, policy: Policy) -> Result<String, RenderError> {
    let documents = manifests(families, given, policy)?;
    let documents = documents.iter().map(serde_saphyr::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(documents.join("---\n"))
}

/// The same as one `List`.
pub fn json(families: &[Family], given: &Given, policy: Policy) -> Result<String, RenderError> {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": manifests(families, given, policy)? });
    Ok(format!("{}\n", serde_json::to_string_pretty(&list)?))
}

/// The file `deploy/webhooks.yaml`.
pub fn file() -> Result<String, RenderError> {
    Ok(format!("{HEADER}{}", yaml(&[], &Given::default(), Policy::default())?))
}

fn manifests(families: &[Family], given: &Given, policy: Policy) -> Result<Vec<Value>, serde_json::Error> {
    let client = given.or_default();
    wanted(families).iter().map(|family| manifest(&configuration(*family, &client, policy))).collect()
}

/// With `apiVersion` and `kind`, which the type leaves out.
fn manifest(configuration: &ValidatingWebhookConfiguration) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(configuration)?;
    value["apiVersion"] = json!(ValidatingWebhookConfiguration::api_version(&()));
    value["kind"] = json!(ValidatingWebhookConfiguration::kind(&()));
    Ok(value)
}

/// The families named, or all that are judged if there is none.
fn wanted(families: &[Family]) -> &[Family] {
    if families.is_empty() { &FAMILIES } else { families }
}
