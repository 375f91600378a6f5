//! Removes references to providers that are no longer in the file, and reports each of them: a dangling reference stops
//! the server.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use steersman_reconcile::{FieldPath, message, path};

use super::apis::{self, SAFETY};
use super::base::{self, AGENTS, RESPONSES};
use super::draft::{self, Draft, id_of, text};
use super::layout::Layout;
use super::problem::reason;
use super::providers::ProviderEntry;
use super::{FieldError, ids};

/// Lists of resources, the key of their ids, and the API of their providers.
const RESOURCES: [(&str, &str, &str); 8] = [
    ("models", "model_id", "inference"),
    ("shields", "shield_id", "safety"),
    ("tool_groups", "toolgroup_id", "tool_runtime"),
    ("vector_stores", "vector_store_id", "vector_io"),
    ("vector_dbs", "vector_db_id", "vector_io"),
    ("datasets", "dataset_id", "datasetio"),
    ("scoring_fns", "scoring_fn_id", "scoring"),
    ("benchmarks", "benchmark_id", "eval"),
];

/// Removes providers of the base that need an API for which no provider is left. If a provider of the spec needs such
/// an API, this is an error.
pub(super) fn dependants(draft: &mut Draft<'_>, entries: &[ProviderEntry]) {
    // Which API a provider needs is known only for these versions of the server.
    if draft.base.is_none() || !draft.server.since(0, 4) || !draft.server.before(0, 8) {
        return;
    }
    // Each round removes at least one provider, so the loop ends.
    while round(draft, entries) {}
}

/// Removes providers once. Returns true if it removed one: others may have needed that one, so another round is due.
fn round(draft: &mut Draft<'_>, entries: &[ProviderEntry]) -> bool {
    let served = served(draft);
    let (mut emptied, mut gone, mut refused) = (BTreeSet::new(), Vec::new(), Vec::new());
    let mut providers = draft::take(&mut draft.config, "providers");
    for (api, list) in &mut providers {
        let Value::Array(list) = list else { continue };
        let before = list.len();
        list.retain(|entry| match missing(draft, api, entry, &served) {
            Some(missing) if own(entries, api, entry) => {
                refused.push(contradiction(draft, api, entry, missing));
                true
            }
            Some(missing) => {
                gone.push((api.clone(), missing, id_of(entry).map(|known| known.id).unwrap_or_default()));
                false
            }
            None => true,
        });
        if before > 0 && list.is_empty() {
            emptied.insert(api.clone());
        }
    }
    providers.retain(|api, _| !emptied.contains(api));
    draft.config.insert("providers".to_owned(), Value::Object(providers));
    if let Some(Value::Array(names)) = draft.config.get_mut("apis") {
        names.retain(|name| !name.as_str().is_some_and(|name| emptied.contains(name)));
    }
    let again = !gone.is_empty();
    left_out(draft, gone);
    // Only the last round has the complete list.
    if !again {
        draft.errors.extend(refused);
    }
    again
}

/// The APIs with providers, including external ones.
fn served(draft: &Draft<'_>) -> BTreeSet<String> {
    let inline = draft.config.get("providers").and_then(Value::as_object).into_iter().flatten();
    let inline = inline.filter(|(_, list)| !draft::list(Some(list)).is_empty()).map(|(api, _)| api.clone());
    let external = draft.spec.external_providers.iter().flat_map(apis::of_external);
    let external = external.filter(|(_, list)| !list.is_empty()).map(|(api, _)| api.key.to_owned());
    inline.chain(external).collect()
}

