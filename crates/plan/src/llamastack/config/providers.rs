//! Expands the providers of the spec to entries of the file, in the order of the spec.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use steersman_api::llamastack::v1alpha2::{Provider, ProviderForm, SecretKey};
use steersman_reconcile::{FieldPath, Message, message, path};

use super::apis::{self, Api, TELEMETRY};
use super::draft::{Draft, text};
use super::kinds::{self, ProviderKind};
use super::nearest::nearest;
use super::problem::reason;
use super::{FieldError, ids, secrets, settings, storage};

pub(super) struct ProviderEntry {
    pub api: Api,
    pub id: String,
    pub path: FieldPath,
    pub value: Value,
}

pub(super) fn expand(draft: &mut Draft<'_>) -> Vec<ProviderEntry> {
    let Some(providers) = &draft.spec.providers else { return Vec::new() };
    let mut owners = BTreeMap::new();
    let mut entries = Vec::new();
    for (api, form) in apis::of(providers) {
        let Some(form) = form else { continue };
        let skip = api == TELEMETRY && !form.all().is_empty() && skipped(draft);
        for (place, provider) in form.all().iter().enumerate() {
            let path = path(api, form, place);
            if check_id(draft, form, provider, &path) {
                unique(draft, &mut owners, api, provider, &path);
            }
            if skip {
                continue;
            }
            let value = entry(draft, api, provider, &path);
            entries.push(ProviderEntry { api, id: ids::of(provider).to_owned(), path, value });
        }
    }
    entries
}

/// The path that the user wrote: with an index only in a list.
fn path(api: Api, form: &ProviderForm, place: usize) -> FieldPath {
    let path = path!(spec.providers).field(api.field);
    match form {
        ProviderForm::One(_) => path,
        ProviderForm::Many(_) => path.index(place),
    }
}

/// Whether telemetry is left out: a server does not start with an entry of an API that it does not have.
fn skipped(draft: &mut Draft<'_>) -> bool {
    if draft.base.is_none() || draft.serves(TELEMETRY.key) || draft.server.before(0, 3) {
        return false;
    }
    let telemetry = path!(spec.providers.telemetry);
    let otel = ". Servers since 0.3 send traces as configured by OTEL_* variables, which you can set in ";
    draft.ignore(
        telemetry.clone(),
        "the server of this distribution has no API \"telemetry\", so providers of this API are ignored",
        message!["Remove ", telemetry, otel, path!(spec.workload.overrides.env), "."],
    );
    true
}

/// Whether the provider has an id that can be compared with others.
fn check_id(draft: &mut Draft<'_>, form: &ProviderForm, provider: &Provider, path: &FieldPath) -> bool {
    let (field, message, remedy) = match provider.id.as_deref() {
        Some("") => ("id", "id must not be empty if specified", "Set a unique id, or remove it.".to_owned()),
        None if form.all().len() > 1 => (
            "id",
            "each provider must have an explicit id when multiple providers are specified",
            format!("Add an id, such as {}-1.", ids::of(provider)),
        ),
        _ if ids::of(provider).is_empty() => {
            ("provider", "provider must not be empty", "Set provider to a kind of provider, such as vllm.".to_owned())
        }
        _ => return true,
    };
    draft.refuse(path.field(field), message, remedy);
    false
}

/// Explicit and derived ids must be unique over all APIs.
fn unique<'a>(
    draft: &mut Draft<'_>,
    owners: &mut BTreeMap<&'a str, Api>,
    api: Api,
    provider: &'a Provider,
    path: &FieldPath,
) {
    let id = ids::of(provider);
    let Some(owner) = owners.get(id) else {
        owners.insert(id, api);
        return;
    };
    let field = if provider.id.is_some() { "id" } else { "provider" };
    draft.refuse(
        path.field(field),
        format!(
            "provider ID {id:?} conflicts with provider in {:?}; all provider IDs must be unique across all API types",
            owner.field
        ),
        "Give one of them another id.",
    );
}

fn entry(draft: &mut Draft<'_>, api: Api, provider: &Provider, path: &FieldPath) -> Value {
    for field in provider.unknown.keys() {
        draft.remarks.push(unknown(path, field, "id, provider, endpoint, apiKey, secretRefs and settings"));
    }
    let kind = kinds::find(api, &provider.provider);
    let config = config(draft, api, provider, kind, path);
    let type_ = type_(draft, api, provider, kind);
    check_type(draft, api, provider, &type_, path);
    json!({ "provider_id": ids::of(provider), "provider_type": type_, "config": config })
}

