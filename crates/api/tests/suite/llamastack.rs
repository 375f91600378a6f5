//! LlamaStackDistribution: both versions deserialize and serialize without a change of form. The same fixtures are sent to
//! a real API server by the tests of the operator; the first line of an invalid one is the expected error.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::llamastack::v1alpha2::{ExposeForm, Model, ModelForm, Provider, ProviderForm, SecretKey, SecretRef};
use steersman_api::llamastack::{v1alpha1, v1alpha2};

use crate::compare::{self, our_crd};
use crate::manifests::{self, EXPECTED_ERROR_PREFIX, Manifest, manifests, round_trip_as};
use crate::upstream;

/// Validation rules and enums in the schema of each version, without those of conditions, a type of Kubernetes.
const RULE_COUNTS: [(&str, usize); 2] = [("v1alpha1", 2), ("v1alpha2", 24)];

fn fixtures(folder: &str) -> Vec<Manifest> {
    manifests::fixtures(&format!("llamastack/{folder}"))
}

/// Deserializes `object` as the type of its version and serializes it again.
fn round_trip(object: &Value) -> Result<Value, serde_json::Error> {
    match object["apiVersion"].as_str() {
        Some("llamastack.io/v1alpha1") => round_trip_as::<v1alpha1::LlamaStackDistribution>(object),
        Some("llamastack.io/v1alpha2") => round_trip_as::<v1alpha2::LlamaStackDistribution>(object),
        other => panic!("unknown version {other:?}"),
    }
}

fn provider(kind: &str) -> Provider {
    Provider { provider: kind.into(), ..Provider::default() }
}

fn typed<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{value}: {error}"))
}

#[test]
fn valid_manifests_round_trip_through_types() {
    for folder in ["valid", "valid-status"] {
        for Manifest { name, objects, .. } in fixtures(folder) {
            let [object] = &objects[..] else { panic!("{name} must hold one object") };
            assert_eq!(&round_trip(object).unwrap_or_else(|error| panic!("{name}: {error}")), object, "{name}");
        }
    }
}

#[test]
fn published_samples_round_trip_through_types() {
    let Some(folder) = upstream::files() else { return };
    let mut compared = 0;
    for Manifest { name, objects, .. } in manifests(&folder.join("llamastack"), |name| name.starts_with("sample-")) {
        for object in objects.iter().filter(|object| object["kind"] == "LlamaStackDistribution") {
            assert_eq!(&round_trip(object).unwrap_or_else(|error| panic!("{name}: {error}")), object, "{name}");
            compared += 1;
        }
    }
    assert!(compared >= 6, "only {compared} samples found");
}

#[test]
fn valid_manifests_have_unique_names() {
    let mut names = BTreeSet::new();
    for folder in ["valid", "valid-status"] {
        for Manifest { name, objects, .. } in fixtures(folder) {
            let object_name = objects[0]["metadata"]["name"].as_str().unwrap().to_owned();
            assert!(names.insert(object_name.clone()), "{name}: {object_name} is not unique");
        }
    }
}

#[test]
fn provider_is_an_object_or_a_list() {
    let cases = [
        ("one", json!({ "provider": "vllm" }), vec![provider("vllm")]),
        ("a list of one", json!([{ "provider": "vllm" }]), vec![provider("vllm")]),
        ("two", json!([{ "provider": "vllm" }, { "provider": "openai" }]), vec![provider("vllm"), provider("openai")]),
        ("none", json!([]), vec![]),
    ];
    for (name, value, all) in cases {
        let form: ProviderForm = typed(&value);
        assert_eq!(form.all(), all, "{name}");
        assert_eq!(serde_json::to_value(&form).unwrap(), value, "{name}");
    }
}

#[test]
fn model_is_a_name_or_an_object() {
    let named = Model { name: "Qwen/Qwen3-8B".into(), ..Model::default() };
    let cases = [
        ("name", json!("Qwen/Qwen3-8B"), named.clone()),
        ("object", json!({ "name": "Qwen/Qwen3-8B" }), named.clone()),
        (
            "object with more",
            json!({ "name": "Qwen/Qwen3-8B", "contextLength": 32768 }),
            Model { context_length: Some(32768), ..named },
        ),
    ];
    for (name, value, model) in cases {
        let form: ModelForm = typed(&value);
        assert_eq!(*form.model(), model, "{name}");
        assert_eq!(serde_json::to_value(&form).unwrap(), value, "{name}");
    }
}

