//! Which pods are whose.

use steersman_plan::variant::{FactorCode, FleetSnapshot, MetricsState, ObservedVariant, TargetName, plan};
use steersman_reconcile::Lookup;

use super::{a_fleet, a_variant, decision, incomplete, replicas, spec, the_model};

/// The same with a workload of this kind, and this name.
fn on(variant: ObservedVariant, api_version: Option<&str>, kind: &str, name: &str) -> ObservedVariant {
    let mut variant = variant;
    let target = spec(&mut variant).scale_target_ref.as_mut().unwrap();
    (target.api_version, target.kind, target.name) = (api_version.map(Into::into), kind.into(), name.into());
    variant
}

fn load(seen: &mut FleetSnapshot, kind: &str, kv: f64, queue: f64) {
    for pod in the_model(seen).pods.as_mut().unwrap().iter_mut().filter(|pod| pod.target.kind == kind) {
        (pod.kv, pod.queue) = (Some(kv), Some(queue));
        pod.name = format!("{kind}-{}", pod.name).into();
    }
}

#[test]
fn kinds_of_the_same_name_have_pods_of_their_own() {
    let deployment = on(a_variant("a", "20", 2), Some("apps/v1"), "Deployment", "decode");
    let set = on(a_variant("b", "5", 2), None, "StatefulSet", "decode");
    let mut seen = a_fleet(vec![deployment, set], 0.1, 0.0);
    load(&mut seen, "Deployment", 0.1, 0.0);
    load(&mut seen, "StatefulSet", 0.1, 0.0);
    assert_eq!(decision(&seen, "a").metrics, MetricsState::Available);
    // Without the pods of one, the other's do not stand in for them.
    the_model(&mut seen).pods.as_mut().unwrap().retain(|pod| pod.target.kind == "Deployment");
    let words = "0 of 2 ready replicas of variant b have metrics";
    assert_eq!(decision(&seen, "b").metrics, incomplete(FactorCode::ReplicasWithoutMetrics, "b", words));
    let conflicts = plan(&seen).decisions.values().filter(|one| one.conflict.is_some()).count();
    assert_eq!(conflicts, 0, "two workloads");
}

#[test]
fn a_workload_is_the_same_however_its_group_is_written_and_another_groups_is_another() {
    let named = |api_version: Option<&str>, kind: &str| {
        let variant = on(a_variant("v", "5", 1), api_version, kind, "w");
        TargetName::from(variant.spec.scale_target_ref.as_ref().unwrap())
    };
    for (one, other, kind, same) in [
        (None, Some("apps/v1"), "Deployment", true),
        (Some("extensions/v1beta1"), Some("apps/v1"), "Deployment", true),
        (Some("a.io/v1"), Some("a.io/v2"), "Widget", true),
        (None, Some("leaderworkerset.x-k8s.io/v1"), "LeaderWorkerSet", true),
        (Some("apps.kruise.io/v1beta1"), Some("apps/v1"), "StatefulSet", false),
        (Some("v1"), Some("a.io/v1"), "ReplicationController", false),
    ] {
        assert_eq!(named(one, kind) == named(other, kind), same, "{one:?} {other:?} {kind}");
        let variant = on(a_variant("v", "5", 1), other, kind, "w");
        assert_eq!(named(one, kind).is(variant.spec.scale_target_ref.as_ref().unwrap()), same, "{one:?} {other:?}");
        let rivals = vec![on(a_variant("a", "5", 1), one, kind, "w"), on(a_variant("b", "5", 1), other, kind, "w")];
        let conflicts = plan(&a_fleet(rivals, 0.5, 1.0));
        assert_eq!(conflicts.decisions.values().any(|one| one.conflict.is_some()), same, "{one:?} {other:?} {kind}");
    }
}

#[test]
fn a_workload_whose_pods_nobody_can_tell_freezes_its_model_and_says_so() {
    let mut seen = a_fleet(vec![a_variant("a", "20", 2), a_variant("b", "5", 2)], 0.9, 9.0);
    assert!(replicas(&seen, "b") > 2);
    let Lookup::Known(Some(target)) = &mut seen.variants[0].target else { panic!("it has a workload") };
    let words = "the pods of Widget w cannot be found";
    (target.pods_error, target.ready) = (Some(words.into()), 0);
    for name in ["a", "b"] {
        let held = decision(&seen, name);
        assert_eq!(
            (held.replicas, held.metrics),
            (Some(2), incomplete(FactorCode::PodsNotFound, "a", words)),
            "{name}"
        );
    }
}
