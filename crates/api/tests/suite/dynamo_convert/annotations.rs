//! Annotations of the conversion: their precedence, the formats of earlier operators, and unreadable values.

use serde_json::{Value, json};
use steersman_api::dynamo::convert;

use super::{
    ALPHA, BETA, annotations, convert_losslessly, object, partial_object, round_trip, try_convert, with_annotation,
};

/// Earlier operators stored one annotation per field.
#[test]
fn per_field_annotations_are_read() {
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
        let beta = with_annotation(partial_object(BETA, json!({ "image": "i" })), key, text);
        let alpha = convert_losslessly(&beta);
        assert_eq!(alpha.pointer(path), Some(&value), "{key}");
        assert_eq!(annotations(&alpha), json!({}), "{key}");
        assert_eq!(alpha["spec"]["profilingConfig"]["profilerImage"], "i", "{key}");
    }
    let alpha = with_annotation(
        object(ALPHA, Value::Null, json!({ "state": "Profiling" })),
        convert::PROFILING_JOB_NAME,
        "job",
    );
    assert_eq!(convert_losslessly(&alpha)["status"], json!({ "phase": "Profiling", "profilingJobName": "job" }));
    assert_eq!(annotations(&convert_losslessly(&alpha)), json!({}));
}

/// Earlier operators stored the whole configuration in an annotation, parts of which have fields now.
#[test]
fn fields_override_annotations_which_override_envelope() {
    let envelope = json!({ "version": 1, "spec": {
        "profilingConfig": { "outputPVC": "envelope", "configMapRef": { "name": "envelope" },
                             "config": { "engine": "envelope" } },
        "deploymentOverrides": { "name": "envelope", "workersImage": "w:1" },
    } });
    let mut beta = partial_object(BETA, json!({ "image": "i", "sla": { "ttft": 7 } }));
    for (key, text) in [
        (convert::SPEC, envelope.to_string()),
        (convert::OUTPUT_PVC, "single".to_owned()),
        (convert::DEPLOYMENT_OVERRIDES, r#"{"name":"single"}"#.to_owned()),
        (convert::PROFILING_CONFIG, r#"{"sla":{"ttft":1,"itl":2,"p99":3},"planner":{"a":1}}"#.to_owned()),
    ] {
        beta = with_annotation(beta, key, text);
    }
    assert_eq!(
        convert_losslessly(&beta)["spec"],
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

/// Go encodes fields without a value as empty values.
#[test]
fn go_operator_envelopes_are_read() {
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
    let alpha =
        convert_losslessly(&with_annotation(with_annotation(beta, convert::SPEC, spec), convert::STATUS, status));
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
    let alpha = with_annotation(alpha, convert::SPEC, r#"{"version":1,"spec":{"model":"","searchStrategy":"rapid"}}"#);
    let alpha = with_annotation(
        alpha,
        convert::STATUS,
        r#"{"phase":"Deployed","dgdName":"g","deploymentInfo":{"replicas":1}}"#,
    );
    assert_eq!(
        convert_losslessly(&alpha),
        object(
            BETA,
            json!({ "model": "m", "backend": "vllm", "autoApply": true, "searchStrategy": "rapid" }),
            json!({ "phase": "Deployed", "dgdName": "g", "deploymentInfo": { "replicas": 1 } }),
        )
    );
}

#[test]
fn envelope_may_be_bare_or_any_version() {
    for text in [
        r#"{"model":"","searchStrategy":"thorough"}"#,
        r#"{"version":7,"spec":{"searchStrategy":"thorough"}}"#,
        r#"{"spec":{"searchStrategy":"thorough"},"rawJSON":{}}"#,
    ] {
        let alpha = with_annotation(partial_object(ALPHA, json!({ "model": "m" })), convert::SPEC, text);
        assert_eq!(convert_losslessly(&alpha)["spec"], json!({ "model": "m", "searchStrategy": "thorough" }), "{text}");
    }
}

/// An unreadable annotation is left alone until the conversion needs its key. Then it is overwritten and reported as
/// lost.
#[test]
fn unreadable_annotation_stays_until_key_is_needed() {
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
        let beta = with_annotation(partial_object(BETA, json!({ "model": "m" })), key, value.clone());
        let alpha = convert_losslessly(&beta);
        assert_eq!(annotations(&alpha)[key], value, "{key}");
        assert_eq!(alpha["spec"], json!({ "model": "m" }), "{key}");
    }
    let beta = with_annotation(partial_object(BETA, json!({ "searchStrategy": "rapid" })), convert::SPEC, "not JSON");
    let (alpha, lost) = try_convert(&beta).unwrap();
    assert_eq!(super::spec_envelope(&alpha), json!({ "searchStrategy": "rapid" }));
    let expected = "metadata.annotations[nvidia.com/dgdr-spec]: the value was removed, because conversion reserves this key \
                    and could not use the value; use another key for your own annotations";
    assert_eq!(lost, [expected]);
}

/// v1alpha1 has the field, so an annotation for it is outdated: the absence of the field counts.
#[test]
fn annotation_for_existing_field_is_reported_lost() {
    let alpha = with_annotation(partial_object(ALPHA, json!({ "model": "m" })), convert::OUTPUT_PVC, "old");
    let (beta, lost) = try_convert(&alpha).unwrap();
    assert_eq!(annotations(&beta), json!({}));
    assert_eq!(lost.len(), 1);
    assert!(lost[0].starts_with("metadata.annotations[nvidia.com/dgdr-output-pvc]: "), "{lost:?}");
    let same = with_annotation(
        partial_object(ALPHA, json!({ "profilingConfig": { "outputPVC": "out" } })),
        convert::OUTPUT_PVC,
        "out",
    );
    assert_eq!(annotations(&convert_losslessly(&same))[convert::OUTPUT_PVC], "out");
}

#[test]
fn user_annotations_survive_conversion() {
    let mine = json!({ "example.com/cost": "4711", "nvidia.com/generated-dgd-spec": "{}" });
    for version in [ALPHA, BETA] {
        let mut object = partial_object(version, json!({ "hardware": {}, "enableGpuDiscovery": true }));
        object["metadata"]["annotations"] = mine.clone();
        let converted = annotations(&convert_losslessly(&object));
        assert!(super::fields(&mine).iter().all(|(key, value)| converted[key] == *value), "{converted}");
        assert_eq!(round_trip(&object), object);
    }
}

/// No empty map stays behind once the conversion has removed its own annotations.
#[test]
fn empty_annotations_map_is_removed() {
    let beta = partial_object(BETA, json!({ "searchStrategy": "rapid" }));
    assert_eq!(round_trip(&beta), beta);
    let mut only = json!({ "apiVersion": BETA, "kind": super::KIND, "metadata": { "annotations": {} } });
    only["metadata"]["annotations"][convert::OUTPUT_PVC] = json!("out");
    let back = round_trip(&only);
    assert_eq!(annotations(&back)[convert::OUTPUT_PVC], "out", "the conversion back needs the annotation");
    assert_eq!(round_trip(&back), back);
}