#[test]
fn expose_is_a_bool_or_an_object() {
    let cases = [
        (json!(true), true, None),
        (json!(false), false, None),
        (json!({}), true, None),
        (json!({ "hostname": "llama.example.com" }), true, Some("llama.example.com")),
        (json!({ "enabled": true }), true, None),
        (json!({ "enabled": false, "hostname": "llama.example.com" }), false, Some("llama.example.com")),
    ];
    for (value, enabled, hostname) in cases {
        let form: ExposeForm = typed(&value);
        assert_eq!((form.enabled(), form.hostname()), (enabled, hostname), "{value}");
        assert_eq!(serde_json::to_value(&form).unwrap(), value);
    }
}

#[test]
fn secret_reference_is_flat_or_nested() {
    let expected = SecretKey { name: "qwen".into(), key: "token".into() };
    for value in
        [json!({ "name": "qwen", "key": "token" }), json!({ "secretKeyRef": { "name": "qwen", "key": "token" } })]
    {
        let reference: SecretRef = typed(&value);
        assert_eq!(reference.key(), &expected, "{value}");
        assert_eq!(serde_json::to_value(&reference).unwrap(), value);
    }
    let both = json!({ "name": "qwen", "key": "token", "secretKeyRef": { "name": "other", "key": "token" } });
    for value in [both, json!({ "name": "qwen" }), json!({ "key": "token" }), json!({})] {
        assert!(serde_json::from_value::<SecretRef>(value.clone()).is_err(), "{value}");
    }
}

/// The schema cannot reject these values, because a schema node with two types is not structural, or they do not come from
/// the API server.
#[test]
fn wrong_form_error_says_what_was_expected() {
    let key = |key: Value| json!({ "providers": { "inference": { "provider": "vllm", "apiKey": key } } });
    let cases = [
        (
            json!({ "providers": { "inference": "vllm" } }),
            r#"invalid type: string "vllm", expected a provider (an object with `provider` in it) or a list of them"#,
        ),
        (
            json!({ "providers": { "safety": [7] } }),
            "invalid type: integer `7`, expected a provider: an object with `provider` in it",
        ),
        (json!({ "providers": { "safety": { "id": "guard" } } }), "missing field `provider`"),
        (
            json!({ "resources": { "models": [7] } }),
            "invalid type: integer `7`, expected the name of a model or an object with `name` in it",
        ),
        (json!({ "resources": { "models": [{ "provider": "vllm" }] } }), "missing field `name`"),
        (
            json!({ "networking": { "expose": "yes" } }),
            r#"invalid type: string "yes", expected true, false or an object such as `hostname: llama.example.com`"#,
        ),
        (key(json!({ "name": "qwen" })), "secret reference without key: give either name and key, or secretKeyRef"),
        (key(json!({ "key": "token" })), "secret reference without name: give either name and key, or secretKeyRef"),
        (key(json!({})), "empty secret reference: give either name and key, or secretKeyRef with name and key"),
        (
            key(json!({ "name": "qwen", "secretKeyRef": { "name": "qwen", "key": "token" } })),
            "secret reference in both forms: give either name and key, or secretKeyRef with name and key",
        ),
        (key(json!({ "secretKeyRef": { "name": "qwen" } })), "missing field `key`"),
    ];
    for (mut spec, message) in cases {
        spec["distribution"] = json!({ "name": "starter" });
        let error =
            serde_json::from_value::<v1alpha2::LlamaStackDistributionSpec>(spec.clone()).unwrap_err().to_string();
        assert!(error.starts_with(message), "{spec}: {error}");
    }
}

