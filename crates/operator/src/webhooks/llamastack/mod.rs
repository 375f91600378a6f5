//! May this LlamaStackDistribution be written?
//! Comes in: an admission request; goes out: the verdict of the plan's own rules, after a look at the Secrets and ConfigMaps
//! that the request adds.
//!
//! Only what is known stands against an object: what could not be looked up in time is a warning.

mod references;
mod versions;

use std::sync::Arc;

use kube::api::DynamicObject;
use kube::core::Status;
use kube::core::admission::{AdmissionRequest, Operation};
use kube::core::response::{StatusCause, StatusDetails, reason};
use serde_json::Value;
use steersman_api::Family;
use steersman_api::convert::convert;
use steersman_plan::llamastack::config::Problem;
use steersman_plan::llamastack::config::base::{distribution, names, resolve};
use steersman_plan::llamastack::config::problem::reason as problem;
use steersman_plan::llamastack::validate::{Facts, Missing, Verdict, validate};

use super::admission::{Answer, Judge, judge_after_reading};
use crate::client::Server;
use crate::rbac::Rule;
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

/// The object and the one before it, both in the stored version.
struct Case {
    new: Value,
    old: Option<Value>,
    namespace: String,
    /// In which its author wrote it.
    version: String,
}

impl Court {
    async fn decide(&self, request: AdmissionRequest<DynamicObject>) -> Answer {
        let case = match Case::read(request) {
            Ok(Some(case)) => case,
            Ok(None) => return Answer::allow(),
            Err(answer) => return *answer,
        };
        let looked = references::look(&self.server, &self.namespace, &case).await;
        let verdict = case.verdict(&looked, self.missing);
        let words = |text: &str| versions::words(text, &case.version);
        if !verdict.errors.is_empty() {
            // What would become of it otherwise is of no interest yet.
            return Answer::deny(case.refusal(&verdict.errors, &words));
        }
        let warnings = verdict.warnings.iter().chain(&looked.unknown);
        warnings.fold(Answer::allow(), |answer, warning| answer.warn(words(warning)))
    }
}

impl Case {
    /// None: there is nothing to judge. Our configuration asks about none of that, but another may.
    fn read(request: AdmissionRequest<DynamicObject>) -> Result<Option<Self>, Box<Answer>> {
        let judged = matches!(request.operation, Operation::Create | Operation::Update);
        let part = request.sub_resource.as_deref().is_some_and(|part| !part.is_empty());
        let Some(object) = request.object.filter(|_| judged && !part) else { return Ok(None) };
        let (new, old) = (stored(object)?, request.old_object.map(stored).transpose()?);
        let namespace = request.namespace.unwrap_or_default();
        let version = request.request_kind.unwrap_or(request.kind).version;
        Ok(Some(Self { new, old, namespace, version }))
    }

    fn verdict(&self, looked: &Looked, missing: Missing) -> Verdict {
        let name = self.new["spec"]["distribution"]["name"].as_str();
        // The labels of an image are not looked at here: a registry may be slow, and its answer may change.
        let base = resolve(name, Ok(None)).ok().map(|resolved| resolved.base);
        let known: Vec<&str> = names().collect();
        let facts = Facts {
            namespace: &self.namespace,
            distributions: &known,
            base: base.as_deref(),
            always_mounted: name.and_then(distribution).is_some_and(|known| known.mounts_always),
            found: &looked.found,
            missing,
        };
        let mut verdict = validate(&self.new, self.old.as_ref(), &facts);
        if let Some(elsewhere) = &looked.config_namespace {
            // The stored version has no field for it, so that the rules speak of the object's own.
            let (own, other) = (format!("namespace {:?}", self.namespace), format!("namespace {elsewhere:?}"));
            for error in verdict.errors.iter_mut().filter(|error| error.path == references::CONFIG) {
                error.message = error.message.replace(&own, &other);
                error.remedy = format!("Create it there with the label {}=true, or name another.", references::WATCHED);
            }
        }
        verdict
    }

    /// As API servers refuse what breaks a schema: 422, with a cause for each place.
    fn refusal(&self, errors: &[Problem], words: &dyn Fn(&str) -> String) -> Status {
        let metadata = &self.new["metadata"];
        let name = metadata["name"].as_str().or(metadata["generateName"].as_str()).unwrap_or_default();
        let texts: Vec<String> = errors.iter().map(|error| words(&error.text())).collect();
        let told = match &texts[..] {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let causes = errors.iter().map(|error| StatusCause {
            reason: cause(error).to_owned(),
            message: words(&error.sentence()),
            field: words(&error.path),
        });
        let details = StatusDetails {
            name: name.to_owned(),
            group: FAMILY.group().to_owned(),
            kind: FAMILY.kind().to_owned(),
            causes: causes.collect(),
            uid: String::new(),
            retry_after_seconds: 0,
        };
        let message = format!("{}.{} {name:?} is invalid: {told}", FAMILY.kind(), FAMILY.group());
        Status::failure(&message, reason::INVALID).with_code(422).with_details(details)
    }
}

/// Kubernetes' own words for what is wrong with a field.
fn cause(error: &Problem) -> &'static str {
    match error.reason {
        problem::NO_SECRET | problem::NO_SECRET_KEY | problem::NO_CONFIG_MAP => "FieldValueNotFound",
        _ => "FieldValueInvalid",
    }
}

/// In the version that the rules are written for. API servers send that one, unless somebody's configuration wants another.
fn stored(object: DynamicObject) -> Result<Value, Box<Answer>> {
    let wanted = format!("{}/{}", FAMILY.group(), FAMILY.storage_version());
    let value = serde_json::to_value(object).map_err(|error| unreadable(&error.to_string()))?;
    if value["apiVersion"] == wanted.as_str() {
        return Ok(value);
    }
    convert(value, &wanted).map(|converted| converted.object).map_err(|error| unreadable(&error.to_string()))
}

fn unreadable(cause: &str) -> Box<Answer> {
    let message = format!("this is not a {} that can be judged: {cause}", FAMILY.kind());
    Box::new(Answer::deny(Status::failure(&message, reason::BAD_REQUEST).with_code(400)))
}
