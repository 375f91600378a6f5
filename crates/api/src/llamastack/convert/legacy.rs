//! Reads the annotations in which earlier builds of the Llama Stack operator kept fields. They are never written.

use serde_json::{Value, json};

use super::carry::{Fields, put};
use super::fields::{GENERATED, Version};
use crate::convert::tree::at;

const EXTRAS: [(Version, &str); 2] =
    [(Version::V1alpha1, "llamastack.io/v1alpha1-extras"), (Version::V1alpha2, "llamastack.io/v1alpha2-extras")];

/// Annotations of single fields, which precede those for all fields; with the names that the fields have in these.
const SINGLE: [(&str, &str); 5] = [
    ("llamastack.io/v1alpha1-container-name", "containerName"),
    ("llamastack.io/v1alpha1-termination-grace-period", "terminationGracePeriod"),
    ("llamastack.io/v1alpha1-user-config-namespace", "userConfigNamespace"),
    ("llamastack.io/v1alpha1-ca-bundle-namespace", "caBundleNamespace"),
    ("llamastack.io/v1alpha1-ca-bundle-keys", "caBundleKeys"),
];

/// Annotation, name and value of each field.
#[derive(Debug, Default)]
pub(super) struct Legacy(Vec<(&'static str, String, Value)>);

impl Legacy {
    pub fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.0.iter().map(|(annotation, ..)| *annotation).collect();
        names.dedup();
        names
    }
}

/// Removes and returns the fields of `version`. An annotation that cannot be read stays.
pub(super) fn take(annotations: &mut Fields, version: Version) -> Legacy {
    let mut found = Vec::new();
    for (_, name) in EXTRAS.into_iter().filter(|(of, _)| *of == version) {
        let read = annotations.get(name).and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok());
        if let Some(Value::Object(fields)) = read {
            annotations.remove(name);
            found.extend(fields.into_iter().map(|(field, value)| (name, field, value)));
        }
    }
    if version == Version::V1alpha1 {
        for (name, field) in SINGLE {
            let value = annotations.get(name).and_then(Value::as_str).and_then(|text| single(field, text));
            if let Some(value) = value {
                annotations.remove(name);
                found.push((name, field.to_owned(), value));
            }
        }
    }
    Legacy(found)
}

fn single(field: &str, text: &str) -> Option<Value> {
    match field {
        "terminationGracePeriod" => text.parse::<i64>().ok().map(Value::from),
        "caBundleKeys" => {
            let listed = serde_json::from_str::<Vec<String>>(text).ok();
            Some(json!(listed.unwrap_or_else(|| text.split(',').map(|key| key.trim().to_owned()).collect())))
        }
        _ => Some(text.into()),
    }
}

/// Adds fields of v1alpha2 to those that were kept, which are newer and win.
pub(super) fn into_kept(legacy: Legacy, kept: &mut Fields, unknown: &mut Vec<(&'static str, String)>) {
    for (annotation, name, value) in legacy.0 {
        match &*name {
            "externalProviders" => absent(kept, &["externalProviders"], value),
            "exposeHostname" => absent(kept, &["networking", "expose"], json!({ "hostname": value })),
            _ if GENERATED.contains(&&*name) => absent(kept, &[&*name], value),
            _ => unknown.push((annotation, name)),
        }
    }
}

/// Adds fields of v1alpha1 to a spec, whose own fields are newer and win. A field about a ConfigMap that the spec no longer
/// names is dropped.
pub(super) fn into_spec(legacy: Legacy, spec: &mut Fields, unknown: &mut Vec<(&'static str, String)>) {
    for (annotation, name, value) in legacy.0 {
        let (path, about): (&[&str], usize) = match &*name {
            "containerName" => (&["server", "containerSpec", "name"], 0),
            "terminationGracePeriod" => (&["server", "podOverrides", "terminationGracePeriodSeconds"], 0),
            "userConfigNamespace" => (&["server", "userConfig", "configMapNamespace"], 2),
            "caBundleNamespace" => (&["server", "tlsConfig", "caBundle", "configMapNamespace"], 3),
            "caBundleKeys" => (&["server", "tlsConfig", "caBundle", "configMapKeys"], 3),
            _ => {
                unknown.push((annotation, name));
                continue;
            }
        };
        if about == 0 || at(spec, &path[..about]).is_some_and(Value::is_object) {
            absent(spec, path, value);
        }
    }
}

fn absent(fields: &mut Fields, path: &[&str], value: Value) {
    if at(fields, path).is_none() {
        put(fields, path, value);
    }
}
