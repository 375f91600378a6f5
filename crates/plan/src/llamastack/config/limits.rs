//! Limits of what one spec may have. They are checked first, because the cost of all other checks, of the comparison with
//! live objects and of messages grows with it.

use serde_json::Value;
use steersman_api::llamastack::v1alpha2::{LlamaStackDistributionSpec, Provider};
use steersman_reconcile::{FieldPath, message, path};

use super::problem::reason;
use super::{FieldError, apis};
use crate::llamastack::fields;

/// Entries of each of `models`, `tools` and `shields`.
pub const MAX_RESOURCES: usize = 2_000;
/// Providers of all APIs, external ones included.
pub const MAX_PROVIDERS: usize = 200;
/// References to keys of Secrets in all providers.
pub const MAX_SECRET_REFERENCES: usize = 500;
/// Entries of `disabled`.
pub const MAX_DISABLED: usize = 100;
/// Entries of each of `env`, `volumes` and `volumeMounts`.
pub const MAX_POD_ENTRIES: usize = 1_000;
/// Entries of `topologySpreadConstraints`.
pub const MAX_SPREAD_CONSTRAINTS: usize = 100;
/// Entries of each list in `allowedFrom`. Each becomes a peer of the NetworkPolicy.
pub const MAX_ALLOWED_FROM: usize = 1_000;
/// Bytes of an id, an image, or the name or key of a Secret, which messages repeat.
pub const MAX_NAME_BYTES: usize = 1_024;

/// At most one error for each list.
pub(super) fn errors(spec: &LlamaStackDistributionSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut count = |path: FieldPath, entries: usize, most: usize, remedy: &str| {
        if entries > most {
            let message = format!("it has {entries} entries, but at most {most} are allowed");
            errors.push(FieldError::new(path, reason::INVALID, message, remedy.to_owned()));
        }
    };
    if let Some(resources) = &spec.resources {
        let at_runtime = "Register the others through the server's API.";
        let models = resources.models.as_ref().map_or(0, Vec::len);
        count(path!(spec.resources.models), models, MAX_RESOURCES, at_runtime);
        let tools = resources.tools.as_ref().map_or(0, Vec::len);
        count(path!(spec.resources.tools), tools, MAX_RESOURCES, at_runtime);
        let shields = resources.shields.as_ref().map_or(0, Vec::len);
        count(path!(spec.resources.shields), shields, MAX_RESOURCES, at_runtime);
    }
    let disabled = spec.disabled.as_ref().map_or(0, Vec::len);
    count(path!(spec.disabled), disabled, MAX_DISABLED, "List each API once.");
    let overrides = fields::overrides(spec);
    let (volumes, mounts) =
        overrides.map_or((None, None), |given| (given.volumes.as_ref(), given.volume_mounts.as_ref()));
    let pod_parts = [
        (path!(spec.workload.overrides.env), fields::env(spec).len()),
        (path!(spec.workload.overrides.volumes), volumes.map_or(0, Vec::len)),
        (path!(spec.workload.overrides.volumeMounts), mounts.map_or(0, Vec::len)),
    ];
    for (path, entries) in pod_parts {
        count(path, entries, MAX_POD_ENTRIES, "Remove entries.");
    }
    if let Some((path, constraints)) = fields::spread_constraints(spec) {
        count(path, constraints.len(), MAX_SPREAD_CONSTRAINTS, "Remove entries.");
    }
    if let Some(allowed) = fields::allowed_from(spec) {
        let namespaces = allowed.namespaces.as_ref().map_or(0, Vec::len);
        let remedy = "Give the namespaces a label, and list its key in labels.";
        count(path!(spec.networking.allowedFrom.namespaces), namespaces, MAX_ALLOWED_FROM, remedy);
        let labels = allowed.labels.as_ref().map_or(0, Vec::len);
        count(path!(spec.networking.allowedFrom.labels), labels, MAX_ALLOWED_FROM, "Remove entries.");
    }
    let inline: Vec<_> =
        spec.providers.iter().flat_map(apis::of).filter_map(|(api, form)| Some((api, form?))).collect();
    let external: Vec<_> = spec.external_providers.iter().flat_map(apis::of_external).collect();
    let providers = inline.iter().map(|(_, form)| form.all().len()).sum::<usize>()
        + external.iter().map(|(_, list)| list.len()).sum::<usize>();
    count(path!(spec.providers), providers, MAX_PROVIDERS, "Remove providers; those in externalProviders count.");
    let secrets = inline.iter().flat_map(|(_, form)| form.all()).map(secret_references).sum();
    let remedy = "Use fewer keys of Secrets, or provide the whole configuration with overrideConfig.";
    count(path!(spec.providers), secrets, MAX_SECRET_REFERENCES, remedy);
    for (api, form) in inline {
        let long = form.all().iter().position(has_long_name);
        errors.extend(long.map(|place| long_name(path!(spec.providers).field(api.field).index(place))));
    }
    for (api, list) in external {
        let long = list.iter().position(|one| one.provider_id.len().max(one.image.len()) > MAX_NAME_BYTES);
        errors.extend(long.map(|place| long_name(path!(spec.externalProviders).field(api.field).index(place))));
    }
    errors
}

/// Settings may have references of their own at the top level.
fn secret_references(provider: &Provider) -> usize {
    let in_settings = provider.settings.as_ref().and_then(Value::as_object).into_iter().flatten();
    usize::from(provider.api_key.is_some())
        + provider.secret_refs.as_ref().map_or(0, |references| references.len())
        + in_settings.filter(|(_, value)| value.get("secretKeyRef").is_some()).count()
}

fn has_long_name(provider: &Provider) -> bool {
    let is_long = |text: &str| text.len() > MAX_NAME_BYTES;
    let references = provider.api_key.iter().chain(provider.secret_refs.iter().flat_map(|all| all.values()));
    let settings = || provider.settings.as_ref().and_then(Value::as_object).into_iter().flatten();
    is_long(&provider.provider)
        || provider.id.as_deref().is_some_and(is_long)
        || references.map(|reference| reference.key()).any(|key| is_long(&key.name) || is_long(&key.key))
        || provider.secret_refs.iter().flat_map(|all| all.keys()).any(|field| is_long(field))
        || settings().any(|(field, _)| is_long(field))
        || settings()
            .filter_map(|(_, value)| value.get("secretKeyRef")?.as_object())
            .any(|reference| reference.values().filter_map(Value::as_str).any(is_long))
}

fn long_name(path: FieldPath) -> FieldError {
    let message = format!(
        "an id, an image, the name of a setting or a reference to a Secret has more than {MAX_NAME_BYTES} bytes"
    );
    let remedy = message!["Shorten the names in ", path.clone(), "."];
    FieldError::new(path, reason::INVALID, message, remedy)
}
