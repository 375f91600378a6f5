//! What holds for every object.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use steersman_api::convert::{ConvertError, convert};

use super::made::{self, Dice, any_request};
use super::{ALPHA, BETA, KIND, converted, other, there_and_back, try_converted};

/// The few differences that a trip to the other version and back may make, applied to what went on the trip.
pub fn normal(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    let named = ["name", "generateName"].iter().any(|name| metadata.get(*name).is_some());
    let alpha = object["apiVersion"] == ALPHA;
    let Some(Value::Object(spec)) = object.get_mut("spec") else { return normal_status(object, alpha) };
    let whole = named && spec.contains_key("model");
    if whole {
        spec.entry("autoApply").or_insert((!alpha).into());
        let room = spec.get("profilingConfig").is_none_or(Value::is_object);
        if alpha && room && spec.get("profilingConfig").and_then(|config| config.get("profilerImage")).is_none() {
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
        normal_pod(pod, whole);
    }
    normal_status(object, alpha)
}

fn normal_pod(pod: &mut Map<String, Value>, whole: bool) {
    let filled = |value: Option<&Value>| match value {
        Some(Value::Object(object)) => !object.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        _ => false,
    };
    let list = pod.get("tolerations").filter(|value| value.is_array());
    let selector = pod.get("nodeSelector").filter(|value| value.is_object());
    if whole && (filled(list) || filled(selector)) && !pod.get("containers").is_some_and(Value::is_array) {
        pod.insert("containers".into(), json!([]));
    }
    let Some(Value::Array(containers)) = pod.get_mut("containers") else { return };
    if containers.iter().any(|container| container["name"] == "profiler") {
        return;
    }
    let unnamed = |container: &&mut Value| container.is_object() && container.get("name").is_none_or(|name| name == "");
    if let Some(container) = containers.iter_mut().find(unnamed)
        && container.get("resources").is_some_and(|value| value.is_object() && filled(Some(value)))
    {
        container["name"] = json!("profiler");
    }
}

fn normal_status(mut object: Value, alpha: bool) -> Value {
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

/// An object of a version whose annotations keep what a trip of another object has left there.
fn with_stale_annotations() -> impl Strategy<Value = Value> {
    (made::bytes(), made::bytes(), any::<bool>()).prop_map(|(was, is, alpha)| {
        let version = if alpha { ALPHA } else { BETA };
        let earlier = made::request(&mut Dice::new(was, true), other(version));
        let mut object = converted(&earlier);
        let fields = object.as_object_mut().unwrap();
        fields.remove("spec");
        fields.remove("status");
        fields.extend(made::sections(&mut Dice::new(is, true), version));
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
    fn there_and_back_is_the_same_object(object in any_request(false)) {
        prop_assert_eq!(there_and_back(&object), normal(&object));
    }

    #[test]
    fn wrong_values_come_back_too(object in any_request(true)) {
        prop_assert_eq!(there_and_back(&object), normal(&object));
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn the_same_version_is_the_same_object(object in any_request(true)) {
        let same = convert(object.clone(), object["apiVersion"].as_str().unwrap()).unwrap();
        prop_assert_eq!((same.object, same.lost), (object, vec![]));
    }

    #[test]
    fn of_metadata_only_annotations_change(object in any_request(true)) {
        let without = |object: &Value| {
            let mut metadata = object["metadata"].clone();
            metadata.as_object_mut().unwrap().remove("annotations");
            metadata
        };
        prop_assert_eq!(without(&converted(&object)), without(&object));
    }

    /// The annotations are an earlier object's, the fields are new: nothing of the old may come back, and after one
    /// trip everything has settled.
    #[test]
    fn what_changed_in_the_other_version_wins(object in with_stale_annotations()) {
        let back = there_and_back(&object);
        let wanted = normal(&object);
        let (spec, status) = sections(&wanted);
        prop_assert_eq!(seen(sections(&back).0), seen(spec), "{:#}", object);
        prop_assert_eq!(seen(sections(&back).1), seen(status), "{:#}", object);
        prop_assert_eq!(there_and_back(&back), back);
    }

    /// Also with annotations that nobody has written by conversion; after one trip these have settled, too.
    #[test]
    fn nothing_panics(
        mut object in any_json(), alpha in any::<bool>(), spec in any_json(), kept in any_json(), text in any_json(),
    ) {
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".into(), json!(if alpha { ALPHA } else { BETA }));
            fields.insert("kind".into(), json!(KIND));
            fields.entry("spec").or_insert(spec.clone());
            fields.entry("metadata").or_insert(json!({ "name": "x", "annotations": {
                "nvidia.com/dgdr-spec": kept.to_string(),
                "nvidia.com/dgdr-status": text.to_string(),
                "nvidia.com/dgdr-profiling-config": spec.to_string(),
                "nvidia.com/dgdr-deployment-status": text.to_string(),
                "nvidia.com/dgdr-deployment-overrides": kept.to_string(),
                "nvidia.com/dgdr-profiling-job-name": text,
            } }));
        }
        let to = if alpha { BETA } else { ALPHA };
        match convert(object.clone(), to) {
            Err(ConvertError::NotAnObject) => prop_assert!(!object.is_object()),
            Err(ConvertError::Unreadable { .. }) => {}
            Err(other) => prop_assert!(false, "{}", other),
            Ok(done) => {
                let failed = |error: ConvertError| TestCaseError::fail(error.to_string());
                let trip = |object: &Value| try_converted(object).map_err(failed);
                let back = trip(&done.object)?.0;
                let (again, lost) = trip(&trip(&back)?.0)?;
                prop_assert_eq!(again, back);
                prop_assert_eq!(lost, vec![""; 0]);
            }
        }
    }
}

/// A section that is empty or absent says the same: nothing.
fn seen(section: Option<&Value>) -> Value {
    section.filter(|section| **section != json!({})).cloned().unwrap_or_default()
}
