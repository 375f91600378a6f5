//! What is accepted, and told all the same.

use serde_json::{Value, json};

use super::*;

#[track_caller]
fn warned(new: &Value) -> String {
    let verdict = created(new);
    accepted(&verdict);
    let [warning] = &verdict.warnings[..] else { panic!("one warning expected: {verdict:?}") };
    warning.to_string()
}

fn annotated(key: &str, value: &str) -> Value {
    let mut new = request(json!({}));
    new["metadata"]["annotations"] = json!({ key: value });
    new
}

#[test]
fn what_the_profiler_does_not_look_at_is_named_with_what_to_use_instead() {
    let said = warned(&annotated("nvidia.com/dgdr-config-map-ref", r#"{"name":"base"}"#));
    assert_eq!(
        said,
        "metadata.annotations[nvidia.com/dgdr-config-map-ref]: ConfigMap base (key disagg.yaml) is mounted at /config in \
         the profiling Job, where today's profilers do not look. Put what shall differ in the generated graph into \
         spec.overrides.dgd."
    );
}

#[test]
fn what_no_version_acts_on_any_more_is_named() {
    let said = warned(&annotated("nvidia.com/dgdr-deployment-overrides", r#"{"name":"mine"}"#));
    assert!(said.starts_with("Kept from v1alpha1 and without effect: spec.deploymentOverrides.name."), "{said}");
}

#[test]
fn a_preference_that_no_profiler_acts_on_is_named() {
    let said = warned(&request(json!({ "sla": { "optimizationType": "latency" } })));
    assert!(said.starts_with("spec.sla.optimizationType is handed to the profiler"), "{said}");
}

#[test]
fn fields_of_the_job_that_are_not_taken_over_are_named() {
    let job = json!({ "completionMode": "Indexed", "template": { "spec": { "containers": [] } } });
    let said = warned(&request(json!({ "overrides": { "profilingJob": job } })));
    assert!(said.starts_with("Not taken over from spec.overrides.profilingJob: completionMode."), "{said}");
}

/// Earlier operators ran a script there, so that a mirrored image with kubectl is in many manifests.
#[test]
fn an_image_for_the_sidecar_is_named_with_where_it_is_set() {
    let containers = json!([{ "name": "output-copier", "image": "mirror/kubectl:1" }]);
    let job = json!({ "template": { "spec": { "containers": containers } } });
    let said = warned(&request(json!({ "overrides": { "profilingJob": job } })));
    let want = "Not taken over from spec.overrides.profilingJob: template.spec.containers[0].image.";
    assert!(said.starts_with(want), "{said}");
    assert!(said.ends_with("runs a program of the operator's own image, which --operator-image sets."), "{said}");
}

#[test]
fn a_reference_to_a_config_map_that_names_none_is_told_and_not_dropped() {
    for wrong in ["base", r#"{"key":"disagg.yaml"}"#, r#"{"name":""}"#, "{"] {
        let said = warned(&annotated("nvidia.com/dgdr-config-map-ref", wrong));
        let want = format!(
            "The fields that v1alpha1 keeps in annotations cannot be read: nvidia.com/dgdr-config-map-ref is {wrong:?} and \
             must be JSON with a name, as in {{\"name\":\"base\",\"key\":\"disagg.yaml\"}}."
        );
        assert!(said.starts_with(&want), "{said}");
    }
}

#[test]
fn what_the_profiler_will_end_with_is_said_before_it_begins() {
    let said = warned(&request(json!({ "workload": { "concurrency": 1, "requestRate": 2 } })));
    assert!(said.starts_with("spec.workload: Only one of 'concurrency' or 'requestRate' can be provided"), "{said}");
    let said = warned(&request(json!({ "sla": { "e2eLatency": 100, "ttft": 10 } })));
    assert!(said.starts_with("spec.sla: SLA must specify either (ttft and itl) or e2eLatency, not both."), "{said}");
    let said = warned(&request(json!({ "sla": { "itl": 0 } })));
    assert!(said.starts_with("spec.sla.itl: SLA 'itl' must be positive (got 0)."), "{said}");
}

#[test]
fn the_limit_of_45_characters_is_said_with_the_length_that_a_name_may_have() {
    let named = |length: usize, more: Value| {
        let mut new = request(more);
        new["metadata"]["name"] = json!("a".repeat(length));
        new
    };
    let none = |new: &Value| assert_eq!(created(new), Review::default());
    none(&named(24, json!({})));
    let said = warned(&named(25, json!({})));
    let graph = format!("{}-dgd", "a".repeat(25));
    assert_eq!(
        said,
        format!(
            "metadata.name: DGD name '{graph}' (length 29) combined with component name VllmPrefillWorker exceeds the \
             45-character pod-naming limit, and the profiler ends with this error if it chooses such a component. Create \
             the request under a name of at most 24 characters, or name the graph in spec.overrides.dgd.metadata.name."
        )
    );
    warned(&named(25, json!({ "backend": "auto" })));
    for short in [json!({ "backend": "sglang" }), json!({ "features": { "mocker": { "enabled": true } } })] {
        none(&named(33, short.clone()));
        assert!(warned(&named(34, short)).contains("at most 33 characters"));
    }
    let dgd = |name: &str| {
        let dgd = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment",
            "metadata": { "name": name } });
        json!({ "overrides": { "dgd": dgd } })
    };
    none(&named(50, dgd("short")));
    let said = warned(&named(5, dgd(&"b".repeat(29))));
    assert!(said.starts_with("spec.overrides.dgd.metadata.name: DGD name 'bbb"), "{said}");
    assert!(said.ends_with("Use a name of at most 28 characters."), "{said}");
}

/// Earlier profilers merge by themselves and hand it on.
#[test]
fn a_field_that_graphs_do_not_have_is_named_and_left_to_the_profiler() {
    let graph = json!({ "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment",
        "spec": { "imagePullSecrets": [{ "name": "registry" }] } });
    let said = warned(&request(json!({ "overrides": { "dgd": graph } })));
    let why =
        "spec.overrides.dgd: override spec.imagePullSecrets is not a field of nvidia.com/v1alpha1, and a profiler";
    assert!(said.starts_with(why) && said.contains("extraPodSpec"), "{said}");
}

/// What is merged is merged in the version that the profiler generates, and by the one that it brings along.
#[test]
fn an_override_of_the_second_version_is_held_against_the_version_of_the_profiler() {
    let with = |tag: &str, component: Value| {
        let mut component = component;
        component["name"] = json!("Frontend");
        let graph = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment",
            "spec": { "components": [component] } });
        request(json!({ "image": format!("r/planner:{tag}"), "overrides": { "dgd": graph } }))
    };
    let (common, sidecar) = (json!({ "replicas": 2 }), json!({ "frontendSidecar": "side" }));
    for (tag, component) in [("1.4.0", &common), ("1.5.1", &common), ("1.5.1", &sidecar)] {
        assert_eq!(created(&with(tag, component.clone())), Review::default(), "{tag}");
    }
    assert_eq!(
        warned(&with("1.4.0", sidecar)),
        "spec.overrides.dgd: spec.components[Frontend].frontendSidecar is no field of nvidia.com/v1alpha1, in which the \
         profiler in r/planner:1.4.0 generates graphs. Name an image of Dynamo 1.5 or later in spec.image, or leave the \
         field out."
    );
    assert_eq!(
        warned(&with("1.3.0", common)),
        "spec.overrides.dgd is of nvidia.com/v1beta1, and the profiler in r/planner:1.3.0 takes every override for one of \
         nvidia.com/v1alpha1. Name an image of Dynamo 1.5 or later in spec.image, or write the override in v1alpha1."
    );
}
