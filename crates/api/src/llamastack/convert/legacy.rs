//! Reads the annotations in which earlier builds of the Llama Stack operator preserved fields. They are never written.

use serde_json::{Value, json};

use super::fields::{GENERATED_SECTIONS, LlsdVersion};
use super::transfer::{Fields, insert_at};
use crate::convert::tree::value_at;

/// Annotations with several fields.
const EXTRAS: [(LlsdVersion, &str); 2] = [
    (LlsdVersion::V1alpha1, "llamastack.io/v1alpha1-extras"),
    (LlsdVersion::V1alpha2, "llamastack.io/v1alpha2-extras"),
];

/// Annotations with one field each, from before `EXTRAS`, and the names that the fields have in `EXTRAS`.
const SINGLE_FIELDS: [(&str, &str); 5] = [
    ("llamastack.io/v1alpha1-container-name", "containerName"),
    ("llamastack.io/v1alpha1-termination-grace-period", "terminationGracePeriod"),
    ("llamastack.io/v1alpha1-user-config-namespace", "userConfigNamespace"),
    ("llamastack.io/v1alpha1-ca-bundle-namespace", "caBundleNamespace"),
    ("llamastack.io/v1alpha1-ca-bundle-keys", "caBundleKeys"),
];

/// Annotation, name and value of each field.
#[derive(Debug, Default)]
pub(super) struct LegacyFields(Vec<(&'static str, String, Value)>);

impl LegacyFields {
    /// The annotations that had fields.
    pub fn annotations(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.0.iter().map(|(annotation, ..)| *annotation).collect();
        names.dedup();
        names
    }
}

/// Removes and returns the fields of `version`. An annotation that cannot be parsed stays.
pub(super) fn take(annotations: &mut Fields, version: LlsdVersion) -> LegacyFields {
    let mut found = Vec::new();
    for (_, annotation) in EXTRAS.into_iter().filter(|(of, _)| *of == version) {
        let text = annotations.get(annotation).and_then(Value::as_str);
        if let Some(Value::Object(fields)) = text.and_then(|text| serde_json::from_str(text).ok()) {
            annotations.remove(annotation);
            found.extend(fields.into_iter().map(|(field, value)| (annotation, field, value)));
        }
    }
    if version == LlsdVersion::V1alpha1 {
        for (annotation, field) in SINGLE_FIELDS {
            let text = annotations.get(annotation).and_then(Value::as_str);
            if let Some(value) = text.and_then(|text| parse_single(field, text)) {
                annotations.remove(annotation);
                found.push((annotation, field.to_owned(), value));
            }
        }
    }
    LegacyFields(found)
}

fn parse_single(field: &str, text: &str) -> Option<Value> {
    match field {
        "terminationGracePeriod" => text.parse::<i64>().ok().map(Value::from),
        "caBundleKeys" => {
            let listed = serde_json::from_str::<Vec<String>>(text).ok();
            Some(json!(listed.unwrap_or_else(|| text.split(',').map(|key| key.trim().to_owned()).collect())))
        }
        _ => Some(text.into()),
    }
}

/// Adds fields of v1alpha2 to the preserved ones, which are newer and win.
pub(super) fn add_to_preserved(
    legacy: LegacyFields,
    preserved: &mut Fields,
    unknown: &mut Vec<(&'static str, String)>,
) {
    for (annotation, name, value) in legacy.0 {
        match &*name {
            "externalProviders" => insert_if_absent(preserved, &["externalProviders"], value),
            "exposeHostname" => insert_if_absent(preserved, &["networking", "expose"], json!({ "hostname": value })),
            _ if GENERATED_SECTIONS.contains(&&*name) => insert_if_absent(preserved, &[&*name], value),
            _ => unknown.push((annotation, name)),
        }
    }
}

/// Adds fields of v1alpha1 to a spec, whose own fields are newer and win. A field about a ConfigMap that the spec no
/// longer has is dropped.
pub(super) fn add_to_spec(legacy: LegacyFields, spec: &mut Fields, unknown: &mut Vec<(&'static str, String)>) {
    for (annotation, name, value) in legacy.0 {
        // The second value is the length of the path of the section that the spec must have.
        let (path, required): (&[&str], usize) = match &*name {
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
        if required == 0 || value_at(spec, &path[..required]).is_some_and(Value::is_object) {
            insert_if_absent(spec, path, value);
        }
    }
}

fn insert_if_absent(fields: &mut Fields, path: &[&str], value: Value) {
    if value_at(fields, path).is_none() {
        insert_at(fields, path, value);
    }
}
