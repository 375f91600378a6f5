//! Runs `steersman crds --apply`.
//!
//! Fields of other managers are kept, above all the `clientConfig.caBundle` that the running operator has set.

use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::WebhookClientConfig;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::crds::{self, Options};
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::rbac::Rule;
use tokio::time;

use crate::crds::live::{self, LiveCrd};
use crate::crds::objects::resource;
use crate::crds::target::{self, TargetFlags};
use crate::crds::{CrdsError, MANAGER, wanted};

const NEEDED_PERMISSIONS: &str = "get, create and patch customresourcedefinitions of apiextensions.k8s.io";

/// Attempts that may end in a conflict with another writer.
const MAX_ATTEMPTS: usize = 5;

/// Poll interval, short because the API server establishes a CRD quickly.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The access that the command needs for a family, for the chart's hook.
pub fn rules(family: Family) -> Vec<Rule> {
    let crd = |names, verbs, why| Rule {
        group: "apiextensions.k8s.io",
        resource: "customresourcedefinitions",
        names,
        verbs,
        namespaced: false,
        why,
    };
    let mut rules = vec![
        // RBAC cannot limit `create` to a name: authorization does not see the name of a new object.
        crd(vec![], &["create"], "install the CRDs"),
        crd(vec![family.crd_name()], &["get", "patch"], "update the CRDs"),
    ];
    if family == Family::Va {
        let why = "report objects of the first VariantAutoscaling operator";
        rules.push(Rule::namespaced(family.group(), family.plural(), &["list"], why));
    }
    rules
}

/// Applies the CRDs of `families` (an empty list means all), then waits at most `wait` until they are established. `say` gets
/// the line about each as soon as it is applied.
pub async fn apply(
    server: &Server,
    families: &[Family],
    flags: &TargetFlags,
    wait: Duration,
    say: &mut dyn FnMut(&str),
) -> Result<(), CrdsError> {
    for family in wanted(families) {
        say(&apply_one(server, *family, flags).await?);
    }
    let deadline = Instant::now() + wait;
    for family in wanted(families) {
        if !wait.is_zero() {
            established(server, *family, deadline, wait).await?;
        }
    }
    Ok(())
}

async fn apply_one(server: &Server, family: Family, flags: &TargetFlags) -> Result<String, CrdsError> {
    let (crd, params) = (family.crd_name(), PatchParams::apply(MANAGER));
    for _ in 0..MAX_ATTEMPTS {
        let before = read(server, family).await?;
        if let Some(before) = &before {
            refuse_unknown(family, before)?;
        }
        let options = Options { conversion: Some(conversion(before.as_ref(), flags)) };
        let manifest = crds::manifest(&crds::crd(family, &options)?)?;
        if let Some(patch) = before.as_ref().and_then(|before| retargeted(before, &manifest)) {
            match server.call(live::api(server).patch(crd, &params, &Patch::Merge(patch))).await {
                Ok(_) => {}
                Err(CallError::Answered { code: 409, .. }) => continue,
                Err(cause) => return Err(failed(family, cause)),
            }
        }
        match server.call(live::api(server).patch(crd, &params.clone().force(), &Patch::Apply(&manifest))).await {
            Ok(object) => return Ok(line(server, family, before.as_ref(), &LiveCrd { object }).await),
            Err(CallError::Answered { code: 409, .. }) => continue,
            Err(cause) => return Err(failed(family, cause)),
        }
    }
    Err(CrdsError::Busy { crd })
}

fn failed(family: Family, cause: CallError) -> CrdsError {
    CrdsError::Call { doing: format!("apply {}", family.crd_name()), permissions: NEEDED_PERMISSIONS, cause }
}

async fn read(server: &Server, family: Family) -> Result<Option<LiveCrd>, CrdsError> {
    live::read(server, family).await.map_err(|cause| failed(family, cause))
}