/// Reports a type that the server's package does not have. A short name that is nearly one of the package, or that of
/// another API, is a mistake and refused; any other type may be one that the image adds.
fn check_type(draft: &mut Draft<'_>, api: Api, provider: &Provider, type_: &str, path: &FieldPath) {
    let known: Vec<String> = kinds::of_server(api, &draft.server).map(ProviderKind::type_).collect();
    let in_base = draft.entries(api.key).iter().any(|entry| text(entry, "provider_type") == Some(type_));
    // The folder holds types of the image's own.
    let extended = draft.config.contains_key("external_providers_dir");
    let complete = api != TELEMETRY && kinds::is_complete(&draft.server);
    let named = !ids::of(provider).is_empty();
    if !complete || !named || in_base || extended || known.iter().any(|known| known == type_) {
        return;
    }
    let version = draft.base.map(|base| base.server_version.as_str()).unwrap_or_default();
    let message = format!(
        "llama-stack {version} has no provider type {type_:?} for {}, and the server does not start with it",
        api.field
    );
    let written = provider.provider.as_str();
    let at = path.field("provider");
    let Some((prefix, name)) = kinds::split(written) else {
        let names: Vec<&str> = kinds::of_server(api, &draft.server).map(|kind| kind.name).collect();
        let elsewhere = kinds::apis_with(written, &draft.server).map(|api| path!(spec.providers).field(api.field));
        let elsewhere = Message::list(elsewhere);
        let remedy = match nearest(written, &names) {
            Some(meant) => message![format!("Use {meant:?}.")],
            None if elsewhere != Message::default() => message!["Move it to ", elsewhere, "."],
            None => {
                let remedy = if kinds::find(api, written).is_some() {
                    "Other versions of llama-stack have it: use an image with one of them, or a type of \
                     docs/configuration.md."
                } else {
                    "Use a type of docs/configuration.md, unless the image adds this one."
                };
                draft.remark(at, reason::UNKNOWN_TYPE, message, remedy);
                return;
            }
        };
        draft.refuse(at, message, remedy.then(format!("If the image adds this type, write it as {type_:?}.")));
        return;
    };
    let of_prefix =
        |wanted: bool| kinds::of_server(api, &draft.server).filter(move |kind| (kind.prefix == prefix) == wanted);
    let nearest_of = |wanted: bool| {
        let names: Vec<&str> = of_prefix(wanted).map(|kind| kind.name).collect();
        let meant = nearest(name, &names)?;
        of_prefix(wanted).find(|kind| kind.name == meant).map(ProviderKind::type_)
    };
    let remedy = match nearest_of(true).or_else(|| nearest_of(false)) {
        Some(meant) => format!("Use {meant:?}, unless the image adds this type."),
        None => "Use a type of docs/configuration.md, unless the image adds this one.".to_owned(),
    };
    draft.remark(at, reason::UNKNOWN_TYPE, message, remedy);
}

pub(super) fn unknown(path: &FieldPath, field: &str, known: &str) -> FieldError {
    FieldError::new(
        path.field(field.to_owned()),
        reason::IGNORED,
        format!("unknown field {field:?} is ignored"),
        format!("Known fields are {known}."),
    )
}

/// A name with `::` is a type already. Other names are remote, unless only an inline kind is known, here or in the
/// base.
fn type_(draft: &Draft<'_>, api: Api, provider: &Provider, kind: Option<&ProviderKind>) -> String {
    let name = &provider.provider;
    if name.contains("::") {
        return name.clone();
    }
    if let Some(kind) = kind {
        return kind.type_();
    }
    let in_base = |type_: &str| draft.entries(api.key).iter().any(|entry| text(entry, "provider_type") == Some(type_));
    let (inline, remote) = (format!("inline::{name}"), format!("remote::{name}"));
    if in_base(&inline) && !in_base(&remote) { inline } else { remote }
}

