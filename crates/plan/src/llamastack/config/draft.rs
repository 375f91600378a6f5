//! The configuration while it is being generated, with the errors and remarks so far.

use serde_json::{Map, Value};
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_reconcile::{FieldPath, Message};

use super::ids::{self, EffectiveId};
use super::problem::reason;
use super::secrets::Secrets;
use super::version::ServerVersion;
use super::{Base, FieldError, apis, consistent, limits};

pub(super) struct Draft<'a> {
    pub spec: &'a LlamaStackDistributionSpec,
    /// Without a base, the checks that depend on it are skipped.
    pub base: Option<&'a Base>,
    pub server: ServerVersion,
    pub config: Map<String, Value>,
    pub errors: Vec<FieldError>,
    pub remarks: Vec<FieldError>,
    pub secrets: Secrets,
    /// Number of models, tools and shields that the spec adds.
    pub resources: i64,
}

impl<'a> Draft<'a> {
    /// A copy of the base, with the errors and remarks that do not depend on it.
    pub fn new(spec: &'a LlamaStackDistributionSpec, base: Option<&'a Base>) -> Self {
        Self {
            spec,
            base,
            server: ServerVersion::of(base.map_or("", |base| &base.server_version)),
            config: base.and_then(|base| base.config.as_object()).cloned().unwrap_or_default(),
            errors: consistent::errors(spec),
            remarks: consistent::remarks(spec),
            secrets: Secrets::default(),
            resources: 0,
        }
    }

    /// Whether the spec is within the limits. If not, nothing else is checked.
    pub fn check_limits(&mut self) -> bool {
        let exceeded = limits::errors(self.spec);
        let within = exceeded.is_empty();
        self.errors.extend(exceeded);
        within
    }

    pub fn refuse(&mut self, path: FieldPath, message: impl Into<Message>, remedy: impl Into<Message>) {
        self.errors.push(FieldError::new(path, reason::INVALID, message, remedy));
    }

    /// Adds the remark that a field has no effect.
    pub fn ignore(&mut self, path: FieldPath, message: impl Into<Message>, remedy: impl Into<Message>) {
        self.remark(path, reason::IGNORED, message, remedy);
    }

    pub fn remark(
        &mut self,
        path: FieldPath,
        reason: &'static str,
        message: impl Into<Message>,
        remedy: impl Into<Message>,
    ) {
        self.remarks.push(FieldError::new(path, reason, message, remedy));
    }

    pub fn entries(&self, api: &str) -> &[Value] {
        list(self.config.get("providers").and_then(|providers| providers.get(api)))
    }

    /// The ids of an API, as the server sees them.
    pub fn ids(&self, api: &str) -> Vec<EffectiveId> {
        self.entries(api).iter().filter_map(id_of).collect()
    }

    pub fn external_ids(&self, api: &str) -> Vec<&'a str> {
        let Some(external) = &self.spec.external_providers else { return Vec::new() };
        let lists = apis::of_external(external).into_iter().filter(|(known, _)| known.key == api);
        lists.flat_map(|(_, list)| list.iter().map(|one| one.provider_id.as_str())).collect()
    }

    /// Whether the base has this API, in its list or by its providers.
    pub fn serves(&self, api: &str) -> bool {
        self.lists(api) || !self.entries(api).is_empty()
    }

    fn lists(&self, api: &str) -> bool {
        list(self.config.get("apis")).iter().any(|name| name.as_str() == Some(api))
    }

    /// Adds an API to the list. An empty list means all APIs and stays empty.
    pub fn serve(&mut self, api: &str) {
        if self.lists(api) {
            return;
        }
        if let Some(Value::Array(names)) = self.config.get_mut("apis").filter(|names| !list(Some(names)).is_empty()) {
            names.push(Value::from(api));
        }
    }
}

/// Removes a map, to be put back later. Another kind of value counts as empty.
pub(super) fn take(map: &mut Map<String, Value>, key: &str) -> Map<String, Value> {
    match map.remove(key) {
        Some(Value::Object(inner)) => inner,
        _ => Map::new(),
    }
}

/// Removes a list, to be put back later. Another kind of value counts as empty.
pub(super) fn take_list(map: &mut Map<String, Value>, key: &str) -> Vec<Value> {
    match map.remove(key) {
        Some(Value::Array(inner)) => inner,
        _ => Vec::new(),
    }
}

pub(super) fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn text<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key).and_then(Value::as_str)
}

/// The id of an entry. None: the entry has no id and is switched off.
pub(super) fn id_of(entry: &Value) -> Option<EffectiveId> {
    text(entry, "provider_id").map(ids::effective)
}
