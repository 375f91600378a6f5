//! Merges the permitted fields of `overrides.profilingJob` into the Job, and lists the others.

use serde_json::Value;

use super::{COPIER, OUTPUT_PATH, PROFILER, container, put};
use crate::dynamo::graph::JsonObject;
use crate::dynamo::names;

const JOB: [&str; 6] =
    ["backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished", "completions", "parallelism", "suspend"];
/// Fields that are replaced as a whole.
const POD: [&str; 11] = [
    "tolerations",
    "nodeSelector",
    "topologySpreadConstraints",
    "affinity",
    "priorityClassName",
    "serviceAccountName",
    "runtimeClassName",
    "dnsPolicy",
    "dnsConfig",
    "terminationGracePeriodSeconds",
    "automountServiceAccountToken",
];
const POD_BY_NAME: [&str; 3] = ["imagePullSecrets", "volumes", "initContainers"];
const SECURITY: [&str; 11] = [
    "runAsNonRoot",
    "runAsUser",
    "runAsGroup",
    "fsGroup",
    "supplementalGroups",
    "sysctls",
    "fsGroupChangePolicy",
    "seccompProfile",
    "appArmorProfile",
    "seLinuxOptions",
    "windowsOptions",
];
const PROTECTED_LABELS: [&str; 6] = [
    names::LABEL_APP,
    names::LABEL_REQUEST,
    names::LABEL_NAME,
    names::LABEL_NAMESPACE,
    names::LABEL_MANAGED_BY,
    names::LABEL_PROFILED,
];
const PROFILER_FIELDS: [&str; 6] = ["image", "resources", "securityContext", "env", "volumeMounts", "envFrom"];
/// The image is fixed: the sidecar runs a program of the operator's image.
const SIDECAR_FIELDS: [&str; 1] = ["resources"];

pub fn merge(job: &mut Value, wanted: &JsonObject) {
    for name in JOB {
        if let Some(value) = set_value(wanted, name) {
            job[name] = value.clone();
        }
    }
    let Some(template) = object(wanted, "template") else { return };
    metadata(&mut job["template"], object(template, "metadata"));
    let (Some(pod), Some(wanted)) = (job["template"]["spec"].as_object_mut(), object(template, "spec")) else { return };
    for name in POD {
        if let Some(value) = set_value(wanted, name) {
            pod.insert(name.to_owned(), value.clone());
        }
    }
    if let Some(security) = object(wanted, "securityContext") {
        let own = pod.entry("securityContext").or_insert_with(|| JsonObject::new().into());
        for name in SECURITY {
            if let Some(value) = set_value(security, name) {
                own[name] = value.clone();
            }
        }
    }
    for name in POD_BY_NAME {
        for entry in entries(wanted, name) {
            put(pod, name, entry.clone());
        }
    }
    let containers = entries(wanted, "containers");
    for (name, wanted, fields) in [
        (PROFILER, for_profiler(containers), &PROFILER_FIELDS[..]),
        (COPIER, named(containers, COPIER), &SIDECAR_FIELDS[..]),
    ] {
        if let (Some(own), Some(wanted)) = (container(pod, name), wanted) {
            merge_container(own, wanted, fields);
        }
    }
}

fn metadata(template: &mut Value, wanted: Option<&JsonObject>) {
    for part in ["labels", "annotations"] {
        let Some(values) = wanted.and_then(|wanted| object(wanted, part)) else { continue };
        let taken = values.iter().filter(|(key, _)| part == "annotations" || !PROTECTED_LABELS.contains(&key.as_str()));
        for (key, value) in taken {
            template["metadata"][part][key.as_str()] = value.clone();
        }
    }
}

fn merge_container(own: &mut JsonObject, wanted: &JsonObject, fields: &[&str]) {
    for name in fields.iter().copied() {
        let Some(value) = set_value(wanted, name) else { continue };
        match (name, value) {
            ("env", Value::Array(entries)) => {
                for entry in entries {
                    put(own, name, entry.clone());
                }
            }
            ("volumeMounts", Value::Array(entries)) => {
                if let Value::Array(list) = own.entry(name).or_insert_with(|| Value::Array(Vec::new())) {
                    merge_mounts(list, entries);
                }
            }
            ("envFrom", Value::Array(entries)) => {
                if let Value::Array(list) = own.entry(name).or_insert_with(|| Value::Array(Vec::new())) {
                    list.extend(entries.iter().cloned());
                }
            }
            _ => {
                own.insert(name.to_owned(), value.clone());
            }
        }
    }
    sort_env(own);
}

