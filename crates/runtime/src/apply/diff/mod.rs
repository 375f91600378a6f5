//! Finds the first difference between a wanted and a live object that an apply would fix.
//!
//! Two things count: a wanted value is missing, or our entry in `managedFields` holds a field we no longer want. Fields
//! added by the server or by other writers do not count. Our entry also shows how the server merges a map or list of
//! any kind: an owned leaf is replaced as a whole, an entry with children is merged.

mod lists;
#[cfg(test)]
mod tests;
mod unwanted;

use std::fmt;

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Map, Value};
use steersman_reconcile::quantity::billionths;

use super::ownership::is_ours;
pub(super) use lists::{keys_of, matches};

/// The path at which a live object differs from the wanted one. Contains no values, which may be secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// From the inside out.
    steps: Vec<String>,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Missing,
    Changed,
    /// More than we want, where the server keeps only the whole.
    Extra,
    Order,
    /// A field that we applied earlier, and no longer want.
    Unwanted,
    /// We have not applied any field of the object yet.
    NotOurs,
}

impl Difference {
    fn new(what: What) -> Self {
        Self { steps: Vec::new(), what }
    }

    fn at(mut self, step: impl Into<String>) -> Self {
        self.steps.push(step.into());
        self
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().rev().enumerate() {
            let dot = if index == 0 || step.starts_with('[') { "" } else { "." };
            write!(f, "{dot}{step}")?;
        }
        f.write_str(match self.what {
            What::Missing => " is missing",
            What::Changed => " has another value",
            What::Extra => " is not wanted",
            What::Order => " is in another order",
            What::Unwanted => " is no longer wanted",
            What::NotOurs => "Steersman has not applied it before",
        })
    }
}

/// The first thing that an apply by `manager` would change, if there is one. The live object has its `managedFields`.
pub fn diff(wanted: &DynamicObject, live: &DynamicObject, manager: &str) -> Option<Difference> {
    let entry = live.managed_fields().iter().find(|entry| is_ours(entry, manager));
    let api_version = wanted.types.as_ref().map(|types| types.api_version.as_str());
    // Fields are named as their version names them; the server renames them with the next apply.
    let entry = entry.filter(|entry| entry.api_version.as_deref() == api_version);
    let Some(owned) = entry.and_then(|entry| entry.fields_v1.as_ref()) else {
        return Some(Difference::new(What::NotOurs));
    };
    let (wanted, live) = (content(wanted), content(live));
    let missing = missing(At::default(), &wanted, &live, Some(&owned.0), false);
    missing.or_else(|| unwanted::unwanted(&owned.0, &wanted))
}

/// The parts of an object that an apply can set.
fn content(object: &DynamicObject) -> Value {
    let mut content = object.data.as_object().cloned().unwrap_or_default();
    content.remove("status");
    let mut metadata = Map::new();
    let mut keep = |name: &str, value: serde_json::Result<Value>| {
        if let Ok(value) = value
            && !value.is_null()
        {
            metadata.insert(name.to_owned(), value);
        }
    };
    keep("labels", serde_json::to_value(&object.metadata.labels));
    keep("annotations", serde_json::to_value(&object.metadata.annotations));
    keep("ownerReferences", serde_json::to_value(&object.metadata.owner_references));
    keep("finalizers", serde_json::to_value(&object.metadata.finalizers));
    content.insert("metadata".to_owned(), Value::Object(metadata));
    Value::Object(content)
}

/// The name of a field and of the one it is in.
#[derive(Clone, Copy, Debug, Default)]
struct At<'a> {
    parent: &'a str,
    key: &'a str,
}

impl<'a> At<'a> {
    fn into(self, key: &'a str) -> Self {
        Self { parent: self.key, key }
    }
}

/// Finds the first part of `wanted` that is not in `live`. `owned` is our part of `managedFields` below this point.
/// `whole` means that the server replaces this value as a whole, so that `live` may exceed `wanted` only by defaults.
fn missing(at: At<'_>, wanted: &Value, live: &Value, owned: Option<&Value>, whole: bool) -> Option<Difference> {
    match (wanted, live) {
        (Value::Null, _) => None,
        (Value::Object(wanted), Value::Object(live)) => {
            let whole = whole || is_whole(at, owned, wanted.is_empty());
            fields(at, wanted, live, owned, whole)
        }
        (Value::Array(wanted), Value::Array(live)) => lists::missing(at, wanted, live, owned, whole),
        _ => (!same_scalar(at, wanted, live)).then(|| Difference::new(What::Changed)),
    }
}

