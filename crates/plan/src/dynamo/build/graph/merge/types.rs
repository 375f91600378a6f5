//! The types of the fields of a graph, and the checks of a value against them. Fields of pods have the API server's own
//! definitions. It checks the few fields without a type here when the graph is created.

use serde_json::Value;
use steersman_reconcile::quantity::billionths;

use super::kubernetes::{self, Search};
use super::{APPEND, JsonObject, is_alpha, misplaced_patch};
use crate::dynamo::build::graph::lists;

enum FieldType {
    Text,
    Flag,
    /// An int32 with its minimum.
    Integer(i64),
    /// A number or a string, as in `8Gi`.
    Quantity,
    /// An object whose fields are not checked.
    Object,
    /// An object with these fields. Other fields are not checked.
    Fields(&'static [(&'static str, FieldType)]),
    /// An object with any keys.
    MapOf(&'static FieldType),
    ListOf(&'static FieldType),
    OneOf(&'static [&'static str]),
    /// One of Kubernetes' own types, by its name.
    Kubernetes(&'static str),
    /// The spec of a pod, with fields that Kubernetes does not have.
    Pod(&'static [(&'static str, FieldType)]),
}

use FieldType::{Fields, Flag, Integer, Kubernetes, ListOf, MapOf, Object, OneOf, Pod, Quantity, Text};

