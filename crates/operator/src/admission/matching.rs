//! The rules and match conditions that select which requests API servers send to the webhooks.

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, RuleWithOperations};
use steersman_api::Family;
use steersman_plan::llamastack::config::ANNOTATION;

use crate::admission::WebhookConfiguration;
use crate::webhooks::admission::Route;

/// A webhook gets objects in the storage version; the API server converts those of other versions (`matchPolicy:
/// Equivalent`). Exception: the validating webhook gets new objects in the version of their author, because it converts
/// them itself at less cost than a conversion review. For updates this is not possible: the match conditions compare
/// specs, and a field of the storage version may be an annotation in another version.
pub(super) fn rules(of: WebhookConfiguration) -> Vec<RuleWithOperations> {
    let words = |texts: &[&str]| Some(texts.iter().map(ToString::to_string).collect::<Vec<_>>());
    let rule = |operation: &str, versions: &[&str]| RuleWithOperations {
        api_groups: words(&[of.family.group()]),
        api_versions: words(versions),
        operations: words(&[operation]),
        resources: words(&[of.family.plural()]),
        scope: Some("Namespaced".to_owned()),
    };
    let stored = [of.family.storage_version()];
    match of.route {
        Route::Validate => vec![rule("CREATE", of.family.served_versions()), rule("UPDATE", &stored)],
        // The patch of the webhook is for the storage version.
        Route::Mutate => vec![rule("CREATE", &stored)],
    }
}

/// Conditions that the API server evaluates itself, so that they hold even while no operator answers.
pub(super) fn conditions(of: WebhookConfiguration) -> Vec<MatchCondition> {
    let condition =
        |name: &str, expression: &str| MatchCondition { name: name.to_owned(), expression: expression.to_owned() };
    match of.route {
        Route::Validate => vec![
            condition("not-being-deleted", "!has(object.metadata.deletionTimestamp)"),
            condition("new-or-changed", &changed(of.family)),
        ],
        // The image is the only default.
        Route::Mutate => vec![condition("without-an-image", "object.?spec.?image.orValue('') == ''")],
    }
}

/// Whether the spec changed, or the annotation that counts as a field of it.
fn changed(family: Family) -> String {
    let spec = "request.operation == 'CREATE' || object.?spec != oldObject.?spec";
    match family {
        Family::Llsd => {
            let annotation = |object: &str| format!("{object}.metadata.?annotations[?'{ANNOTATION}']");
            format!("{spec} || {} != {}", annotation("object"), annotation("oldObject"))
        }
        _ => spec.to_owned(),
    }
}
