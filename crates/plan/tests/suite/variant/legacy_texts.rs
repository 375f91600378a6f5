//! Statuses that earlier operators stored as texts only, and what is decided on them.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};
use steersman_api::variant::v1alpha1::{ConfigFault, ConfigMapReference, VariantAutoscalingStatus};
use steersman_plan::variant::config::is_stored;
use steersman_plan::variant::legacy_texts::{limit, scale_target, unclamped_reason};
use steersman_plan::variant::memory::Memory;
use steersman_plan::variant::{ConfigFinding, FleetSnapshot, ObservedVariant, event, excluded_status, plan, status};
use steersman_reconcile::{Finding, NamespacedName, Severity};

use super::{a_fleet, a_variant, ago, by_tokens, decided, later, now, replicas, settle, spec, stored, target};

fn condition(type_: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": type_, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": "2026-11-15T22:00:00Z",
    })
}

fn with_condition(type_: &str, reason: &str, message: &str) -> VariantAutoscalingStatus {
    serde_json::from_value(json!({ "conditions": [condition(type_, reason, message)] })).unwrap()
}

/// The same status as the version before `status.decision.factors` stored it, in the words of that version.
fn without_typed_fields(status: &VariantAutoscalingStatus) -> Arc<VariantAutoscalingStatus> {
    let mut status = status.clone();
    status.config_faults.clear();
    if let Some(decision) = &mut status.decision {
        decision.scale_target_ref = None;
        decision.factors.clear();
        for limit in &mut decision.limits {
            *limit = limit.replace("the scale target, which stays at ", "its workload, which has stayed at ");
        }
    }
    if let Some(update) = status.desired_optimized_alloc.as_mut().and_then(|desired| desired.last_update.as_mut()) {
        update.unclamped_reason = None;
    }
    status.into()
}

fn forget_types(seen: &mut FleetSnapshot) {
    for variant in &mut seen.variants {
        variant.status = variant.status.as_deref().map(without_typed_fields);
    }
}

/// Numbers, reasons and events of the next reconcile.
fn outcome(seen: &FleetSnapshot) -> Vec<(Option<i32>, String, Option<String>)> {
    let plan = plan(seen);
    let each = |variant: &ObservedVariant| {
        let decision = &plan.decisions[&variant.key];
        let status = status(variant, decision, true, seen.now);
        let event = event(variant, decision, &status).map(|event| event.reason.to_owned());
        (decision.replicas, decision.reason.clone(), event)
    };
    seen.variants.iter().map(each).collect()
}

/// Decides the same on the status of this version and on that of the earlier one.
fn assert_same_outcome(seen: &FleetSnapshot) {
    let mut earlier = seen.clone();
    forget_types(&mut earlier);
    assert_ne!(earlier, *seen, "there is something to forget");
    assert_eq!(outcome(&earlier), outcome(seen));
}

#[test]
fn target_is_read_from_either_generation() {
    let of = |message: &str| {
        scale_target(&with_condition("TargetResolved", "TargetFound", message)).map(|found| (found.kind, found.name))
    };
    let deployment = Some(("Deployment".to_owned(), "decode".to_owned()));
    // The Go operators and Steersman.
    assert_eq!(of("Scale target Deployment decode found"), deployment);
    assert_eq!(of("Scale target Deployment decode not found"), deployment);
    let missing = "Scale target Deployment decode not found in namespace team-a. Create it or correct \
                   spec.scaleTargetRef; it is noticed at once, and until then nothing is decided";
    assert_eq!(of(missing), deployment);
    assert_eq!(of("Scale target Deployment decode could not be read: forbidden"), deployment);
    assert_eq!(of("Scale target StatefulSet w found"), Some(("StatefulSet".to_owned(), "w".to_owned())));
    assert_eq!(of("spec.scaleTargetRef is missing; give kind and name of the workload to scale"), None);
    assert_eq!(scale_target(&VariantAutoscalingStatus::default()), None);
}

