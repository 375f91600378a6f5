//! Warnings about accepted requests.

use serde_json::{Value, json};

use super::*;

#[track_caller]
fn only_warning(new: &Value) -> String {
    let review = review_create(new);
    assert_accepted(&review);
    let [warning] = &review.warnings[..] else { panic!("one warning expected: {review:?}") };
    warning.to_string()
}

fn request_with_annotation(key: &str, value: &str) -> Value {
    let mut new = request(json!({}));
    new["metadata"]["annotations"] = json!({ key: value });
    new
}

#[test]
fn config_map_reference_warns_with_alternative() {
    let warning = only_warning(&request_with_annotation("nvidia.com/dgdr-config-map-ref", r#"{"name":"base"}"#));
    assert_eq!(
        warning,
        "metadata.annotations[nvidia.com/dgdr-config-map-ref]: ConfigMap base (key disagg.yaml) is mounted at /config \
         in the profiling Job, but current profilers do not read it. To change the generated graph, set \
         spec.overrides.dgd."
    );
}

#[test]
fn obsolete_deployment_overrides_warn() {
    let warning = only_warning(&request_with_annotation("nvidia.com/dgdr-deployment-overrides", r#"{"name":"mine"}"#));
    assert!(warning.starts_with("Fields of v1alpha1 without effect: spec.deploymentOverrides.name."), "{warning}");
}

#[test]
fn optimization_type_warns_as_unused() {
    let warning = only_warning(&request(json!({ "sla": { "optimizationType": "latency" } })));
    assert!(warning.starts_with("spec.sla.optimizationType is passed to the profiler"), "{warning}");
}

#[test]
fn unsupported_job_fields_warn() {
    let job = json!({ "completionMode": "Indexed", "template": { "spec": { "containers": [] } } });
    let warning = only_warning(&request(json!({ "overrides": { "profilingJob": job } })));
    assert!(warning.starts_with("Ignored fields of spec.overrides.profilingJob: completionMode."), "{warning}");
}

/// Earlier operators ran a kubectl script in the sidecar, so that many manifests set a mirrored kubectl image.
#[test]
fn sidecar_image_override_warns_with_flag() {
    let containers = json!([{ "name": "output-copier", "image": "mirror/kubectl:1" }]);
    let job = json!({ "template": { "spec": { "containers": containers } } });
    let warning = only_warning(&request(json!({ "overrides": { "profilingJob": job } })));
    let want = "Ignored fields of spec.overrides.profilingJob: template.spec.containers[0].image.";
    assert!(warning.starts_with(want), "{warning}");
    assert!(warning.ends_with("runs the operator's own image, which --operator-image sets."), "{warning}");
}

#[test]
fn invalid_config_map_reference_warns() {
    for wrong in ["base", r#"{"key":"disagg.yaml"}"#, r#"{"name":""}"#, "{"] {
        let warning = only_warning(&request_with_annotation("nvidia.com/dgdr-config-map-ref", wrong));
        let want = format!(
            "The annotations with fields of v1alpha1 cannot be read: nvidia.com/dgdr-config-map-ref is {wrong:?} and \
             must be JSON with a name, as in {{\"name\":\"base\",\"key\":\"disagg.yaml\"}}."
        );
        assert!(warning.starts_with(&want), "{warning}");
    }
}

#[test]
fn expected_profiler_errors_warn_at_admission() {
    let warning = only_warning(&request(json!({ "workload": { "concurrency": 1, "requestRate": 2 } })));
    assert!(
        warning.starts_with("spec.workload: Only one of 'concurrency' or 'requestRate' can be provided"),
        "{warning}"
    );
    let warning = only_warning(&request(json!({ "sla": { "e2eLatency": 100, "ttft": 10 } })));
    assert!(
        warning.starts_with("spec.sla: SLA must specify either (ttft and itl) or e2eLatency, not both."),
        "{warning}"
    );
    let warning = only_warning(&request(json!({ "sla": { "itl": 0 } })));
    assert!(warning.starts_with("spec.sla.itl: SLA 'itl' must be positive (got 0)."), "{warning}");
}

#[test]
fn pod_naming_limit_warns_with_maximum_length() {
    let request_named = |length: usize, more: Value| {
        let mut new = request(more);
        new["metadata"]["name"] = json!("a".repeat(length));
        new
    };
    let assert_no_warning = |new: &Value| assert_eq!(review_create(new), Review::default());
    assert_no_warning(&request_named(24, json!({})));
    let warning = only_warning(&request_named(25, json!({})));
    let graph = format!("{}-dgd", "a".repeat(25));
    assert_eq!(
        warning,
        format!(
            "metadata.name: DGD name '{graph}' (length 29) combined with component name VllmPrefillWorker exceeds the \
             45-character pod-naming limit. If the profiler chooses this component, it ends with this error. Create \
             the request under a name of at most 24 characters, or name the graph in \
             spec.overrides.dgd.metadata.name."
        )
    );
    only_warning(&request_named(25, json!({ "backend": "auto" })));
    for short in [json!({ "backend": "sglang" }), json!({ "features": { "mocker": { "enabled": true } } })] {
        assert_no_warning(&request_named(33, short.clone()));
        assert!(only_warning(&request_named(34, short)).contains("at most 33 characters"));
    }
    let dgd = |name: &str| {
        let dgd = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment",
            "metadata": { "name": name } });
        json!({ "overrides": { "dgd": dgd } })
    };
    assert_no_warning(&request_named(50, dgd("short")));
    let warning = only_warning(&request_named(5, dgd(&"b".repeat(29))));
    assert!(warning.starts_with("spec.overrides.dgd.metadata.name: DGD name 'bbb"), "{warning}");
    assert!(warning.ends_with("Use a name of at most 28 characters."), "{warning}");
}

#[test]
fn graph_metadata_without_effect_warns() {
    let metadata = json!({ "name": "chat", "namespace": "other", "labels": { "a": "b" }, "creationTimestamp": null,
        "annotations": { "nvidia.com/dgd-spec": "{}", "team": "search" }, "finalizers": ["x/y"] });
    let graph = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": metadata });
    let more = json!({ "image": "planner:1.5.0", "overrides": { "dgd": graph } });
    let warning = only_warning(&request(more));
    let why = "Ignored fields of spec.overrides.dgd.metadata: finalizers, namespace, annotations[nvidia.com/dgd-spec]. Remove";
    assert!(warning.starts_with(why), "{warning}");
}

#[test]
fn node_without_gpus_warns() {
    for count in [0, -8] {
        let warning = only_warning(&request(json!({ "hardware": { "numGpusPerNode": count } })));
        let why = format!(
            "spec.hardware.numGpusPerNode: 'hardware.numGpusPerNode' must be a positive integer (got {count}). Set a positive"
        );
        assert!(warning.starts_with(&why), "{warning}");
    }
    let one = request(json!({ "hardware": { "numGpusPerNode": 1 } }));
    assert_eq!(review_create(&one), Review::default());
}

/// Earlier profilers merge overrides themselves and pass unknown fields on.
#[test]
fn unknown_graph_field_warns() {
    let graph = json!({ "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment",
        "spec": { "imagePullSecrets": [{ "name": "registry" }] } });
    let warning = only_warning(&request(json!({ "overrides": { "dgd": graph } })));
    let why = "spec.overrides.dgd: override spec.imagePullSecrets is not a field of nvidia.com/v1alpha1. A profiler";
    assert!(warning.starts_with(why) && warning.contains("extraPodSpec"), "{warning}");
}

/// The version of the profiler decides in which API version graphs are generated and merged.
#[test]
fn v1beta1_override_is_checked_against_profiler_version() {
    let with = |tag: &str, component: Value| {
        let mut component = component;
        component["name"] = json!("Frontend");
        let graph = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment",
            "spec": { "components": [component] } });
        request(json!({ "image": format!("r/planner:{tag}"), "overrides": { "dgd": graph } }))
    };
    let (common, sidecar) = (json!({ "replicas": 2 }), json!({ "frontendSidecar": "side" }));
    for (tag, component) in [("1.4.0", &common), ("1.5.1", &common), ("1.5.1", &sidecar)] {
        assert_eq!(review_create(&with(tag, component.clone())), Review::default(), "{tag}");
    }
    assert_eq!(
        only_warning(&with("1.4.0", sidecar)),
        "spec.overrides.dgd: spec.components[Frontend].frontendSidecar is not a field of nvidia.com/v1alpha1, the version in which the profiler in r/planner:1.4.0 generates graphs. Name an image of Dynamo 1.5 or later in spec.image, or remove the field."
    );
    assert_eq!(
        only_warning(&with("1.3.0", common)),
        "spec.overrides.dgd is of nvidia.com/v1beta1, but the profiler in r/planner:1.3.0 reads every override as nvidia.com/v1alpha1. Name an image of Dynamo 1.5 or later in spec.image, or write the override in v1alpha1."
    );
}
