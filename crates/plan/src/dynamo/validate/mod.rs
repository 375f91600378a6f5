//! Decides on admission of a request, by the rules of the plan.

mod immutable_spec;
pub mod operator_values;
mod problem;
pub mod remarks;
pub mod rules;
mod version;

use std::collections::BTreeMap;

use serde_json::Value;
use steersman_api::dynamo::v1beta1::{DynamoGraphDeploymentRequestStatus, Phase};
use steersman_reconcile::{DecodeError, FieldError, Message, decode, message, path};

use super::names::RETRY;
use super::request;
use super::snapshot::ObservedObject;

use operator_values::OperatorValues;

pub use version::has_version;

/// The version of Dynamo whose protocol Steersman implements.
pub const DYNAMO_VERSION: &str = "1.4.0";

const PLANNER: &str = "nvcr.io/nvidia/ai-dynamo/dynamo-planner";

/// The profiler's default image: the configured one, or the planner of this version of Dynamo. None: the version is
/// invalid.
pub fn default_image(configured: Option<&str>, dynamo: &str) -> Option<String> {
    let planner = || version::canonical(dynamo).map(|version| format!("{PLANNER}:{version}"));
    request::non_empty(configured).map(str::to_owned).or_else(planner)
}

/// The image to set in a new request: its only default besides those of the schema. None: it has one, or there is no
/// default.
pub fn image<'a>(new: &Value, default: Option<&'a str>) -> Option<&'a str> {
    let spec = new["spec"].as_object()?;
    // The schema refuses a value that is not a string.
    let empty = spec.get("image").is_none_or(|image| image.is_null() || image == "");
    default.filter(|_| empty)
}

/// Facts besides the request.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Replaces an empty `spec.image`.
    pub default_image: Option<&'a str>,
    /// Whether the operator discovers GPUs.
    pub discovery: bool,
}

pub use crate::Review;

/// An error that the stored request has, too, and that the change does not touch, is a warning. Deletion and changes
/// that leave the spec alone, such as the removal of a finalizer, are never refused.
pub fn validate(new: &Value, old: Option<&Value>, facts: &Facts<'_>) -> Review {
    let deleting = !new["metadata"]["deletionTimestamp"].is_null();
    if deleting || old.is_some_and(|old| old["spec"] == new["spec"]) {
        return Review::default();
    }
    let object = match read(new) {
        Ok(object) => object,
        Err(error) => return Review { errors: vec![*error], ..Review::default() },
    };
    // A stored request that cannot be read has no errors to compare with.
    let before = old.and_then(|old| read(old).ok());
    let known = before.as_ref().map(|before| rules::errors(before, facts)).unwrap_or_default();
    let is_unchanged = |error: &FieldError| {
        let touched = before.as_ref().is_none_or(|before| touches(before, &object, error));
        known.contains(error) && !touched
    };
    let (left, mut errors): (Vec<_>, Vec<_>) = rules::errors(&object, facts).into_iter().partition(is_unchanged);
    let operator_values = old.map(|old| OperatorValues::of(old, new, facts)).unwrap_or_default();
    errors.extend(before.as_ref().and_then(|before| immutable_spec::refusal(before, &object, &operator_values)));
    let mut warnings: Vec<Message> = left.iter().map(FieldError::text).collect();
    warnings.extend(before.as_ref().and_then(change_without_effect));
    warnings.extend(remarks::remarks(&object).iter().map(FieldError::explanation));
    Review { errors, warnings }
}

/// Another image needs another version, and enabling the deployment needs one.
fn touches(before: &ObservedObject, after: &ObservedObject, error: &FieldError) -> bool {
    let version = |object: &ObservedObject| object.spec.runtime_version_override.clone().unwrap_or_default();
    let activated = !request::auto_apply(before) && request::auto_apply(after);
    let others = before.spec.image != after.spec.image || version(before) != version(after);
    error.path == path!(spec.runtimeVersionOverride) && (others || activated)
}

fn change_without_effect(before: &ObservedObject) -> Option<Message> {
    (request::phase(before) == Some(Phase::Failed) && request::has_job(before)).then(|| {
        message![
            path!(spec),
            format!(
                ": this request failed after profiling started. A change has an effect only if annotation {RETRY} gets a \
                 new value."
            )
        ]
    })
}

/// The fields of a request that admission needs.
fn read(object: &Value) -> Result<ObservedObject, Box<FieldError>> {
    let spec = decode(&object["spec"], "spec").map_err(|DecodeError { path, cause }| {
        let remedy = "Compare it with `kubectl explain dgdr.spec --recursive`.";
        Box::new(problem::invalid(path, None, format!("cannot be decoded: {cause}"), remedy))
    })?;
    let metadata = &object["metadata"];
    let text = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
    let annotations: BTreeMap<String, String> =
        serde_json::from_value(metadata["annotations"].clone()).unwrap_or_default();
    Ok(ObservedObject {
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        generation: metadata["generation"].as_i64(),
        created: None,
        deleting: false,
        finalizers: Vec::new(),
        annotations,
        spec,
        status: Some(status(&object["status"])),
    })
}

/// The fields are read one by one: another field of an earlier operator must not hide the phase.
fn status(status: &Value) -> DynamoGraphDeploymentRequestStatus {
    DynamoGraphDeploymentRequestStatus {
        phase: serde_json::from_value(status["phase"].clone()).ok(),
        profiling_job_name: request::non_empty(status["profilingJobName"].as_str()).map(str::to_owned),
        ..DynamoGraphDeploymentRequestStatus::default()
    }
}
