//! What API servers ask about.
//! Comes in: a configuration; goes out: its rules and its conditions.

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, RuleWithOperations};
use steersman_api::Family;
use steersman_plan::llamastack::config::ANNOTATION;

use crate::admission::Configuration;
use crate::webhooks::admission::Route;

/// Objects reach the webhook in the stored version; the API server converts what is written in another one
/// (`matchPolicy: Equivalent`). Creations are validated in the version of their author, because the webhook converts them
/// itself at less cost than a conversion review. Changes are not: the conditions compare specs, and a field of the stored
/// version may be an annotation in another one.
pub(super) fn rules(of: Configuration) -> Vec<RuleWithOperations> {
    let words = |given: &[&str]| Some(given.iter().map(ToString::to_string).collect::<Vec<_>>());
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
        // Its patch is written for the stored version.
        Route::Mutate => vec![rule("CREATE", &stored)],
    }
}

/// Decided by the API server itself, so that they hold while nobody answers.
pub(super) fn conditions(of: Configuration) -> Vec<MatchCondition> {
    let condition =
        |name: &str, expression: &str| MatchCondition { name: name.to_owned(), expression: expression.to_owned() };
    match of.route {
        Route::Validate => vec![
            condition("not-being-deleted", "!has(object.metadata.deletionTimestamp)"),
            condition("new-or-changed", &changed(of.family)),
        ],
        // The one thing that is filled in.
        Route::Mutate => vec![condition("without-an-image", "object.?spec.?image.orValue('') == ''")],
    }
}

/// The spec, and the annotation that counts like a field of it.
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
