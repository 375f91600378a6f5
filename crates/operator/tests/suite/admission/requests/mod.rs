//! Admission of DynamoGraphDeploymentRequests on a real API server: schema, conversion, defaults and rules one after the
//! other, as users meet them. The numbers of rows are those of the published behaviour.

mod create;
mod judge;
mod told;
mod update;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::object;

use super::{CommandOutput, Court};

const MODEL: &str = "Qwen/Qwen3-8B";

const THOROUGH: &str = "spec.searchStrategy: Invalid value: \"thorough\": is incompatible with spec.backend \"auto\"; set \
                        spec.backend to a specific backend (sglang, trtllm, or vllm)";
const NO_VERSION: &str = "spec.runtimeVersionOverride: Required value: is required when spec.image has no parseable \
                          semantic-version tag";

/// An object with this label is not judged: it is stored as one that was written while nobody was asked.
const UNJUDGED: &str = "admission.steersman.dev/unjudged";

/// With an image whose tag says no version, and the version beside it. A field of `more` that is null goes.
fn spec(more: Value) -> Value {
    let mut spec = json!({ "model": "Qwen/Qwen3-0.6B", "backend": "vllm", "image": "profiler:latest",
        "runtimeVersionOverride": "1.1.0", "searchStrategy": "rapid", "autoApply": true });
    for (name, value) in more.as_object().unwrap() {
        match value {
            Value::Null => _ = spec.as_object_mut().unwrap().remove(name),
            value => spec[name] = value.clone(),
        }
    }
    spec
}

fn beta(name: &str, more: Value) -> Value {
    json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest", "metadata": { "name": name },
        "spec": spec(more) })
}

fn alpha(name: &str, more: Value) -> Value {
    let mut spec = json!({ "model": "Qwen/Qwen3-0.6B", "backend": "vllm", "runtimeVersionOverride": "1.1.0",
        "profilingConfig": { "profilerImage": "profiler:latest" } });
    for (name, value) in more.as_object().unwrap() {
        match value {
            Value::Null => _ = spec.as_object_mut().unwrap().remove(name),
            value => spec[name] = value.clone(),
        }
    }
    json!({ "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeploymentRequest", "metadata": { "name": name },
        "spec": spec })
}

fn unjudged(mut request: Value) -> Value {
    request["metadata"]["labels"] = json!({ UNJUDGED: "true" });
    request
}

/// Everything between a user and a stored request.
async fn open(prefix: &str, more: &[&str]) -> Option<Court> {
    let court = Court::of(Family::Dgdr, prefix, more).await?;
    let labelled = json!([{ "op": "add", "path": "/webhooks/0/objectSelector",
        "value": { "matchExpressions": [{ "key": UNJUDGED, "operator": "DoesNotExist" }] } }]);
    let labelled: Patch<ValidatingWebhookConfiguration> = Patch::Json(serde_json::from_value(labelled).unwrap());
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(court.site.admin.clone());
    configurations.patch("steersman-dgdr", &PatchParams::default(), &labelled).await.unwrap();
    let asked = async || {
        let wrong = json!({ "backend": "auto", "searchStrategy": "thorough" });
        let refused = would_be(&court, &beta("probe", wrong.clone())).await.err()?;
        refused.contains("spec.searchStrategy").then_some(())?;
        would_be(&court, &unjudged(beta("probe", wrong))).await.ok()?;
        let filled = would_be(&court, &beta("probe", json!({ "image": null }))).await.ok()?;
        filled.data["spec"]["image"].as_str()?;
        let refused = would_be(&court, &alpha("probe", json!({ "runtimeVersionOverride": null }))).await.err()?;
        refused.contains("spec.runtimeVersionOverride").then_some(())
    };
    court.until("the operator is asked about every request", asked).await;
    Some(court)
}

fn version(request: &Value) -> &str {
    request["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap()
}

/// The request as it would be stored, or why it would not be.
async fn would_be(court: &Court, request: &Value) -> Result<DynamicObject, String> {
    court.would_be(version(request), &object(request.clone())).await
}

/// `kubectl apply`, and what a user reads of it.
async fn apply(court: &Court, request: &Value) -> CommandOutput {
    court.apply(request, &[]).await
}