/// The API server prunes nothing below these nodes, so unknown fields must stay visible to validation.
#[test]
fn misspelt_field_is_kept_for_reporting() {
    let value = json!({ "provider": "vllm", "endpont": "http://qwen.models.svc:8000/v1" });
    let form: ProviderForm = typed(&value);
    assert_eq!(form.all()[0].unknown.keys().collect::<Vec<_>>(), ["endpont"]);
    assert_eq!(serde_json::to_value(&form).unwrap(), value);

    let value = json!({ "name": "Qwen/Qwen3-8B", "contextLenght": 32768 });
    let form: ModelForm = typed(&value);
    assert_eq!(form.model().unknown.keys().collect::<Vec<_>>(), ["contextLenght"]);
    assert_eq!(serde_json::to_value(&form).unwrap(), value);

    let value = json!({ "host": "llama.example.com" });
    let form: ExposeForm = typed(&value);
    let ExposeForm::Detail(expose) = &form else { panic!("{form:?}") };
    assert_eq!(expose.unknown.keys().collect::<Vec<_>>(), ["host"]);
    assert_eq!(serde_json::to_value(&form).unwrap(), value);
}

/// The errors that the invalid manifests of `version` expect.
fn expected_errors(version: &str) -> Vec<String> {
    let texts = ["invalid", "invalid-status"].into_iter().flat_map(fixtures).map(|Manifest { name, text, objects }| {
        let expected_error = text.lines().next().and_then(|line| line.strip_prefix(EXPECTED_ERROR_PREFIX));
        let expected_error =
            expected_error.unwrap_or_else(|| panic!("{name}: no first line {EXPECTED_ERROR_PREFIX:?}")).to_owned();
        let [object] = &objects[..] else { panic!("{name} must hold one object") };
        (object["apiVersion"] == format!("llamastack.io/{version}")).then_some(expected_error)
    });
    texts.flatten().collect()
}

/// Collects the message of every rule and the values of every enum, with their paths.
fn collect_rules(schema: &Value, path: &str, found: &mut Vec<(String, String)>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        found.push((path.to_owned(), rule["message"].as_str().unwrap().to_owned()));
    }
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<_> = values.iter().filter(|value| !value.is_null()).map(Value::to_string).collect();
        found.push((path.to_owned(), format!("supported values: {}", values.join(", "))));
    }
    for (name, nested) in schema["properties"].as_object().into_iter().flatten() {
        collect_rules(nested, &format!("{path}.{name}"), found);
    }
    if schema["items"].is_object() {
        collect_rules(&schema["items"], &format!("{path}[]"), found);
    }
}

#[test]
fn every_rule_and_enum_has_violating_manifest() {
    let crd = our_crd(Family::Llsd);
    for (version, count) in RULE_COUNTS {
        let mut rules = Vec::new();
        collect_rules(&compare::version(&crd, version)["schema"]["openAPIV3Schema"], "", &mut rules);
        rules.retain(|(path, _)| !path.starts_with(".status.conditions"));
        assert_eq!(rules.len(), count, "{version}: {rules:?}");
        let expected_errors = expected_errors(version);
        for (path, text) in rules {
            assert!(
                expected_errors.iter().any(|expected_error| expected_error.contains(&text)),
                "{version} {path}: no manifest violates {text:?}"
            );
        }
    }
}

#[test]
fn printer_columns_match_documentation() {
    let crd = our_crd(Family::Llsd);
    let columns = |version: &str| -> Vec<(String, i64)> {
        let columns = compare::version(&crd, version)["additionalPrinterColumns"].as_array().unwrap();
        columns
            .iter()
            .map(|column| {
                (column["name"].as_str().unwrap().to_owned(), column["priority"].as_i64().unwrap_or_default())
            })
            .collect()
    };
    let expected = |columns: &[(&str, i64)]| columns.iter().map(|(name, wide)| ((*name).to_owned(), *wide)).collect();
    let older: Vec<_> =
        expected(&[("Phase", 0), ("Operator Version", 0), ("Server Version", 0), ("Available", 0), ("Age", 0)]);
    let newer: Vec<_> =
        expected(&[("Phase", 0), ("Distribution", 1), ("Config", 1), ("Providers", 0), ("Available", 0), ("Age", 0)]);
    assert_eq!(columns("v1alpha1"), older);
    assert_eq!(columns("v1alpha2"), newer);
}
