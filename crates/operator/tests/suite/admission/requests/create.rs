//! Creation of requests: schema, conversion, defaults and refusals.

use serde_json::{Value, json};

use super::super::versions::OTHER_NAMESPACE;
use super::*;

/// The accepted rows come first, then those that are refused.
#[tokio::test]
async fn adm_01_to_13_new_requests_are_checked() {
    let Some(env) = start("requests", &OTHER_NAMESPACE).await else { return };
    let stored = async |row: &str, request: Value| {
        let stored = dry_run_create(&env, &request).await;
        stored.unwrap_or_else(|error| panic!("{row}: {error}")).data["spec"].clone()
    };
    let image = "nvcr.io/nvidia/ai-dynamo/dynamo-planner:1.4.0";
    let none = json!({ "image": null, "runtimeVersionOverride": null });
    assert_eq!(stored("adm_01", beta("a", none)).await["image"], image);
    assert_eq!(stored("adm_01, empty", beta("a", json!({ "image": "" }))).await["image"], image);
    assert_eq!(stored("adm_01, given", beta("a", json!({}))).await["image"], "profiler:latest");
    assert_eq!(stored("adm_04", alpha("a", json!({}))).await["profilingConfig"]["profilerImage"], "profiler:latest");
    let empty = json!({ "profilingConfig": { "profilerImage": "" } });
    let filled = stored("adm_04, without an image", alpha("a", empty)).await;
    assert_eq!(filled["profilingConfig"]["profilerImage"], image, "filled in across versions");
    let mut annotated = beta("a", json!({}));
    annotated["metadata"]["annotations"] = json!({ "nvidia.com/dynamo-operator-origin-version": "not-semver" });
    stored("adm_08", annotated).await;
    stored("adm_10", beta("a", json!({ "hardware": null }))).await;
    stored("adm_12", beta("a", json!({ "hardware": { "gpuSku": "h100_sxm" } }))).await;

    let pattern = "^(0|[1-9][0-9]{0,3})\\.(0|[1-9][0-9]{0,3})\\.(0|[1-9][0-9]{0,3})$";
    let short = format!(
        "spec.runtimeVersionOverride: Invalid value: \"1.2\": spec.runtimeVersionOverride in body should match '{pattern}'"
    );
    let optimization = json!({ "sla": { "optimizationType": "cost" } });
    let wrong = json!({ "backend": "auto", "searchStrategy": "thorough", "runtimeVersionOverride": null });
    let both = format!("{THOROUGH}. Or set spec.searchStrategy to rapid., {NO_VERSION}");
    for (row, request, expected) in [
        ("adm_02", beta("a", json!({ "runtimeVersionOverride": null })), NO_VERSION),
        ("adm_03", beta("a", json!({ "runtimeVersionOverride": "1.2" })), short.as_str()),
        (
            "adm_05",
            beta("a", json!({ "model": "" })),
            "spec.model: Invalid value: \"\": spec.model in body should be at least 1 chars long",
        ),
        (
            "adm_06",
            beta("a", optimization),
            "spec.sla.optimizationType: Unsupported value: \"cost\": supported values: \"latency\", \"throughput\"",
        ),
        (
            "adm_07",
            alpha("a", json!({ "backend": "unknown" })),
            "spec.backend: Unsupported value: \"unknown\": supported values: \"auto\", \"vllm\", \"sglang\", \"trtllm\"",
        ),
        ("adm_09", beta("a", json!({ "backend": "auto", "searchStrategy": "thorough" })), THOROUGH),
        ("adm_13", beta("a", wrong), &both),
        ("the length of a name", beta(&"a".repeat(56), json!({})), "a name of at most 55 characters"),
        (
            "v1alpha1",
            alpha("a", json!({ "runtimeVersionOverride": null })),
            "is required when spec.profilingConfig.profilerImage has no parseable semantic-version tag",
        ),
    ] {
        let refused = dry_run_create(&env, &request).await.expect_err(row);
        assert!(refused.contains(expected), "{row}: {refused}");
    }
    // A name that the API server generates is validated as well.
    let mut generated = beta("a", json!({}));
    generated["metadata"] = json!({ "generateName": "a".repeat(56) });
    assert!(dry_run_create(&env, &generated).await.is_err());
}
