//! Whether requests are accepted. The tests named `adm_` are the rows of the published behaviour, in its order; those that
//! the schema answers are asked of a real API server elsewhere.

mod create;
mod defaults;
mod fixed;
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

/// A request with an image whose tag says no version, and the version beside it. A field of `more` that is null goes.
fn request(more: Value) -> Value {
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

fn in_phase(phase: &str, more: Value) -> Value {
    let mut request = request(more);
    request["status"] = json!({ "phase": phase });
    request
}

fn labelled(mut request: Value) -> Value {
    request["metadata"]["labels"] = json!({ "updated": "true" });
    request
}

fn facts(discovery: bool) -> Facts<'static> {
    Facts { default_image: Some("planner:1.4.0"), discovery }
}

fn created(new: &Value) -> Review {
    validate(new, None, &facts(true))
}

fn updated(old: &Value, new: &Value) -> Review {
    validate(new, Some(old), &facts(true))
}

fn texts(verdict: &Review) -> Vec<String> {
    verdict.errors.iter().map(|error| error.text().to_string()).collect()
}

#[track_caller]
fn accepted(verdict: &Review) {
    assert_eq!(texts(verdict), [""; 0]);
}

/// Refused with these beginnings, in this order, each with something to do after it.
#[track_caller]
fn refused(verdict: &Review, expected: &[&str]) {
    let texts = texts(verdict);
    assert_eq!(texts.len(), expected.len(), "{texts:#?}");
    for (text, expected) in texts.iter().zip(expected) {
        let rest = text.strip_prefix(expected).unwrap_or_else(|| panic!("{text:?} does not begin with {expected:?}"));
        assert!(rest.starts_with(". ") && rest.ends_with('.') && rest.len() > 10, "nothing to do: {text:?}");
    }
}

fn forbidden(phase: &str) -> String {
    format!(
        "spec: Forbidden: updates are forbidden while the resource is in phase \"{phase}\"; delete and recreate the \
         resource to change its spec"
    )
}