/// The first API that an entry needs and that has no provider, by its name in this server.
fn missing(draft: &Draft<'_>, api: &str, entry: &Value, served: &BTreeSet<String>) -> Option<&'static str> {
    let type_ = text(entry, "provider_type").unwrap_or_default();
    let missing = base::missing(api, type_, |needed| served.contains(needed)).into_iter().next()?;
    Some(if missing == RESPONSES && draft.server.before(0, 7) { AGENTS } else { missing })
}

fn own(entries: &[ProviderEntry], api: &str, entry: &Value) -> bool {
    let id = text(entry, "provider_id");
    entries.iter().any(|own| own.api.key == api && Some(own.id.as_str()) == id)
}

fn contradiction(draft: &Draft<'_>, api: &str, entry: &Value, missing: &str) -> FieldError {
    let id = text(entry, "provider_id").unwrap_or_default();
    let field = apis::field(missing);
    let disabled = draft.spec.disabled.iter().flatten().any(|name| apis::key(name) == missing);
    let keep = if disabled {
        message![format!("Remove '{field}' from "), path!(spec.disabled)]
    } else {
        format!("Use a distribution that serves {field}").into()
    };
    FieldError::new(
        path!(spec.providers).field(apis::field(api).to_owned()),
        reason::INVALID,
        format!("provider {id:?} needs the API {missing}, which this configuration does not serve"),
        message![keep, ", or remove the provider."],
    )
}

/// Reports the removed providers of an API, one remark for each missing API.
fn left_out(draft: &mut Draft<'_>, gone: Vec<(String, &'static str, String)>) {
    let mut groups: BTreeMap<(String, &'static str), Vec<String>> = BTreeMap::new();
    for (api, missing, id) in gone {
        groups.entry((api, missing)).or_default().push(id);
    }
    for ((api, missing), ids) in groups {
        let (what, verb, needs) =
            if ids.len() > 1 { ("providers", "are", "they need") } else { ("provider", "is", "it needs") };
        let ids = ids.join(", ");
        let cause = cause(draft, missing);
        draft.remark(
            cause,
            reason::PRUNED,
            format!("{what} {ids} of the API {api} {verb} removed: {needs} the API {missing}, which has no provider"),
            format!("To keep {ids}, keep the API {}. Otherwise no action is needed.", apis::field(missing)),
        );
    }
}

/// The part of the spec that removed the providers of an API.
fn cause(draft: &Draft<'_>, api: &str) -> FieldPath {
    let disabled = draft.spec.disabled.iter().flatten().any(|name| apis::key(name) == api);
    let mut given = draft.spec.providers.iter().flat_map(apis::of).filter(|(_, form)| form.is_some());
    match given.find(|(known, _)| known.key == api && !disabled) {
        Some((known, _)) => path!(spec.providers).field(known.field),
        None if draft.spec.disabled.is_some() => path!(spec.disabled),
        None => path!(spec.distribution),
    }
}

/// Removes resources and defaults of the base whose provider is gone.
pub(super) fn references(draft: &mut Draft<'_>) {
    let layout = Layout::of(draft);
    for (name, id_key, api) in RESOURCES {
        let known = known(draft, api);
        let mut gone = Vec::new();
        layout.change(&mut draft.config, name, |list| {
            list.retain(|resource| {
                let stays = match text(resource, "provider_id") {
                    Some(provider) => known.contains(&ids::effective(provider).id),
                    None => !known.is_empty(),
                };
                if !stays {
                    gone.push((text(resource, id_key).unwrap_or("?").to_owned(), provider_of(resource)));
                }
                stays
            });
        });
        for (id, provider) in gone {
            let what = name.trim_end_matches('s').replace('_', " ");
            pruned(draft, api, &format!("{what} {id:?} of the distribution"), &provider);
        }
    }
    vector_stores(draft);
}

fn provider_of(resource: &Value) -> String {
    text(resource, "provider_id").map(|written| ids::effective(written).id).unwrap_or_default()
}

fn known(draft: &Draft<'_>, api: &str) -> BTreeSet<String> {
    let inline = draft.ids(api).into_iter().map(|known| known.id);
    inline.chain(draft.external_ids(api).into_iter().map(ToOwned::to_owned)).collect()
}

fn pruned(draft: &mut Draft<'_>, api: &str, what: &str, provider: &str) {
    let why = if provider.is_empty() {
        format!("the API {api} has no provider")
    } else {
        format!("its provider {provider:?} is no longer in the configuration")
    };
    let cause = cause(draft, api);
    draft.remark(
        cause,
        reason::PRUNED,
        format!("{what} is removed: {why}"),
        "To keep it, keep its provider. Otherwise no action is needed.",
    );
}

/// Removes dangling defaults for vector stores: the provider, and models in any of its sections.
fn vector_stores(draft: &mut Draft<'_>) {
    if !draft.config.get("vector_stores").is_some_and(Value::is_object) {
        return;
    }
    let mut section = draft::take(&mut draft.config, "vector_stores");
    let stores = known(draft, "vector_io");
    let default = section.get("default_provider_id").and_then(Value::as_str).map(|written| ids::effective(written).id);
    if let Some(id) = default.filter(|id| !stores.contains(id)) {
        section.remove("default_provider_id");
        pruned(draft, "vector_io", "vector_stores.default_provider_id", &id);
    }
    let models = known(draft, "inference");
    let mut gone = Vec::new();
    dangling(&mut section, &models, "vector_stores", &mut gone);
    for (what, provider) in gone {
        pruned(draft, "inference", &what, &provider);
    }
    if !section.is_empty() {
        draft.config.insert("vector_stores".to_owned(), Value::Object(section));
    }
}

fn dangling(section: &mut Map<String, Value>, models: &BTreeSet<String>, at: &str, gone: &mut Vec<(String, String)>) {
    section.retain(|key, value| {
        let at = format!("{at}.{key}");
        let names_model = value.get("model_id").is_some();
        let provider = provider_of(value);
        if names_model && !provider.is_empty() && !models.contains(&provider) {
            gone.push((at, provider));
            return false;
        }
        if let Value::Object(inner) = value {
            dangling(inner, models, &at, gone);
        }
        true
    });
}

/// A server with shields does not start without the default one. Runs after the spec's shields were added.
pub(super) fn default_shield(draft: &mut Draft<'_>) {
    let mut section = draft::take(&mut draft.config, "safety");
    let Some(default) = section.get("default_shield_id").and_then(Value::as_str).map(ToOwned::to_owned) else {
        put_back(draft, section);
        return;
    };
    let mut shields = Vec::new();
    Layout::of(draft).change(&mut draft.config, "shields", |list| {
        let shield = |shield: &Value| {
            let id = text(shield, "shield_id").map(|id| ids::effective(id).id)?;
            Some((id, text(shield, "provider_id").is_some_and(|id| ids::effective(id).required_variable.is_some())))
        };
        shields.extend(list.iter().filter_map(shield));
    });
    let added = draft.spec.resources.iter().any(|resources| resources.shields.iter().flatten().next().is_some());
    let stays = |(id, conditional): &(String, bool)| *id == default && !(added && *conditional);
    let no_safety = known(draft, SAFETY.key).is_empty();
    // A server without shields does not look for the default one, so that a base may name one that it does not have.
    let was_there = || {
        let shields = draft.base.and_then(|base| base.config.pointer("/registered_resources/shields"));
        draft::list(shields).iter().any(|shield| text(shield, "shield_id") == Some(&default))
    };
    if no_safety || (!shields.iter().any(stays) && (!shields.is_empty() || was_there())) {
        section.remove("default_shield_id");
        let (path, why, remedy) = if added && !no_safety {
            let shields = path!(spec.resources.shields);
            let remedy = message![format!("Add {default:?} to "), &shields, " to keep it as the default."];
            (shields, "that shield may not exist when the server starts", remedy)
        } else {
            let remedy = "No action is needed, unless you want a default shield.".into();
            (cause(draft, SAFETY.key), "no provider serves that shield", remedy)
        };
        let message = format!("safety.default_shield_id {default:?} is removed: {why}");
        draft.remark(path, reason::PRUNED, message, remedy);
    }
    put_back(draft, section);
}

fn put_back(draft: &mut Draft<'_>, section: Map<String, Value>) {
    if !section.is_empty() {
        draft.config.insert("safety".to_owned(), Value::Object(section));
    }
}