/// Refuses a CRD with objects of an unknown version. The API server would refuse it as well, without a remedy.
fn refuse_unknown(family: Family, before: &LiveCrd) -> Result<(), CrdsError> {
    let known = family.served_versions();
    let unknown: Vec<_> = before.stored().into_iter().filter(|version| !known.contains(version)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(CrdsError::UnknownStored { crd: family.crd_name(), unknown: unknown.join(" and "), known: known.join(", ") })
}

/// The `clientConfig` to apply: that of the flags, else that of the last `--apply`, else the default. A bundle that an
/// earlier `--apply` set is applied again while the server is the same.
fn conversion(before: Option<&LiveCrd>, flags: &TargetFlags) -> WebhookClientConfig {
    let live = before.and_then(LiveCrd::converter);
    let chosen = before.is_some_and(LiveCrd::is_chosen);
    let kept = live.clone().filter(|_| chosen).map(|live| WebhookClientConfig { ca_bundle: None, ..live });
    let target = flags.target.clone().or(kept).unwrap_or_else(target::default);
    // An apply without a bundle that we own would remove it; a bundle of another manager must not be applied.
    let ours = before.is_some_and(LiveCrd::is_bundle_applied);
    let bundle = live.filter(|live| ours && target::same(live, &target)).and_then(|live| live.ca_bundle);
    WebhookClientConfig { ca_bundle: flags.bundle.clone().or(bundle), ..target }
}

/// The patch that must precede the apply if the live CRD names another converter: an apply removes only fields that it owns,
/// and would leave a Service next to a URL, the bundle of another certificate, or a webhook next to the strategy None.
fn retargeted(before: &LiveCrd, manifest: &Value) -> Option<Value> {
    let live = before.converter()?;
    let wanted = manifest.pointer("/spec/conversion/webhook/clientConfig");
    let conversion = match wanted {
        None => json!({ "strategy": "None", "webhook": null }),
        Some(wanted) => {
            let client: WebhookClientConfig = serde_json::from_value(wanted.clone()).unwrap_or_default();
            if target::same(&live, &client) {
                return None;
            }
            let part = |name: &str| wanted.get(name).cloned().unwrap_or_default();
            let client = json!({ "service": part("service"), "url": part("url"), "caBundle": part("caBundle") });
            json!({ "webhook": { "clientConfig": client } })
        }
    };
    Some(json!({
        "metadata": { "resourceVersion": before.resource_version() },
        "spec": { "conversion": conversion },
    }))
}

/// The line about one applied CRD, with notes for its owner.
async fn line(server: &Server, family: Family, before: Option<&LiveCrd>, after: &LiveCrd) -> String {
    let done = match before {
        None => "created",
        Some(before) if before.generation() == after.generation() => "unchanged",
        Some(_) => "changed",
    };
    let mut text = format!("{}: {done}", family.crd_name());
    let client = after.converter();
    if let Some(client) = &client {
        text.push_str(&format!(", converted by {}", target::describe(client)));
    }
    let earlier = before.and_then(LiveCrd::converter);
    if let Some(earlier) = earlier.filter(|earlier| client.as_ref().is_some_and(|now| !target::same(earlier, now))) {
        text.push_str(&format!(", previously by {}", target::describe(&earlier)));
    }
    let mut note = |note: String| text.push_str(&format!("\n  note: {note}"));
    if !after.outdated().is_empty() {
        note(format!(
            "objects stored as {} can be read only while the operator converts them; it migrates them to {}",
            after.outdated().join(" and "),
            after.storage()
        ));
    }
    if let Some(tool) = after.managing_tool() {
        note(format!(
            "the CRD is managed by {tool}: its next update may replace this CRD with its own, and its removal may delete the \
             CRD with all objects; remove the CRD from it"
        ));
    }
    if family == Family::Va
        && let Some(text) = first_generation(server, after).await
    {
        note(text);
    }
    text
}

/// The note about objects of the first VariantAutoscaling operator, which have the same version and other fields. Errors are
/// ignored: the note is optional.
async fn first_generation(server: &Server, crd: &LiveCrd) -> Option<String> {
    const MAX_LISTED: u32 = 500;
    let api: Api<DynamicObject> = Api::all_with(server.client.clone(), &resource(Family::Va, crd.storage()));
    let list = server.call(api.list(&ListParams::default().limit(MAX_LISTED))).await.ok()?;
    let old = list.items.iter().filter(|object| object.data.pointer("/spec/modelProfile").is_some());
    let names: Vec<String> = old
        .map(|object| {
            let metadata = &object.metadata;
            let of = |part: &Option<String>| part.clone().unwrap_or_default();
            format!("{}/{}", of(&metadata.namespace), of(&metadata.name))
        })
        .collect();
    let (first, more) = (names.first()?, names.len() - 1);
    let others = if more == 0 { String::new() } else { format!(" and {more} more") };
    Some(format!(
        "first-generation objects (spec.modelProfile): {first}{others}. They can be read and deleted, but are not scaled; \
         replace each by one VariantAutoscaling per accelerator, with scaleTargetRef, accelerator, \
         acceleratorCount and variantCost"
    ))
}

async fn established(server: &Server, family: Family, deadline: Instant, limit: Duration) -> Result<(), CrdsError> {
    let crd = family.crd_name();
    loop {
        let Some(live) = read(server, family).await? else { return Err(CrdsError::Vanished { crd }) };
        if live.condition("Established").is_some_and(|(holds, _)| holds) {
            return Ok(());
        }
        if let Some((false, message)) = live.condition("NamesAccepted") {
            return Err(CrdsError::NamesTaken { crd, answer: message.to_owned() });
        }
        if Instant::now() >= deadline {
            let answer = live.condition("Established").map_or("no condition yet", |(_, message)| message).to_owned();
            return Err(CrdsError::NotEstablished { crd, answer, limit });
        }
        time::sleep(POLL_INTERVAL).await;
    }
}
