//! DynamoGraphDeploymentRequest: what is read is written back unchanged, in both versions.
//! The fixtures are also what the API server is shown; each that it must refuse says in its first line how.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use steersman_api::dynamo::v1beta1::GpuSku;
use steersman_api::dynamo::{v1alpha1, v1beta1};

use crate::upstream;

/// The first line of a manifest that must be refused.
const REFUSED: &str = "# refused: ";

struct Manifest {
    name: String,
    text: String,
    object: Value,
}

#[expect(clippy::disallowed_methods, reason = "a test may read files")]
fn read(path: &Path) -> Manifest {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let object = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    Manifest { name, text, object }
}

fn manifests(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<Manifest> {
    let listed = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = listed.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| wanted(&name.to_string_lossy())));
    paths.sort();
    assert!(!paths.is_empty(), "nothing to test in {}", folder.display());
    paths.iter().map(|path| read(path)).collect()
}

fn fixtures(folder: &str) -> Vec<Manifest> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/dynamo").join(folder);
    manifests(&folder, |name| name.ends_with(".yaml"))
}

fn through<K: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, serde_json::Error> {
    serde_json::from_value::<K>(object.clone()).map(|typed| serde_json::to_value(typed).unwrap())
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

#[test]
fn what_a_user_writes_comes_back_unchanged() {
    for folder in ["valid", "valid-status"] {
        for Manifest { name, object, .. } in fixtures(folder) {
            let written = rewritten(&object).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(written, object, "{name}");
        }
    }
}

#[test]
fn the_published_examples_come_back_unchanged() {
    let Some(folder) = upstream::files() else { return };
    let wanted = |name: &str| name.starts_with("example-") || name.starts_with("sample-dgdr-");
    for Manifest { name, object, .. } in manifests(&folder.join("dynamo"), wanted) {
        let written = rewritten(&object).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(written, object, "{name}");
    }
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
        for Manifest { name, text, object } in fixtures(folder) {
            let other_gpu = object.pointer("/spec/hardware/gpuSku").is_some();
            let of_a_condition = text.starts_with("# refused: status.conditions");
            if text.lines().next().unwrap().contains("Unsupported value") && !other_gpu && !of_a_condition {
                assert!(rewritten(&object).is_err(), "{name}");
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
        for Manifest { name, text, object } in fixtures(folder) {
            let file = Path::new(&name).file_name().unwrap().to_string_lossy();
            let version = object["apiVersion"].as_str().unwrap().trim_start_matches("nvidia.com/");
            assert!(file.starts_with(&format!("{version}-")), "{name} holds {version}");
            assert_eq!(text.starts_with(REFUSED), refused, "{name}");
            assert_eq!(object.get("status").is_some(), folder.ends_with("-status"), "{name}");
        }
    }
}
