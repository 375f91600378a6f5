//! May this LlamaStackDistribution be written?
//! Comes in: an admission request; goes out: the verdict of the plan's own rules, after a look at the Secrets and ConfigMaps
//! that the request adds.
//!
//! Only what is known stands against an object: what could not be looked up in time is a warning.

mod references;
mod versions;

use std::sync::Arc;

use kube::api::DynamicObject;
use kube::core::admission::AdmissionRequest;
use steersman_api::Family;
use steersman_plan::llamastack::config::Problem;
use steersman_plan::llamastack::config::base::{distribution, names, resolve};
use steersman_plan::llamastack::config::problem::reason as problem;
use steersman_plan::llamastack::validate::{Facts, Missing, Verdict, validate};
use steersman_runtime::client::Server;
use steersman_runtime::rbac::Rule;

use crate::webhooks::admission::{Answer, Judge, judge_after_reading};
use crate::webhooks::case::{Case, Wrong};
use references::Looked;

pub use references::rules;

const FAMILY: Family = Family::Llsd;

/// What a judge needs besides the request.
struct Court {
    server: Server,
    /// The operator's own, whose ConfigMaps every object may use.
    namespace: String,
    missing: Missing,
}

/// The judge of the family; `namespace` is the operator's own.
pub fn judge(server: Server, namespace: &str, missing: Missing) -> Judge {
    let court = Arc::new(Court { server, namespace: namespace.to_owned(), missing });
    judge_after_reading(move |request| {
        let court = court.clone();
        async move { court.decide(request).await }
    })
}

impl Court {
    async fn decide(&self, request: AdmissionRequest<DynamicObject>) -> Answer {
        let case = match Case::read(FAMILY, request) {
            Ok(Some(case)) => case,
            Ok(None) => return Answer::allow(),
            Err(answer) => return *answer,
        };
        let looked = references::look(&self.server, &self.namespace, &case).await;
        let verdict = verdict(&case, &looked, self.missing);
        let words = |text: &str| versions::words(text, &case.version);
        let wrong = |error: &Problem| Wrong {
            path: words(&error.path),
            cause: cause(error),
            sentence: words(&error.sentence()),
        };
        let warnings = verdict.warnings.iter().chain(&looked.unknown).map(|warning| words(warning));
        case.answer(verdict.errors.iter().map(wrong).collect(), warnings)
    }
}

fn verdict(case: &Case, looked: &Looked, missing: Missing) -> Verdict {
    let name = case.new["spec"]["distribution"]["name"].as_str();
    // The labels of an image are not looked at here: a registry may be slow, and its answer may change.
    let base = resolve(name, Ok(None)).ok().map(|resolved| resolved.base);
    let known: Vec<&str> = names().collect();
    let facts = Facts {
        namespace: &case.namespace,
        distributions: &known,
        base: base.as_deref(),
        always_mounted: name.and_then(distribution).is_some_and(|known| known.mounts_always),
        found: &looked.found,
        missing,
    };
    let mut verdict = validate(&case.new, case.old.as_ref(), &facts);
    if let Some(elsewhere) = &looked.config_namespace {
        // The stored version has no field for it, so that the rules speak of the object's own.
        let (own, other) = (format!("namespace {:?}", case.namespace), format!("namespace {elsewhere:?}"));
        for error in verdict.errors.iter_mut().filter(|error| error.path == references::CONFIG) {
            error.message = error.message.replace(&own, &other);
            error.remedy = format!("Create it there with the label {}=true, or name another.", references::WATCHED);
        }
    }
    verdict
}

/// Kubernetes' own words for what is wrong with a field.
fn cause(error: &Problem) -> &'static str {
    match error.reason {
        problem::NO_SECRET | problem::NO_SECRET_KEY | problem::NO_CONFIG_MAP => "FieldValueNotFound",
        _ => "FieldValueInvalid",
    }
}
