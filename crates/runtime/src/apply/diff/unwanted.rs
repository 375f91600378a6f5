//! Finds the first field that our `managedFields` entry holds from an earlier apply and that we no longer want.

use serde_json::Value;

use super::lists::{KeyedItems, keys_of, matches};
use super::{Difference, What};

pub(super) fn unwanted(owned: &Value, wanted: &Value) -> Option<Difference> {
    let items = wanted.as_array().map(Vec::as_slice).unwrap_or_default();
    let owned = owned.as_object()?;
    let keys = owned.keys().find_map(|step| keys_of(step));
    let keyed = keys.map(|keys| KeyedItems::new(&keys.keys().cloned().collect::<Vec<_>>(), items));
    owned.iter().find_map(|(step, below)| {
        if let Some(name) = step.strip_prefix("f:") {
            return find(wanted.get(name), below, || name.to_owned());
        }
        if let Some(keys) = keys_of(step) {
            let values: Vec<_> =
                keys.values().map(|value| value.as_str().map_or(value.to_string(), str::to_owned)).collect();
            let found = keyed.as_ref().and_then(|keyed| keyed.with_keys(&keys));
            let item = found.unwrap_or_else(|| items.iter().find(|item| matches(&keys, item)));
            return find(item, below, || format!("[{}]", values.join(",")));
        }
        let value: Option<Value> = step.strip_prefix("v:").and_then(|value| serde_json::from_str(value).ok());
        value.and_then(|value| find(items.iter().find(|item| **item == value), below, || format!("[{value}]")))
    })
}

fn find(wanted: Option<&Value>, below: &Value, step: impl FnOnce() -> String) -> Option<Difference> {
    let difference = match wanted {
        None => Some(Difference::new(What::Unwanted)),
        // A map that became a plain value has been seen as a changed value before.
        Some(wanted) if wanted.is_object() || wanted.is_array() => unwanted(below, wanted),
        Some(_) => None,
    };
    difference.map(|difference| difference.at(step()))
}