#[test]
fn limits_are_read_from_their_texts() {
    let unmoved = "its workload, which has stayed at 10 and does not follow 12: look at maxReplicas of its HPA or \
                   ScaledObject, or at a quota; or set spec.maxReplicas; an HPA also ignores differences of 10 % (its \
                   tolerance)";
    let asleep = "its workload, which has stayed at 0 and does not follow 3: an HPA does nothing at 0 replicas: scale the \
                  workload to 1, or use KEDA or the feature gate HPAScaleToZero";
    let uncounted =
        "gpu-limiter: the accelerators could not be counted: the API server answered 403: nodes is forbidden";
    let unnamed = "gpu-limiter: no scale-up (target=2, current=2); nobody knows its accelerator: set spec.accelerator to \
                   the short name of the nodes' product";
    for (text, factor) in [
        (unmoved, json!({ "code": "WorkloadUnmoved", "replicas": 10 })),
        (asleep, json!({ "code": "WorkloadUnmoved", "replicas": 0 })),
        ("maxReplicas=2", json!({ "code": "MaxReplicas", "replicas": 2 })),
        ("minReplicas=1", json!({ "code": "MinReplicas", "replicas": 1 })),
        ("growth in one pass: at most 5", json!({ "code": "GrowthPerReconcile" })),
        ("replicas that do not become ready", json!({ "code": "ReplicasNotReady" })),
        ("what other variants cannot have", json!({ "code": "OtherVariantsLimited" })),
        ("Scale to zero: no request for 10m0s", json!({ "code": "ScaledToZero" })),
        ("First run: bootstrapping with 1 replica for Prometheus discovery", json!({ "code": "FirstReplica" })),
        ("Scale to zero disabled: the cheapest variant keeps 1 replica", json!({ "code": "LastReplica" })),
        ("gpu-limiter: nodes offer 2 of H100", json!({ "code": "AcceleratorsShort", "accelerator": "H100" })),
        (
            "gpu-limiter: limited: allocated 2 GPUs for +1 replicas; nodes offer 8 of A100",
            json!({ "code": "AcceleratorsShort", "accelerator": "A100" }),
        ),
        (
            "gpu-limiter: no scale-up (target=2, current=2); no node offers H200; they offer A100, H100",
            json!({ "code": "AcceleratorNotOffered", "accelerator": "H200" }),
        ),
        (
            "gpu-limiter: no node offers H200; they offer no accelerators",
            json!({
                "code": "AcceleratorNotOffered", "accelerator": "H200",
            }),
        ),
        (unnamed, json!({ "code": "AcceleratorUnknown" })),
        (uncounted, json!({ "code": "AcceleratorsNotCounted" })),
    ] {
        let mut expected = factor;
        expected["stage"] = "limits".into();
        assert_eq!(serde_json::to_value(limit(text)).unwrap(), expected, "{text}");
    }
    assert_eq!(limit("anything else"), None);
}

#[test]
fn reason_is_read_without_its_clamps() {
    let once = "Earlier (clamped from 5 to 3 for bounds)";
    assert_eq!(unclamped_reason(once).as_deref(), Some("Earlier"));
    let twice = "Earlier (clamped from 5 to 3 for bounds) (clamped from 3 to 2 for bounds)";
    assert_eq!(unclamped_reason(twice).as_deref(), Some("Earlier"));
    let alone = "(clamped from 5 to 3 for bounds)";
    assert_eq!(unclamped_reason(alone).as_deref(), Some(""));
    assert_eq!(unclamped_reason("Earlier"), None);
    assert_eq!(unclamped_reason("Earlier (clamped to maxReplicas=3)"), None);
}

#[test]
fn config_faults_are_read_from_the_condition() {
    let message = "ConfigMap team-a/settings, key default: it is not the expected YAML. Correct the value; until then the \
                   last good one holds, or else the default. ConfigMap team-a/settings, keys a and b: together, for model \
                   m, x. Change one of them. ConfigMap team-b/settings, and 4980 more of its values cannot be used as \
                   they are. Correct those that are told; the next ones are told then.";
    let status = with_condition("ConfigurationValid", "ConfigValueInvalid", message);
    let fault = |namespace: &str, keys: &[&str]| ConfigFault {
        code: "ConfigValueInvalid".into(),
        config_map: Some(ConfigMapReference { namespace: namespace.into(), name: "settings".into() }),
        keys: keys.iter().map(ToString::to_string).collect(),
    };
    for (namespace, keys, expected) in [
        ("team-a", &["default"][..], true),
        ("team-a", &["a", "b"], true),
        ("team-b", &[], true),
        ("team-a", &["defaul"], false),
        ("team-a", &["a"], false),
        ("team-b", &["default"], false),
        ("team-a", &[], false),
    ] {
        assert_eq!(is_stored(&status, &fault(namespace, keys)), expected, "{namespace} {keys:?}");
    }
    assert!(!is_stored(&VariantAutoscalingStatus::default(), &fault("team-a", &["default"])));
}

