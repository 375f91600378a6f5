//! All CRDs together: what the API server demands of every schema, and what users of `kubectl explain` and of the wire do.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{ServiceReference, WebhookClientConfig};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::crds::{self, FAMILIES, Options};

use crate::compare::ours;

/// All CRDs travel together: in one list, in one request of an installer.
const LIMIT: usize = 700_000;

#[test]
fn all_crds_together_stay_small() {
    let sizes = FAMILIES.map(|family| (family.crd_name(), serde_json::to_string(&ours(family)).unwrap().len()));
    let sum: usize = sizes.iter().map(|(_, size)| size).sum();
    println!("{sizes:?}, together {sum} bytes of compact JSON");
    assert!(sum <= LIMIT, "{sizes:?} are {sum} bytes, more than {LIMIT}");
}

#[test]
fn the_same_bytes_come_out_every_time() {
    for family in FAMILIES {
        assert_eq!(ours(family).to_string(), ours(family).to_string());
    }
}

#[test]
fn names_and_versions_are_those_of_the_family() {
    for (family, crd) in FAMILIES.into_iter().zip(crds::all(&Options::default()).unwrap()) {
        assert_eq!(crd.metadata.name.as_deref(), Some(family.crd_name()));
        assert_eq!(crd.spec.group, family.group());
        assert_eq!(crd.spec.scope, "Namespaced");
        let names = &crd.spec.names;
        assert_eq!((names.kind.as_str(), names.plural.as_str()), (family.kind(), family.plural()));
        assert_eq!(names.list_kind.as_deref(), Some(&*format!("{}List", family.kind())));
        assert_eq!(names.singular.as_deref(), Some(&*family.kind().to_lowercase()));
        assert_eq!(names.short_names.as_deref(), Some(&[family.short_name().to_owned()][..]));
        let served: Vec<_> = crd.spec.versions.iter().filter(|it| it.served).map(|it| it.name.as_str()).collect();
        let mut wanted = family.served_versions().to_vec();
        wanted.sort_unstable();
        assert_eq!(served.iter().copied().collect::<BTreeSet<_>>(), wanted.into_iter().collect());
        let stored: Vec<_> = crd.spec.versions.iter().filter(|it| it.storage).map(|it| it.name.as_str()).collect();
        assert_eq!(stored, [family.storage_version()]);
        assert!(crd.spec.versions.iter().all(|it| it.subresources.as_ref().is_some_and(|it| it.status.is_some())));
    }
}

#[test]
fn only_a_crd_of_several_versions_is_converted_and_only_where_somebody_serves_it() {
    let service = ServiceReference { name: "steersman".into(), namespace: "here".into(), ..Default::default() };
    let client = WebhookClientConfig { service: Some(service), ..Default::default() };
    let served = Options { conversion: Some(client.clone()) };
    for family in FAMILIES {
        let conversion = |options: &Options| crds::crd(family, options).unwrap().spec.conversion.unwrap();
        assert_eq!(conversion(&Options::default()).strategy, "None", "{family}");
        let with = conversion(&served);
        if family.served_versions().len() == 1 {
            assert_eq!(with.strategy, "None", "{family}");
        } else {
            assert_eq!(with.strategy, "Webhook", "{family}");
            let webhook = with.webhook.unwrap();
            assert_eq!(webhook.client_config, Some(client.clone()), "{family}");
            assert_eq!(webhook.conversion_review_versions, ["v1"], "{family}");
        }
    }
}

#[test]
fn a_family_without_a_crd_says_so() {
    let error = crds::crd(Family::Dgd, &Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "there is no CRD for dgd in this version of Steersman");
}

#[test]
fn schemas_are_structural_and_hold_nothing_foreign() {
    for family in FAMILIES {
        for version in ours(family)["spec"]["versions"].as_array().unwrap() {
            let root = &version["schema"]["openAPIV3Schema"];
            let mut wrong = Vec::new();
            walk(root, &format!("{family} {}", version["name"]), &mut |path, schema| {
                wrong.extend(faults(schema).into_iter().map(|fault| format!("{path}: {fault}")));
            });
            assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        }
    }
}

