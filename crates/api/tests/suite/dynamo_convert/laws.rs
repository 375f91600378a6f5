//! Properties of the conversion that hold for every object.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use steersman_api::convert::{ConvertError, convert};

use super::generate::{self, Generator, any_request};
use super::{ALPHA, BETA, KIND, convert_losslessly, other_version, round_trip, try_convert};

/// Applies the few differences that a round trip may make.
pub fn normalize(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    let has_name = ["name", "generateName"].iter().any(|name| metadata.get(*name).is_some());
    let alpha = object["apiVersion"] == ALPHA;
    let Some(Value::Object(spec)) = object.get_mut("spec") else { return normalize_status(object, alpha) };
    let is_complete = has_name && spec.contains_key("model");
    if is_complete {
        spec.entry("autoApply").or_insert((!alpha).into());
        let can_hold_image = spec.get("profilingConfig").is_none_or(Value::is_object);
        if alpha
            && can_hold_image
            && spec.get("profilingConfig").and_then(|config| config.get("profilerImage")).is_none()
        {
            spec.entry("profilingConfig").or_insert(json!({}))["profilerImage"] = json!("");
        }
    }
    let pod = spec
        .get_mut("overrides")
        .and_then(|value| value.get_mut("profilingJob"))
        .and_then(|value| value.get_mut("template"))
        .and_then(|value| value.get_mut("spec"))
        .and_then(Value::as_object_mut);
    if let Some(pod) = pod.filter(|_| !alpha) {
        normalize_pod(pod, is_complete);
    }
    normalize_status(object, alpha)
}

fn normalize_pod(pod: &mut Map<String, Value>, is_complete: bool) {
    let is_filled = |value: Option<&Value>| match value {
        Some(Value::Object(object)) => !object.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        _ => false,
    };
    let list = pod.get("tolerations").filter(|value| value.is_array());
    let selector = pod.get("nodeSelector").filter(|value| value.is_object());
    if is_complete && (is_filled(list) || is_filled(selector)) && !pod.get("containers").is_some_and(Value::is_array) {
        pod.insert("containers".into(), json!([]));
    }
    let Some(Value::Array(containers)) = pod.get_mut("containers") else { return };
    if containers.iter().any(|container| container["name"] == "profiler") {
        return;
    }
    let unnamed = |container: &&mut Value| container.is_object() && container.get("name").is_none_or(|name| name == "");
    if let Some(container) = containers.iter_mut().find(unnamed)
        && container.get("resources").is_some_and(|value| value.is_object() && is_filled(Some(value)))
    {
        container["name"] = json!("profiler");
    }
}

fn normalize_status(mut object: Value, alpha: bool) -> Value {
    if let Some(Value::Object(status)) = object.get_mut("status").filter(|_| alpha) {
        if status.get("state") == Some(&json!("")) {
            status.insert("state".into(), json!("Pending"));
        }
        if let Some(Value::Object(deployment)) = status.get_mut("deployment")
            && deployment.get("state") == Some(&json!(""))
        {
            deployment.remove("state");
        }
    }
    object
}

/// An object whose annotations come from the conversion of another object.
fn with_stale_annotations() -> impl Strategy<Value = Value> {
    (generate::bytes(), generate::bytes(), any::<bool>()).prop_map(|(earlier_bytes, bytes, alpha)| {
        let version = if alpha { ALPHA } else { BETA };
        let earlier = generate::request(&mut Generator::new(earlier_bytes, true), other_version(version));
        let mut object = convert_losslessly(&earlier);
        let fields = object.as_object_mut().unwrap();
        fields.remove("spec");
        fields.remove("status");
        fields.extend(generate::sections(&mut Generator::new(bytes, true), version));
        object
    })
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z ]{0,4}".prop_map(Value::from),
        Just(json!("{\"spec\":{}}")),
    ];
    let names = prop::sample::select(vec![
        "metadata",
        "annotations",
        "spec",
        "status",
        "profilingConfig",
        "config",
        "sla",
        "isl",
        "overrides",
        "profilingJob",
        "template",
        "containers",
        "name",
        "resources",
        "state",
        "phase",
        "deployment",
        "dgdName",
        "deploymentOverrides",
        "workersImage",
        "nvidia.com/dgdr-spec",
        "nvidia.com/dgdr-status",
        "x",
    ]);
    leaf.prop_recursive(5, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(names.clone(), inner, 0..5).prop_map(|fields| {
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>().into()
            }),
        ]
    })
}

