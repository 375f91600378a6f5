//! The table of fields that two versions share: consistent with the published schemas and with the conversion.

use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::convert::{SharedField, StoredLocation, convert, shared_fields};
use steersman_api::crds::{self, Options};

fn tables() -> Vec<(Family, &'static str, Vec<SharedField>)> {
    let versions =
        Family::ALL.into_iter().flat_map(|family| family.served_versions().iter().map(move |of| (family, *of)));
    versions.map(|(family, version)| (family, version, shared_fields(family, version))).collect()
}

fn spec_schema(family: Family, version: &str) -> Value {
    let crd = crds::manifest(&crds::crd(family, &Options::default()).unwrap()).unwrap();
    let versions = crd["spec"]["versions"].as_array().unwrap();
    let version_entry = versions.iter().find(|version_entry| version_entry["name"] == version).unwrap();
    version_entry.pointer("/schema/openAPIV3Schema/properties/spec").unwrap().clone()
}

fn accepts_any_field(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true || schema["additionalProperties"] == true
}

/// The schema of a field. `None` if there is no such field. Below an object that accepts any field, the schema of that
/// object is returned.
fn field<'a>(schema: &'a Value, path: &[&str]) -> Option<&'a Value> {
    let mut node = schema;
    for name in path {
        match node["properties"].get(name) {
            Some(inner) => node = inner,
            None if accepts_any_field(node) => return Some(node),
            None => return None,
        }
    }
    Some(node)
}

/// Collects the fields of `stored` that `written` lacks.
fn collect_missing(stored: &Value, written: &Value, at: &str, missing: &mut Vec<String>) {
    if accepts_any_field(written) {
        return;
    }
    for (name, inner) in stored["properties"].as_object().into_iter().flatten() {
        match written["properties"].get(name) {
            Some(other) => collect_missing(inner, other, &format!("{at}.{name}"), missing),
            None => missing.push(format!("{at}.{name}")),
        }
    }
    for part in ["items", "additionalProperties"] {
        if stored[part].is_object() {
            collect_missing(&stored[part], &written[part], &format!("{at}[]"), missing);
        }
    }
}

#[test]
fn families_with_two_versions_share_fields() {
    for (family, version, fields) in tables() {
        let converted = [Family::Llsd, Family::Dgdr].contains(&family) && version != family.storage_version();
        assert_eq!(!fields.is_empty(), converted, "{family} {version}");
    }
    assert_eq!(shared_fields(Family::Llsd, "v9"), []);
}

#[test]
fn shared_fields_are_in_both_published_schemas() {
    for (family, version, fields) in tables().into_iter().filter(|(_, _, fields)| !fields.is_empty()) {
        let (stored, written) = (spec_schema(family, family.storage_version()), spec_schema(family, version));
        for shared in fields {
            let written_field = field(&written, shared.written);
            assert!(written_field.is_some(), "{family} {version}: no field {:?}", shared.written);
            let StoredLocation::Spec(path) = shared.stored else { continue };
            let stored_field = field(&stored, path);
            assert!(stored_field.is_some(), "{family} {}: no field {path:?}", family.storage_version());
            if let (true, Some(stored_field), Some(written_field)) = (shared.with_content, stored_field, written_field)
            {
                let mut missing = Vec::new();
                collect_missing(stored_field, written_field, &path.join("."), &mut missing);
                assert_eq!(missing, Vec::<String>::new(), "{family} {version} lacks these");
            }
        }
    }
}

/// A value that is valid for the field.
fn sample(schema: &Value, name: &str) -> Value {
    match (name, schema["type"].as_str()) {
        ("optimizationType", _) => json!("latency"),
        ("resources" | "tolerations" | "nodeSelector" | "planner", Some("object")) => json!({ "a": "b" }),
        (_, Some("boolean")) => json!(true),
        (_, Some("integer" | "number")) => json!(3),
        (_, Some("array")) => json!([{ "name": "a" }]),
        (_, Some("object")) => json!({ "configMapName": "a", "name": "a", "maxReplicas": 2, "a": "b" }),
        _ => json!("a"),
    }
}

#[test]
fn conversion_moves_each_shared_field() {
    for (family, version, fields) in tables().into_iter().filter(|(_, _, fields)| !fields.is_empty()) {
        let schema = spec_schema(family, family.storage_version());
        for shared in fields.into_iter().filter(|shared| shared.with_content) {
            let StoredLocation::Spec(path) = shared.stored else { continue };
            let value = match shared.written {
                // v1alpha2 only has the name.
                ["server", "userConfig"] => json!({ "configMapName": "a" }),
                _ => sample(field(&schema, path).unwrap(), path.last().unwrap()),
            };
            let spec = shared.written.iter().rev().fold(value.clone(), |inner, name| json!({ *name: inner }));
            let object = json!({
                "apiVersion": format!("{}/{version}", family.group()),
                "kind": family.kind(),
                "metadata": {},
                "spec": spec,
            });
            let to = format!("{}/{}", family.group(), family.storage_version());
            let converted = convert(object, &to).unwrap().object;
            let actual = path.iter().fold(&converted["spec"], |value, name| &value[*name]);
            assert_eq!(*actual, value, "{:?} is {path:?}: {converted}", shared.written);
        }
    }
}
