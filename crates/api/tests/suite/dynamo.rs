//! DynamoGraphDeploymentRequest: what is read is written back unchanged, in both versions.
//! The fixtures are also what the API server is shown; each that it must refuse says in its first line how.

use std::path::Path;

use serde_json::{Value, json};
use steersman_api::dynamo::v1beta1::GpuSku;
use steersman_api::dynamo::{v1alpha1, v1beta1};

use crate::manifests::{self, Manifest, REFUSED, manifests, through};
use crate::upstream;

fn fixtures(folder: &str) -> Vec<Manifest> {
    manifests::fixtures(&format!("dynamo/{folder}"))
}

/// `object` after it was read and written as its own version.
fn rewritten(object: &Value) -> Result<Value, serde_json::Error> {
    match object["apiVersion"].as_str() {
        Some("nvidia.com/v1alpha1") => through::<v1alpha1::DynamoGraphDeploymentRequest>(object),
        Some("nvidia.com/v1beta1") => through::<v1beta1::DynamoGraphDeploymentRequest>(object),
        other => panic!("unknown version {other:?}"),
    }
}

/// A v1beta1 request with `spec` beside the model.
fn request(mut spec: Value) -> Value {
    spec["model"] = json!("Qwen/Qwen3-8B");
    json!({
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeploymentRequest",
        "metadata": { "name": "qwen" },
        "spec": spec,
    })
}

fn comes_back_unchanged(manifest: &Manifest) {
    let (name, object) = (&manifest.name, manifest.object());
    let written = rewritten(object).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(written, *object, "{name}");
}

#[test]
fn what_a_user_writes_comes_back_unchanged() {
    for folder in ["valid", "valid-status"] {
        fixtures(folder).iter().for_each(comes_back_unchanged);
    }
}

#[test]
fn the_published_examples_come_back_unchanged() {
    let Some(folder) = upstream::files() else { return };
    let wanted = |name: &str| name.starts_with("example-") || name.starts_with("sample-dgdr-");
    manifests(&folder.join("dynamo"), wanted).iter().for_each(comes_back_unchanged);
}

/// The API server compares a written spec with the stored one value by value, and 500.0 is not 500: a notation that is
/// lost on the way through Rust types raises the generation of an object that nobody has changed.
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
        assert_eq!(rewritten(&object).unwrap(), object, "{name}");
    }
}

#[test]
fn a_gpu_that_an_earlier_version_stored_stays_readable() {
    let object = request(json!({ "hardware": { "gpuSku": "NVIDIA-H200-SXM" } }));
    let typed: v1beta1::DynamoGraphDeploymentRequest = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(typed.spec.hardware.unwrap().gpu_sku, Some(GpuSku::Other("NVIDIA-H200-SXM".into())));
    assert_eq!(rewritten(&object).unwrap(), object);
}

#[test]
fn a_known_gpu_is_never_other() {
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
fn a_word_outside_an_enum_is_not_read_either() {
    let mut tried = 0;
    for folder in ["invalid", "invalid-status"] {
        for manifest in fixtures(folder) {
            let (text, object) = (&manifest.text, manifest.object());
            let other_gpu = object.pointer("/spec/hardware/gpuSku").is_some();
            let of_a_condition = text.starts_with("# refused: status.conditions");
            if text.lines().next().unwrap().contains("Unsupported value") && !other_gpu && !of_a_condition {
                assert!(rewritten(object).is_err(), "{}", manifest.name);
                tried += 1;
            }
        }
    }
    assert_eq!(tried, 9, "backend (twice, and of v1alpha1), strategy, optimisation, two phases, two states");
}

#[test]
fn every_fixture_says_what_it_is() {
    for folder in ["valid", "invalid", "valid-status", "invalid-status"] {
        let refused = folder.starts_with("invalid");
        for manifest in fixtures(folder) {
            let (name, text, object) = (&manifest.name, &manifest.text, manifest.object());
            let file = Path::new(name).file_name().unwrap().to_string_lossy();
            let version = object["apiVersion"].as_str().unwrap().trim_start_matches("nvidia.com/");
            assert!(file.starts_with(&format!("{version}-")), "{name} holds {version}");
            assert_eq!(text.starts_with(REFUSED), refused, "{name}");
            assert_eq!(object.get("status").is_some(), folder.ends_with("-status"), "{name}");
        }
    }
}
