//! The attacker's objects have damaged and large annotations of the conversion between versions.

use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use serde_json::json;

use crate::tenants::{HostileCase, Tenant, server};

/// Annotations in which a conversion preserves the fields that a version does not have.
const ANNOTATIONS: [&str; 3] =
    ["llamastack.io/v1alpha2-fields", "llamastack.io/v1alpha2-extras", "llamastack.io/v1alpha1-fields"];

/// Bytes of an annotation. The API server allows 256 KiB for all annotations of an object.
const ANNOTATION_BYTES: usize = 200 * 1024;

async fn store(attacker: &Tenant, number: usize, annotation: &str, text: &str) {
    let mut damaged = server(&format!("damaged-{number}"), json!({ "distribution": { "name": "starter" } }));
    damaged["metadata"]["annotations"] = json!({ annotation: text });
    // Either outcome is fine: a rejected object harms nobody.
    let _ = attacker.apply(damaged).await;
}

/// The objects of all namespaces stay readable in both versions.
#[tokio::test]
async fn damaged_annotations_break_no_list() {
    let Some(case) = HostileCase::open("annotations").await else { return };
    let deep = format!("{}1{}", "{\"a\":".repeat(100), "}".repeat(100));
    let long = format!("{{\"spec\":{{\"x\":\"{}\"}}}}", "x".repeat(ANNOTATION_BYTES));
    let texts = ["{", "[]", "null", "{\"spec\":[]}", "{\"spec\":{\"providers\":7}}", &deep, &long];
    for (number, text) in texts.into_iter().enumerate() {
        for (place, annotation) in ANNOTATIONS.into_iter().enumerate() {
            store(&case.attacker, number * ANNOTATIONS.len() + place, annotation, text).await;
        }
    }
    case.expect_victim_served().await;
    for version in ["v1alpha1", "v1alpha2"] {
        let kind = GroupVersionKind::gvk("llamastack.io", version, "LlamaStackDistribution");
        let all: Api<DynamicObject> = Api::all_with(case.admin.clone(), &ApiResource::from_gvk(&kind));
        let listed = all.list(&ListParams::default()).await.unwrap_or_else(|error| panic!("{version}: {error}"));
        assert!(listed.items.iter().any(|object| object.metadata.namespace.as_deref() == Some(case.victim.name())));
    }
}