type Schema = [(&'static str, FieldType)];

const TEXTS: FieldType = MapOf(&Text);
const VARIABLES: FieldType = ListOf(&Kubernetes(kubernetes::VARIABLE));
const METADATA: FieldType = Fields(&[("labels", TEXTS), ("annotations", TEXTS)]);
/// The main container of a service has a field of its own in the pod.
const SERVICE_POD_FIELDS: &Schema = &[("mainContainer", Kubernetes(kubernetes::CONTAINER))];
/// Resources of a service. Its quantities are strings.
const SERVICE_RESOURCES: FieldType =
    Fields(&[("cpu", Text), ("memory", Text), ("gpu", Text), ("gpuType", Text), ("custom", TEXTS)]);

const MODEL: FieldType = Fields(&[("name", Text), ("revision", Text)]);
const MULTINODE: FieldType = Fields(&[("nodeCount", Integer(2))]);
const BACKENDS: FieldType = OneOf(&["sglang", "vllm", "trtllm"]);

const COMPONENT: &Schema = &[
    ("name", Text),
    ("type", OneOf(&["frontend", "worker", "prefill", "decode", "planner", "epp"])),
    ("replicas", Integer(0)),
    ("minAvailable", Integer(1)),
    ("multinode", MULTINODE),
    ("modelRef", MODEL),
    ("runtimeVersionOverride", Text),
    ("globalDynamoNamespace", Flag),
    ("sharedMemorySize", Quantity),
    ("scalingAdapter", Object),
    ("frontendSidecar", Text),
    ("compilationCache", Fields(&[("pvcName", Text), ("mountPath", Text)])),
    ("podTemplate", Fields(&[("metadata", METADATA), ("spec", Pod(&[]))])),
    ("eppConfig", Object),
    ("experimental", Object),
    ("providerOverride", Object),
    ("topologyConstraint", Object),
];
const SERVICE: &Schema = &[
    ("annotations", TEXTS),
    ("labels", TEXTS),
    ("componentType", Text),
    ("subComponentType", Text),
    ("serviceName", Text),
    ("dynamoNamespace", Text),
    ("replicas", Integer(0)),
    ("minAvailable", Integer(1)),
    ("multinode", MULTINODE),
    ("modelRef", MODEL),
    ("runtimeVersionOverride", Text),
    ("globalDynamoNamespace", Flag),
    ("envs", VARIABLES),
    ("envFromSecret", Text),
    (
        "resources",
        Fields(&[("requests", SERVICE_RESOURCES), ("limits", SERVICE_RESOURCES), ("claims", ListOf(&Object))]),
    ),
    ("volumeMounts", ListOf(&Fields(&[("name", Text), ("mountPoint", Text), ("useAsCompilationCache", Flag)]))),
    ("sharedMemory", Fields(&[("disabled", Flag), ("size", Quantity)])),
    ("scalingAdapter", Fields(&[("enabled", Flag)])),
    ("gpuMemoryService", Fields(&[("enabled", Flag)])),
    ("failover", Fields(&[("enabled", Flag)])),
    ("checkpoint", Fields(&[("enabled", Flag)])),
    (
        "frontendSidecar",
        Fields(&[("image", Text), ("args", ListOf(&Text)), ("envs", VARIABLES), ("envFromSecret", Text)]),
    ),
    ("extraPodMetadata", METADATA),
    ("extraPodSpec", Pod(SERVICE_POD_FIELDS)),
    ("autoscaling", Object),
    ("ingress", Object),
    ("livenessProbe", Kubernetes(kubernetes::PROBE)),
    ("readinessProbe", Kubernetes(kubernetes::PROBE)),
    ("eppConfig", Object),
    ("providerOverride", Object),
    ("topologyConstraint", Object),
];
const SPEC_BETA: &Schema = &[
    ("annotations", TEXTS),
    ("labels", TEXTS),
    ("backendFramework", BACKENDS),
    ("priorityClassName", Text),
    ("env", VARIABLES),
    ("components", ListOf(&Fields(COMPONENT))),
    ("experimental", Object),
    ("providerOverride", Object),
    ("restart", Object),
    ("topologyConstraint", Object),
];
const SPEC_ALPHA: &Schema = &[
    ("annotations", TEXTS),
    ("labels", TEXTS),
    ("backendFramework", BACKENDS),
    ("priorityClassName", Text),
    ("envs", VARIABLES),
    ("pvcs", ListOf(&Fields(&[("name", Text)]))),
    ("services", MapOf(&Fields(SERVICE))),
    ("experimental", Object),
    ("providerOverride", Object),
    ("restart", Object),
    ("topologyConstraint", Object),
];

/// Maximum number of components of a graph.
const MAX_COMPONENTS: usize = 25;

/// The first value of an override that no graph can have.
pub fn mismatch(wanted: &JsonObject) -> Option<String> {
    let (alpha, spec) = (is_alpha(wanted), &wanted["spec"]);
    let fields = if alpha { SPEC_ALPHA } else { SPEC_BETA };
    let mut path = vec!["spec".to_owned()];
    check_fields(spec, fields, &mut path)
        .or_else(|| too_many(spec))
        .or_else(|| keys(spec, &mut path))
        .or_else(|| modifier(spec, alpha, &mut path))
        .map(|problem| format!("override {problem}"))
}

fn too_many(spec: &Value) -> Option<String> {
    let count = spec["components"].as_array().map_or(0, Vec::len);
    (count > MAX_COMPONENTS)
        .then(|| format!("spec.components has {count} entries, but a graph has at most {MAX_COMPONENTS}"))
}

fn check(value: &Value, type_: &FieldType, path: &mut Vec<String>) -> Option<String> {
    let is = |fits: bool, words: &str| (!fits).then(|| format!("{} must be {words}", path.join(".")));
    match type_ {
        Text => is(value.is_string(), "a string"),
        Flag => is(value.is_boolean(), "true or false"),
        Quantity => is(is_quantity(value), "a quantity, such as 8Gi"),
        Object => is(value.is_object(), "an object"),
        OneOf(values) => {
            is(value.as_str().is_some_and(|word| values.contains(&word)), &format!("one of {}", values.join(", ")))
        }
        Integer(minimum) => {
            let fits = value.as_i64().is_some_and(|number| *minimum <= number && number <= i64::from(i32::MAX));
            let too_large =
                value.as_i64().is_some_and(|number| number > i64::from(i32::MAX)) || value.is_u64() && !fits;
            let most = if too_large { format!(", and at most {}", i32::MAX) } else { String::new() };
            is(fits, &format!("an integer of at least {minimum}{most}"))
        }
        Fields(fields) => check_fields(value, fields, path),
        Kubernetes(name) => kubernetes::problem(value, name, Search::WrongTypes, path),
        Pod(more) => check_fields(value, more, path).or_else(|| {
            let (_, pod) = split_pod(value, more);
            kubernetes::problem(&pod, kubernetes::POD, Search::WrongTypes, path)
        }),
        MapOf(inner) => match value.as_object() {
            Some(entries) => {
                entries.iter().find_map(|(name, value)| below(path, name, |path| check(value, inner, path)))
            }
            None => is(false, "an object"),
        },
        ListOf(inner) => match value.as_array() {
            Some(items) => items
                .iter()
                .enumerate()
                .find_map(|(place, item)| below(path, &step(item, place), |path| check(item, inner, path))),
            None => is(false, "a list"),
        },
    }
}

/// The fields of a pod that Kubernetes does not have, and the others.
fn split_pod(value: &Value, more: &Schema) -> (Value, Value) {
    let fields = value.as_object().cloned().unwrap_or_default();
    let (own, pod): (JsonObject, JsonObject) =
        fields.into_iter().partition(|(name, _)| more.iter().any(|(known, _)| known == name));
    (own.into(), pod.into())
}

/// The path of the first field in the pod of a component that pods do not have.
pub fn unknown_in_pod(component: &Value, alpha: bool, path: &mut Vec<String>) -> Option<String> {
    let unknown = |value: &Value, name: &str, path: &mut Vec<String>| {
        kubernetes::problem(value, name, Search::UnknownFields, path)
    };
    if !alpha {
        return below(path, "podTemplate", |path| {
            below(path, "spec", |path| unknown(&component["podTemplate"]["spec"], kubernetes::POD, path))
        });
    }
    let (own, pod) = split_pod(&component["extraPodSpec"], SERVICE_POD_FIELDS);
    below(path, "extraPodSpec", |path| {
        unknown(&pod, kubernetes::POD, path).or_else(|| {
            below(path, "mainContainer", |path| unknown(&own["mainContainer"], kubernetes::CONTAINER, path))
        })
    })
}

pub(super) fn is_quantity(value: &Value) -> bool {
    value.is_number() || value.as_str().is_some_and(|text| billionths(text).is_some())
}

fn check_fields(value: &Value, fields: &Schema, path: &mut Vec<String>) -> Option<String> {
    let Some(object) = value.as_object() else { return Some(format!("{} must be an object", path.join("."))) };
    let known = fields.iter().filter_map(|(name, type_)| Some((name, type_, object.get(*name)?)));
    known.into_iter().find_map(|(name, type_, value)| below(path, name, |path| check(value, type_, path)))
}

/// An entry of a list by its name, or by its number if it has none.
pub(super) fn step(item: &Value, place: usize) -> String {
    item["name"].as_str().filter(|name| !name.is_empty()).map_or_else(|| place.to_string(), str::to_owned)
}

pub(super) fn below<T>(path: &mut Vec<String>, name: &str, look: impl FnOnce(&mut Vec<String>) -> T) -> T {
    path.push(name.to_owned());
    let found = look(path);
    path.pop();
    found
}

/// The first entry of a list with keys that lacks its key, or has that of another entry.
fn keys(value: &Value, path: &mut Vec<String>) -> Option<String> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| !lists::is_opaque(name))
            .find_map(|(name, value)| below(path, name, |path| keys(value, path))),
        Value::Array(items) => {
            let own = lists::keys(path).and_then(|keys| wrong_key(items, keys, path));
            own.or_else(|| {
                let mut entries = items.iter().enumerate();
                entries.find_map(|(place, item)| below(path, &step(item, place), |path| keys(item, path)))
            })
        }
        _ => None,
    }
}

