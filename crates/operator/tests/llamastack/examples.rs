//! The examples, each applied in a namespace of its own as `kubectl apply -f` would, until its server is ready.

use std::path::PathBuf;

use serde_json::Value;

use crate::scene::{Scene, condition};

/// Those to be refused lie in a folder of their own.
fn files() -> Vec<PathBuf> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/llamastack"));
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.is_file());
    files.sort();
    files
}

/// The object that an example is about, once it is ready.
async fn shown(file: &str) -> Option<Value> {
    let path = files().into_iter().find(|path| path.ends_with(file)).expect("the example is there");
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.starts_with("# "), "{file} begins with what it is for");
    let name = file.trim_end_matches(".yaml").trim_start_matches("v1alpha2-");
    let scene = Scene::open(&format!("example-{name}")).await?;
    scene.apply(&text).await;
    Some(scene.ready_of(name).await)
}

/// An example says nothing that has no effect.
#[track_caller]
fn assert_all_is_acted_on(object: &Value) {
    let said = condition(object, "SpecAccepted");
    assert_eq!(said["reason"], "SpecAccepted", "{said:#}");
}

#[tokio::test]
async fn simple_is_ready() {
    let Some(object) = shown("v1alpha2-simple.yaml").await else { return };
    assert_all_is_acted_on(&object);
    assert_eq!(object["status"]["configGeneration"]["resourceCount"], 1);
}

#[tokio::test]
async fn full_is_ready() {
    let Some(object) = shown("v1alpha2-full.yaml").await else { return };
    assert_all_is_acted_on(&object);
    assert!(object["status"]["serviceURL"].as_str().unwrap().starts_with("https://full-service."));
    for type_ in ["SecretsResolved", "ConfigGenerated", "StorageReady", "ServiceReady", "Available"] {
        assert_eq!(condition(&object, type_)["status"], "True", "{object:#}");
    }
}

#[tokio::test]
async fn postgres_is_ready() {
    let Some(object) = shown("v1alpha2-postgres.yaml").await else { return };
    assert_all_is_acted_on(&object);
    assert_eq!(object["status"]["availableReplicas"], 2);
    assert_eq!(condition(&object, "SecretsResolved")["message"], "Resolved 2 secret references");
}

#[tokio::test]
async fn multi_provider_is_ready() {
    let Some(object) = shown("v1alpha2-multi-provider.yaml").await else { return };
    assert_all_is_acted_on(&object);
    assert_eq!(object["status"]["configGeneration"]["resourceCount"], 2);
}

#[tokio::test]
async fn override_is_ready() {
    let Some(object) = shown("v1alpha2-override.yaml").await else { return };
    assert_all_is_acted_on(&object);
    assert_eq!(condition(&object, "DeploymentUpdated")["message"], "Deployment updated with config override-config");
}

#[tokio::test]
async fn starter_of_the_older_version_is_ready() {
    let Some(scene) = Scene::open("example-older").await else { return };
    let file = files().into_iter().find(|file| file.ends_with("v1alpha1-starter.yaml")).unwrap();
    scene.apply(&std::fs::read_to_string(file).unwrap()).await;
    assert_all_is_acted_on(&scene.ready_of("starter-v1alpha1").await);
}

/// One that is added without a test would not be shown to work.
#[test]
fn every_example_is_shown() {
    let tested = include_str!("examples.rs");
    for file in files() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        assert!(tested.contains(&format!("\"{name}\"")), "no test here applies {name}");
    }
}
