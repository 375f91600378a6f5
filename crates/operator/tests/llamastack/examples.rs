//! Applies each example in its own namespace like `kubectl apply -f`, and waits until its server is ready.

use std::path::PathBuf;

use serde_json::Value;

use crate::test_namespace::{TestNamespace, condition};

/// The valid examples; the invalid ones are in a subfolder.
fn files() -> Vec<PathBuf> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/llamastack"));
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.is_file());
    files.sort();
    files
}

/// Applies an example and returns its object once it is ready.
async fn apply_example(file: &str) -> Option<Value> {
    let path = files().into_iter().find(|path| path.ends_with(file)).expect("the example exists");
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.starts_with("# "), "{file} must begin with a comment on its purpose");
    let name = file.trim_end_matches(".yaml").trim_start_matches("v1alpha2-");
    let ns = TestNamespace::open(&format!("example-{name}")).await?;
    ns.apply(&text).await;
    Some(ns.wait_until_object_ready(name).await)
}

/// Every field of an example must have an effect.
#[track_caller]
fn assert_no_field_is_ignored(object: &Value) {
    let accepted = condition(object, "SpecAccepted");
    assert_eq!(accepted["reason"], "SpecAccepted", "{accepted:#}");
}

#[tokio::test]
async fn simple_example_is_ready() {
    let Some(object) = apply_example("v1alpha2-simple.yaml").await else { return };
    assert_no_field_is_ignored(&object);
    assert_eq!(object["status"]["configGeneration"]["resourceCount"], 1);
}

#[tokio::test]
async fn full_example_is_ready() {
    let Some(object) = apply_example("v1alpha2-full.yaml").await else { return };
    // An Ingress has no certificate of the server, which is the one thing to report.
    let findings = object["status"]["findings"].as_array().unwrap();
    let reasons: Vec<&Value> = findings.iter().map(|finding| &finding["reason"]).collect();
    assert_eq!(reasons, ["IngressWithoutTls"], "{object:#}");
    assert!(object["status"]["serviceURL"].as_str().unwrap().starts_with("https://full-service."));
    for type_ in ["SecretsResolved", "ConfigGenerated", "StorageReady", "ServiceReady", "Available"] {
        assert_eq!(condition(&object, type_)["status"], "True", "{object:#}");
    }
}

#[tokio::test]
async fn postgres_example_is_ready() {
    let Some(object) = apply_example("v1alpha2-postgres.yaml").await else { return };
    assert_no_field_is_ignored(&object);
    assert_eq!(object["status"]["availableReplicas"], 2);
    assert_eq!(condition(&object, "SecretsResolved")["message"], "Resolved 2 secret references");
}

#[tokio::test]
async fn multi_provider_example_is_ready() {
    let Some(object) = apply_example("v1alpha2-multi-provider.yaml").await else { return };
    assert_no_field_is_ignored(&object);
    assert_eq!(object["status"]["configGeneration"]["resourceCount"], 2);
}

#[tokio::test]
async fn override_example_is_ready() {
    let Some(object) = apply_example("v1alpha2-override.yaml").await else { return };
    assert_no_field_is_ignored(&object);
    assert_eq!(condition(&object, "DeploymentUpdated")["message"], "Deployment updated with config override-config");
}

#[tokio::test]
async fn v1alpha1_example_is_ready() {
    let Some(ns) = TestNamespace::open("example-older").await else { return };
    let file = files().into_iter().find(|file| file.ends_with("v1alpha1-starter.yaml")).unwrap();
    ns.apply(&std::fs::read_to_string(file).unwrap()).await;
    assert_no_field_is_ignored(&ns.wait_until_object_ready("starter-v1alpha1").await);
}

#[test]
fn every_example_has_a_test() {
    let tested = include_str!("examples.rs");
    for file in files() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        assert!(tested.contains(&format!("\"{name}\"")), "no test in this file applies {name}");
    }
}