#[test]
fn stored_faults_win_over_the_condition() {
    let finding = Finding {
        severity: Severity::Warning,
        reason: "ConfigValueInvalid",
        message: "ConfigMap team-a/settings, key default: bad.".into(),
        remedy: "Correct it.".into(),
    };
    let config_map = Some(NamespacedName::new("team-a", "settings"));
    let finding = ConfigFinding { finding, config_map, keys: vec!["default".into()] };
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.5, 1.0);
    seen.variants[0].config = [finding.clone()].into();
    settle(&mut seen);
    let status = seen.variants[0].status.as_deref().unwrap();
    assert!(is_stored(status, &finding.fault()) && is_stored(&without_typed_fields(status), &finding.fault()));
    let other = ConfigFault { code: "ConfigValueIgnored".into(), ..finding.fault() };
    assert!(!is_stored(status, &other), "the code counts once it is stored");
}

#[test]
fn changed_target_is_noticed_in_both_statuses() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.5, 1.0);
    settle(&mut seen);
    assert_same_outcome(&seen);
    for (kind, name, moved) in [
        ("Deployment", "v-decode", false),
        ("Deployment", "v-decode-2", true),
        ("Deployment", "v", true),
        ("StatefulSet", "v-decode", true),
    ] {
        let mut seen = seen.clone();
        let reference = spec(&mut seen.variants[0]).scale_target_ref.as_mut().unwrap();
        (reference.kind, reference.name) = (kind.into(), name.into());
        assert_eq!(seen.variants[0].is_retargeted(), moved, "{kind} {name}");
        assert_same_outcome(&seen);
        forget_types(&mut seen);
        assert_eq!(seen.variants[0].is_retargeted(), moved, "{kind} {name}");
    }
}

#[test]
fn unmoved_workload_is_known_after_upgrade() {
    for tokens in [false, true] {
        let mut seen = a_fleet(vec![a_variant("cheap", "5", 10), a_variant("dear", "20", 1)], 0.95, 2.0);
        if tokens {
            by_tokens(&mut seen);
        }
        seen.variants[0].status = Some(decided(11, "Earlier", ago(1)));
        later(&mut seen, 11);
        settle(&mut seen);
        seen.variants[1].status = Some(decided(1, "Earlier", ago(60)));
        seen.memory = Memory::default();
        assert_same_outcome(&seen);
        forget_types(&mut seen);
        assert!(replicas(&seen, "dear") > 1, "tokens {tokens}");
        // A namespace that was excluded in between keeps it.
        let (status, _) = excluded_status(&seen.variants[0], seen.now).unwrap();
        seen.variants[0].status = Some(status.into());
        assert!(replicas(&seen, "dear") > 1, "tokens {tokens}");
    }
}

#[test]
fn constraint_event_is_not_sent_again_after_upgrade() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.75, 2.0);
    spec(&mut seen.variants[0]).max_replicas = Some(2);
    assert_eq!(outcome(&seen)[0].2.as_deref(), Some("ResourceConstrained"));
    settle(&mut seen);
    seen.now = now() + SignedDuration::from_mins(1);
    assert_same_outcome(&seen);
    forget_types(&mut seen);
    assert_eq!(outcome(&seen)[0].2, None);
    target(&mut seen, 0).replicas = Some(2);
    let kept = stored(&seen).into_values().next().unwrap();
    assert!(!kept.decision.as_ref().unwrap().factors.is_empty(), "the types are stored with the next write");
}

#[test]
fn clamped_reason_does_not_grow_after_upgrade() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 9)], 0.5, 1.0);
    seen.variants[0].target = steersman_reconcile::Lookup::Known(None);
    for max in [7, 5, 3] {
        spec(&mut seen.variants[0]).max_replicas = Some(max);
        assert_same_reason(&seen, max);
        settle(&mut seen);
        seen.now += SignedDuration::from_mins(1);
    }
    forget_types(&mut seen);
    spec(&mut seen.variants[0]).max_replicas = Some(2);
    assert_same_reason(&seen, 2);
}

fn assert_same_reason(seen: &FleetSnapshot, max: i32) {
    let before = seen.variants[0].previous().replicas;
    let expected = format!("Earlier (clamped from {before} to {max} for bounds)");
    assert_eq!(outcome(seen)[0].1, expected);
}
