//! What the status says, and when it changes.

use std::sync::Arc;

use steersman_api::meta::conditions;
use steersman_api::variant::v1alpha1::VariantAutoscalingStatus;
use steersman_plan::variant::{ConfigFinding, FleetSnapshot, MetricsError, MetricsState, names};
use steersman_reconcile::{Finding, Lookup, NamespacedName, Severity};

use super::{NO_WORKLOAD, a_fleet, a_variant, ago, decision, now, spec, stored, the_model};

pub fn status(seen: &FleetSnapshot) -> Arc<VariantAutoscalingStatus> {
    stored(seen).into_values().next().unwrap()
}

pub fn told(status: &VariantAutoscalingStatus, type_: &str) -> (String, String, String) {
    let found = conditions::find(&status.conditions, type_).unwrap_or_else(|| panic!("no {type_}"));
    (found.status.clone(), found.reason.clone(), found.message.clone())
}

pub fn texts(status: &str, reason: &str, message: &str) -> (String, String, String) {
    (status.into(), reason.into(), message.into())
}

#[test]
fn a_change_is_told_with_its_reason_and_its_size() {
    let seen = a_fleet(vec![a_variant("v", "5", 2)], 0.75, 2.0);
    let status = status(&seen);
    let desired = status.desired_optimized_alloc.clone().unwrap();
    let update = desired.last_update.clone().unwrap();
    assert_eq!((desired.num_replicas, update.num_replicas_changed), (Some(3), Some(1)));
    assert_eq!(update.update_time.unwrap().0, now());
    assert_eq!(update.reason.unwrap(), "saturation-only mode: scale-up: KV spare Saturation low (0.050 < 0.100)");
    assert_eq!(desired.last_run_time.unwrap().0, now());
    assert_eq!(status.current_alloc.as_ref().unwrap().num_replicas, 2);
    assert!(status.actuation.as_ref().unwrap().applied);
    assert_eq!(told(&status, names::TARGET), texts("True", "TargetFound", "Scale target Deployment v-decode found"));
    let found = texts("True", "MetricsFound", "Saturation metrics data is available for scaling decisions");
    assert_eq!(told(&status, names::METRICS), found);
    let done = texts("True", "OptimizationSucceeded", "Optimization completed: 3 replicas on H100");
    assert_eq!(told(&status, names::OPTIMIZATION), done);
    assert_eq!(told(&status, names::SPEC).0, "True");
}

#[test]
fn a_settled_fleet_writes_nothing() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.4, 1.0);
    seen.variants[0].status = Some(status(&seen));
    seen.now = now() + jiff::SignedDuration::from_mins(1);
    assert_eq!(Some(status(&seen)), seen.variants[0].status);
    // Another load with the same answer is nothing new either.
    the_model(&mut seen).pods.as_mut().unwrap()[0].kv = Some(0.41);
    assert_eq!(Some(status(&seen)), seen.variants[0].status);
}

#[test]
fn the_wish_stands_next_to_what_was_granted() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.75, 2.0);
    spec(&mut seen.variants[0]).max_replicas = Some(2);
    let message = "Optimization completed: 2 replicas on H100; wanted 3, limited by maxReplicas=2";
    assert_eq!(told(&status(&seen), names::OPTIMIZATION), texts("True", "OptimizationSucceeded", message));
}

#[test]
fn metrics_that_are_missing_are_told_and_the_reason_of_the_number_stays() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.0, 0.0);
    let with = |seen: &mut FleetSnapshot, silence: MetricsError| {
        the_model(seen).pods = Err(silence);
        status(seen)
    };
    let missing = with(&mut seen, MetricsError::NotFound);
    let update = missing.desired_optimized_alloc.clone().unwrap().last_update.unwrap();
    assert_eq!((update.reason.unwrap().as_str(), update.update_time.unwrap().0), ("Earlier", ago(60)));
    let (truth, reason, message) = told(&missing, names::METRICS);
    assert_eq!((truth.as_str(), reason.as_str()), ("False", "MetricsMissing"));
    assert!(message.starts_with("No vLLM metrics found for model 'meta/llama' in namespace 'team-a'. Check: (1)"));
    assert_eq!(told(&missing, names::OPTIMIZATION), texts("True", "FallbackUsed", "Earlier (2 replicas)"));
    let misnamed = with(&mut seen, MetricsError::ModelNameMismatch(vec!["llama".into(), "llama-lora".into()]));
    let words = "No vLLM metrics found for model 'meta/llama' in namespace 'team-a'. Pods there report metrics of 'llama', \
                 'llama-lora', which no VariantAutoscaling has as modelID. Set spec.modelID to the name under which the \
                 server serves the model (--served-model-name)";
    assert_eq!(told(&misnamed, names::METRICS), texts("False", "MetricsMissing", words));
    let stale = with(&mut seen, MetricsError::Stale("7m0s".into()));
    assert_eq!(told(&stale, names::METRICS).1, "MetricsStale");
    let failed = with(&mut seen, MetricsError::QueryFailed("connection refused".into()));
    let words = "Failed to query Prometheus: connection refused";
    assert_eq!(told(&failed, names::METRICS), texts("False", "PrometheusError", words));
    let unasked = with(&mut seen, MetricsError::NotConfigured("set an address".into()));
    let words = "Prometheus API not configured: set an address";
    assert_eq!(told(&unasked, names::METRICS), texts("False", "PrometheusError", words));
}

