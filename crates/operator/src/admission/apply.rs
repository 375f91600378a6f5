//! `steersman webhooks --apply` and `--remove`.
//! Comes in: the families wanted, where the operator is reached, and the configurations as they are; goes out: ours on the
//! API server, or none, and one line about each.
//!
//! What others own is left to them, above all the bundle that the running operator has put into `clientConfig.caBundle`.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Resource, ResourceExt};
use serde_json::json;
use steersman_api::Family;

use super::{MANAGER, Policy, configuration, manifest, name, target, wanted, webhook_name};
use crate::client::{CallError, Server};
use crate::crds::Given;

const RIGHTS: &str = "get, create, patch and delete validatingwebhookconfigurations of admissionregistration.k8s.io";

/// How often somebody else may be quicker before we say so.
const MOST_TRIES: usize = 5;

#[derive(Debug, thiserror::Error)]
pub enum AdmissionError {
    #[error("cannot {doing} the ValidatingWebhookConfiguration {name}: {cause}{}", needed(cause))]
    Call { doing: &'static str, name: &'static str, cause: CallError },
    #[error("the ValidatingWebhookConfiguration {name} is written by somebody else at the same time; run this again")]
    Busy { name: &'static str },
    #[error("cannot write the ValidatingWebhookConfiguration {name} as JSON: {cause}")]
    Render { name: &'static str, cause: serde_json::Error },
}

fn needed(cause: &CallError) -> String {
    match cause {
        CallError::Answered { code: 403, .. } => {
            format!("; this needs the right to {RIGHTS}: run it as an administrator of the cluster")
        }
        _ => String::new(),
    }
}

fn api(server: &Server) -> Api<ValidatingWebhookConfiguration> {
    Api::all(server.client.clone())
}

/// Applies the configurations of `families` (all if there is none). `say` gets each line as soon as it is true.
pub async fn apply(
    server: &Server,
    families: &[Family],
    given: &Given,
    policy: Policy,
    say: &mut dyn FnMut(&str),
) -> Result<(), AdmissionError> {
    for family in wanted(families) {
        say(&apply_one(server, *family, given, policy).await?);
    }
    Ok(())
}

async fn apply_one(server: &Server, family: Family, given: &Given, policy: Policy) -> Result<String, AdmissionError> {
    let name = name(family);
    let failed = |cause| AdmissionError::Call { doing: "apply", name, cause };
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), force: true, ..PatchParams::default() };
    for _ in 0..MOST_TRIES {
        let before = server.call(api(server).get_opt(name)).await.map_err(failed)?;
        let mut wish = configuration(family, &given.or_default(), policy);
        for webhook in wish.webhooks.iter_mut().flatten() {
            webhook.client_config = client(before.as_ref(), family, given);
        }
        if let Some(patch) = before.as_ref().and_then(|before| retargeted(before, &wish, family)) {
            let patch = serde_json::from_value(patch).map_err(|cause| AdmissionError::Render { name, cause })?;
            let patch = Patch::<()>::Json(patch);
            match server.call(api(server).patch(name, &PatchParams::default(), &patch)).await {
                Ok(_) => {}
                // The API server says 422 when the test of a JSON patch fails.
                Err(CallError::Answered { code: 404 | 409 | 422, .. }) => continue,
                Err(cause) => return Err(failed(cause)),
            }
        }
        let wish = manifest(&wish).map_err(|cause| AdmissionError::Render { name, cause })?;
        match server.call(api(server).patch(name, &params, &Patch::Apply(&wish))).await {
            Ok(after) => return Ok(line(family, before.as_ref(), &after)),
            Err(CallError::Answered { code: 409, .. }) => continue,
            Err(cause) => return Err(failed(cause)),
        }
    }
    Err(AdmissionError::Busy { name })
}

fn webhook(live: &ValidatingWebhookConfiguration, family: Family) -> Option<(usize, &ValidatingWebhook)> {
    live.webhooks.iter().flatten().enumerate().find(|(_, webhook)| webhook.name == webhook_name(family))
}

/// Flags win; without them whoever is asked already is asked on. A bundle that we applied stays for as long as the server
/// that it vouches for is the same; one of another is not ours to say.
fn client(before: Option<&ValidatingWebhookConfiguration>, family: Family, given: &Given) -> WebhookClientConfig {
    let live = before.and_then(|before| webhook(before, family)).map(|(_, webhook)| &webhook.client_config);
    let mut client = match (&given.target, live) {
        (None, Some(live)) => WebhookClientConfig { ca_bundle: None, ..live.clone() },
        _ => target::at(&given.or_default(), family),
    };
    let kept: Option<ByteString> = live
        .filter(|live| target::same(live, &client) && before.is_some_and(|before| bundle_is_ours(before, family)))
        .and_then(|live| live.ca_bundle.clone());
    client.ca_bundle = given.bundle.clone().or(kept);
    client
}

fn bundle_is_ours(live: &ValidatingWebhookConfiguration, family: Family) -> bool {
    let key = format!("k:{}", json!({ "name": webhook_name(family) }));
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
fn retargeted(
    before: &ValidatingWebhookConfiguration,
    wish: &ValidatingWebhookConfiguration,
    family: Family,
) -> Option<serde_json::Value> {
    let (place, live) = webhook(before, family)?;
    let (_, wanted) = webhook(wish, family)?;
    (!target::same(&live.client_config, &wanted.client_config)).then(|| {
        json!([
            { "op": "test", "path": "/metadata/resourceVersion", "value": before.resource_version() },
            { "op": "replace", "path": format!("/webhooks/{place}/clientConfig"), "value": wanted.client_config },
        ])
    })
}

fn line(
    family: Family,
    before: Option<&ValidatingWebhookConfiguration>,
    after: &ValidatingWebhookConfiguration,
) -> String {
    let done = match before {
        None => "created",
        Some(before) if before.meta().generation == after.meta().generation => "unchanged",
        Some(_) => "changed",
    };
    let asked =
        webhook(after, family).map_or_else(String::new, |(_, webhook)| target::describe(&webhook.client_config));
    format!("{}: {done}, asks {asked}", name(family))
}

/// Removes the configurations of `families` (all if there is none).
pub async fn remove(server: &Server, families: &[Family], say: &mut dyn FnMut(&str)) -> Result<(), AdmissionError> {
    for family in wanted(families) {
        let name = name(*family);
        let failed = |cause| AdmissionError::Call { doing: "remove", name, cause };
        let found = server.call(api(server).get_opt(name)).await.map_err(failed)?;
        let Some(found) = found else {
            say(&format!("{name}: not there"));
            continue;
        };
        let preconditions = Preconditions { uid: found.uid(), ..Preconditions::default() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match server.call(api(server).delete(name, &params)).await {
            Ok(_) | Err(CallError::Answered { code: 404, .. }) => say(&format!("{name}: removed")),
            Err(cause) => return Err(failed(cause)),
        }
    }
    Ok(())
}
