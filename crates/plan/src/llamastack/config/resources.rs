//! Registers the models, tools and shields of the spec, each with a provider.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use steersman_reconcile::{FieldPath, message, path};

use super::apis::{Api, INFERENCE, SAFETY, TOOL_RUNTIME};
use super::draft::{Draft, text};
use super::ids::EffectiveId;
use super::layout::Layout;
use super::problem::{list, reason};
use super::providers::{self, ProviderEntry};
use super::{FieldError, embeddings, ids};

const MODEL_TYPES: [&str; 3] = ["llm", "embedding", "rerank"];

pub(super) fn add(draft: &mut Draft<'_>, entries: &[ProviderEntry]) {
    let Some(resources) = &draft.spec.resources else { return };
    if resources.models.as_ref().is_some_and(|models| !models.is_empty()) {
        models(draft, entries);
    }
    let tools = resources.tools.as_deref().unwrap_or_default();
    if !tools.is_empty() {
        named(draft, entries, tools, TOOL_RUNTIME, "tools", "tool_groups", "toolgroup_id");
        if draft.server.since(0, 7) {
            draft.ignore(
                path!(spec.resources.tools),
                "servers since 0.7 register the tool groups of their providers themselves and ignore this list",
                "No action is needed; providers.toolRuntime determines the tools.",
            );
        }
    }
    let shields = resources.shields.as_deref().unwrap_or_default();
    if !shields.is_empty() {
        named(draft, entries, shields, SAFETY, "shields", "shields", "shield_id");
    }
}

fn models(draft: &mut Draft<'_>, entries: &[ProviderEntry]) {
    let models = draft.spec.resources.as_ref().and_then(|resources| resources.models.as_deref()).unwrap_or_default();
    let first = default_provider(draft, INFERENCE, entries);
    let known = inference_ids(draft);
    let mut reported = false;
    let mut made = UniqueEntries::new("model_id");
    for (place, form) in models.iter().enumerate() {
        let path = path!(spec.resources.models).index(place);
        let model = form.model();
        let model_type = model.model_type.as_deref().filter(|type_| !type_.is_empty()).unwrap_or(MODEL_TYPES[0]);
        let embeds = model_type == "embedding";
        for field in model.unknown.keys().filter(|field| !(embeds && *field == embeddings::FIELD)) {
            let known =
                "name, provider, contextLength, modelType and quantization, and embeddingDimension of an embedding";
            draft.remarks.push(providers::unknown(&path, field, known));
        }
        let given =
            [("provider", &model.provider), ("modelType", &model.model_type), ("quantization", &model.quantization)];
        for (field, _) in given.iter().filter(|(_, value)| value.as_deref() == Some("")) {
            let message = format!("{field} must not be empty if specified");
            draft.refuse(path.field(*field), message, "Give it a value or remove it.");
        }
        if model.name.is_empty() {
            let remedy = "Set it to the name that the provider uses for the model.";
            draft.refuse(path.field("name"), "name must not be empty", remedy);
        }
        if !MODEL_TYPES.contains(&model_type) {
            draft.refuse(
                path.field("modelType"),
                format!("the server does not know modelType {model_type:?}"),
                format!("Use one of {}.", MODEL_TYPES.join(", ")),
            );
        }
        let provider = match model.provider.as_deref().filter(|id| !id.is_empty()) {
            Some(id) => {
                exists(draft, &known, id, &path);
                Some(id.to_owned())
            }
            None => {
                if let Some(EffectiveId { required_variable: Some(variable), id }) = &first
                    && !reported
                {
                    reported = true;
                    conditional(draft, &path, id, variable);
                }
                first.as_ref().map(|first| first.id.clone())
            }
        };
        let Some(provider) = provider else {
            if draft.base.is_some() {
                draft.errors.push(FieldError::new(
                    path,
                    reason::NO_PROVIDER,
                    format!(
                        "failed to expand model {:?}: no provider specified and no default inference provider found",
                        model.name
                    ),
                    message!["Add one to ", path!(spec.providers.inference), "."],
                ));
            }
            continue;
        };
        let mut metadata = Map::new();
        metadata.extend(model.context_length.map(|length| ("context_length".to_owned(), Value::from(length))));
        let quantization = model.quantization.as_deref().filter(|text| !text.is_empty());
        metadata.extend(quantization.map(|text| ("quantization".to_owned(), Value::from(text))));
        if embeds {
            match embeddings::dimension(&model, &path) {
                Ok(length) => _ = metadata.insert("embedding_dimension".to_owned(), length.into()),
                Err(problem) => draft.errors.push(problem),
            }
        }
        let entry = json!({
            "model_id": model.name, "provider_id": provider, "model_type": model_type, "metadata": metadata,
        });
        made.add(draft, entry, &path);
    }
    put(draft, "models", made);
}

