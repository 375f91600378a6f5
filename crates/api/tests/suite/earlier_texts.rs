//! Texts of the published CRDs and conversions that stay word for word: contracts with users of the earlier operators,
//! whose alerts, scripts and dashboards match them, so a change here is a breaking change.

use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::convert::convert;

use crate::compare::{our_crd, version};

/// `name path` of each column without a priority, then of each wide one.
fn columns(family: Family, version_name: &str) -> (Vec<String>, Vec<String>) {
    let crd = our_crd(family);
    let columns = version(&crd, version_name)["additionalPrinterColumns"].as_array().unwrap().clone();
    let text =
        |column: &Value| format!("{} {}", column["name"].as_str().unwrap(), column["jsonPath"].as_str().unwrap());
    let (wide, narrow): (Vec<Value>, Vec<Value>) =
        columns.into_iter().partition(|column| column.get("priority").is_some());
    (narrow.iter().map(text).collect(), wide.iter().map(text).collect())
}

/// Messages of the CEL rules at a path such as `spec.storage.kv`.
fn rule_messages(family: Family, version_name: &str, path: &str) -> Vec<String> {
    let crd = our_crd(family);
    let mut schema = &version(&crd, version_name)["schema"]["openAPIV3Schema"];
    for field in path.split('.') {
        schema = &schema["properties"][field];
    }
    let rules = schema["x-kubernetes-validations"].as_array().unwrap_or_else(|| panic!("no rules at {path}"));
    rules.iter().map(|rule| rule["message"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn dgdr_columns_keep_names_and_paths() {
    let (narrow, wide) = columns(Family::Dgdr, "v1beta1");
    let expected = [
        "Model .spec.model",
        "Backend .spec.backend",
        "Phase .status.phase",
        "Profiling .status.profilingPhase",
        "Reason .status.conditions[?(@.type==\"Succeeded\")].reason",
        "Message .status.summary",
        "DGD .status.dgdName",
        "Age .metadata.creationTimestamp",
    ];
    assert_eq!((narrow, wide), (expected.map(str::to_owned).to_vec(), vec![]));
    let (narrow, wide) = columns(Family::Dgdr, "v1alpha1");
    let expected = [
        "Model .spec.model",
        "Backend .status.backend",
        "State .status.state",
        "DGD-State .status.deployment.state",
        "Age .metadata.creationTimestamp",
    ];
    assert_eq!((narrow, wide), (expected.map(str::to_owned).to_vec(), vec![]));
}

#[test]
fn dgdr_v1alpha1_keeps_deprecation_warning() {
    let crd = our_crd(Family::Dgdr);
    let alpha = version(&crd, "v1alpha1");
    assert_eq!(alpha["deprecated"], true);
    assert_eq!(
        alpha["deprecationWarning"],
        "nvidia.com/v1alpha1 DynamoGraphDeploymentRequest is deprecated; use nvidia.com/v1beta1 \
         DynamoGraphDeploymentRequest"
    );
}

#[test]
fn dgdr_status_keeps_enum_values() {
    let crd = our_crd(Family::Dgdr);
    let values = |version_name: &str, field: &str| {
        let status = &version(&crd, version_name)["schema"]["openAPIV3Schema"]["properties"]["status"];
        let mut values: Vec<String> = serde_json::from_value(status["properties"][field]["enum"].clone()).unwrap();
        values.sort();
        values
    };
    assert_eq!(values("v1beta1", "phase"), ["Deployed", "Deploying", "Failed", "Pending", "Profiling", "Ready"]);
    assert_eq!(
        values("v1beta1", "profilingPhase"),
        [
            "BuildingCurves",
            "Done",
            "GeneratingDGD",
            "Initializing",
            "SelectingConfig",
            "SweepingDecode",
            "SweepingPrefill",
        ]
    );
    assert_eq!(
        values("v1alpha1", "state"),
        ["Deploying", "DeploymentDeleted", "Failed", "Initializing", "Pending", "Profiling", "Ready"]
    );
}

#[test]
fn dgdr_conversion_keeps_annotation_keys() {
    let alpha = json!({
        "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeploymentRequest", "metadata": { "name": "qwen" },
        "spec": {
            "model": "m",
            "backend": "vllm",
            "enableGpuDiscovery": true,
            "profilingConfig": {
                "profilerImage": "i:1", "outputPVC": "out", "configMapRef": { "name": "base" }, "config": { "engine": {} },
            },
            "deploymentOverrides": { "name": "chat", "workersImage": "w:1" },
        },
        "status": { "state": "Initializing", "backend": "vllm", "profilingResults": "configmap/x",
            "deployment": { "namespace": "n", "state": "pending" } },
    });
    let beta = convert(alpha, "nvidia.com/v1beta1").unwrap().object;
    let keys: Vec<&String> = beta["metadata"]["annotations"].as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "nvidia.com/dgdr-config-map-ref",
            "nvidia.com/dgdr-deployment-overrides",
            "nvidia.com/dgdr-deployment-status",
            "nvidia.com/dgdr-enable-gpu-discovery",
            "nvidia.com/dgdr-output-pvc",
            "nvidia.com/dgdr-profiling-config",
            "nvidia.com/dgdr-profiling-results",
            "nvidia.com/dgdr-spec",
            "nvidia.com/dgdr-status",
            "nvidia.com/dgdr-status-backend",
        ]
    );
}

/// NVIDIA's operator stores either one annotation per field or all fields in one.
#[test]
fn dgdr_conversion_reads_both_annotation_formats() {
    let envelope =
        r#"{"version":1,"spec":{"model":"","backend":"","profilingConfig":{"profilerImage":"","outputPVC":"out"}}}"#;
    for (key, text) in [("nvidia.com/dgdr-output-pvc", "out"), ("nvidia.com/dgdr-spec", envelope)] {
        let beta = json!({
            "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest",
            "metadata": { "name": "qwen", "annotations": { key: text } }, "spec": { "model": "m", "image": "i:1" },
        });
        let alpha = convert(beta, "nvidia.com/v1alpha1").unwrap().object;
        assert_eq!(alpha["spec"]["profilingConfig"]["outputPVC"], "out", "{key}");
    }
}

#[test]
fn dgdr_conversion_keeps_error_text() {
    let alpha = json!({
        "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeploymentRequest", "metadata": { "name": "qwen" },
        "spec": { "model": "m", "backend": "vllm", "profilingConfig": { "profilerImage": "i:1", "config": "text" } },
    });
    let lost = convert(alpha, "nvidia.com/v1beta1").unwrap().lost;
    assert!(lost[0].contains("failed to parse ProfilingConfig.Config:"), "{lost:?}");
}

#[test]
fn llsd_columns_keep_names_and_paths() {
    let (narrow, wide) = columns(Family::Llsd, "v1alpha1");
    let expected = [
        "Phase .status.phase",
        "Operator Version .status.version.operatorVersion",
        "Server Version .status.version.llamaStackServerVersion",
        "Available .status.availableReplicas",
        "Age .metadata.creationTimestamp",
    ];
    assert_eq!((narrow, wide), (expected.map(str::to_owned).to_vec(), vec![]));
    let (narrow, wide) = columns(Family::Llsd, "v1alpha2");
    assert_eq!(
        narrow,
        [
            "Phase .status.phase",
            "Providers .status.configGeneration.providerCount",
            "Available .status.availableReplicas",
            "Age .metadata.creationTimestamp",
        ]
    );
    assert_eq!(
        wide,
        ["Distribution .status.resolvedDistribution.image", "Config .status.configGeneration.configMapName"]
    );
}

#[test]
fn llsd_rules_keep_messages() {
    for (version_name, path, messages) in [
        ("v1alpha1", "spec.server.distribution", &["Only one of name or image can be specified"][..]),
        (
            "v1alpha2",
            "spec",
            &[
                "providers and overrideConfig are mutually exclusive",
                "resources and overrideConfig are mutually exclusive",
                "storage and overrideConfig are mutually exclusive",
                "disabled and overrideConfig are mutually exclusive",
            ],
        ),
        (
            "v1alpha2",
            "spec.distribution",
            &["only one of name or image can be specified", "one of name or image must be specified"],
        ),
        ("v1alpha2", "spec.storage.kv", &["endpoint is required when type is redis"]),
        ("v1alpha2", "spec.storage.sql", &["connectionString is required when type is postgres"]),
        ("v1alpha2", "spec.networking.tls", &["secretName is required when TLS is enabled"]),
    ] {
        assert_eq!(rule_messages(Family::Llsd, version_name, path), messages, "{version_name} {path}");
    }
}

#[test]
fn llsd_phase_keeps_enum_values() {
    let crd = our_crd(Family::Llsd);
    for version_name in ["v1alpha1", "v1alpha2"] {
        let status = &version(&crd, version_name)["schema"]["openAPIV3Schema"]["properties"]["status"];
        assert_eq!(
            status["properties"]["phase"]["enum"],
            json!(["Pending", "Initializing", "Ready", "Failed", "Terminating"]),
            "{version_name}"
        );
    }
}

#[test]
fn llsd_conversion_keeps_annotation_key() {
    let object = json!({
        "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution", "metadata": { "name": "starter" },
        "spec": { "distribution": { "name": "starter" }, "disabled": ["eval"] },
    });
    let alpha = convert(object, "llamastack.io/v1alpha1").unwrap().object;
    let text = alpha["metadata"]["annotations"]["llamastack.io/v1alpha2-fields"].as_str().unwrap();
    assert!(text.contains("eval"), "{text}");
}

#[test]
fn va_columns_keep_names_and_paths() {
    let (narrow, _) = columns(Family::Va, "v1alpha1");
    assert_eq!(
        narrow,
        [
            "Model .spec.modelID",
            "VariantID .spec.variantID",
            "Accelerator .spec.accelerator",
            "CurrentReplicas .status.currentAlloc.numReplicas",
            "Optimized .status.desiredOptimizedAlloc.numReplicas",
            "MetricsReady .status.conditions[?(@.type=='MetricsAvailable')].status",
            "Age .metadata.creationTimestamp",
        ]
    );
}

#[test]
fn va_bounds_rule_keeps_message() {
    let messages = rule_messages(Family::Va, "v1alpha1", "spec");
    assert!(messages.contains(&"maxReplicas must be greater than or equal to minReplicas".to_owned()), "{messages:?}");
}

#[test]
fn crds_keep_names() {
    for (family, name, kind, short_name) in [
        (Family::Dgdr, "dynamographdeploymentrequests.nvidia.com", "DynamoGraphDeploymentRequest", "dgdr"),
        (Family::Llsd, "llamastackdistributions.llamastack.io", "LlamaStackDistribution", "llsd"),
        (Family::Va, "variantautoscalings.llmd.ai", "VariantAutoscaling", "va"),
    ] {
        let crd = our_crd(family);
        assert_eq!(crd["metadata"]["name"], name);
        assert_eq!(
            (&crd["spec"]["names"]["kind"], &crd["spec"]["names"]["shortNames"]),
            (&json!(kind), &json!([short_name]))
        );
    }
}
