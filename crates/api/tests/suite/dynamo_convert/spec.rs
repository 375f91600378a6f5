//! Conversion of the spec, field by field.

use serde_json::{Value, json};

use super::{
    ALPHA, BETA, annotations, convert_losslessly, object, partial_object, round_trip, spec_envelope, try_convert,
};

fn profiling_config(config: Value) -> Value {
    json!({ "profilingConfig": { "config": config } })
}

/// A v1beta1 spec that overrides the profiling pod.
pub fn pod_overrides(pod: Value) -> Value {
    json!({ "overrides": { "profilingJob": { "template": { "spec": pod } } } })
}

pub fn profiler_container(resources: Value) -> Value {
    json!({ "name": "profiler", "resources": resources })
}

/// Fields that both versions have need no annotation.
#[test]
fn common_fields_convert_without_annotations() {
    let limits = json!({ "limits": { "nvidia.com/gpu": "8" } });
    let tolerations = json!([{ "key": "nvidia.com/gpu", "operator": "Exists" }]);
    let cases = [
        ("model", json!({ "model": "Qwen/Qwen3-8B" }), json!({ "model": "Qwen/Qwen3-8B" })),
        ("version", json!({ "runtimeVersionOverride": "1.2.3" }), json!({ "runtimeVersionOverride": "1.2.3" })),
        ("autoApply: true", json!({ "autoApply": true }), json!({ "autoApply": true })),
        ("autoApply: false", json!({ "autoApply": false }), json!({ "autoApply": false })),
        ("backend", json!({ "backend": "sglang" }), json!({ "backend": "sglang" })),
        ("image", json!({ "profilingConfig": { "profilerImage": "p:1" } }), json!({ "image": "p:1" })),
        ("mocker", json!({ "useMocker": true }), json!({ "features": { "mocker": { "enabled": true } } })),
        ("sla.ttft", profiling_config(json!({ "sla": { "ttft": 350.0 } })), json!({ "sla": { "ttft": 350.0 } })),
        ("sla.itl", profiling_config(json!({ "sla": { "itl": 12 } })), json!({ "sla": { "itl": 12 } })),
        (
            "sla.optimizationType",
            profiling_config(json!({ "sla": { "optimizationType": "throughput" } })),
            json!({ "sla": { "optimizationType": "throughput" } }),
        ),
        (
            "sla.isl, and no empty sla",
            profiling_config(json!({ "sla": { "isl": 6000 } })),
            json!({ "workload": { "isl": 6000 } }),
        ),
        ("sla.osl", profiling_config(json!({ "sla": { "osl": 300 } })), json!({ "workload": { "osl": 300 } })),
        (
            "modelCache.pvcName",
            profiling_config(json!({ "deployment": { "modelCache": { "pvcName": "weights" } } })),
            json!({ "modelCache": { "pvcName": "weights" } }),
        ),
        (
            "modelCache.modelPathInPvc",
            profiling_config(json!({ "deployment": { "modelCache": { "modelPathInPvc": "llama" } } })),
            json!({ "modelCache": { "pvcModelPath": "llama" } }),
        ),
        (
            "modelCache.pvcMountPath",
            profiling_config(json!({ "deployment": { "modelCache": { "pvcMountPath": "/weights" } } })),
            json!({ "modelCache": { "pvcMountPath": "/weights" } }),
        ),
        (
            "planner",
            profiling_config(json!({ "planner": { "a": 1 } })),
            json!({ "features": { "planner": { "a": 1 } } }),
        ),
        (
            "resources",
            json!({ "profilingConfig": { "resources": limits } }),
            pod_overrides(json!({ "containers": [profiler_container(limits)] })),
        ),
        (
            "tolerations",
            json!({ "profilingConfig": { "tolerations": tolerations } }),
            pod_overrides(json!({ "tolerations": tolerations })),
        ),
        (
            "nodeSelector",
            json!({ "profilingConfig": { "nodeSelector": { "pool": "a" } } }),
            pod_overrides(json!({ "nodeSelector": { "pool": "a" } })),
        ),
    ];
    for (name, alpha, beta) in cases {
        let (alpha, beta) = (partial_object(ALPHA, alpha), partial_object(BETA, beta));
        assert_eq!(convert_losslessly(&alpha), beta, "{name}");
        assert_eq!(convert_losslessly(&beta), alpha, "{name}");
    }
}

