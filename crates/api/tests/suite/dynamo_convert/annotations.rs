//! The annotations: who wins, whose spelling is read, and what becomes of those that make no sense.

use serde_json::{Value, json};
use steersman_api::dynamo::convert;

use super::{ALPHA, BETA, annotated, annotations, converted, object, part, there_and_back, try_converted};

/// What an operator of the refactor's time has stored: one annotation for each field.
#[test]
fn the_annotations_of_the_refactor_are_read() {
    let cases = [
        (
            convert::CONFIG_MAP_REF,
            r#"{"name":"c","key":"k"}"#,
            "/spec/profilingConfig/configMapRef",
            json!({ "name": "c", "key": "k" }),
        ),
        (convert::OUTPUT_PVC, "out", "/spec/profilingConfig/outputPVC", json!("out")),
        (convert::ENABLE_GPU_DISCOVERY, "true", "/spec/enableGpuDiscovery", json!(true)),
        (convert::ENABLE_GPU_DISCOVERY, "false", "/spec/enableGpuDiscovery", json!(false)),
        (
            convert::DEPLOYMENT_OVERRIDES,
            r#"{"name":"n","labels":{"a":"b"}}"#,
            "/spec/deploymentOverrides",
            json!({ "name": "n", "labels": { "a": "b" } }),
        ),
        (
            convert::PROFILING_CONFIG,
            r#"{"engine":{"x":1}}"#,
            "/spec/profilingConfig/config",
            json!({ "engine": { "x": 1 } }),
        ),
        (convert::STATUS_BACKEND, "vllm", "/status/backend", json!("vllm")),
        (convert::PROFILING_RESULTS, "configmap/x", "/status/profilingResults", json!("configmap/x")),
        (convert::DEPLOYMENT_STATUS, r#"{"namespace":"n"}"#, "/status/deployment", json!({ "namespace": "n" })),
    ];
    for (key, text, path, value) in cases {
        let beta = annotated(part(BETA, json!({ "image": "i" })), key, text);
        let alpha = converted(&beta);
        assert_eq!(alpha.pointer(path), Some(&value), "{key}");
        assert_eq!(annotations(&alpha), json!({}), "{key}");
        assert_eq!(alpha["spec"]["profilingConfig"]["profilerImage"], "i", "{key}");
    }
    let alpha =
        annotated(object(ALPHA, Value::Null, json!({ "state": "Profiling" })), convert::PROFILING_JOB_NAME, "job");
    assert_eq!(converted(&alpha)["status"], json!({ "phase": "Profiling", "profilingJobName": "job" }));
    assert_eq!(annotations(&converted(&alpha)), json!({}));
}

/// The refactor kept the whole configuration, of which a part has fields by now.
#[test]
fn fields_win_over_annotations_and_these_over_the_envelope() {
    let envelope = json!({ "version": 1, "spec": {
        "profilingConfig": { "outputPVC": "envelope", "configMapRef": { "name": "envelope" },
                             "config": { "engine": "envelope" } },
        "deploymentOverrides": { "name": "envelope", "workersImage": "w:1" },
    } });
    let mut beta = part(BETA, json!({ "image": "i", "sla": { "ttft": 7 } }));
    for (key, text) in [
        (convert::SPEC, envelope.to_string()),
        (convert::OUTPUT_PVC, "single".to_owned()),
        (convert::DEPLOYMENT_OVERRIDES, r#"{"name":"single"}"#.to_owned()),
        (convert::PROFILING_CONFIG, r#"{"sla":{"ttft":1,"itl":2,"p99":3},"planner":{"a":1}}"#.to_owned()),
    ] {
        beta = annotated(beta, key, text);
    }
    assert_eq!(
        converted(&beta)["spec"],
        json!({
            "profilingConfig": {
                "profilerImage": "i",
                "outputPVC": "single",
                "configMapRef": { "name": "envelope" },
                "config": { "sla": { "ttft": 7, "p99": 3 } },
            },
            "deploymentOverrides": { "name": "single", "workersImage": "w:1" },
        })
    );
}

/// As Go encodes it: fields without a value are there and empty.
#[test]
fn the_envelopes_of_the_go_operator_are_read() {
    let spec = concat!(
        r#"{"version":1,"spec":{"model":"","backend":"","profilingConfig":{"profilerImage":"","outputPVC":"out"},"#,
        r#""enableGpuDiscovery":true}}"#
    );
    let status = r#"{"state":"","backend":"vllm","deployment":{"namespace":"n","state":"","name":"g"}}"#;
    let beta = object(
        BETA,
        json!({ "model": "m", "backend": "vllm", "image": "i", "autoApply": true }),
        json!({ "phase": "Failed", "dgdName": "g" }),
    );
    let alpha = converted(&annotated(annotated(beta, convert::SPEC, spec), convert::STATUS, status));
    assert_eq!(
        alpha,
        object(
            ALPHA,
            json!({ "model": "m", "backend": "vllm", "autoApply": true, "enableGpuDiscovery": true,
                    "profilingConfig": { "profilerImage": "i", "outputPVC": "out" } }),
            json!({ "state": "Failed", "backend": "vllm", "deployment": { "name": "g", "namespace": "n" } }),
        )
    );
    let alpha = object(
        ALPHA,
        json!({ "model": "m", "backend": "vllm", "autoApply": true }),
        json!({ "state": "Ready", "deployment": { "name": "g" } }),
    );
    let alpha = annotated(alpha, convert::SPEC, r#"{"version":1,"spec":{"model":"","searchStrategy":"rapid"}}"#);
    let alpha =
        annotated(alpha, convert::STATUS, r#"{"phase":"Deployed","dgdName":"g","deploymentInfo":{"replicas":1}}"#);
    assert_eq!(
        converted(&alpha),
        object(
            BETA,
            json!({ "model": "m", "backend": "vllm", "autoApply": true, "searchStrategy": "rapid" }),
            json!({ "phase": "Deployed", "dgdName": "g", "deploymentInfo": { "replicas": 1 } }),
        )
    );
}

#[test]
fn an_envelope_may_be_a_bare_spec_and_of_any_version() {
    for text in [
        r#"{"model":"","searchStrategy":"thorough"}"#,
        r#"{"version":7,"spec":{"searchStrategy":"thorough"}}"#,
        r#"{"spec":{"searchStrategy":"thorough"},"rawJSON":{}}"#,
    ] {
        let alpha = annotated(part(ALPHA, json!({ "model": "m" })), convert::SPEC, text);
        assert_eq!(converted(&alpha)["spec"], json!({ "model": "m", "searchStrategy": "thorough" }), "{text}");
    }
}

/// Nothing can be made of these: they stay where they are until conversion needs the key, and then that is told.
#[test]
fn an_annotation_that_makes_no_sense_stays_until_its_key_is_needed() {
    for (key, value) in [
        (convert::SPEC, json!("not JSON")),
        (convert::SPEC, json!(r#"{"spec":"text"}"#)),
        (convert::SPEC, json!(5)),
        (convert::STATUS, json!("[]")),
        (convert::CONFIG_MAP_REF, json!("disagg")),
        (convert::OUTPUT_PVC, json!("")),
        (convert::ENABLE_GPU_DISCOVERY, json!("yes")),
        (convert::DEPLOYMENT_OVERRIDES, json!("n")),
    ] {
        let beta = annotated(part(BETA, json!({ "model": "m" })), key, value.clone());
        let alpha = converted(&beta);
        assert_eq!(annotations(&alpha)[key], value, "{key}");
        assert_eq!(alpha["spec"], json!({ "model": "m" }), "{key}");
    }
    let beta = annotated(part(BETA, json!({ "searchStrategy": "rapid" })), convert::SPEC, "not JSON");
    let (alpha, lost) = try_converted(&beta).unwrap();
    assert_eq!(super::envelope(&alpha), json!({ "searchStrategy": "rapid" }));
    let wanted = "metadata.annotations[nvidia.com/dgdr-spec]: the key belongs to conversion, which could not use this \
                  value; give a value of your own another key";
    assert_eq!(lost, [wanted]);
}

/// v1alpha1 has the field, so an annotation for it there is the past; that the field is absent counts.
#[test]
fn an_annotation_for_a_field_that_the_object_has_is_dropped_and_told() {
    let alpha = annotated(part(ALPHA, json!({ "model": "m" })), convert::OUTPUT_PVC, "old");
    let (beta, lost) = try_converted(&alpha).unwrap();
    assert_eq!(annotations(&beta), json!({}));
    assert_eq!(lost.len(), 1);
    assert!(lost[0].starts_with("metadata.annotations[nvidia.com/dgdr-output-pvc]: "), "{lost:?}");
    let same = annotated(part(ALPHA, json!({ "profilingConfig": { "outputPVC": "out" } })), convert::OUTPUT_PVC, "out");
    assert_eq!(annotations(&converted(&same)), json!({ "nvidia.com/dgdr-output-pvc": "out" }));
}

#[test]
fn the_users_annotations_stay() {
    let mine = json!({ "example.com/cost": "4711", "nvidia.com/generated-dgd-spec": "{}" });
    for version in [ALPHA, BETA] {
        let mut object = part(version, json!({ "hardware": {}, "enableGpuDiscovery": true }));
        object["metadata"]["annotations"] = mine.clone();
        let there = annotations(&converted(&object));
        assert!(super::fields(&mine).iter().all(|(key, value)| there[key] == *value), "{there}");
        assert_eq!(there_and_back(&object), object);
    }
}

/// Annotations that only conversion has written leave no empty object behind.
#[test]
fn the_last_annotation_takes_the_map_along() {
    let beta = part(BETA, json!({ "searchStrategy": "rapid" }));
    assert_eq!(there_and_back(&beta), beta);
    let mut only = json!({ "apiVersion": BETA, "kind": super::KIND, "metadata": { "annotations": {} } });
    only["metadata"]["annotations"][convert::OUTPUT_PVC] = json!("out");
    assert_eq!(there_and_back(&only), only, "the way back needs a place for it");
}
