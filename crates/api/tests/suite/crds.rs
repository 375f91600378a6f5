//! Requirements on all CRDs: structural schemas, complete descriptions for `kubectl explain`, and a bounded size.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{ServiceReference, WebhookClientConfig};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::crds::{self, FAMILIES, Options};

use crate::compare::our_crd;

/// Most bytes of all CRDs together: installers send them in one list or request.
const MAX_TOTAL_BYTES: usize = 700_000;

#[test]
fn all_crds_stay_below_size_limit() {
    let sizes = FAMILIES.map(|family| (family.crd_name(), serde_json::to_string(&our_crd(family)).unwrap().len()));
    let sum: usize = sizes.iter().map(|(_, size)| size).sum();
    println!("{sizes:?}, together {sum} bytes of compact JSON");
    assert!(sum <= MAX_TOTAL_BYTES, "{sizes:?} are {sum} bytes, more than {MAX_TOTAL_BYTES}");
}

#[test]
fn crd_output_is_deterministic() {
    for family in FAMILIES {
        assert_eq!(our_crd(family).to_string(), our_crd(family).to_string());
    }
}

/// The served versions; the last one is stored.
fn expected_versions(family: Family) -> &'static [&'static str] {
    match family {
        Family::Dgdr | Family::Dgd => &["v1alpha1", "v1beta1"],
        Family::Llsd => &["v1alpha1", "v1alpha2"],
        Family::Va => &["v1alpha1"],
    }
}

#[test]
fn crd_names_and_versions_match_family() {
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
        let expected = expected_versions(family);
        assert_eq!(family.served_versions(), expected);
        assert_eq!(served.into_iter().collect::<BTreeSet<_>>(), expected.iter().copied().collect());
        let stored: Vec<_> = crd.spec.versions.iter().filter(|it| it.storage).map(|it| it.name.as_str()).collect();
        assert_eq!(stored, expected[expected.len() - 1..]);
        assert_eq!(stored, [family.storage_version()]);
        assert!(crd.spec.versions.iter().all(|it| it.subresources.as_ref().is_some_and(|it| it.status.is_some())));
    }
}

#[test]
fn conversion_webhook_only_for_several_versions() {
    let service = ServiceReference { name: "steersman".into(), namespace: "here".into(), ..Default::default() };
    let client = WebhookClientConfig { service: Some(service), ..Default::default() };
    let served = Options { conversion: Some(client.clone()) };
    for family in FAMILIES {
        let conversion = |options: &Options| crds::crd(family, options).unwrap().spec.conversion.unwrap();
        assert_eq!(conversion(&Options::default()).strategy, "None", "{family}");
        let conversion_with_client = conversion(&served);
        if family.served_versions().len() == 1 {
            assert_eq!(conversion_with_client.strategy, "None", "{family}");
        } else {
            assert_eq!(conversion_with_client.strategy, "Webhook", "{family}");
            let webhook = conversion_with_client.webhook.unwrap();
            assert_eq!(webhook.client_config, Some(client.clone()), "{family}");
            assert_eq!(webhook.conversion_review_versions, ["v1"], "{family}");
        }
    }
}

#[test]
fn family_without_crd_is_an_error() {
    let error = crds::crd(Family::Dgd, &Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "there is no CRD for dgd in this version of Steersman");
}

#[test]
fn schemas_are_structural_without_foreign_keys() {
    for family in FAMILIES {
        for version in our_crd(family)["spec"]["versions"].as_array().unwrap() {
            let root = &version["schema"]["openAPIV3Schema"];
            let mut problems = Vec::new();
            visit_schemas(root, &format!("{family} {}", version["name"]), &mut |path, schema| {
                problems.extend(schema_problems(schema).into_iter().map(|problem| format!("{path}: {problem}")));
            });
            assert!(problems.is_empty(), "{}", problems.join("\n"));
        }
    }
}

/// `kubectl explain` is the reference of our fields. We embed Kubernetes' own types without descriptions, so a type with a
/// description on some of its fields is ours and lacks the others.
#[test]
fn every_own_field_has_a_description() {
    for family in FAMILIES {
        for version in our_crd(family)["spec"]["versions"].as_array().unwrap() {
            let root = &version["schema"]["openAPIV3Schema"];
            assert!(root.get("description").is_some(), "{family} {}", version["name"]);
            let mut undescribed = Vec::new();
            for part in ["spec", "status"] {
                let top = format!("{family} {} .{part}", version["name"]);
                assert!(root["properties"][part].get("description").is_some(), "{top}");
                visit_schemas(&root["properties"][part], &top, &mut |path, schema| {
                    let fields: Vec<_> = schema["properties"].as_object().into_iter().flatten().collect();
                    let without_description = fields.iter().filter(|(_, field)| field.get("description").is_none());
                    let without_description: Vec<_> =
                        without_description.map(|(name, _)| format!("{path}.{name}")).collect();
                    if without_description.len() < fields.len() || path == top {
                        undescribed.extend(without_description);
                    }
                });
            }
            assert!(undescribed.is_empty(), "without a description: {}", undescribed.join(", "));
        }
    }
}

/// Doc comments are wrapped in the source, but `kubectl explain` wraps them at the width of the terminal.
#[test]
fn descriptions_have_no_hard_line_breaks() {
    for family in FAMILIES {
        for version in our_crd(family)["spec"]["versions"].as_array().unwrap() {
            visit_schemas(&version["schema"]["openAPIV3Schema"], &family.to_string(), &mut |path, schema| {
                let text = schema["description"].as_str().unwrap_or("none");
                let broken = text
                    .lines()
                    .zip(text.lines().skip(1))
                    .any(|(line, next)| !line.is_empty() && !next.is_empty() && !next.starts_with("- "));
                assert!(!broken && !text.trim().is_empty(), "{path}: {text:?}");
            });
        }
    }
}

/// Calls `visit` for the schema of each value, with its path.
fn visit_schemas(schema: &Value, path: &str, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        visit_schemas(field, &format!("{path}.{name}"), visit);
    }
    for (key, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(nested) = schema.get(key) {
            visit_schemas(nested, &format!("{path}{suffix}"), visit);
        }
    }
}

fn schema_problems(schema: &Value) -> Vec<String> {
    let Some(fields) = schema.as_object() else { return vec![format!("{schema} is no schema object")] };
    let mut problems = Vec::new();
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
            problems.push(format!("{key} does not belong here"));
        }
    }
    let untyped =
        schema["x-kubernetes-int-or-string"] == true || schema["x-kubernetes-preserve-unknown-fields"] == true;
    if !schema["type"].is_string() && !untyped {
        problems.push("has no type".to_owned());
    }
    let formats = [Value::Null, json!("int32"), json!("int64"), json!("date-time"), json!("byte")];
    if !formats.contains(&schema["format"]) {
        problems.push(format!("format {} is not one that Kubernetes knows", schema["format"]));
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        if schema["properties"].get(name.as_str().unwrap()).is_none() {
            problems.push(format!("requires {name}, which it does not have"));
        }
    }
    for key in schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten() {
        let element = &schema["items"];
        let required = element["required"].as_array().is_some_and(|names| names.contains(key));
        if !required && element["properties"][key.as_str().unwrap()].get("default").is_none() {
            problems.push(format!("key {key} of its elements is neither required nor defaulted"));
        }
    }
    problems
}
