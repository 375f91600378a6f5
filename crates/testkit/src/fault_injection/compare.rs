//! Compares the objects of two runs, ignoring the fields that differ between any two runs.

use serde_json::Value;

/// The first difference between the objects of two runs.
pub(super) fn compare(expected: &[Value], actual: &[Value]) -> Option<String> {
    let names = |objects: &[Value]| objects.iter().map(name).collect::<Vec<_>>().join(", ");
    if expected.len() != actual.len() {
        let (expected_names, actual_names) = (names(expected), names(actual));
        return Some(format!(
            "{} objects instead of {}: [{actual_names}] instead of [{expected_names}]",
            actual.len(),
            expected.len()
        ));
    }
    let (expected, actual) = expected.iter().zip(actual).find(|(expected, actual)| expected != actual)?;
    Some(format!("{} differs at {}", name(actual), first_difference(expected, actual)))
}

/// Path and values of the first difference. Printing whole objects would hide it.
fn first_difference(expected: &Value, actual: &Value) -> String {
    let null = Value::Null;
    let nested = match (expected, actual) {
        (Value::Object(one), Value::Object(other)) => one.keys().chain(other.keys()).find_map(|key| {
            let (one, other) = (one.get(key).unwrap_or(&null), other.get(key).unwrap_or(&null));
            (one != other).then(|| format!(".{key}{}", first_difference(one, other)))
        }),
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let index = one.iter().zip(other).position(|(one, other)| one != other);
            index.map(|index| format!("[{index}]{}", first_difference(&one[index], &other[index])))
        }
        _ => None,
    };
    nested.unwrap_or_else(|| format!(": {actual} instead of {expected}"))
}

fn name(object: &Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or("?");
    format!("{} {}", text("/kind"), text("/metadata/name"))
}

/// Removes the values that differ between any two runs: uids, versions, times, addresses and the name of the namespace.
pub fn normalize(mut objects: Vec<Value>, namespace: &str) -> Vec<Value> {
    let mut uids = Vec::new();
    for object in &mut objects {
        collect_uids(object, &mut uids);
        remove_volatile_fields(object);
    }
    // Uids and the namespace are also parts of names and of keys of managed fields.
    let mut text = Value::Array(objects).to_string().replace(namespace, "NAMESPACE");
    for uid in uids {
        text = text.replace(&uid, "UID");
    }
    let mut objects: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
    objects.sort_by_cached_key(|object| (name(object), object.to_string()));
    objects
}

fn collect_uids(value: &Value, uids: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(uid)) = fields.get("uid") {
                uids.push(uid.clone());
            }
            fields.values().for_each(|value| collect_uids(value, uids));
        }
        Value::Array(items) => items.iter().for_each(|value| collect_uids(value, uids)),
        _ => {}
    }
}

fn remove_volatile_fields(value: &mut Value) {
    const VOLATILE_FIELDS: [&str; 10] = [
        "resourceVersion",
        "creationTimestamp",
        "time",
        "lastTransitionTime",
        "lastUpdateTime",
        "lastUpdated",
        "startTime",
        "clusterIP",
        "clusterIPs",
        "nodePort",
    ];
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !VOLATILE_FIELDS.contains(&name.as_str()));
            fields.values_mut().for_each(remove_volatile_fields);
            // The API server orders the entries by their times, which have been removed.
            if let Some(Value::Array(entries)) = fields.get_mut("managedFields") {
                entries.sort_by_cached_key(Value::to_string);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(remove_volatile_fields),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn account(namespace: &str, uid: &str, version: &str) -> Value {
        json!({ "kind": "ServiceAccount", "metadata": { "name": "a", "namespace": namespace, "uid": uid,
            "resourceVersion": version, "managedFields": [{ "time": version, "manager": "x",
            "fieldsV1": { format!("k:{{\"uid\":\"{uid}\"}}"): {} } }] } })
    }

    #[test]
    fn normalized_runs_differ_only_by_effects() {
        let one = normalize(vec![account("run-1", "u-1", "5")], "run-1");
        let two = normalize(vec![account("run-2", "u-2", "9")], "run-2");
        assert_eq!(one, two);
        assert_eq!(compare(&one, &two), None);
        let mut other = two.clone();
        other[0]["metadata"]["labels"] = json!({ "a": "b" });
        let expected_text = "ServiceAccount a differs at .metadata.labels: {\"a\":\"b\"} instead of null";
        assert_eq!(compare(&one, &other).as_deref(), Some(expected_text));
        let doubled = [two.clone(), two].concat();
        assert!(compare(&one, &doubled).unwrap().starts_with("2 objects instead of 1"));
    }
}
