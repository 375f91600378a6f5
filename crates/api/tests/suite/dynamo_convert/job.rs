//! The containers of the profiling Job. v1alpha1 only has the resources of the profiler.

use serde_json::{Value, json};

use super::spec::{pod_overrides, profiler_container};
use super::{ALPHA, BETA, annotations, convert_losslessly, object, partial_object, round_trip, spec_envelope};

#[test]
fn resources_come_from_the_profiler_container() {
    let limits = json!({ "limits": { "cpu": "2" } });
    let copier = json!({ "name": "output-copier", "resources": { "limits": { "cpu": "1" } } });
    let sidecar = json!({ "name": "proxy", "image": "p" });
    for containers in [
        json!([profiler_container(limits.clone()), copier, sidecar]),
        json!([copier, profiler_container(limits.clone()), sidecar]),
        json!([copier, sidecar, profiler_container(limits.clone())]),
    ] {
        let beta = partial_object(BETA, pod_overrides(json!({ "containers": containers })));
        let alpha = convert_losslessly(&beta);
        assert_eq!(alpha["spec"], json!({ "profilingConfig": { "resources": limits } }));
        assert_eq!(convert_losslessly(&alpha), beta, "the order is kept");

        let mut changed = alpha.clone();
        changed["spec"]["profilingConfig"]["resources"]["limits"]["cpu"] = json!("4");
        let text = convert_losslessly(&changed).to_string();
        assert!(text.contains(r#""cpu":"4""#) && !text.contains(r#""cpu":"2""#), "{text}");
    }
}

#[test]
fn resources_alone_need_no_annotation() {
    let alpha = partial_object(ALPHA, json!({ "profilingConfig": { "resources": { "limits": { "cpu": 2 } } } }));
    assert_eq!(annotations(&convert_losslessly(&alpha)), json!({}));
    assert_eq!(annotations(&round_trip(&alpha)), json!({}));
}

#[test]
fn profiler_with_only_a_name_is_kept() {
    let beta = partial_object(BETA, pod_overrides(json!({ "containers": [{ "name": "profiler" }] })));
    let alpha = convert_losslessly(&beta);
    assert_eq!(alpha.get("spec"), None);
    assert_eq!(spec_envelope(&alpha), beta["spec"]);
    assert_eq!(convert_losslessly(&alpha), beta);
}

#[test]
fn unnamed_profiler_is_named_in_place() {
    let limits = json!({ "limits": { "cpu": "2" } });
    let copier = json!({ "name": "output-copier" });
    for unnamed in [json!({ "name": "" }), json!({})] {
        let mut container = unnamed;
        container["resources"] = limits.clone();
        container["image"] = json!("p:1");
        let beta = partial_object(BETA, pod_overrides(json!({ "containers": [copier, container] })));
        let alpha = convert_losslessly(&beta);
        assert_eq!(alpha["spec"]["profilingConfig"]["resources"], limits);
        let expected = json!({ "name": "profiler", "image": "p:1", "resources": limits });
        assert_eq!(convert_losslessly(&alpha)["spec"], pod_overrides(json!({ "containers": [copier, expected] })));
    }
}

#[test]
fn unnamed_sidecar_of_profiler_stays_unnamed() {
    let unnamed = json!({ "name": "", "resources": { "limits": { "cpu": "9" } } });
    let named = profiler_container(json!({ "limits": { "cpu": "2" } }));
    for containers in [json!([unnamed, named]), json!([named, unnamed])] {
        let beta = partial_object(BETA, pod_overrides(json!({ "containers": containers })));
        let alpha = convert_losslessly(&beta);
        assert_eq!(alpha["spec"]["profilingConfig"]["resources"], named["resources"]);
        assert_eq!(convert_losslessly(&alpha), beta);
    }
}

#[test]
fn v1alpha1_resources_add_a_profiler_container() {
    let beta =
        partial_object(BETA, pod_overrides(json!({ "containers": [{ "name": "output-copier", "image": "c" }] })));
    let mut alpha = convert_losslessly(&beta);
    let limits = json!({ "limits": { "cpu": 1 } });
    alpha["spec"] = json!({ "profilingConfig": { "resources": limits } });
    let expected = json!([{ "name": "output-copier", "image": "c" }, profiler_container(limits)]);
    assert_eq!(convert_losslessly(&alpha)["spec"], pod_overrides(json!({ "containers": expected })));
}

/// The schema of v1beta1 requires the list of containers, so a complete object must have one to be accepted.
#[test]
fn complete_object_gets_empty_container_list() {
    let alpha = object(
        ALPHA,
        json!({ "model": "m", "autoApply": false,
                "profilingConfig": { "profilerImage": "p:1", "nodeSelector": { "a": "b" } } }),
        Value::Null,
    );
    let beta = convert_losslessly(&alpha);
    let expected = json!({ "containers": [], "nodeSelector": { "a": "b" } });
    assert_eq!(beta["spec"]["overrides"]["profilingJob"]["template"]["spec"], expected);
    assert_eq!(convert_losslessly(&beta), alpha);
    let mut as_go_stores_it = beta.clone();
    as_go_stores_it["spec"]["overrides"]["profilingJob"]["template"]["spec"]["containers"] = Value::Null;
    assert_eq!(round_trip(&as_go_stores_it), beta);
}
