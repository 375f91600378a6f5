//! The spec, field by field.

use serde_json::{Value, json};
use steersman_api::convert::ConvertError;

use super::{ALPHA, BETA, annotations, converted, envelope, object, part, there_and_back, try_converted};

fn blob(config: Value) -> Value {
    json!({ "profilingConfig": { "config": config } })
}

/// Overrides of the profiling pod, in v1beta1.
pub fn pod(pod: Value) -> Value {
    json!({ "overrides": { "profilingJob": { "template": { "spec": pod } } } })
}

pub fn profiler(resources: Value) -> Value {
    json!({ "name": "profiler", "resources": resources })
}

/// Fields that both versions have: no annotation is needed, and each side becomes exactly the other.
#[test]
fn what_both_versions_can_say_moves_to_its_place() {
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
        ("sla.ttft", blob(json!({ "sla": { "ttft": 350.0 } })), json!({ "sla": { "ttft": 350.0 } })),
        ("sla.itl", blob(json!({ "sla": { "itl": 12 } })), json!({ "sla": { "itl": 12 } })),
        (
            "sla.optimizationType",
            blob(json!({ "sla": { "optimizationType": "throughput" } })),
            json!({ "sla": { "optimizationType": "throughput" } }),
        ),
        ("sla.isl, and no empty sla", blob(json!({ "sla": { "isl": 6000 } })), json!({ "workload": { "isl": 6000 } })),
        ("sla.osl", blob(json!({ "sla": { "osl": 300 } })), json!({ "workload": { "osl": 300 } })),
        (
            "modelCache.pvcName",
            blob(json!({ "deployment": { "modelCache": { "pvcName": "weights" } } })),
            json!({ "modelCache": { "pvcName": "weights" } }),
        ),
        (
            "modelCache.modelPathInPvc",
            blob(json!({ "deployment": { "modelCache": { "modelPathInPvc": "llama" } } })),
            json!({ "modelCache": { "pvcModelPath": "llama" } }),
        ),
        (
            "modelCache.pvcMountPath",
            blob(json!({ "deployment": { "modelCache": { "pvcMountPath": "/weights" } } })),
            json!({ "modelCache": { "pvcMountPath": "/weights" } }),
        ),
        ("planner", blob(json!({ "planner": { "a": 1 } })), json!({ "features": { "planner": { "a": 1 } } })),
        (
            "resources",
            json!({ "profilingConfig": { "resources": limits } }),
            pod(json!({ "containers": [profiler(limits)] })),
        ),
        (
            "tolerations",
            json!({ "profilingConfig": { "tolerations": tolerations } }),
            pod(json!({ "tolerations": tolerations })),
        ),
        (
            "nodeSelector",
            json!({ "profilingConfig": { "nodeSelector": { "pool": "a" } } }),
            pod(json!({ "nodeSelector": { "pool": "a" } })),
        ),
    ];
    for (name, alpha, beta) in cases {
        let (alpha, beta) = (part(ALPHA, alpha), part(BETA, beta));
        assert_eq!(converted(&alpha), beta, "{name}");
        assert_eq!(converted(&beta), alpha, "{name}");
    }
}

/// What stays of v1alpha1 for annotations, and what v1beta1 shows of it.
#[test]
fn what_only_v1alpha1_can_say_is_kept_in_annotations() {
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
        ("leftover", blob(json!({ "engine": { "x": [1] } })), "profiling-config", json!(r#"{"engine":{"x":[1]}}"#)),
        ("a literal {}", blob(json!({})), "profiling-config", json!("{}")),
    ];
    for (name, spec, key, annotation) in cases {
        let alpha = part(ALPHA, spec);
        let beta = converted(&alpha);
        assert_eq!(annotations(&beta), json!({ format!("nvidia.com/dgdr-{key}"): annotation }), "{name}");
        assert_eq!(beta.get("spec"), None, "{name}");
        assert_eq!(converted(&beta), alpha, "{name}");
    }
}

#[test]
fn what_has_neither_field_nor_annotation_of_its_own_is_kept_in_the_envelope() {
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
        let object = part(version, spec.clone());
        let there = converted(&object);
        assert_eq!(envelope(&there), spec, "{name}");
        assert_eq!(fields_of(&annotations(&there)), ["nvidia.com/dgdr-spec"], "{name}");
        assert_eq!(there.get("spec"), None, "{name}");
        assert_eq!(converted(&there), object, "{name}");
    }
}

fn fields_of(object: &Value) -> Vec<&str> {
    super::fields(object).keys().map(String::as_str).collect()
}

#[test]
fn the_envelope_is_spelled_as_upstream_spells_it() {
    let alpha = converted(&part(BETA, json!({ "searchStrategy": "rapid" })));
    let text = alpha["metadata"]["annotations"]["nvidia.com/dgdr-spec"].as_str().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(text).unwrap(),
        json!({ "version": 1, "spec": { "searchStrategy": "rapid" } })
    );
}

