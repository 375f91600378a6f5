//! The fields that two versions share, held against the published schemas and against the conversion.

use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::convert::{SharedField, StoredPlace, convert, shared_fields};
use steersman_api::crds::{self, Options};

fn tables() -> Vec<(Family, &'static str, Vec<SharedField>)> {
    let versions =
        Family::ALL.into_iter().flat_map(|family| family.served_versions().iter().map(move |of| (family, *of)));
    versions.map(|(family, version)| (family, version, shared_fields(family, version))).collect()
}

fn spec_schema(family: Family, version: &str) -> Value {
    let crd = crds::manifest(&crds::crd(family, &Options::default()).unwrap()).unwrap();
    let versions = crd["spec"]["versions"].as_array().unwrap();
    let one = versions.iter().find(|one| one["name"] == version).unwrap();
    one.pointer("/schema/openAPIV3Schema/properties/spec").unwrap().clone()
}

fn is_open(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true || schema["additionalProperties"] == true
}

/// None: there is no such field. What is in an object of any form cannot be checked.
fn field<'a>(schema: &'a Value, path: &[&str]) -> Option<&'a Value> {
    let mut node = schema;
    for name in path {
        match node["properties"].get(name) {
            Some(inner) => node = inner,
            None if is_open(node) => return Some(node),
            None => return None,
        }
    }
    Some(node)
}

/// The fields that are inside `stored` and not inside `written`.
fn lacking(stored: &Value, written: &Value, at: &str, found: &mut Vec<String>) {
    if is_open(written) {
        return;
    }
    for (name, inner) in stored["properties"].as_object().into_iter().flatten() {
        match written["properties"].get(name) {
            Some(other) => lacking(inner, other, &format!("{at}.{name}"), found),
            None => found.push(format!("{at}.{name}")),
        }
    }
    for part in ["items", "additionalProperties"] {
        if stored[part].is_object() {
            lacking(&stored[part], &written[part], &format!("{at}[]"), found);
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
            let there = field(&written, shared.written);
            assert!(there.is_some(), "{family} {version}: no field {:?}", shared.written);
            let StoredPlace::Spec(path) = shared.stored else { continue };
            let here = field(&stored, path);
            assert!(here.is_some(), "{family} {}: no field {path:?}", family.storage_version());
            if let (true, Some(here), Some(there)) = (shared.with_content, here, there) {
                let mut found = Vec::new();
                lacking(here, there, &path.join("."), &mut found);
                assert_eq!(found, Vec::<String>::new(), "{family} {version} lacks these");
            }
        }
    }
}

/// A value that the schema has for the field.
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
            let StoredPlace::Spec(path) = shared.stored else { continue };
            let value = match shared.written {
                // v1alpha2 keeps the name alone.
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
            let found = path.iter().fold(&converted["spec"], |value, name| &value[*name]);
            assert_eq!(*found, value, "{:?} is {path:?}: {converted}", shared.written);
        }
    }
}