/// `kubectl explain` is the reference of our fields. Kubernetes' own types carry no description at all: a type of which some
/// fields have one is ours, and one of them was forgotten.
#[test]
fn every_field_of_ours_is_described_and_none_of_kubernetes_own() {
    for family in FAMILIES {
        for version in ours(family)["spec"]["versions"].as_array().unwrap() {
            let root = &version["schema"]["openAPIV3Schema"];
            assert!(root.get("description").is_some(), "{family} {}", version["name"]);
            let mut forgotten = Vec::new();
            for part in ["spec", "status"] {
                let top = format!("{family} {} .{part}", version["name"]);
                assert!(root["properties"][part].get("description").is_some(), "{top}");
                walk(&root["properties"][part], &top, &mut |path, schema| {
                    let fields: Vec<_> = schema["properties"].as_object().into_iter().flatten().collect();
                    let silent = fields.iter().filter(|(_, field)| field.get("description").is_none());
                    let silent: Vec<_> = silent.map(|(name, _)| format!("{path}.{name}")).collect();
                    if silent.len() < fields.len() || path == top {
                        forgotten.extend(silent);
                    }
                });
            }
            assert!(forgotten.is_empty(), "without a description: {}", forgotten.join(", "));
        }
    }
}

/// Descriptions are written in lines and read in windows of another width.
#[test]
fn descriptions_are_paragraphs_not_lines() {
    for family in FAMILIES {
        for version in ours(family)["spec"]["versions"].as_array().unwrap() {
            walk(&version["schema"]["openAPIV3Schema"], &family.to_string(), &mut |path, schema| {
                let text = schema["description"].as_str().unwrap_or("said");
                let broken = text
                    .lines()
                    .zip(text.lines().skip(1))
                    .any(|(line, next)| !line.is_empty() && !next.is_empty() && !next.starts_with("- "));
                assert!(!broken && !text.trim().is_empty(), "{path}: {text:?}");
            });
        }
    }
}

/// Every schema that stands for a value of its own, with its path.
fn walk(schema: &Value, path: &str, see: &mut impl FnMut(&str, &Value)) {
    see(path, schema);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        walk(field, &format!("{path}.{name}"), see);
    }
    for (key, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(below) = schema.get(key) {
            walk(below, &format!("{path}{mark}"), see);
        }
    }
}

fn faults(schema: &Value) -> Vec<String> {
    let Some(fields) = schema.as_object() else { return vec![format!("{schema} is no schema object")] };
    let mut faults = Vec::new();
    for key in fields.keys() {
        let known = [
            "additionalProperties",
            "allOf",
            "anyOf",
            "default",
            "description",
            "enum",
            "format",
            "items",
            "maxItems",
            "maxLength",
            "maxProperties",
            "maximum",
            "minItems",
            "minLength",
            "minProperties",
            "minimum",
            "not",
            "oneOf",
            "pattern",
            "properties",
            "required",
            "type",
            "x-kubernetes-embedded-resource",
            "x-kubernetes-int-or-string",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-list-type",
            "x-kubernetes-map-type",
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-validations",
        ];
        if !known.contains(&key.as_str()) {
            faults.push(format!("{key} does not belong here"));
        }
    }
    let untyped =
        schema["x-kubernetes-int-or-string"] == true || schema["x-kubernetes-preserve-unknown-fields"] == true;
    if !schema["type"].is_string() && !untyped {
        faults.push("has no type".to_owned());
    }
    let formats = [Value::Null, json!("int32"), json!("int64"), json!("date-time"), json!("byte")];
    if !formats.contains(&schema["format"]) {
        faults.push(format!("format {} is not one that Kubernetes knows", schema["format"]));
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        if schema["properties"].get(name.as_str().unwrap()).is_none() {
            faults.push(format!("requires {name}, which it does not have"));
        }
    }
    for key in schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten() {
        let element = &schema["items"];
        let required = element["required"].as_array().is_some_and(|names| names.contains(key));
        if !required && element["properties"][key.as_str().unwrap()].get("default").is_none() {
            faults.push(format!("key {key} of its elements is neither required nor defaulted"));
        }
    }
    faults
}