#[test]
fn an_object_without_its_workload_is_told_so_and_keeps_what_was_known() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.4, 1.0);
    seen.variants[0].status = Some(status(&seen));
    seen.variants[0].target = Lookup::Known(None);
    let without = status(&seen);
    let words = "Scale target Deployment v-decode not found in namespace team-a. Create it or correct \
                 spec.scaleTargetRef. No replicas are decided until then";
    assert_eq!(told(&without, names::TARGET), texts("False", "TargetNotFound", words));
    assert_eq!(told(&without, names::OPTIMIZATION), texts("False", "OptimizationFailed", NO_WORKLOAD));
    let words = "No saturation metrics available - pods may not be ready or metrics not yet scraped: Deployment v-decode \
                 does not exist";
    assert_eq!(told(&without, names::METRICS), texts("False", "MetricsMissing", words), "no longer what was found");
    assert_eq!(without.current_alloc.as_ref().unwrap().num_replicas, 2);
    assert_eq!(without.desired_optimized_alloc.as_ref().unwrap().num_replicas, Some(2));
}

#[test]
fn an_object_that_never_had_a_number_gets_none_where_nothing_is_known() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.4, 1.0);
    seen.variants[0].status = None;
    seen.variants[0].target = Lookup::Unknown("forbidden".into());
    let status = status(&seen);
    assert_eq!(status.desired_optimized_alloc, None);
    assert_eq!(told(&status, names::TARGET).0, "Unknown");
    assert_eq!(told(&status, names::METRICS).1, "SkippedProcessing");
    let words = "Scale target Deployment v-decode could not be read: forbidden";
    assert_eq!(told(&status, names::OPTIMIZATION), texts("False", "OptimizationFailed", words));
    assert_eq!(decision(&seen, "v").metrics, MetricsState::NotQueried);
}

#[test]
fn fields_that_are_not_acted_on_are_named() {
    let mut seen = a_fleet(vec![a_variant("v", "much", 2)], 0.4, 1.0);
    let words = told(&status(&seen), names::SPEC);
    assert_eq!(words.1, "VariantCostInvalid");
    assert!(words.2.contains("spec.variantCost \"much\" is not a number; 10 is used."), "{words:?}");
    spec(&mut seen.variants[0]).variant_cost = "5".into();
    spec(&mut seen.variants[0]).slo_class_ref = Some(
        serde_json::from_value(serde_json::json!({ "name": "service-classes-config", "key": "premium.yaml" })).unwrap(),
    );
    assert_eq!(told(&status(&seen), names::SPEC).1, "VariantProfileIgnored");
    spec(&mut seen.variants[0]).slo_class_ref = None;
    assert_eq!(told(&status(&seen), names::SPEC).2, "Every field of the spec is acted on.");
    spec(&mut seen.variants[0]).variant_id = Some("llama-H100-1".into());
    let words = "spec.variantID \"llama-H100-1\" is only displayed: variants are identified by metadata.name.";
    let (_, reason, message) = told(&status(&seen), names::SPEC);
    assert!(reason == "VariantIDIgnored" && message.starts_with(words), "{message}");
}

fn fault(severity: Severity, message: &str) -> ConfigFinding {
    let finding =
        Finding { severity, reason: "ConfigValueInvalid", message: message.into(), remedy: "Correct it.".into() };
    let config_map = Some(NamespacedName::new("team-a", "settings"));
    ConfigFinding { finding, config_map, keys: vec!["default".into()] }
}

#[test]
fn a_fault_of_the_configuration_stands_in_a_condition_for_as_long_as_it_lasts() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.4, 1.0);
    seen.variants[0].config = [fault(Severity::Info, "Odd."), fault(Severity::Warning, "Bad.")].into();
    let first = status(&seen);
    assert_eq!(told(&first, names::CONFIG), texts("False", "ConfigValueInvalid", "Bad. Correct it."));
    let stored = serde_json::json!([{
        "code": "ConfigValueInvalid", "configMap": { "namespace": "team-a", "name": "settings" }, "keys": ["default"],
    }]);
    assert_eq!(serde_json::to_value(&first.config_faults).unwrap(), stored);
    seen.variants[0].status = Some(first.clone());
    seen.now = now() + jiff::SignedDuration::from_mins(1);
    assert_eq!(status(&seen), first, "it is told once");
    let nine = (0..9).map(|number| fault(Severity::Warning, &format!("Bad {number}.")));
    seen.variants[0].config = nine.collect();
    let many = told(&status(&seen), names::CONFIG).2;
    assert!(many.contains("Bad 4.") && many.ends_with("4 more faults are in the log of Steersman."), "{many}");
    seen.variants[0].config = [fault(Severity::Info, "Odd.")].into();
    assert!(conditions::find(&status(&seen).conditions, names::CONFIG).is_none(), "what is only unusual is no fault");
    assert!(status(&seen).config_faults.is_empty());
}

