//! Merges the spec's providers over those of the base, the spec's first.

use std::collections::BTreeMap;

use serde_json::Value;
use steersman_reconcile::path;

use super::apis::{self, INFERENCE};
use super::draft::{self, Draft, id_of, text};
use super::problem::reason;
use super::providers::ProviderEntry;
use super::{FieldError, embeddings};

/// The annotation that selects the way of merging.
pub const ANNOTATION: &str = "steersman.dev/provider-merge";

/// The way to merge providers of the spec with those of the base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merge {
    /// By provider id: other entries of the base stay.
    #[default]
    Overlay,
    /// By API: no entry of the base stays if the spec has providers of the API.
    Replace,
}

impl Merge {
    pub fn of(annotations: Option<&BTreeMap<String, String>>) -> Result<Self, FieldError> {
        Self::parse(annotations.and_then(|annotations| annotations.get(ANNOTATION)).map(String::as_str))
    }

    /// Parses the value of the annotation. Without the annotation: overlay.
    pub fn parse(value: Option<&str>) -> Result<Self, FieldError> {
        match value {
            None | Some("overlay") => Ok(Self::Overlay),
            Some("replace") => Ok(Self::Replace),
            Some(other) => Err(FieldError::new(
                path!(metadata.annotations).key(ANNOTATION),
                reason::INVALID,
                format!("unknown merge mode {other:?}"),
                "Set it to overlay (by provider id) or replace (by API), or remove it for overlay.",
            )),
        }
    }
}

/// An entry of the spec replaces the base entry with the same effective id, or with `replace` all base entries of the
/// API.
pub(super) fn providers(draft: &mut Draft<'_>, entries: &[ProviderEntry], merge: Merge) {
    let replaced: Vec<FieldError> = entries.iter().filter_map(|entry| replaces_embeddings(draft, entry)).collect();
    draft.errors.extend(replaced);
    let mut providers = draft::take(&mut draft.config, "providers");
    for (api, _) in draft.spec.providers.iter().flat_map(apis::of) {
        let ours: Vec<&ProviderEntry> = entries.iter().filter(|entry| entry.api == api).collect();
        if ours.is_empty() {
            continue;
        }
        let stays = |entry: &Value| match merge {
            Merge::Replace => false,
            Merge::Overlay => !id_of(entry).is_some_and(|known| ours.iter().any(|entry| entry.id == known.id)),
        };
        let base = draft::take_list(&mut providers, api.key);
        let merged: Vec<Value> =
            ours.iter().map(|entry| entry.value.clone()).chain(base.into_iter().filter(stays)).collect();
        providers.insert(api.key.to_owned(), Value::Array(merged));
    }
    draft.config.insert("providers".to_owned(), Value::Object(providers));
    for entry in entries {
        draft.serve(entry.api.key);
    }
}

/// Refuses a provider of another type under the id of a provider that serves models of the base, such as the embedding
/// model of vector stores: the server looks for them when it starts.
fn replaces_embeddings(draft: &Draft<'_>, entry: &ProviderEntry) -> Option<FieldError> {
    let base = draft.base.filter(|_| entry.api == INFERENCE)?;
    let same_id = |known: &&Value| id_of(known).is_some_and(|known| known.id == entry.id);
    let replaced = draft.entries(INFERENCE.key).iter().find(same_id)?;
    let (old, new) = (text(replaced, "provider_type")?, text(&entry.value, "provider_type")?);
    let model = embeddings::model_of(&base.config, &entry.id)?;
    (old != new).then(|| {
        FieldError::new(
            entry.path.field("id"),
            reason::INVALID,
            format!(
                "provider ID {:?} is that of the distribution's {old}, which serves {model}; the server does not start \
                 without it",
                entry.id
            ),
            "Give the provider another id.",
        )
    })
}