/// Registers tools or shields, which have a name only and share one provider.
fn named(
    draft: &mut Draft<'_>,
    entries: &[ProviderEntry],
    names: &[String],
    api: Api,
    field: &'static str,
    section: &str,
    id_key: &'static str,
) {
    let path = path!(spec.resources).field(field);
    let Some(provider) = default_provider(draft, api, entries) else {
        if draft.base.is_some() {
            draft.errors.push(FieldError::new(
                path.clone(),
                reason::NO_PROVIDER,
                format!("resources.{field} requires at least one {} provider to be configured", api.field),
                message!["Add one to ", path!(spec.providers).field(api.field), ", or remove ", path, "."],
            ));
        }
        return;
    };
    if let Some(variable) = &provider.required_variable {
        conditional(draft, &path, &provider.id, variable);
    }
    let mut made = UniqueEntries::new(id_key);
    for (place, name) in names.iter().enumerate() {
        let mut entry = Map::new();
        entry.insert(id_key.to_owned(), Value::from(name.as_str()));
        entry.insert("provider_id".to_owned(), Value::from(provider.id.as_str()));
        made.add(draft, Value::Object(entry), &path.index(place));
    }
    put(draft, section, made);
}

/// The first provider of the spec, else the first external one, else the first of the base that is always there.
fn default_provider(draft: &Draft<'_>, api: Api, entries: &[ProviderEntry]) -> Option<EffectiveId> {
    let always = |id: &str| EffectiveId { id: id.to_owned(), required_variable: None };
    if let Some(own) = entries.iter().find(|entry| entry.api == api) {
        return Some(always(&own.id));
    }
    if let Some(id) = draft.external_ids(api.key).first() {
        return Some(always(id));
    }
    let known = draft.ids(api.key);
    known.iter().find(|known| known.required_variable.is_none()).or(known.first()).cloned()
}

fn conditional(draft: &mut Draft<'_>, path: &FieldPath, id: &str, variable: &str) {
    draft.remark(
        path.clone(),
        reason::NEEDED,
        format!(
            "its provider {id:?} exists only if the environment variable {variable} is set; otherwise the server \
                 skips it"
        ),
        message![format!("Set {variable} in "), path!(spec.workload.overrides.env), ", or add a provider of your own."],
    );
}

/// Ids of the base and of external providers count.
fn inference_ids(draft: &Draft<'_>) -> BTreeSet<String> {
    let external = draft.external_ids(INFERENCE.key).into_iter().map(ToOwned::to_owned);
    draft.ids(INFERENCE.key).into_iter().map(|known| known.id).chain(external).collect()
}

/// The server does not start with an unknown id.
fn exists(draft: &mut Draft<'_>, known: &BTreeSet<String>, id: &str, path: &FieldPath) {
    if draft.base.is_none() || known.contains(id) {
        return;
    }
    let available = list(known.iter().map(String::as_str));
    let message = format!("provider ID {id:?} not found; available providers: {available}");
    let section = path!(spec.providers.inference);
    let remedy = message!["Use one of them, add it to ", section, ", or remove provider to use the first one."];
    draft.refuse(path.field("provider"), message, remedy);
}

/// Entries of one section, each with an id and a provider.
struct UniqueEntries {
    id_key: &'static str,
    entries: Vec<Value>,
    /// Index by id and provider.
    places: BTreeMap<(Option<String>, Option<String>), usize>,
}

impl UniqueEntries {
    fn new(id_key: &'static str) -> Self {
        Self { id_key, entries: Vec::new(), places: BTreeMap::new() }
    }

    /// An entry listed twice is registered once, with its last values.
    fn add(&mut self, draft: &mut Draft<'_>, entry: Value, path: &FieldPath) {
        let word = |key| text(&entry, key).map(ToOwned::to_owned);
        match self.places.entry((word(self.id_key), word("provider_id"))) {
            Entry::Occupied(place) => {
                self.entries[*place.get()] = entry;
                let message = "it is listed more than once for the same provider; this entry is used";
                draft.ignore(path.clone(), message, "Keep one entry.");
            }
            Entry::Vacant(place) => {
                place.insert(self.entries.len());
                self.entries.push(entry);
            }
        }
    }
}

/// Appends the entries to those of the base. They replace base entries with the same id and provider.
fn put(draft: &mut Draft<'_>, section: &str, made: UniqueEntries) {
    let UniqueEntries { id_key, entries, .. } = made;
    draft.resources += entries.len() as i64;
    let key = |resource: &Value| {
        let known = |key| text(resource, key).map(|written| ids::effective(written).id);
        (known(id_key), known("provider_id"))
    };
    let own: BTreeSet<(Option<String>, Option<String>)> = entries.iter().map(key).collect();
    let own_ids: BTreeSet<&Option<String>> = own.iter().map(|(id, _)| id).collect();
    Layout::of(draft).change(&mut draft.config, section, |list| {
        // A base entry without a provider is served by any provider.
        list.retain(|base| {
            let key = key(base);
            !(own.contains(&key) || (key.1.is_none() && own_ids.contains(&key.0)))
        });
        list.extend(entries);
    });
}