fn sections(object: &Value) -> (Option<&Value>, Option<&Value>) {
    (object.get("spec"), object.get("status"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn round_trip_restores_the_object(object in any_request(false)) {
        prop_assert_eq!(round_trip(&object), normalize(&object));
    }

    #[test]
    fn round_trip_restores_wrong_values(object in any_request(true)) {
        prop_assert_eq!(round_trip(&object), normalize(&object));
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn same_version_changes_nothing(object in any_request(true)) {
        let same = convert(object.clone(), object["apiVersion"].as_str().unwrap()).unwrap();
        prop_assert_eq!((same.object, same.lost), (object, vec![]));
    }

    #[test]
    fn conversion_changes_only_annotations_of_metadata(object in any_request(true)) {
        let without_annotations = |object: &Value| {
            let mut metadata = object["metadata"].clone();
            metadata.as_object_mut().unwrap().remove("annotations");
            metadata
        };
        prop_assert_eq!(without_annotations(&convert_losslessly(&object)), without_annotations(&object));
    }

    /// Annotations of an earlier object must not override new fields, and one round trip settles the object.
    #[test]
    fn fields_override_stale_annotations(object in with_stale_annotations()) {
        let back = round_trip(&object);
        let expected = normalize(&object);
        let (spec, status) = sections(&expected);
        prop_assert_eq!(or_null(sections(&back).0), or_null(spec), "{:#}", object);
        prop_assert_eq!(or_null(sections(&back).1), or_null(status), "{:#}", object);
        prop_assert_eq!(round_trip(&back), back);
    }

    /// Annotations may have any content. One round trip settles the object.
    #[test]
    fn arbitrary_json_never_panics(
        mut object in any_json(), alpha in any::<bool>(),
        spec in any_json(), spec_text in any_json(), status_text in any_json(),
    ) {
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".into(), json!(if alpha { ALPHA } else { BETA }));
            fields.insert("kind".into(), json!(KIND));
            fields.entry("spec").or_insert(spec.clone());
            fields.entry("metadata").or_insert(json!({ "name": "x", "annotations": {
                "nvidia.com/dgdr-spec": spec_text.to_string(),
                "nvidia.com/dgdr-status": status_text.to_string(),
                "nvidia.com/dgdr-profiling-config": spec.to_string(),
                "nvidia.com/dgdr-deployment-status": status_text.to_string(),
                "nvidia.com/dgdr-deployment-overrides": spec_text.to_string(),
                "nvidia.com/dgdr-profiling-job-name": status_text,
            } }));
        }
        let to = if alpha { BETA } else { ALPHA };
        match convert(object.clone(), to) {
            Err(ConvertError::NotAnObject) => prop_assert!(!object.is_object()),
            Err(ConvertError::Unreadable { .. }) => {}
            Err(other) => prop_assert!(false, "{}", other),
            Ok(done) => {
                let fail = |error: ConvertError| TestCaseError::fail(error.to_string());
                let convert_once = |object: &Value| try_convert(object).map_err(fail);
                let back = convert_once(&done.object)?.0;
                let (again, lost) = convert_once(&convert_once(&back)?.0)?;
                prop_assert_eq!(again, back);
                // A value that is no object is kept and reported each time.
                let lost: Vec<String> = lost.into_iter().filter(|lost| !lost.ends_with("; the value is kept and has no effect")).collect();
                prop_assert_eq!(lost, vec![""; 0]);
            }
        }
    }
}

/// An empty section is equivalent to an absent one.
fn or_null(section: Option<&Value>) -> Value {
    section.filter(|section| **section != json!({})).cloned().unwrap_or_default()
}
