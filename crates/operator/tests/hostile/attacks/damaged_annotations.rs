//! The attacker's objects have damaged and large annotations of the conversion between versions.

use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::tenants::{HostileCase, Tenant, request, server};

/// Annotations in which a conversion preserves the fields that a version does not have.
const ANNOTATIONS: [&str; 3] =
    ["llamastack.io/v1alpha2-fields", "llamastack.io/v1alpha2-extras", "llamastack.io/v1alpha1-fields"];

/// The same for requests, and annotations in which the operator stores results.
const REQUEST_ANNOTATIONS: [&str; 8] = [
    "nvidia.com/dgdr-spec",
    "nvidia.com/dgdr-status",
    "nvidia.com/dgdr-config-map-ref",
    "nvidia.com/dgdr-output-pvc",
    "nvidia.com/dgdr-deployment-overrides",
    "nvidia.com/dgdr-profiling-config",
    "nvidia.com/dgdr-profiling-results",
    "nvidia.com/generated-dgd-spec",
];

/// Bytes of an annotation. The API server allows 256 KiB for all annotations of an object.
const ANNOTATION_BYTES: usize = 200 * 1024;

/// Returns whether the object is stored. Either outcome is fine: a rejected object harms nobody.
async fn is_stored(attacker: &Tenant, mut damaged: Value, annotation: &str, text: &str) -> bool {
    damaged["metadata"]["annotations"] = json!({ annotation: text });
    attacker.apply(damaged).await.is_ok()
}

/// The objects of all namespaces stay readable in both versions.
#[tokio::test]
async fn damaged_annotations_break_no_list() {
    let Some(case) = HostileCase::open("annotations").await else { return };
    let deep = format!("{}1{}", "{\"a\":".repeat(100), "}".repeat(100));
    let long = format!("{{\"spec\":{{\"x\":\"{}\"}}}}", "x".repeat(ANNOTATION_BYTES));
    let texts = ["{", "[]", "null", "{\"spec\":[]}", "{\"spec\":{\"providers\":7}}", &deep, &long];
    let (mut servers, mut requests) = (0, 0);
    for (number, text) in texts.into_iter().enumerate() {
        for (place, annotation) in ANNOTATIONS.into_iter().enumerate() {
            let name = format!("damaged-{number}-{place}");
            let damaged = server(&name, json!({ "distribution": { "name": "starter" } }));
            servers += usize::from(is_stored(&case.attacker, damaged, annotation, text).await);
        }
        for (place, annotation) in REQUEST_ANNOTATIONS.into_iter().enumerate() {
            let damaged = request(&format!("damaged-{number}-{place}"));
            requests += usize::from(is_stored(&case.attacker, damaged, annotation, text).await);
        }
    }
    // Fields of the older version that the newer one has no place for.
    for (number, config) in [json!("text"), json!([]), json!({ "sweep": [1], "hardware": "x" })].into_iter().enumerate()
    {
        let mut older = json!({ "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeploymentRequest",
            "metadata": { "name": format!("older-{number}") }, "spec": { "model": "m", "backend": "vllm" } });
        older["spec"]["profilingConfig"] = json!({ "profilerImage": "planner:1", "config": config });
        let _ = case.attacker.apply(older).await;
    }
    println!("{servers} servers and {requests} requests are stored");
    assert!(servers > 0 && requests > 0, "an object must be stored, or nothing is tested");
    case.expect_victim_served().await;
    for (group, version, kind) in [
        ("llamastack.io", "v1alpha1", "LlamaStackDistribution"),
        ("llamastack.io", "v1alpha2", "LlamaStackDistribution"),
        ("nvidia.com", "v1alpha1", "DynamoGraphDeploymentRequest"),
        ("nvidia.com", "v1beta1", "DynamoGraphDeploymentRequest"),
    ] {
        let kind = GroupVersionKind::gvk(group, version, kind);
        let all: Api<DynamicObject> = Api::all_with(case.admin.clone(), &ApiResource::from_gvk(&kind));
        let listed = all.list(&ListParams::default()).await.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        assert!(listed.items.iter().any(|object| object.metadata.namespace.as_deref() == Some(case.victim.name())));
    }
}
