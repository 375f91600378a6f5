//! What is left of two runs, side by side.
//! Comes in: the objects of each; goes out: the first difference that no two runs have anyway.

use serde_json::Value;

/// How the objects of two runs differ, if they do.
pub(super) fn compare(expected: &[Value], left: &[Value]) -> Option<String> {
    let names = |objects: &[Value]| objects.iter().map(name).collect::<Vec<_>>().join(", ");
    if expected.len() != left.len() {
        let (expected_names, left_names) = (names(expected), names(left));
        return Some(format!(
            "{} objects instead of {}: [{left_names}] instead of [{expected_names}]",
            left.len(),
            expected.len()
        ));
    }
    let (expected, left) = expected.iter().zip(left).find(|(expected, left)| expected != left)?;
    Some(format!("{} differs at {}", name(left), first_difference(expected, left)))
}

/// Where two values differ first, with both: whole objects would hide it.
fn first_difference(expected: &Value, left: &Value) -> String {
    let nothing = Value::Null;
    let below = match (expected, left) {
        (Value::Object(one), Value::Object(other)) => one.keys().chain(other.keys()).find_map(|key| {
            let (one, other) = (one.get(key).unwrap_or(&nothing), other.get(key).unwrap_or(&nothing));
            (one != other).then(|| format!(".{key}{}", first_difference(one, other)))
        }),
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let place = one.iter().zip(other).position(|(one, other)| one != other);
            place.map(|place| format!("[{place}]{}", first_difference(&one[place], &other[place])))
        }
        _ => None,
    };
    below.unwrap_or_else(|| format!(": {left} instead of {expected}"))
}

fn name(object: &Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or("?");
    format!("{} {}", text("/kind"), text("/metadata/name"))
}

/// Objects without what differs between any two runs: uids, versions, times, addresses and the namespace's name.
pub fn normalised(mut objects: Vec<Value>, namespace: &str) -> Vec<Value> {
    let mut uids = Vec::new();
    for object in &mut objects {
        collect_uids(object, &mut uids);
        scrub(object);
    }
    // Uids and the namespace also stand inside of names and of the keys of managed fields.
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

fn scrub(value: &mut Value) {
    const OWN_TO_A_RUN: [&str; 10] = [
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
            fields.retain(|name, _| !OWN_TO_A_RUN.contains(&name.as_str()));
            fields.values_mut().for_each(scrub);
            // The API server keeps the entries in the order of their times, which are gone now.
            if let Some(Value::Array(entries)) = fields.get_mut("managedFields") {
                entries.sort_by_cached_key(Value::to_string);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(scrub),
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
    fn two_runs_look_the_same_but_for_what_they_did() {
        let one = normalised(vec![account("run-1", "u-1", "5")], "run-1");
        let two = normalised(vec![account("run-2", "u-2", "9")], "run-2");
        assert_eq!(one, two);
        assert_eq!(compare(&one, &two), None);
        let mut other = two.clone();
        other[0]["metadata"]["labels"] = json!({ "a": "b" });
        let said = "ServiceAccount a differs at .metadata.labels: {\"a\":\"b\"} instead of null";
        assert_eq!(compare(&one, &other).as_deref(), Some(said));
        let doubled = [two.clone(), two].concat();
        assert!(compare(&one, &doubled).unwrap().starts_with("2 objects instead of 1"));
    }
}
