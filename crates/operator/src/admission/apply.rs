//! Runs `steersman webhooks --apply` and `--remove`.
//!
//! Fields of other managers are kept, above all the `clientConfig.caBundle` that the running operator has set.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::WebhookClientConfig;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_runtime::client::{CallError, Server};

use crate::admission::{FailurePolicy, MANAGER, WebhookConfiguration, wanted};
use crate::crds::error::permission_hint;
use crate::crds::live::is_applied;
use crate::crds::target::{self, TargetFlags};
use crate::webhooks::admission::Route;

const NEEDED_PERMISSIONS: &str = "get, create, patch and delete validatingwebhookconfigurations and mutatingwebhookconfigurations of \
                      admissionregistration.k8s.io";

/// Attempts that may end in a conflict with another writer.
const MAX_ATTEMPTS: usize = 5;

#[derive(Debug, thiserror::Error)]
pub enum AdmissionError {
    #[error("cannot {doing} the {} {}: {cause}{}", of.kind(), of.name(), permission_hint(cause, NEEDED_PERMISSIONS))]
    Call { doing: &'static str, of: WebhookConfiguration, cause: CallError },
    #[error("another program kept changing the {} {} at the same time; run this command again", of.kind(), of.name())]
    Busy { of: WebhookConfiguration },
    #[error("cannot serialize the {} {} as JSON: {cause}", of.kind(), of.name())]
    Render { of: WebhookConfiguration, cause: serde_json::Error },
}

fn api(server: &Server, of: WebhookConfiguration) -> Api<DynamicObject> {
    let resource = match of.route {
        Route::Validate => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
        Route::Mutate => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
    };
    Api::all_with(server.client.clone(), &resource)
}

/// Applies the configurations of `families`; an empty list means all. `say` gets the line about each as soon as it is applied.
pub async fn apply(
    server: &Server,
    families: &[Family],
    flags: &TargetFlags,
    policy: FailurePolicy,
    say: &mut dyn FnMut(&str),
) -> Result<(), AdmissionError> {
    for of in wanted(families) {
        say(&apply_one(server, of, flags, policy).await?);
    }
    Ok(())
}

async fn apply_one(
    server: &Server,
    of: WebhookConfiguration,
    flags: &TargetFlags,
    policy: FailurePolicy,
) -> Result<String, AdmissionError> {
    let (api, name) = (api(server, of), of.name());
    let failed = |cause| AdmissionError::Call { doing: "apply", of, cause };
    let params = PatchParams::apply(MANAGER).force();
    for _ in 0..MAX_ATTEMPTS {
        let before = server.call(api.get_opt(name)).await.map_err(failed)?;
        let client = client(before.as_ref(), of, flags);
        if let Some(patch) = before.as_ref().and_then(|before| retargeted(before, &client, of)) {
            let patch = serde_json::from_value(patch).map_err(|cause| AdmissionError::Render { of, cause })?;
            let patch = Patch::<()>::Json(patch);
            match server.call(api.patch(name, &PatchParams::default(), &patch)).await {
                Ok(_) => {}
                // The API server answers 422 if the test of a JSON patch fails.
                Err(CallError::Answered { code: 404 | 409 | 422, .. }) => continue,
                Err(cause) => return Err(failed(cause)),
            }
        }
        let manifest = of.manifest(&client, policy);
        match server.call(api.patch(name, &params, &Patch::Apply(&manifest))).await {
            Ok(after) => return Ok(line(of, before.as_ref(), &after)),
            Err(CallError::Answered { code: 409, .. }) => continue,
            Err(cause) => return Err(failed(cause)),
        }
    }
    Err(AdmissionError::Busy { of })
}

/// The index and the `clientConfig` of the webhook of `of` in the live configuration.
fn live_webhook(live: &DynamicObject, of: WebhookConfiguration) -> Option<(usize, WebhookClientConfig)> {
    let webhooks = live.data["webhooks"].as_array()?;
    let (index, webhook) = webhooks.iter().enumerate().find(|(_, webhook)| webhook["name"] == of.webhook_name())?;
    Some((index, serde_json::from_value(webhook["clientConfig"].clone()).ok()?))
}

/// The `clientConfig` to apply: that of the flags, else the live one, else the default. A bundle that an earlier `--apply`
/// set is applied again while the server is the same; a bundle of another manager is left out, and so stays.
fn client(before: Option<&DynamicObject>, of: WebhookConfiguration, flags: &TargetFlags) -> WebhookClientConfig {
    let live = before.and_then(|before| live_webhook(before, of)).map(|(_, client)| client);
    let mut client = match (&flags.target, &live) {
        (None, Some(live)) => WebhookClientConfig { ca_bundle: None, ..live.clone() },
        _ => of.client(flags.or_default()),
    };
    let bundle = format!("/f:webhooks/k:{}/f:clientConfig/f:caBundle", json!({ "name": of.webhook_name() }));
    let ours = before.is_some_and(|before| is_applied(before, MANAGER, &bundle));
    let applied = live.filter(|live| ours && target::same(live, &client)).and_then(|live| live.ca_bundle);
    client.ca_bundle = flags.bundle.clone().or(applied);
    client
}

/// The patch that must precede the apply if the live configuration names another server: an apply removes only fields that
/// it owns, and would leave a Service next to a URL, or the bundle of another certificate.
fn retargeted(before: &DynamicObject, wanted: &WebhookClientConfig, of: WebhookConfiguration) -> Option<Value> {
    let (index, live) = live_webhook(before, of)?;
    (!target::same(&live, wanted)).then(|| {
        json!([
            { "op": "test", "path": "/metadata/resourceVersion", "value": before.resource_version() },
            { "op": "replace", "path": format!("/webhooks/{index}/clientConfig"), "value": wanted },
        ])
    })
}

fn line(of: WebhookConfiguration, before: Option<&DynamicObject>, after: &DynamicObject) -> String {
    let done = match before {
        None => "created",
        Some(before) if before.metadata.generation == after.metadata.generation => "unchanged",
        Some(_) => "changed",
    };
    let target = live_webhook(after, of).map_or_else(String::new, |(_, client)| target::describe(&client));
    format!("{of}: {done}, calls {target}")
}

/// Removes the configurations of `families`; an empty list means all.
pub async fn remove(server: &Server, families: &[Family], say: &mut dyn FnMut(&str)) -> Result<(), AdmissionError> {
    for of in wanted(families) {
        let (api, name) = (api(server, of), of.name());
        let failed = |cause| AdmissionError::Call { doing: "remove", of, cause };
        let live = server.call(api.get_opt(name)).await.map_err(failed)?;
        let Some(live) = live else {
            say(&format!("{of}: not installed"));
            continue;
        };
        let preconditions = Preconditions { uid: live.uid(), ..Preconditions::default() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match server.call(api.delete(name, &params)).await {
            Ok(_) | Err(CallError::Answered { code: 404, .. }) => say(&format!("{of}: removed")),
            Err(cause) => return Err(failed(cause)),
        }
    }
    Ok(())
}
