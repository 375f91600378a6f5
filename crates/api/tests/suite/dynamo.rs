//! DynamoGraphDeploymentRequest: both versions deserialize and serialize without a change. The same fixtures are sent to a
//! real API server by the tests of the operator; the first line of an invalid one is the expected error.

use std::path::Path;

use serde_json::{Value, json};
use steersman_api::dynamo::v1beta1::GpuSku;
use steersman_api::dynamo::{v1alpha1, v1beta1};

use crate::manifests::{self, EXPECTED_ERROR_PREFIX, Manifest, manifests, round_trip_as};
use crate::upstream;

fn fixtures(folder: &str) -> Vec<Manifest> {
    manifests::fixtures(&format!("dynamo/{folder}"))
}

/// Deserializes `object` as the type of its version and serializes it again.
fn round_trip(object: &Value) -> Result<Value, serde_json::Error> {
    match object["apiVersion"].as_str() {
        Some("nvidia.com/v1alpha1") => round_trip_as::<v1alpha1::DynamoGraphDeploymentRequest>(object),
        Some("nvidia.com/v1beta1") => round_trip_as::<v1beta1::DynamoGraphDeploymentRequest>(object),
        other => panic!("unknown version {other:?}"),
    }
}

/// A v1beta1 request with these fields and a model.
fn request(mut spec: Value) -> Value {
    spec["model"] = json!("Qwen/Qwen3-8B");
    json!({
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeploymentRequest",
        "metadata": { "name": "qwen" },
        "spec": spec,
    })
}

fn assert_round_trip(manifest: &Manifest) {
    let (name, object) = (&manifest.name, manifest.object());
    let written = round_trip(object).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(written, *object, "{name}");
}

#[test]
fn valid_manifests_round_trip_through_types() {
    for folder in ["valid", "valid-status"] {
        fixtures(folder).iter().for_each(assert_round_trip);
    }
}

#[test]
fn published_examples_round_trip_through_types() {
    let Some(folder) = upstream::files() else { return };
    let is_example = |name: &str| name.starts_with("example-") || name.starts_with("sample-dgdr-");
    manifests(&folder.join("dynamo"), is_example).iter().for_each(assert_round_trip);
}

/// The API server compares a written spec with the stored one value by value, and 500.0 differs from 500: a notation that
/// is lost in Rust types increases the generation of an unchanged object.
#[test]
fn values_keep_their_notation() {
    let container = |resources: Value| json!({ "name": "profiler", "resources": resources });
    let job = |pod: Value| json!({ "overrides": { "profilingJob": { "template": { "spec": pod } } } });
    let cases = [
        ("a whole number", json!({ "sla": { "ttft": 500, "itl": 50 } })),
        ("a whole number with a point", json!({ "sla": { "ttft": 500.0 } })),
        ("a large number", json!({ "hardware": { "vramMb": 9_007_199_254_740_993_u64 } })),
        ("no default is added", json!({ "workload": {}, "modelCache": {} })),
        ("a default that was written", json!({ "backend": "auto", "autoApply": true, "workload": { "isl": 4000 } })),
        ("empty objects", json!({ "features": { "planner": {}, "mocker": {} }, "overrides": {} })),
        ("a quantity as a number", job(json!({ "containers": [container(json!({ "limits": { "cpu": 2 } }))] }))),
        ("a quantity as text", job(json!({ "containers": [container(json!({ "limits": { "cpu": "2000m" } }))] }))),
        ("a field that we do not know", job(json!({ "containers": [], "fieldOfTheFuture": { "a": [null] } }))),
    ];
    for (name, spec) in cases {
        let object = request(spec);
        assert_eq!(round_trip(&object).unwrap(), object, "{name}");
    }
}

#[test]
fn unknown_stored_gpu_sku_stays_readable() {
    let object = request(json!({ "hardware": { "gpuSku": "NVIDIA-H200-SXM" } }));
    let typed: v1beta1::DynamoGraphDeploymentRequest = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(typed.spec.hardware.unwrap().gpu_sku, Some(GpuSku::Other("NVIDIA-H200-SXM".into())));
    assert_eq!(round_trip(&object).unwrap(), object);
}

#[test]
fn known_gpu_skus_have_own_variants() {
    let names = [
        ("gb200_sxm", GpuSku::Gb200Sxm),
        ("gb10", GpuSku::Gb10),
        ("b200_sxm", GpuSku::B200Sxm),
        ("h200_sxm", GpuSku::H200Sxm),
        ("h100_sxm", GpuSku::H100Sxm),
        ("h100_pcie", GpuSku::H100Pcie),
        ("a100_sxm", GpuSku::A100Sxm),
        ("a100_pcie", GpuSku::A100Pcie),
        ("a30", GpuSku::A30),
        ("l40s", GpuSku::L40s),
        ("l40", GpuSku::L40),
        ("l4", GpuSku::L4),
        ("v100_sxm", GpuSku::V100Sxm),
        ("v100_pcie", GpuSku::V100Pcie),
        ("t4", GpuSku::T4),
        ("mi200", GpuSku::Mi200),
        ("mi300", GpuSku::Mi300),
    ];
    for (name, sku) in names {
        assert_eq!(serde_json::from_value::<GpuSku>(json!(name)).unwrap(), sku, "{name}");
        assert_eq!(serde_json::to_value(&sku).unwrap(), json!(name));
    }
}

#[test]
fn values_outside_enums_fail_to_deserialize() {
    let mut checked = 0;
    for folder in ["invalid", "invalid-status"] {
        for manifest in fixtures(folder) {
            let (text, object) = (&manifest.text, manifest.object());
            let other_gpu = object.pointer("/spec/hardware/gpuSku").is_some();
            let is_condition = text.starts_with("# refused: status.conditions");
            if text.lines().next().unwrap().contains("Unsupported value") && !other_gpu && !is_condition {
                assert!(round_trip(object).is_err(), "{}", manifest.name);
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 9, "backend (twice, and of v1alpha1), strategy, optimisation, two phases, two states");
}

#[test]
fn fixture_names_match_their_content() {
    for folder in ["valid", "invalid", "valid-status", "invalid-status"] {
        let refused = folder.starts_with("invalid");
        for manifest in fixtures(folder) {
            let (name, text, object) = (&manifest.name, &manifest.text, manifest.object());
            let file = Path::new(name).file_name().unwrap().to_string_lossy();
            let version = object["apiVersion"].as_str().unwrap().trim_start_matches("nvidia.com/");
            assert!(file.starts_with(&format!("{version}-")), "{name} holds {version}");
            assert_eq!(text.starts_with(EXPECTED_ERROR_PREFIX), refused, "{name}");
            assert_eq!(object.get("status").is_some(), folder.ends_with("-status"), "{name}");
        }
    }
}
