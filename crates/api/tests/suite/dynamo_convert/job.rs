//! The containers of the profiling Job, of which v1alpha1 knows the resources of one.

use serde_json::{Value, json};

use super::spec::{pod, profiler};
use super::{ALPHA, BETA, annotations, converted, envelope, object, part, there_and_back};

#[test]
fn resources_follow_the_container_named_profiler() {
    let limits = json!({ "limits": { "cpu": "2" } });
    let other = json!({ "name": "output-copier", "resources": { "limits": { "cpu": "1" } } });
    let sidecar = json!({ "name": "proxy", "image": "p" });
    for containers in [
        json!([profiler(limits.clone()), other, sidecar]),
        json!([other, profiler(limits.clone()), sidecar]),
        json!([other, sidecar, profiler(limits.clone())]),
    ] {
        let beta = part(BETA, pod(json!({ "containers": containers })));
        let alpha = converted(&beta);
        assert_eq!(alpha["spec"], json!({ "profilingConfig": { "resources": limits } }));
        assert_eq!(converted(&alpha), beta, "the order is kept");

        let mut changed = alpha.clone();
        changed["spec"]["profilingConfig"]["resources"]["limits"]["cpu"] = json!("4");
        let text = converted(&changed).to_string();
        assert!(text.contains(r#""cpu":"4""#) && !text.contains(r#""cpu":"2""#), "{text}");
    }
}

#[test]
fn resources_alone_need_no_annotation() {
    let alpha = part(ALPHA, json!({ "profilingConfig": { "resources": { "limits": { "cpu": 2 } } } }));
    assert_eq!(annotations(&converted(&alpha)), json!({}));
    assert_eq!(annotations(&there_and_back(&alpha)), json!({}));
}

#[test]
fn a_profiler_that_is_only_a_name_is_kept() {
    let beta = part(BETA, pod(json!({ "containers": [{ "name": "profiler" }] })));
    let alpha = converted(&beta);
    assert_eq!(alpha.get("spec"), None);
    assert_eq!(envelope(&alpha), beta["spec"]);
    assert_eq!(converted(&alpha), beta);
}

#[test]
fn an_unnamed_profiler_is_given_its_name_in_its_place() {
    let limits = json!({ "limits": { "cpu": "2" } });
    let copier = json!({ "name": "output-copier" });
    for unnamed in [json!({ "name": "" }), json!({})] {
        let mut container = unnamed;
        container["resources"] = limits.clone();
        container["image"] = json!("p:1");
        let beta = part(BETA, pod(json!({ "containers": [copier, container] })));
        let alpha = converted(&beta);
        assert_eq!(alpha["spec"]["profilingConfig"]["resources"], limits);
        let wanted = json!({ "name": "profiler", "image": "p:1", "resources": limits });
        assert_eq!(converted(&alpha)["spec"], pod(json!({ "containers": [copier, wanted] })));
    }
}

#[test]
fn an_unnamed_container_beside_the_profiler_stays_another() {
    let unnamed = json!({ "name": "", "resources": { "limits": { "cpu": "9" } } });
    let named = profiler(json!({ "limits": { "cpu": "2" } }));
    for containers in [json!([unnamed, named]), json!([named, unnamed])] {
        let beta = part(BETA, pod(json!({ "containers": containers })));
        let alpha = converted(&beta);
        assert_eq!(alpha["spec"]["profilingConfig"]["resources"], named["resources"]);
        assert_eq!(converted(&alpha), beta);
    }
}

#[test]
fn resources_new_in_v1alpha1_join_the_containers_of_v1beta1() {
    let beta = part(BETA, pod(json!({ "containers": [{ "name": "output-copier", "image": "c" }] })));
    let mut alpha = converted(&beta);
    let limits = json!({ "limits": { "cpu": 1 } });
    alpha["spec"] = json!({ "profilingConfig": { "resources": limits } });
    let wanted = json!([{ "name": "output-copier", "image": "c" }, profiler(limits)]);
    assert_eq!(converted(&alpha)["spec"], pod(json!({ "containers": wanted })));
}

/// The schema of v1beta1 demands the list of containers; a whole object must be one that the API server takes.
#[test]
fn a_whole_object_with_tolerations_gets_the_list_of_containers() {
    let alpha = object(
        ALPHA,
        json!({ "model": "m", "autoApply": false,
                "profilingConfig": { "profilerImage": "p:1", "nodeSelector": { "a": "b" } } }),
        Value::Null,
    );
    let beta = converted(&alpha);
    let wanted = json!({ "containers": [], "nodeSelector": { "a": "b" } });
    assert_eq!(beta["spec"]["overrides"]["profilingJob"]["template"]["spec"], wanted);
    assert_eq!(converted(&beta), alpha);
    let mut as_go_stores_it = beta.clone();
    as_go_stores_it["spec"]["overrides"]["profilingJob"]["template"]["spec"]["containers"] = Value::Null;
    assert_eq!(there_and_back(&as_go_stores_it), beta);
}