/// Parsed the fast way, this number becomes its neighbour, and each trip would be a change.
#[test]
fn a_number_of_many_digits_stays_the_same_in_an_annotation() {
    let beta = part(BETA, json!({ "sla": { "e2eLatency": 31.245_270_191_439_438 } }));
    let alpha = converted(&beta);
    assert_eq!(envelope(&alpha).to_string(), r#"{"sla":{"e2eLatency":31.245270191439438}}"#);
    assert_eq!(converted(&alpha), beta);
}

/// The default is false in v1alpha1 and true in v1beta1, so absent must not stay absent, except in a part of an object.
#[test]
fn an_absent_auto_apply_keeps_its_meaning() {
    let spec = json!({ "model": "m" });
    assert_eq!(converted(&object(ALPHA, spec.clone(), Value::Null))["spec"]["autoApply"], json!(false));
    assert_eq!(converted(&object(BETA, spec.clone(), Value::Null))["spec"]["autoApply"], json!(true));
    for version in [ALPHA, BETA] {
        assert_eq!(converted(&part(version, spec.clone()))["spec"], spec);
        let without_model = object(version, json!({ "backend": "vllm" }), Value::Null);
        assert_eq!(converted(&without_model)["spec"], json!({ "backend": "vllm" }));
    }
}

#[test]
fn the_profilers_image_wins_over_the_workers() {
    let cases = [
        ("both", json!({ "profilerImage": "p:1" }), "p:1"),
        ("empty", json!({ "profilerImage": "" }), "w:1"),
        ("absent", json!({ "outputPVC": "out" }), "w:1"),
        ("the same", json!({ "profilerImage": "w:1" }), "w:1"),
    ];
    for (name, profiling, image) in cases {
        let spec = json!({ "profilingConfig": profiling, "deploymentOverrides": { "workersImage": "w:1" } });
        let alpha = part(ALPHA, spec);
        let beta = converted(&alpha);
        assert_eq!(beta["spec"]["image"], image, "{name}");
        assert_eq!(converted(&beta), alpha, "{name}");
    }
}

/// What is taken out of the opaque configuration, and what is left of it.
#[test]
fn only_typed_paths_are_stripped_from_the_profiling_config() {
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
    for (name, config, left) in cases {
        let alpha = part(ALPHA, blob(config));
        let beta = converted(&alpha);
        let text = beta["metadata"]["annotations"]["nvidia.com/dgdr-profiling-config"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), left, "{name}");
        assert_eq!(converted(&beta), alpha, "{name}");
    }
}

/// v1beta1 counts whole tokens. The exact number is kept as long as v1beta1 leaves the length alone.
#[test]
fn a_length_with_a_fraction_is_cut_and_comes_back() {
    for (written, cut) in [(json!(4000.7), 4000), (json!(-0.5), 0), (json!(3000.0), 3000)] {
        let alpha = part(ALPHA, blob(json!({ "sla": { "isl": written } })));
        let beta = converted(&alpha);
        assert_eq!(beta["spec"], json!({ "workload": { "isl": cut } }));
        assert_eq!(converted(&beta), alpha);

        let mut changed = beta.clone();
        changed["spec"]["workload"]["isl"] = json!(7);
        assert_eq!(converted(&changed)["spec"], blob(json!({ "sla": { "isl": 7 } })));
        changed["spec"] = json!({ "model": "m" });
        assert_eq!(converted(&changed)["spec"], json!({ "model": "m" }));
    }
    let too_long = part(ALPHA, blob(json!({ "sla": { "isl": 5e9 } })));
    assert_eq!(converted(&too_long).get("spec"), None);
    assert_eq!(there_and_back(&too_long), too_long);
}

#[test]
fn a_profiling_config_that_is_no_object_is_refused_with_the_known_words() {
    for (config, kind) in
        [(json!("sla:"), "a text"), (json!([1]), "a list"), (json!(1), "a number"), (json!(true), "true or false")]
    {
        let Err(ConvertError::Unreadable { path, problem }) = try_converted(&part(ALPHA, blob(config))) else {
            panic!("converted")
        };
        assert_eq!(path, "spec.profilingConfig.config");
        assert_eq!(problem, format!("failed to parse ProfilingConfig.Config: it is {kind}; write an object"));
    }
    let null = part(ALPHA, blob(Value::Null));
    assert_eq!(there_and_back(&null), null);
}

#[test]
fn sections_that_are_no_objects_are_refused_with_their_path() {
    for (path, object) in [
        ("spec", json!({ "spec": "text" })),
        ("status", json!({ "status": [1] })),
        ("metadata.annotations", json!({ "metadata": { "annotations": 5 } })),
    ] {
        for version in [ALPHA, BETA] {
            let mut object = object.clone();
            object["apiVersion"] = json!(version);
            object["kind"] = json!(super::KIND);
            let error = try_converted(&object).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{path}: must be an object")), "{error}");
        }
    }
}

/// The schema of v1alpha1 demands an image, and takes an empty one.
#[test]
fn a_whole_object_without_an_image_can_be_written_back() {
    let beta = object(BETA, json!({ "model": "m", "backend": "auto", "autoApply": true }), Value::Null);
    let alpha = converted(&beta);
    assert_eq!(alpha["spec"]["profilingConfig"], json!({ "profilerImage": "" }));
    assert_eq!(converted(&alpha), beta);
}

/// Upstream replaces the object, and with it the keys that v1beta1 has no fields for.
#[test]
fn unknown_keys_beside_the_model_cache_survive_a_change_of_it() {
    let alpha = part(ALPHA, blob(json!({ "deployment": { "modelCache": { "pvcName": "a", "readOnly": true } } })));
    let mut beta = converted(&alpha);
    beta["spec"]["modelCache"]["pvcName"] = json!("b");
    let wanted = blob(json!({ "deployment": { "modelCache": { "pvcName": "b", "readOnly": true } } }));
    assert_eq!(converted(&beta)["spec"], wanted);
}