#[test]
fn metrics_that_grow_older_are_no_news() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.4, 1.0);
    the_model(&mut seen).pods = Err(MetricsError::Stale("5m1s".into()));
    let first = status(&seen);
    assert!(told(&first, names::METRICS).2.contains("last update: 5m1s ago"), "{first:?}");
    seen.variants[0].status = Some(first.clone());
    seen.now = now() + jiff::SignedDuration::from_mins(1);
    the_model(&mut seen).pods = Err(MetricsError::Stale("6m1s".into()));
    assert_eq!(status(&seen), first);
    // Of another model it is news.
    let mut renamed = seen.clone();
    spec(&mut renamed.variants[0]).model_id = "qwen/qwen-3".into();
    let model = renamed.models.values().next().unwrap().clone();
    renamed.models.insert(NamespacedName::new(super::NAMESPACE, "qwen/qwen-3"), model);
    assert!(told(&status(&renamed), names::METRICS).2.contains("'qwen/qwen-3' are stale (last update: 6m1s"));
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    assert_eq!(told(&status(&seen), names::METRICS).1, "MetricsMissing");
}

#[test]
fn nothing_is_applied_where_there_is_no_number() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.4, 1.0);
    seen.variants[0].status = Some(status(&seen));
    assert!(status(&seen).actuation.as_ref().unwrap().applied);
    spec(&mut seen.variants[0]).scale_target_ref.as_mut().unwrap().name = "elsewhere".into();
    seen.variants[0].target = Lookup::Known(None);
    let moved = status(&seen);
    assert_eq!(moved.desired_optimized_alloc, None);
    assert!(!moved.actuation.as_ref().unwrap().applied);
}

#[test]
fn a_number_of_an_earlier_operator_without_a_reason_is_told_once() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.4, 1.0);
    let mut earlier = VariantAutoscalingStatus::clone(seen.variants[0].status.as_ref().unwrap());
    earlier.desired_optimized_alloc.as_mut().unwrap().last_update = None;
    seen.variants[0].status = Some(earlier.into());
    seen.variants[0].target = Lookup::Known(None);
    let first = status(&seen);
    let update = first.desired_optimized_alloc.clone().unwrap().last_update.unwrap();
    assert_eq!(update.reason.as_deref(), Some(NO_WORKLOAD));
    seen.variants[0].status = Some(first.clone());
    seen.now += jiff::SignedDuration::from_mins(1);
    assert_eq!(status(&seen), first);
}

/// Of one model: what the engine says of the others is not said of the one that it knows nothing of.
#[test]
fn an_object_that_failed_stays_failed_while_others_of_its_model_are_decided() {
    let mut seen = a_fleet(vec![a_variant("good", "5", 2), a_variant("v", "1", 2)], 0.75, 2.0);
    seen.variants[1].target = Lookup::Known(None);
    the_model(&mut seen).pods.as_mut().unwrap().retain(|pod| pod.target.name == "good-decode");
    for _ in 0..3 {
        let all = stored(&seen);
        assert_eq!(told(&all[&NamespacedName::new("team-a", "good")], names::OPTIMIZATION).1, "OptimizationSucceeded");
        let failed = &all[&NamespacedName::new("team-a", "v")];
        assert_eq!(told(failed, names::OPTIMIZATION), texts("False", "OptimizationFailed", NO_WORKLOAD));
        assert_eq!(failed.desired_optimized_alloc.as_ref().unwrap().num_replicas, Some(2));
        // The series are published from the decision; the stored number alone would not keep them.
        assert_eq!(decision(&seen, "v").replicas, Some(2), "its series stay");
        seen.variants.iter_mut().for_each(|variant| variant.status = all.get(&variant.key).cloned());
        seen.now += jiff::SignedDuration::from_mins(1);
    }
}

/// Objects, workloads and models of the same names, in two namespaces: each has its own answer.
#[test]
fn what_is_called_the_same_in_two_namespaces_is_not_mixed_up() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.75, 2.0);
    let mut other = seen.variants[0].clone();
    other.key.namespace = "team-b".into();
    let mut idle = the_model(&mut seen).clone();
    idle.pods.as_mut().unwrap().iter_mut().for_each(|pod| (pod.kv, pod.queue) = (Some(0.05), Some(0.0)));
    seen.models.insert(NamespacedName::new("team-b", &other.spec.model_id), idle);
    seen.variants.push(other);
    let number = |all: &std::collections::BTreeMap<NamespacedName, Arc<VariantAutoscalingStatus>>, namespace: &str| {
        all[&NamespacedName::new(namespace, "v")].desired_optimized_alloc.as_ref().unwrap().num_replicas
    };
    let all = stored(&seen);
    assert_eq!((number(&all, "team-a"), number(&all, "team-b")), (Some(3), Some(1)));
    for status in all.values() {
        assert!(conditions::find(&status.conditions, names::CONFLICT).is_none(), "{status:?}");
    }
}