#[test]
fn v1alpha1_only_fields_go_to_annotations() {
    let cases = [
        ("enableGpuDiscovery: true", json!({ "enableGpuDiscovery": true }), "enable-gpu-discovery", json!("true")),
        (
            "configMapRef",
            json!({ "profilingConfig": { "configMapRef": { "key": "a.yaml", "name": "first" } } }),
            "config-map-ref",
            json!(r#"{"key":"a.yaml","name":"first"}"#),
        ),
        ("outputPVC", json!({ "profilingConfig": { "outputPVC": "out" } }), "output-pvc", json!("out")),
        (
            "deploymentOverrides",
            json!({ "deploymentOverrides":
                { "name": "n", "namespace": "s", "labels": {}, "annotations": { "a": "b" } } }),
            "deployment-overrides",
            json!(r#"{"annotations":{"a":"b"},"labels":{},"name":"n","namespace":"s"}"#),
        ),
        (
            "leftover",
            profiling_config(json!({ "engine": { "x": [1] } })),
            "profiling-config",
            json!(r#"{"engine":{"x":[1]}}"#),
        ),
        ("a literal {}", profiling_config(json!({})), "profiling-config", json!("{}")),
    ];
    for (name, spec, key, annotation) in cases {
        let alpha = partial_object(ALPHA, spec);
        let beta = convert_losslessly(&alpha);
        let key = format!("nvidia.com/dgdr-{key}");
        let envelope = json!({ "annotated": [key], "spec": alpha["spec"], "version": 1 }).to_string();
        assert_eq!(annotations(&beta), json!({ "nvidia.com/dgdr-spec": envelope, &key: annotation }), "{name}");
        assert_eq!(beta.get("spec"), None, "{name}");
        assert_eq!(convert_losslessly(&beta), alpha, "{name}");
        // A user removes the annotation.
        let mut removed = beta.clone();
        removed["metadata"]["annotations"].as_object_mut().unwrap().remove(&key);
        assert_eq!(convert_losslessly(&removed).get("spec"), None, "{name}");
    }
}

/// NVIDIA's operator from 1.4 on reads the envelope only.
#[test]
fn newer_go_operator_finds_all_fields_in_envelope() {
    let spec = json!({ "enableGpuDiscovery": true, "deploymentOverrides": { "name": "n", "workersImage": "w:1" },
        "profilingConfig": { "configMapRef": { "name": "c", "key": "k" }, "outputPVC": "out", "config": { "engine": {} } } });
    let mut with_image = spec.clone();
    with_image["profilingConfig"]["profilerImage"] = json!("i:1");
    let beta = convert_losslessly(&partial_object(ALPHA, with_image.clone()));
    assert_eq!(super::spec_envelope(&beta), spec);
    let mut scrubbed = json!({ "metadata": { "annotations": {} } });
    scrubbed["metadata"]["annotations"]["nvidia.com/dgdr-spec"] =
        json!({ "spec": super::spec_envelope(&beta), "version": 1 }).to_string().into();
    let mut beta = beta;
    beta["metadata"] = scrubbed["metadata"].clone();
    assert_eq!(convert_losslessly(&beta)["spec"], with_image, "as that operator writes it back");
}

/// The API server limits the size of all annotations.
#[test]
fn large_field_has_no_annotation_of_its_own() {
    let alpha = partial_object(ALPHA, profiling_config(json!({ "engine": "x".repeat(40_000) })));
    let beta = convert_losslessly(&alpha);
    assert_eq!(field_names(&annotations(&beta)), ["nvidia.com/dgdr-spec"]);
    assert_eq!(convert_losslessly(&beta), alpha);
}

#[test]
fn remaining_fields_go_to_the_envelope() {
    let cases = [
        ("enableGpuDiscovery: false", ALPHA, json!({ "enableGpuDiscovery": false })),
        ("useMocker: false", ALPHA, json!({ "useMocker": false })),
        ("empty resources", ALPHA, json!({ "profilingConfig": { "resources": {} } })),
        ("empty tolerations", ALPHA, json!({ "profilingConfig": { "tolerations": [] } })),
        ("empty nodeSelector", ALPHA, json!({ "profilingConfig": { "nodeSelector": {} } })),
        ("empty deploymentOverrides", ALPHA, json!({ "deploymentOverrides": {} })),
        ("empty profilingConfig", ALPHA, json!({ "profilingConfig": {} })),
        ("empty image", ALPHA, json!({ "profilingConfig": { "profilerImage": "" } })),
        ("an unknown field", ALPHA, json!({ "fieldOfTheFuture": [1] })),
        ("a field of the other version", ALPHA, json!({ "hardware": { "gpuSku": "l40s" } })),
        ("hardware", BETA, json!({ "hardware": { "gpuSku": "h200_sxm", "vramMb": 141_000.5, "rdma": false } })),
        ("workload.concurrency", BETA, json!({ "workload": { "concurrency": 8 } })),
        ("workload.requestRate", BETA, json!({ "workload": { "requestRate": 0.5 } })),
        ("sla.e2eLatency", BETA, json!({ "sla": { "e2eLatency": 900 } })),
        ("overrides.dgd", BETA, json!({ "overrides": { "dgd": { "apiVersion": "nvidia.com/v1beta1", "kind": "X" } } })),
        ("the rest of the Job", BETA, json!({ "overrides": { "profilingJob": { "backoffLimit": 2 } } })),
        ("a disabled mocker", BETA, json!({ "features": { "mocker": { "enabled": false } } })),
        ("searchStrategy", BETA, json!({ "searchStrategy": "thorough" })),
        ("empty parts", BETA, json!({ "workload": {}, "modelCache": {}, "features": {}, "overrides": {}, "sla": {} })),
        ("empty planner", BETA, json!({ "features": { "planner": {} } })),
        ("an unknown field", BETA, json!({ "sla": { "fieldOfTheFuture": null } })),
        ("a field of the other version", BETA, json!({ "useMocker": true })),
    ];
    for (name, version, spec) in cases {
        let object = partial_object(version, spec.clone());
        let converted = convert_losslessly(&object);
        assert_eq!(spec_envelope(&converted), spec, "{name}");
        assert_eq!(field_names(&annotations(&converted)), ["nvidia.com/dgdr-spec"], "{name}");
        assert_eq!(converted.get("spec"), None, "{name}");
        assert_eq!(convert_losslessly(&converted), object, "{name}");
    }
}

fn field_names(object: &Value) -> Vec<&str> {
    super::fields(object).keys().map(String::as_str).collect()
}

#[test]
fn envelope_format_matches_upstream() {
    let alpha = convert_losslessly(&partial_object(BETA, json!({ "searchStrategy": "rapid" })));
    let text = alpha["metadata"]["annotations"]["nvidia.com/dgdr-spec"].as_str().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(text).unwrap(),
        json!({ "version": 1, "spec": { "searchStrategy": "rapid" } })
    );
}

/// A fast but inexact parser would round this number, so that each conversion would change the object.
#[test]
fn annotation_keeps_all_digits_of_numbers() {
    let beta = partial_object(BETA, json!({ "sla": { "e2eLatency": 31.245_270_191_439_438 } }));
    let alpha = convert_losslessly(&beta);
    assert_eq!(spec_envelope(&alpha).to_string(), r#"{"sla":{"e2eLatency":31.245270191439438}}"#);
    assert_eq!(convert_losslessly(&alpha), beta);
}

/// The default is false in v1alpha1 and true in v1beta1, so the conversion of a complete object sets the value.
#[test]
fn absent_auto_apply_keeps_its_default() {
    let spec = json!({ "model": "m" });
    assert_eq!(convert_losslessly(&object(ALPHA, spec.clone(), Value::Null))["spec"]["autoApply"], json!(false));
    assert_eq!(convert_losslessly(&object(BETA, spec.clone(), Value::Null))["spec"]["autoApply"], json!(true));
    for version in [ALPHA, BETA] {
        assert_eq!(convert_losslessly(&partial_object(version, spec.clone()))["spec"], spec);
        let without_model = object(version, json!({ "backend": "vllm" }), Value::Null);
        assert_eq!(convert_losslessly(&without_model)["spec"], json!({ "backend": "vllm" }));
    }
}

#[test]
fn profiler_image_overrides_workers_image() {
    let cases = [
        ("both", json!({ "profilerImage": "p:1" }), "p:1"),
        ("empty", json!({ "profilerImage": "" }), "w:1"),
        ("absent", json!({ "outputPVC": "out" }), "w:1"),
        ("the same", json!({ "profilerImage": "w:1" }), "w:1"),
    ];
    for (name, profiling, image) in cases {
        let spec = json!({ "profilingConfig": profiling, "deploymentOverrides": { "workersImage": "w:1" } });
        let alpha = partial_object(ALPHA, spec);
        let beta = convert_losslessly(&alpha);
        assert_eq!(beta["spec"]["image"], image, "{name}");
        assert_eq!(convert_losslessly(&beta), alpha, "{name}");
    }
}

/// Fields with a place in v1beta1 leave the opaque configuration; the rest stays.
#[test]
fn only_typed_paths_leave_profiling_config() {
    let cases = [
        (
            "projected leaves",
            json!({ "sla": { "ttft": 1, "p99": 2 }, "deployment": { "modelCache": { "pvcName": "a", "x": 1 }, "y": 2 },
                    "planner": { "a": 1 }, "sweep": {} }),
            json!({ "sla": { "p99": 2 }, "deployment": { "modelCache": { "x": 1 }, "y": 2 }, "sweep": {} }),
        ),
        (
            "wrong types are kept",
            json!({ "sla": { "ttft": "fast", "isl": true, "optimizationType": "speed" },
                    "deployment": { "modelCache": { "pvcName": 5 } }, "planner": [1] }),
            json!({ "sla": { "ttft": "fast", "isl": true, "optimizationType": "speed" },
                    "deployment": { "modelCache": { "pvcName": 5 } }, "planner": [1] }),
        ),
        (
            "emptied containers are removed",
            json!({ "sla": { "ttft": 1, "osl": 2 }, "deployment": { "modelCache": { "pvcName": "a" } }, "k": 1 }),
            json!({ "k": 1 }),
        ),
        (
            "explicit empty maps are kept",
            json!({ "sla": {}, "deployment": {}, "planner": {} }),
            json!({ "sla": {}, "deployment": {}, "planner": {} }),
        ),
        (
            "an empty text is kept",
            json!({ "deployment": { "modelCache": { "pvcName": "" } } }),
            json!({ "deployment": { "modelCache": { "pvcName": "" } } }),
        ),
    ];
    for (name, config, remaining) in cases {
        let alpha = partial_object(ALPHA, profiling_config(config));
        let beta = convert_losslessly(&alpha);
        let text = beta["metadata"]["annotations"]["nvidia.com/dgdr-profiling-config"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), remaining, "{name}");
        assert_eq!(convert_losslessly(&beta), alpha, "{name}");
    }
}

/// v1beta1 counts whole tokens. The exact number is restored unless the length was changed in v1beta1.
#[test]
fn fractional_length_is_truncated_and_restored() {
    for (written, truncated) in [(json!(4000.7), 4000), (json!(-0.5), 0), (json!(3000.0), 3000)] {
        let alpha = partial_object(ALPHA, profiling_config(json!({ "sla": { "isl": written } })));
        let beta = convert_losslessly(&alpha);
        assert_eq!(beta["spec"], json!({ "workload": { "isl": truncated } }));
        assert_eq!(convert_losslessly(&beta), alpha);

        let mut changed = beta.clone();
        changed["spec"]["workload"]["isl"] = json!(7);
        assert_eq!(convert_losslessly(&changed)["spec"], profiling_config(json!({ "sla": { "isl": 7 } })));
        changed["spec"] = json!({ "model": "m" });
        assert_eq!(convert_losslessly(&changed)["spec"], json!({ "model": "m" }));
    }
    let too_long = partial_object(ALPHA, profiling_config(json!({ "sla": { "isl": 5e9 } })));
    assert_eq!(convert_losslessly(&too_long).get("spec"), None);
    assert_eq!(round_trip(&too_long), too_long);
}

#[test]
fn non_object_profiling_config_is_kept_and_reported() {
    for (config, kind) in
        [(json!("sla:"), "a string"), (json!([1]), "a list"), (json!(1), "a number"), (json!(true), "a boolean")]
    {
        let alpha = partial_object(ALPHA, profiling_config(config.clone()));
        let (beta, lost) = try_convert(&alpha).unwrap();
        let problem = format!("failed to parse ProfilingConfig.Config: expected an object, found {kind}");
        assert_eq!(lost, [format!("spec.profilingConfig.config: {problem}; the value is kept and has no effect")]);
        assert_eq!(convert_losslessly(&beta), alpha, "the value returns");
        let mut edited = beta;
        edited["spec"] = json!({ "sla": { "ttft": 7 } });
        assert_eq!(convert_losslessly(&edited)["spec"], profiling_config(json!({ "sla": { "ttft": 7 } })));
        let without_metadata = json!({ "apiVersion": ALPHA, "kind": super::KIND, "spec": profiling_config(config) });
        let error = try_convert(&without_metadata).unwrap_err().to_string();
        assert_eq!(error, format!("spec.profilingConfig.config: {problem}"));
    }
    let null = partial_object(ALPHA, profiling_config(Value::Null));
    assert_eq!(round_trip(&null), null);
}

#[test]
fn non_object_section_is_rejected_with_path() {
    for (path, object) in [
        ("spec", json!({ "spec": "text" })),
        ("status", json!({ "status": [1] })),
        ("metadata.annotations", json!({ "metadata": { "annotations": 5 } })),
    ] {
        for version in [ALPHA, BETA] {
            let mut object = object.clone();
            object["apiVersion"] = json!(version);
            object["kind"] = json!(super::KIND);
            let error = try_convert(&object).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{path}: must be an object")), "{error}");
        }
    }
}

/// One stored request that cannot be converted would prevent every list of requests.
#[test]
fn non_object_section_of_stored_object_is_kept_and_reported() {
    for (version, other) in [(ALPHA, BETA), (BETA, ALPHA)] {
        for section in ["spec", "status"] {
            let mut stored = object(version, json!({ "model": "m", "autoApply": true }), Value::Null);
            stored[section] = json!("text");
            let (converted, lost) = try_convert(&stored).unwrap();
            assert_eq!((&converted["apiVersion"], &converted[section]), (&json!(other), &json!("text")));
            let loss = format!("{section}: must be an object; the value is kept and has no effect");
            assert!(lost.contains(&loss), "{lost:?}");
            let (back, _) = try_convert(&converted).unwrap();
            assert_eq!(back[section], "text", "the value returns");
        }
    }
}

/// The schema of v1alpha1 requires an image and accepts an empty one.
#[test]
fn complete_object_without_image_gets_empty_image() {
    let beta = object(BETA, json!({ "model": "m", "backend": "auto", "autoApply": true }), Value::Null);
    let alpha = convert_losslessly(&beta);
    assert_eq!(alpha["spec"]["profilingConfig"], json!({ "profilerImage": "" }));
    assert_eq!(convert_losslessly(&alpha), beta);
}

/// Upstream replaces the whole object and loses the keys that v1beta1 has no fields for.
#[test]
fn unknown_model_cache_keys_survive_changes() {
    let alpha = partial_object(
        ALPHA,
        profiling_config(json!({ "deployment": { "modelCache": { "pvcName": "a", "readOnly": true } } })),
    );
    let mut beta = convert_losslessly(&alpha);
    beta["spec"]["modelCache"]["pvcName"] = json!("b");
    let expected = profiling_config(json!({ "deployment": { "modelCache": { "pvcName": "b", "readOnly": true } } }));
    assert_eq!(convert_losslessly(&beta)["spec"], expected);
}
