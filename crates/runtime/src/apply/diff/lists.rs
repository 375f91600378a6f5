//! Compares lists by the server's merge strategy (atomic, set or keyed) and finds the first wanted item that is
//! missing.

use std::collections::HashMap;

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
    let live_items = KeyedItems::new(keys, live);
    let owned_items = owned.map(|owned| OwnedItems::new(keys, owned));
    let mut last = 0;
    for item in wanted {
        let step = || format!("[{}]", keys.iter().map(|key| text(key_value(item, key))).collect::<Vec<_>>().join(","));
        let Some((position, there)) = live_items.find(item) else {
            return Some(Difference::new(What::Missing).at(step()));
        };
        if ordered && position < last {
            return Some(Difference::new(What::Order).at(step()));
        }
        last = position;
        let owned = owned_items.as_ref().and_then(|owned| owned.find(item));
        if let Some(difference) = super::missing(at, item, there, owned, false) {
            return Some(difference.at(step()));
        }
    }
    None
}

/// The items of a list by the values of their keys. A search of the whole list for each item would take seconds for lists of
/// users, which may be long.
pub(super) struct KeyedItems<'a> {
    keys: Vec<String>,
    /// The first item with each key, and its position.
    items: HashMap<String, (usize, &'a Value)>,
}

impl<'a> KeyedItems<'a> {
    pub fn new(keys: &[String], list: &'a [Value]) -> Self {
        let mut items = HashMap::with_capacity(list.len());
        for (position, item) in list.iter().enumerate() {
            items.entry(key_text(keys, |key| key_value(item, key))).or_insert((position, item));
        }
        Self { keys: keys.to_vec(), items }
    }

    /// The item with the same keys, and its position.
    fn find(&self, item: &Value) -> Option<(usize, &'a Value)> {
        self.items.get(&key_text(&self.keys, |key| key_value(item, key))).copied()
    }

    /// The item with these keys. None if the list has other keys.
    pub fn with_keys(&self, keys: &Map<String, Value>) -> Option<Option<&'a Value>> {
        let same = keys.len() == self.keys.len() && self.keys.iter().all(|key| keys.contains_key(key));
        same.then(|| self.items.get(&key_text(&self.keys, |key| keys.get(key))).map(|(_, item)| *item))
    }
}

/// Our parts of `managedFields` for the items of a list.
struct OwnedItems<'a> {
    keys: &'a [String],
    items: HashMap<String, &'a Value>,
    /// Parts with other keys than the list.
    others: Vec<(Map<String, Value>, &'a Value)>,
}

impl<'a> OwnedItems<'a> {
    fn new(keys: &'a [String], owned: &'a Value) -> Self {
        let (mut items, mut others) = (HashMap::new(), Vec::new());
        for (step, below) in owned.as_object().into_iter().flatten() {
            let Some(found) = keys_of(step) else { continue };
            if found.len() == keys.len() && keys.iter().all(|key| found.contains_key(key)) {
                items.insert(key_text(keys, |key| found.get(key)), below);
            } else {
                others.push((found, below));
            }
        }
        Self { keys, items, others }
    }

    fn find(&self, item: &Value) -> Option<&'a Value> {
        let found = self.items.get(&key_text(self.keys, |key| key_value(item, key))).copied();
        found.or_else(|| self.others.iter().find(|(keys, _)| matches(keys, item)).map(|(_, below)| *below))
    }
}

/// The values of the keys as one text. A value that is absent differs from every other.
fn key_text<'v>(keys: &[String], value: impl Fn(&str) -> Option<&'v Value>) -> String {
    let mut text = String::new();
    for key in keys {
        if let Some(value) = value(key) {
            text.push_str(&value.to_string());
        }
        text.push('\n');
    }
    text
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
