//! Passes a provider's free-form settings on, with placeholders for references to Secrets.

use serde_json::{Map, Value};
use steersman_api::llamastack::v1alpha2::{Provider, SecretKey};
use steersman_reconcile::FieldPath;

use super::draft::Draft;
use super::ids;
use super::problem::reason;
use super::providers::{kind_of, secret};

/// Copies the settings, except for references to Secrets at the top level.
pub(super) fn read(draft: &mut Draft<'_>, provider: &Provider, path: &FieldPath) -> Map<String, Value> {
    let settings = match &provider.settings {
        None | Some(Value::Null) => return Map::new(),
        Some(Value::Object(settings)) => settings,
        Some(other) => {
            let (id, kind) = (ids::of(provider), kind_of(other));
            let message = format!("failed to parse settings for provider {id:?}: expected an object, found {kind}");
            draft.refuse(path.field("settings"), message, "Write settings as an object of keys and values.");
            return Map::new();
        }
    };
    let mut names: Vec<&String> = settings.keys().collect();
    names.sort();
    let mut config = Map::new();
    for name in names {
        let value = &settings[name];
        let at = path.field("settings").field(name.clone());
        let resolved = match reference(value) {
            Some(key) => {
                let variable = ids::variable(ids::of(provider), name);
                secret(draft, variable, &key, at.field("secretKeyRef")).map(Value::from)
            }
            None => {
                nested(draft, value, &at);
                Some(value.clone())
            }
        };
        config.extend(resolved.map(|value| (name.clone(), value)));
    }
    config
}

/// Warns of a secret in plain text: it ends in the ConfigMap, which more people can read than a Secret.
pub(super) fn readable(draft: &mut Draft<'_>, provider: &Provider, path: &FieldPath) {
    let login = provider.endpoint.as_deref().and_then(|endpoint| endpoint.split_once("://")?.1.split_once('@'));
    let login = login.is_some_and(|(user, _)| user.contains(':') && !user.contains('/'));
    let mut places: Vec<FieldPath> = login.then(|| path.field("endpoint")).into_iter().collect();
    let secret = |name: &str| ["key", "token", "password", "secret"].iter().any(|end| name.ends_with(end));
    let plain = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty() && !text.contains("${env."));
    let settings = provider.settings.as_ref().and_then(Value::as_object);
    let written = settings.into_iter().flatten().filter(|(name, value)| secret(name) && plain(value));
    places.extend(written.map(|(name, _)| path.field("settings").field(name.clone())));
    for place in places {
        draft.remark(
            place,
            reason::READABLE,
            "this looks like a secret, and everyone who can read the ConfigMap can read it",
            "Put it into a Secret, and reference that in apiKey or secretRefs.",
        );
    }
}

/// Accepts exactly `secretKeyRef: {name, key}`; another form may be a setting of the provider.
fn reference(value: &Value) -> Option<SecretKey> {
    let outer = value.as_object().filter(|outer| outer.len() == 1)?;
    let inner = outer.get("secretKeyRef")?.as_object().filter(|inner| inner.len() == 2)?;
    let word = |key| inner.get(key).and_then(Value::as_str).filter(|word| !word.is_empty());
    Some(SecretKey { name: word("name")?.to_owned(), key: word("key")?.to_owned() })
}

/// Warns of references further down, which are passed on unchanged.
fn nested(draft: &mut Draft<'_>, value: &Value, at: &FieldPath) {
    match value {
        Value::Object(map) => {
            if map.contains_key("secretKeyRef") {
                draft.ignore(
                    at.clone(),
                    "this secretKeyRef is not resolved: only {secretKeyRef: {name, key}} at the top level of settings \
                     is read from a Secret",
                    "Move it to the top level of settings, or use secretRefs.",
                );
            }
            map.iter().for_each(|(key, value)| nested(draft, value, &at.field(key.clone())));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(place, item)| nested(draft, item, &at.index(place)));
        }
        _ => {}
    }
}
