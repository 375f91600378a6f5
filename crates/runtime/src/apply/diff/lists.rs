//! Compares lists by the server's merge strategy (atomic, set or keyed) and finds the first wanted item that is
//! missing.

use serde_json::{Map, Value};

use super::{At, Difference, What};

/// The server's merge strategy for a list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Merge {
    Whole,
    Set,
    /// Merged by the values of these fields.
    By(Vec<String>),
}

pub(super) fn missing(
    at: At<'_>,
    wanted: &[Value],
    live: &[Value],
    owned: Option<&Value>,
    whole: bool,
) -> Option<Difference> {
    let merge = if whole { Merge::Whole } else { merge(at, wanted, owned) };
    match merge {
        Merge::Whole if wanted.len() != live.len() => Some(Difference::new(What::Changed)),
        Merge::Whole => wanted.iter().zip(live).enumerate().find_map(|(index, (wanted, live))| {
            super::missing(at, wanted, live, None, true).map(|difference| difference.at(format!("[{index}]")))
        }),
        Merge::Set => {
            let absent = wanted.iter().any(|item| !live.contains(item));
            absent.then(|| Difference::new(What::Missing))
        }
        Merge::By(keys) => by_keys(at, wanted, live, owned, &keys),
    }
}

fn by_keys(at: At<'_>, wanted: &[Value], live: &[Value], owned: Option<&Value>, keys: &[String]) -> Option<Difference> {
    // A variable may use those before it, and init containers run one after the other.
    let ordered = matches!(at.key, "env" | "initContainers");
    let mut last = 0;
    for item in wanted {
        let step = || format!("[{}]", keys.iter().map(|key| text(key_value(item, key))).collect::<Vec<_>>().join(","));
        let same = |there: &Value| keys.iter().all(|key| key_value(item, key) == key_value(there, key));
        let Some(position) = live.iter().position(same) else {
            return Some(Difference::new(What::Missing).at(step()));
        };
        if ordered && position < last {
            return Some(Difference::new(What::Order).at(step()));
        }
        last = position;
        let owned = owned.and_then(|owned| owned_item(owned, item));
        if let Some(difference) = super::missing(at, item, &live[position], owned, false) {
            return Some(difference.at(step()));
        }
    }
    None
}

fn merge(at: At<'_>, wanted: &[Value], owned: Option<&Value>) -> Merge {
    if let Some(below) = owned.and_then(Value::as_object) {
        if let Some(keys) = below.keys().find_map(|step| keys_of(step)) {
            return Merge::By(keys.keys().cloned().collect());
        }
        if below.keys().any(|step| step.starts_with("v:")) {
            return Merge::Set;
        }
        if below.is_empty() && !wanted.is_empty() {
            return Merge::Whole;
        }
    }
    let has = |name: &str| wanted.iter().all(|item| item.get(name).is_some());
    let by = |keys: &[&str]| Merge::By(keys.iter().map(|key| (*key).to_owned()).collect());
    // Before our first apply, `managedFields` does not show the strategy. These are the keys of the lists in pods and
    // Services.
    match at.key {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "volumes"
        | "imagePullSecrets"
        | "secrets"
        | "resourceClaims"
        | "claims" => by(&["name"]),
        "volumeMounts" => by(&["mountPath"]),
        "volumeDevices" => by(&["devicePath"]),
        "hostAliases" => by(&["ip"]),
        "topologySpreadConstraints" => by(&["topologyKey", "whenUnsatisfiable"]),
        "ownerReferences" => by(&["uid"]),
        "ports" if has("containerPort") => by(&["containerPort", "protocol"]),
        "ports" if at.parent == "spec" && has("port") => by(&["port", "protocol"]),
        "finalizers" => Merge::Set,
        _ => Merge::Whole,
    }
}

/// The fields of a step such as `k:{"name":"server"}`.
pub(in crate::apply) fn keys_of(step: &str) -> Option<Map<String, Value>> {
    step.strip_prefix("k:").and_then(|keys| serde_json::from_str(keys).ok())
}

pub(in crate::apply) fn matches(keys: &Map<String, Value>, item: &Value) -> bool {
    keys.iter().all(|(key, value)| key_value(item, key) == Some(value))
}

/// Our part of `managedFields` for one item.
fn owned_item<'a>(owned: &'a Value, item: &Value) -> Option<&'a Value> {
    let mut below = owned.as_object()?.iter();
    below.find_map(|(step, below)| keys_of(step).filter(|keys| matches(keys, item)).map(|_| below))
}

/// The value of a key field. Kubernetes has one default among them.
fn key_value<'a>(item: &'a Value, key: &str) -> Option<&'a Value> {
    static TCP: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| Value::from("TCP"));
    item.get(key).or_else(|| (key == "protocol").then(|| &*TCP))
}

fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}
