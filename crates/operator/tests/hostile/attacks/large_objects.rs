//! The attacker stores objects that are as large as the API server allows.

use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use steersman_testkit::{condition, wait};

use crate::tenants::{HostileCase, server, variant};

/// Bytes that one field of an object may have, as far as the API server is concerned.
const LARGE_BYTES: usize = 300_000;

/// A server with settings of this size. In the older version of the API, an annotation holds them.
fn server_with_settings(name: &str, bytes: usize) -> Value {
    let settings = json!({ "note": "x".repeat(bytes) });
    let provider = json!({ "provider": "vllm", "endpoint": "http://vllm:8000", "settings": settings });
    server(name, json!({ "distribution": { "name": "starter" }, "providers": { "inference": provider } }))
}

/// All servers stay readable in both versions, and the victim can still write the older one.
#[tokio::test]
async fn large_settings_break_no_list() {
    let Some(case) = HostileCase::open("settings-size").await else { return };
    let too_large = case.attacker.apply(server_with_settings("too-large", LARGE_BYTES)).await;
    let rejection = too_large.expect_err("the settings must be rejected");
    assert!(rejection.contains("exceed 200000 bytes"), "{}", &rejection[..rejection.len().min(1000)]);
    case.attacker.apply(server_with_settings("large", 190_000)).await.unwrap();
    case.expect_victim_served().await;
    for version in ["v1alpha1", "v1alpha2"] {
        let kind = GroupVersionKind::gvk("llamastack.io", version, "LlamaStackDistribution");
        let all: Api<DynamicObject> = Api::all_with(case.admin.clone(), &ApiResource::from_gvk(&kind));
        let listed = all.list(&ListParams::default()).await.unwrap_or_else(|error| panic!("{version}: {error}"));
        assert!(listed.items.iter().any(|object| object.metadata.namespace.as_deref() == Some(case.victim.name())));
    }
    let older = json!({ "apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution",
        "metadata": { "name": "older" }, "spec": { "server": { "distribution": { "name": "starter" } } } });
    case.victim.apply(older).await.unwrap();
}

/// An object that is too large for the cache of the operator is read from the API server instead.
#[tokio::test]
async fn object_beyond_the_cache_is_reconciled() {
    let Some(case) = HostileCase::open("cache").await else { return };
    let mut large = server_with_settings("large", 150_000);
    large["metadata"]["annotations"] = json!({ "example.com/note": "x".repeat(150_000) });
    case.attacker.apply(large.clone()).await.unwrap();
    case.expect_victim_served().await;
    let applied = wait::eventually("the large object is reconciled", async || {
        let read = case.attacker.read(&large).await;
        (condition(&read, "ConfigGenerated")["status"] == "True").then_some(())
    });
    applied.await.unwrap();
}

/// A model id of the size of an object is rejected, because queries, metrics and the log contain it.
#[tokio::test]
async fn long_model_id_is_rejected() {
    let Some(case) = HostileCase::open("model-id").await else { return };
    let long = variant("long", json!({ "modelID": "m".repeat(LARGE_BYTES) }));
    let rejection = case.attacker.apply(long).await.expect_err("the model id must be rejected");
    let expected = "spec.modelID: Too long: may not be more than 512";
    assert!(rejection.contains(expected), "{}", &rejection[..rejection.len().min(1000)]);
    case.expect_victim_served().await;
}
