//! `steersman webhooks --apply` and `--remove`.
//! Comes in: the families wanted, where the operator is reached, and the configurations as they are; goes out: ours on the
//! API server, or none, and one line about each.
//!
//! What others own is left to them, above all the bundle that the running operator has put into `clientConfig.caBundle`.

use k8s_openapi::api::admissionregistration::v1::WebhookClientConfig;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_runtime::client::{CallError, Server};

use crate::admission::{Configuration, MANAGER, Policy, target, wanted};
use crate::crds::Given;

const RIGHTS: &str = "get, create, patch and delete validatingwebhookconfigurations and mutatingwebhookconfigurations of \
                      admissionregistration.k8s.io";

/// How often somebody else may be quicker before we say so.
const MOST_TRIES: usize = 5;

#[derive(Debug, thiserror::Error)]
pub enum AdmissionError {
    #[error("cannot {doing} the {} {}: {cause}{}", of.kind(), of.name(), needed(cause))]
    Call { doing: &'static str, of: Configuration, cause: CallError },
    #[error("the {} {} is written by somebody else at the same time; run this again", of.kind(), of.name())]
    Busy { of: Configuration },
    #[error("cannot write the {} {} as JSON: {cause}", of.kind(), of.name())]
    Render { of: Configuration, cause: serde_json::Error },
}

fn needed(cause: &CallError) -> String {
    match cause {
        CallError::Answered { code: 403, .. } => {
            format!("; this needs the right to {RIGHTS}: run it as an administrator of the cluster")
        }
        _ => String::new(),
    }
}

fn api(server: &Server, of: Configuration) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "admissionregistration.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "admissionregistration.k8s.io/v1".to_owned(),
        kind: of.kind().to_owned(),
        plural: of.plural().to_owned(),
    };
    Api::all_with(server.client.clone(), &resource)
}

/// Applies the configurations of `families` (all if there is none). `say` gets each line as soon as it is true.
pub async fn apply(
    server: &Server,
    families: &[Family],
    given: &Given,
    policy: Policy,
    say: &mut dyn FnMut(&str),
) -> Result<(), AdmissionError> {
    for of in wanted(families) {
        say(&apply_one(server, of, given, policy).await?);
    }
    Ok(())
}

async fn apply_one(
    server: &Server,
    of: Configuration,
    given: &Given,
    policy: Policy,
) -> Result<String, AdmissionError> {
    let (api, name) = (api(server, of), of.name());
    let failed = |cause| AdmissionError::Call { doing: "apply", of, cause };
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), force: true, ..PatchParams::default() };
    for _ in 0..MOST_TRIES {
        let before = server.call(api.get_opt(name)).await.map_err(failed)?;
        let client = client(before.as_ref(), of, given);
        if let Some(patch) = before.as_ref().and_then(|before| retargeted(before, &client, of)) {
            let patch = serde_json::from_value(patch).map_err(|cause| AdmissionError::Render { of, cause })?;
            let patch = Patch::<()>::Json(patch);
            match server.call(api.patch(name, &PatchParams::default(), &patch)).await {
                Ok(_) => {}
                // The API server says 422 when the test of a JSON patch fails.
                Err(CallError::Answered { code: 404 | 409 | 422, .. }) => continue,
                Err(cause) => return Err(failed(cause)),
            }
        }
        let wish = of.manifest(client, policy);
        match server.call(api.patch(name, &params, &Patch::Apply(&wish))).await {
            Ok(after) => return Ok(line(of, before.as_ref(), &after)),
            Err(CallError::Answered { code: 409, .. }) => continue,
            Err(cause) => return Err(failed(cause)),
        }
    }
    Err(AdmissionError::Busy { of })
}

/// Whom the one webhook of ours asks, and the place of that webhook.
fn asked(live: &DynamicObject, of: Configuration) -> Option<(usize, WebhookClientConfig)> {
    let webhooks = live.data["webhooks"].as_array()?;
    let (place, webhook) = webhooks.iter().enumerate().find(|(_, webhook)| webhook["name"] == of.webhook_name())?;
    Some((place, serde_json::from_value(webhook["clientConfig"].clone()).ok()?))
}

/// Flags win; without them whoever is asked already is asked on. A bundle that we applied stays for as long as the server
/// that it vouches for is the same; one of another is not ours to say.
fn client(before: Option<&DynamicObject>, of: Configuration, given: &Given) -> WebhookClientConfig {
    let live = before.and_then(|before| asked(before, of)).map(|(_, client)| client);
    let mut client = match (&given.target, &live) {
        (None, Some(live)) => WebhookClientConfig { ca_bundle: None, ..live.clone() },
        _ => target::at(&given.or_default(), of),
    };
    let kept = live
        .filter(|live| target::same(live, &client) && before.is_some_and(|before| bundle_is_ours(before, of)))
        .and_then(|live| live.ca_bundle);
    client.ca_bundle = given.bundle.clone().or(kept);
    client
}

fn bundle_is_ours(live: &DynamicObject, of: Configuration) -> bool {
    let key = format!("k:{}", json!({ "name": of.webhook_name() }));
    let mut ours = live
        .managed_fields()
        .iter()
        .filter(|entry| entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply"));
    ours.any(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0["f:webhooks"][&key]["f:clientConfig"]);
        fields.is_some_and(|fields| !fields["f:caBundle"].is_null())
    })
}

/// The change that must come first where another server is named: an apply takes away only what we own, and would leave a
/// Service beside our address, or a bundle of the other's certificate.
fn retargeted(before: &DynamicObject, wanted: &WebhookClientConfig, of: Configuration) -> Option<Value> {
    let (place, live) = asked(before, of)?;
    (!target::same(&live, wanted)).then(|| {
        json!([
            { "op": "test", "path": "/metadata/resourceVersion", "value": before.resource_version() },
            { "op": "replace", "path": format!("/webhooks/{place}/clientConfig"), "value": wanted },
        ])
    })
}

fn line(of: Configuration, before: Option<&DynamicObject>, after: &DynamicObject) -> String {
    let done = match before {
        None => "created",
        Some(before) if before.metadata.generation == after.metadata.generation => "unchanged",
        Some(_) => "changed",
    };
    let asked = asked(after, of).map_or_else(String::new, |(_, client)| target::describe(&client));
    format!("{of}: {done}, asks {asked}")
}

/// Removes the configurations of `families` (all if there is none).
pub async fn remove(server: &Server, families: &[Family], say: &mut dyn FnMut(&str)) -> Result<(), AdmissionError> {
    for of in wanted(families) {
        let (api, name) = (api(server, of), of.name());
        let failed = |cause| AdmissionError::Call { doing: "remove", of, cause };
        let found = server.call(api.get_opt(name)).await.map_err(failed)?;
        let Some(found) = found else {
            say(&format!("{of}: not there"));
            continue;
        };
        let preconditions = Preconditions { uid: found.uid(), ..Preconditions::default() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match server.call(api.delete(name, &params)).await {
            Ok(_) | Err(CallError::Answered { code: 404, .. }) => say(&format!("{of}: removed")),
            Err(cause) => return Err(failed(cause)),
        }
    }
    Ok(())
}
