//! Admission of requests. Tests named `adm_` are the rows of the published behaviour, in its order. Rows that the
//! schema decides are tested with a real API server in crates/operator.

mod create;
mod defaults;
mod immutable_spec;
mod laws;
mod ratchet;
mod warnings;

use serde_json::{Value, json};
use steersman_plan::dynamo::validate::{Facts, Review, validate};

const MODEL: &str = "Qwen/Qwen3-8B";

const NO_HARDWARE: &str = "spec.hardware: Required value: GPU hardware configuration is required when GPU discovery is \
                           disabled";
const THOROUGH: &str = "spec.searchStrategy: Invalid value: \"thorough\": is incompatible with spec.backend \"auto\"; set \
                        spec.backend to a specific backend (sglang, trtllm, or vllm)";
const NO_VERSION: &str = "spec.runtimeVersionOverride: Required value: is required when spec.image has no parseable \
                          semantic-version tag";

/// A request whose image tag has no version, with `runtimeVersionOverride`. Fields of `more` are added; null removes a
/// field.
pub fn request(more: Value) -> Value {
    let mut spec = json!({ "model": "Qwen/Qwen3-0.6B", "backend": "vllm", "image": "profiler:latest",
        "runtimeVersionOverride": "1.1.0", "searchStrategy": "rapid", "autoApply": true });
    for (name, value) in more.as_object().unwrap() {
        match value {
            Value::Null => _ = spec.as_object_mut().unwrap().remove(name),
            value => spec[name] = value.clone(),
        }
    }
    json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest",
        "metadata": { "name": "test", "namespace": "team-a" }, "spec": spec })
}

pub fn request_in_phase(phase: &str, more: Value) -> Value {
    let mut request = request(more);
    request["status"] = json!({ "phase": phase });
    request
}

fn with_label(mut request: Value) -> Value {
    request["metadata"]["labels"] = json!({ "updated": "true" });
    request
}

pub fn facts(discovery: bool) -> Facts<'static> {
    Facts { default_image: Some("planner:1.4.0"), discovery }
}

pub fn review_create(new: &Value) -> Review {
    validate(new, None, &facts(true))
}

pub fn review_update(old: &Value, new: &Value) -> Review {
    validate(new, Some(old), &facts(true))
}

fn error_texts(review: &Review) -> Vec<String> {
    review.errors.iter().map(|error| error.text().to_string()).collect()
}

#[track_caller]
fn assert_accepted(review: &Review) {
    assert_eq!(error_texts(review), [""; 0]);
}

/// Expects errors with these beginnings, in this order, each followed by a remedy.
#[track_caller]
pub fn assert_rejected(review: &Review, expected: &[&str]) {
    let texts = error_texts(review);
    assert_eq!(texts.len(), expected.len(), "{texts:#?}");
    for (text, expected) in texts.iter().zip(expected) {
        let rest = text.strip_prefix(expected).unwrap_or_else(|| panic!("{text:?} does not begin with {expected:?}"));
        assert!(rest.starts_with(". ") && rest.ends_with('.') && rest.len() > 10, "no remedy: {text:?}");
    }
}

fn forbidden_text(phase: &str) -> String {
    format!(
        "spec: Forbidden: updates are forbidden while the resource is in phase \"{phase}\"; delete and recreate the \
         resource to change its spec"
    )
}