fn wrong_key(items: &[Value], keys: &[&str], path: &[String]) -> Option<String> {
    let key = |item: &Value| -> Vec<Value> { keys.iter().map(|key| lists::key(item, key)).collect() };
    let mut known: Vec<Vec<Value>> = Vec::new();
    for (place, item) in items.iter().enumerate() {
        let path = path.join(".");
        let first = &item[keys[0]];
        if first.is_null() || first == "" {
            return Some(format!("{path}[{place}] has no {}", keys[0]));
        }
        let own = key(item);
        if known.contains(&own) {
            let value = first.as_str().map_or_else(|| first.to_string(), str::to_owned);
            return Some(format!("{path} has two entries with {} {value}", keys[0]));
        }
        known.push(own);
    }
    None
}

/// The first modifier that cannot be carried out.
fn modifier(value: &Value, alpha: bool, path: &mut Vec<String>) -> Option<String> {
    match value {
        Value::Object(fields) => {
            if let Some(modifier) = fields.get(APPEND) {
                let container = path.len() >= 2 && path[path.len() - 2] == "containers";
                if alpha || !container || *modifier != serde_json::json!({ "args": "append" }) {
                    return Some(misplaced_patch(&path.join(".")));
                }
                if fields.get("args").and_then(Value::as_array).is_none_or(Vec::is_empty) {
                    return Some(format!("{}.args must be a non-empty list of strings to append", path.join(".")));
                }
            }
            let others = fields.iter().filter(|(name, _)| *name != APPEND && !lists::is_opaque(name));
            others.into_iter().find_map(|(name, value)| below(path, name, |path| modifier(value, alpha, path)))
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(place, item)| below(path, &step(item, place), |path| modifier(item, alpha, path))),
        _ => None,
    }
}