/// The user's mounts replace ours of the same volume or path. A volume may be mounted several times. The profiler's files
/// must be where the sidecar reads them, so that another mount of their volume is an additional one.
fn merge_mounts(list: &mut Vec<Value>, wanted: &[Value]) {
    let replaced = |own: &Value| {
        let by_volume = own["mountPath"] != OUTPUT_PATH;
        wanted.iter().any(|new| (by_volume && new["name"] == own["name"]) || new["mountPath"] == own["mountPath"])
    };
    list.retain(|own| !replaced(own));
    list.extend(wanted.iter().cloned());
}

/// A fixed order: another one would be another Job.
pub(super) fn sort_env(container: &mut JsonObject) {
    if let Some(env) = container.get_mut("env").and_then(Value::as_array_mut) {
        env.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    }
}

/// The entry with the profiler's name, or the first that is not the sidecar's.
fn for_profiler(containers: &[Value]) -> Option<&JsonObject> {
    named(containers, PROFILER)
        .or_else(|| containers.iter().find(|container| container["name"] != COPIER).and_then(Value::as_object))
}

fn named<'a>(containers: &'a [Value], name: &str) -> Option<&'a JsonObject> {
    containers.iter().find(|container| container["name"] == name).and_then(Value::as_object)
}

fn object<'a>(of: &'a JsonObject, name: &str) -> Option<&'a JsonObject> {
    of.get(name).and_then(Value::as_object)
}

fn entries<'a>(of: &'a JsonObject, name: &str) -> &'a [Value] {
    of.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A null, an empty string, list or map counts as unset.
fn set_value<'a>(of: &'a JsonObject, name: &str) -> Option<&'a Value> {
    of.get(name).filter(|value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    })
}

/// Whether an image is set for the sidecar, where earlier operators ran a script in an image with kubectl.
pub fn has_sidecar_image(wanted: &JsonObject) -> bool {
    let pod = object(wanted, "template").and_then(|template| object(template, "spec"));
    let copier = pod.and_then(|pod| named(entries(pod, "containers"), COPIER));
    copier.is_some_and(|copier| set_value(copier, "image").is_some())
}

/// Paths of the fields that `merge` ignores.
pub fn ignored(wanted: &JsonObject) -> Vec<String> {
    let mut found = beyond(wanted, "", &[&JOB[..], &["template"]].concat());
    let Some(template) = object(wanted, "template") else { return found };
    found.extend(beyond(template, "template.", &["metadata", "spec"]));
    if let Some(metadata) = object(template, "metadata") {
        found.extend(beyond(metadata, "template.metadata.", &["labels", "annotations"]));
        let labels = object(metadata, "labels").into_iter().flatten();
        let taken = labels.filter(|(key, _)| PROTECTED_LABELS.contains(&key.as_str()));
        found.extend(taken.map(|(key, _)| format!("template.metadata.labels[{key}]")));
    }
    let Some(pod) = object(template, "spec") else { return found };
    found.extend(beyond(
        pod,
        "template.spec.",
        &[&POD[..], &POD_BY_NAME[..], &["securityContext", "containers"]].concat(),
    ));
    if let Some(security) = object(pod, "securityContext") {
        found.extend(beyond(security, "template.spec.securityContext.", &SECURITY));
    }
    let containers = entries(pod, "containers");
    let profiler = for_profiler(containers);
    for (place, container) in containers.iter().enumerate().filter_map(|(place, c)| Some((place, c.as_object()?))) {
        let path = format!("template.spec.containers[{place}]");
        let fields = match container.get("name").and_then(Value::as_str) {
            _ if profiler == Some(container) => &PROFILER_FIELDS[..],
            Some(COPIER) => &SIDECAR_FIELDS[..],
            _ => {
                found.push(path);
                continue;
            }
        };
        found.extend(beyond(container, &format!("{path}."), &[fields, &["name"]].concat()));
    }
    found
}

fn beyond(of: &JsonObject, path: &str, known: &[&str]) -> Vec<String> {
    let unknown = of.keys().filter(|name| !known.contains(&name.as_str()) && set_value(of, name).is_some());
    unknown.map(|name| format!("{path}{name}")).collect()
}