/// Settings come first, so that the dedicated fields override them.
fn config(
    draft: &mut Draft<'_>,
    api: Api,
    provider: &Provider,
    kind: Option<&ProviderKind>,
    path: &FieldPath,
) -> Map<String, Value> {
    let mut config = defaults(draft, api, provider, kind);
    let given = settings::read(draft, provider, path);
    settings::readable(draft, provider, path);
    config.extend(given.clone());
    let mut set = |draft: &mut Draft<'_>, key: &str, value: &str, by: &str| {
        if given.contains_key(key) {
            draft.ignore(
                path.field("settings").field(key.to_owned()),
                format!("{key} is also set by {by}, which takes precedence"),
                format!("Remove settings.{key} or {by}."),
            );
        }
        config.insert(key.to_owned(), Value::from(value));
    };
    if let Some(endpoint) = &provider.endpoint {
        let read = kind.and_then(|kind| kind.endpoint(&draft.server));
        for key in keys(draft, kind, read, "url", path, "endpoint") {
            set(draft, key, endpoint, "endpoint");
        }
    }
    if let Some(reference) = &provider.api_key {
        let at = secrets::path(&path.field("apiKey"), reference);
        let variable = ids::variable(ids::of(provider), "api_key");
        if let Some(placeholder) = secret(draft, variable, reference.key(), at) {
            let read = kind.and_then(|kind| kind.secret);
            for key in keys(draft, kind, read, "api_key", path, "apiKey") {
                set(draft, key, &placeholder, "apiKey");
            }
        }
    }
    let references = provider.secret_refs.iter().flatten();
    // The specification's key comes first, so that the provider's own key, which it sets as well, wins.
    let (general, own): (Vec<_>, Vec<_>) = references.partition(|(key, _)| *key == "api_key");
    for (key, reference) in general.into_iter().chain(own) {
        let at = secrets::path(&path.field("secretRefs").field(key.clone()), reference);
        let variable = ids::variable(ids::of(provider), key);
        let Some(placeholder) = secret(draft, variable, reference.key(), at) else { continue };
        if key == "api_key" {
            let read = kind.and_then(|kind| kind.secret);
            for key in keys(draft, kind, read, "api_key", path, "secretRefs.api_key") {
                set(draft, key, &placeholder, "secretRefs");
            }
        } else {
            set(draft, key, &placeholder, "secretRefs");
        }
    }
    if let Some(kind) = kind {
        complete(draft, kind, &config, path);
    }
    config
}

/// The server does not start without the required keys of a provider.
fn complete(draft: &mut Draft<'_>, kind: &ProviderKind, config: &Map<String, Value>, path: &FieldPath) {
    for key in kind.needs.iter().filter(|key| !config.contains_key(**key)) {
        let (field, remedy) = match kind.endpoint(&draft.server) {
            Some(endpoint) if endpoint == *key => (path.field("endpoint"), "Add endpoint.".to_owned()),
            _ => (
                path.field("settings").field(*key),
                format!("Add settings.{key}, or secretRefs.{key} for a value in a Secret."),
            ),
        };
        draft.refuse(field, format!("{} requires {key}", kind.type_()), remedy);
    }
}

/// The key that the provider reads and the one of the specification. Servers ignore keys that they do not read.
fn keys(
    draft: &mut Draft<'_>,
    kind: Option<&ProviderKind>,
    read: Option<&'static str>,
    literal: &'static str,
    path: &FieldPath,
    field: &'static str,
) -> Vec<&'static str> {
    let Some(kind) = kind else { return vec![literal] };
    match read {
        Some(key) if key == literal || kind.exact => vec![key],
        Some(key) => vec![key, literal],
        None => {
            draft.ignore(
                path.field(field),
                format!("{} does not read {literal}, so {field} has no effect", kind.type_()),
                format!("Remove {field}, or use the provider's own keys in settings or secretRefs."),
            );
            if kind.exact { Vec::new() } else { vec![literal] }
        }
    }
}

/// Required keys that have a default.
fn defaults(draft: &Draft<'_>, api: Api, provider: &Provider, kind: Option<&ProviderKind>) -> Map<String, Value> {
    let mut defaults = Map::new();
    let Some(kind) = kind.filter(|kind| kind.api == api) else { return defaults };
    let id = ids::of(provider);
    if let Some(namespace) = kind.namespace {
        // Two stores of one kind must not share a namespace.
        let namespace = if id == kind.name { namespace.to_owned() } else { format!("{namespace}::{id}") };
        let backend = storage::backend(&draft.config, storage::KV);
        defaults.insert("persistence".to_owned(), json!({ "namespace": namespace, "backend": backend }));
    }
    if kind.type_() == kinds::MILVUS {
        defaults.insert("token".to_owned(), Value::Null);
    }
    if let Some(file) = kind.file {
        let file = if id == kind.name { file.to_owned() } else { format!("{id}-{file}") };
        defaults.insert("db_path".to_owned(), Value::from(storage::file(draft, &file)));
    }
    defaults
}

pub(super) fn secret(draft: &mut Draft<'_>, variable: String, key: &SecretKey, path: FieldPath) -> Option<String> {
    draft.secrets.add(variable, key, path).map_err(|problem| draft.errors.push(problem)).ok()
}

/// Names the kind of a JSON value for messages; the value itself may be a secret.
pub fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
