//! Admission of DynamoGraphDeploymentRequests on a real API server: schema, conversion, defaults and rules in the order in
//! which the API server applies them. `adm_NN` are the row numbers of the published behaviour.

mod create;
mod handlers;
mod messages;
mod update;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::object;

use super::{AdmissionEnv, CommandOutput};

const MODEL: &str = "Qwen/Qwen3-8B";

const THOROUGH: &str = "spec.searchStrategy: Invalid value: \"thorough\": is incompatible with spec.backend \"auto\"; set \
                        spec.backend to a specific backend (sglang, trtllm, or vllm)";
const NO_VERSION: &str = "spec.runtimeVersionOverride: Required value: is required when spec.image has no parseable \
                          semantic-version tag";

/// Objects with this label are not validated, as if they had been written while no operator ran.
const SKIP_VALIDATION_LABEL: &str = "admission.steersman.dev/unjudged";

/// A v1beta1 spec whose image tag is not a version, so that it needs `runtimeVersionOverride`. Fields of `more` replace those
/// of the spec; null removes one.
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

fn without_validation(mut request: Value) -> Value {
    request["metadata"]["labels"] = json!({ SKIP_VALIDATION_LABEL: "true" });
    request
}

/// Starts an operator and waits until the API server calls it for requests of both versions.
async fn start(prefix: &str, more: &[&str]) -> Option<AdmissionEnv> {
    let env = AdmissionEnv::start_family(Family::Dgdr, prefix, more).await?;
    let selector = json!([{ "op": "add", "path": "/webhooks/0/objectSelector",
        "value": { "matchExpressions": [{ "key": SKIP_VALIDATION_LABEL, "operator": "DoesNotExist" }] } }]);
    let selector: Patch<ValidatingWebhookConfiguration> = Patch::Json(serde_json::from_value(selector).unwrap());
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(env.webhook.admin.clone());
    configurations.patch("steersman-dgdr", &PatchParams::default(), &selector).await.unwrap();
    let called = async || {
        let wrong = json!({ "backend": "auto", "searchStrategy": "thorough" });
        let refused = dry_run_create(&env, &beta("probe", wrong.clone())).await.err()?;
        refused.contains("spec.searchStrategy").then_some(())?;
        dry_run_create(&env, &without_validation(beta("probe", wrong))).await.ok()?;
        let filled = dry_run_create(&env, &beta("probe", json!({ "image": null }))).await.ok()?;
        filled.data["spec"]["image"].as_str()?;
        let refused = dry_run_create(&env, &alpha("probe", json!({ "runtimeVersionOverride": null }))).await.err()?;
        refused.contains("spec.runtimeVersionOverride").then_some(())
    };
    env.wait_for("the webhooks are called for requests of every version", called).await;
    Some(env)
}

fn version(request: &Value) -> &str {
    request["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap()
}

/// The request as it would be stored, or why it would be refused.
async fn dry_run_create(env: &AdmissionEnv, request: &Value) -> Result<DynamicObject, String> {
    env.dry_run_create(version(request), &object(request.clone())).await
}

/// Runs `kubectl apply` and returns what a user sees.
async fn apply(env: &AdmissionEnv, request: &Value) -> CommandOutput {
    env.apply(request, &[]).await
}
