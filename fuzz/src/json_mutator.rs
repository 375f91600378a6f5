//! Changes a JSON document node by node. Changes of single bytes mostly yield text that is no JSON, which every target
//! refuses at once.

use serde_json::{Map, Value, json};

use crate::random::Random;

/// One in this many changes is one of bytes.
const BYTE_CHANGES: u64 = 5;

/// Changes `data[..size]` and returns its new size. `change_bytes` does the same without knowledge of JSON.
pub fn mutate(
    data: &mut [u8],
    size: usize,
    max_size: usize,
    seed: u32,
    change_bytes: impl FnOnce(&mut [u8], usize, usize) -> usize,
) -> usize {
    let mut random = Random::new(seed);
    let document = if random.below(BYTE_CHANGES) > 0 { change_document(&data[..size], &mut random) } else { None };
    match document.filter(|document| document.len() <= max_size) {
        Some(document) => {
            data[..document.len()].copy_from_slice(&document);
            document.len()
        }
        None => change_bytes(data, size, max_size),
    }
}

/// The document with up to three changed nodes. None if the text is no JSON.
pub(crate) fn change_document(text: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut document = serde_json::from_slice::<Value>(text).ok()?;
    let nodes = count(&document);
    for _ in 0..=random.below(3) {
        let donor = node(&mut document, &mut random.below(nodes)).map(|found| found.clone()).unwrap_or_default();
        if let Some(target) = node(&mut document, &mut random.below(nodes)) {
            change(target, donor, random);
        }
    }
    Some(document.to_string().into_bytes())
}

fn change(target: &mut Value, donor: Value, random: &mut Random) {
    match (random.below(8), &mut *target) {
        (0, Value::Object(fields)) => drop(remove(fields, random)),
        (1, Value::Object(fields)) => {
            let value = remove(fields, random).unwrap_or_default();
            fields.insert(word(random), value);
        }
        (2, Value::Object(fields)) => drop(fields.insert(word(random), donor)),
        (0, Value::Array(items)) if !items.is_empty() => drop(items.swap_remove(random.index(items.len()))),
        (1 | 2, Value::Array(items)) => items.push(donor),
        (3, Value::Array(items)) if !items.is_empty() => items.push(items[random.index(items.len())].clone()),
        (4, Value::String(text)) => text.push_str(&word(random)),
        (5, _) => *target = donor,
        (6, _) => *target = json!([target.take()]),
        _ => *target = leaf(random),
    }
}

fn remove(fields: &mut Map<String, Value>, random: &mut Random) -> Option<Value> {
    let name = fields.keys().nth(random.index(fields.len().max(1)))?.clone();
    fields.remove(&name)
}

fn leaf(random: &mut Random) -> Value {
    match random.below(10) {
        0 => Value::Null,
        1 => json!({}),
        2 => json!([]),
        3 => json!(random.below(2) == 0),
        4 => json!(-1),
        5 => json!(i64::MAX),
        6 => json!(u64::MAX),
        7 => json!(0.5),
        8 => json!("x".repeat(random.index(2000))),
        _ => json!(word(random)),
    }
}

fn word(random: &mut Random) -> String {
    WORDS[random.index(WORDS.len())].to_owned()
}

/// Names of fields and values with a meaning in one of the APIs.
const WORDS: [&str; 56] = [
    "",
    "a",
    "spec",
    "status",
    "metadata",
    "annotations",
    "labels",
    "name",
    "namespace",
    "uid",
    "apiVersion",
    "kind",
    "llamastack.io/v1alpha1",
    "llamastack.io/v1alpha2",
    "nvidia.com/v1alpha1",
    "nvidia.com/v1beta1",
    "LlamaStackDistribution",
    "DynamoGraphDeploymentRequest",
    "llamastack.io/v1alpha2-fields",
    "llamastack.io/v1alpha2-extras",
    "llamastack.io/v1alpha1-fields",
    "nvidia.com/dgdr-spec",
    "nvidia.com/dgdr-status",
    "nvidia.com/dgdr-config-map-ref",
    "nvidia.com/dgdr-output-pvc",
    "{}",
    "[]",
    "{\"spec\":{}}",
    "null",
    "server",
    "distribution",
    "providers",
    "inference",
    "resources",
    "models",
    "storage",
    "networking",
    "workload",
    "autoscaling",
    "overrideConfig",
    "userConfig",
    "externalProviders",
    "secretRefs",
    "secretKeyRef",
    "endpoint",
    "disabled",
    "expose",
    "remote::vllm",
    "overrides",
    "profilingJob",
    "dgd",
    "hardware",
    "\u{0}",
    "é",
    "'\"\\\n",
    "999999999999999999999",
];

fn count(value: &Value) -> u64 {
    match value {
        Value::Object(fields) => 1 + fields.values().map(count).sum::<u64>(),
        Value::Array(items) => 1 + items.iter().map(count).sum::<u64>(),
        _ => 1,
    }
}

/// The node at this place, counted from the root.
fn node<'a>(value: &'a mut Value, place: &mut u64) -> Option<&'a mut Value> {
    if *place == 0 {
        return Some(value);
    }
    *place -= 1;
    match value {
        Value::Object(fields) => fields.values_mut().find_map(|value| node(value, place)),
        Value::Array(items) => items.iter_mut().find_map(|value| node(value, place)),
        _ => None,
    }
}