fn fields(
    at: At<'_>,
    wanted: &Map<String, Value>,
    live: &Map<String, Value>,
    owned: Option<&Value>,
    whole: bool,
) -> Option<Difference> {
    for (name, value) in wanted {
        let owned = owned.and_then(|owned| owned.get(format!("f:{name}")));
        let found = match live.get(name) {
            Some(there) => missing(at.into(name), value, there, owned, whole),
            None if is_nothing(name, value, owned.is_some() || whole) => None,
            None => Some(Difference::new(What::Missing)),
        };
        if let Some(difference) = found {
            return Some(difference.at(name));
        }
    }
    if whole {
        let extra = live.iter().find(|(name, value)| !wanted.contains_key(*name) && !is_default(name, value));
        return extra.map(|(name, _)| Difference::new(What::Extra).at(name));
    }
    None
}

/// Whether a wanted value that is not in the live object says no more than its absence.
fn is_nothing(name: &str, wanted: &Value, owned: bool) -> bool {
    match wanted {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        // An empty one chooses the kind of volume.
        Value::Object(_) if name == "emptyDir" => false,
        Value::Object(fields) => fields.iter().all(|(name, value)| is_nothing(name, value, owned)),
        // The server drops `false` and 0 from most fields and keeps them in others, where they have a meaning. If our
        // `managedFields` entry lists the field, the server dropped the value; if not, another writer removed it.
        Value::Bool(value) => !value && owned,
        Value::Number(value) => value.as_f64() == Some(0.0) && owned,
    }
}

/// Whether the server replaces this map as a whole.
fn is_whole(at: At<'_>, owned: Option<&Value>, wants_none: bool) -> bool {
    const WHOLE: [&str; 11] = [
        "selector",
        "labelSelector",
        "podSelector",
        "namespaceSelector",
        "nodeSelector",
        "matchLabels",
        "configMapKeyRef",
        "secretKeyRef",
        "fieldRef",
        "resourceFieldRef",
        "roleRef",
    ];
    match owned.and_then(Value::as_object) {
        Some(below) if !below.is_empty() => false,
        // An empty map that may be merged looks the same as one that may not.
        Some(_) if !wants_none => true,
        _ => WHOLE.contains(&at.key),
    }
}

/// Whether Kubernetes fills in this value within maps and lists that are replaced as a whole.
fn is_default(name: &str, value: &Value) -> bool {
    if is_nothing(name, value, true) {
        return true;
    }
    match (name, value) {
        ("protocol", Value::String(text)) => text == "TCP",
        ("apiVersion", Value::String(text)) => text == "v1",
        ("divisor", Value::String(text)) => text == "0",
        ("pathType", Value::String(text)) => text == "ImplementationSpecific",
        ("apiGroup", Value::String(text)) => text == "rbac.authorization.k8s.io",
        ("group", Value::String(text)) => text == "gateway.networking.k8s.io",
        ("kind", Value::String(text)) => text == "Service" || text == "Gateway",
        ("expirationSeconds", value) => value.as_u64() == Some(3600),
        ("defaultMode", value) => value.as_u64() == Some(0o644),
        ("weight", value) => value.as_u64() == Some(1),
        _ => false,
    }
}

/// Equal in meaning. Numbers are equal as numbers, and amounts of a resource as amounts.
fn same_scalar(at: At<'_>, wanted: &Value, live: &Value) -> bool {
    if wanted == live {
        return true;
    }
    if let (Value::Number(wanted), Value::Number(live)) = (wanted, live) {
        return wanted.as_f64() == live.as_f64();
    }
    if !is_quantity(at) {
        return false;
    }
    let amount = |value: &Value| match value {
        Value::String(text) => billionths(text),
        Value::Number(number) => billionths(&number.to_string()),
        _ => None,
    };
    amount(wanted).is_some_and(|wanted| amount(live) == Some(wanted))
}

fn is_quantity(at: At<'_>) -> bool {
    matches!(at.parent, "requests" | "limits" | "capacity" | "hard" | "overhead")
        || matches!(at.key, "sizeLimit" | "divisor" | "averageValue")
        || (at.parent, at.key) == ("target", "value")
}
