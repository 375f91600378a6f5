//! The story that an object keeps of its number.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::json;
use steersman_api::variant::v1alpha1::{DecisionStatus, VariantAutoscalingStatus};
use steersman_plan::variant::{FactorCode, FleetSnapshot, MetricsError, plan};
use steersman_reconcile::Lookup;

use super::{a_fleet, a_variant, ago, decided, decision, later, now, pods, spec, stored, target, the_model};

fn status(seen: &FleetSnapshot) -> Arc<VariantAutoscalingStatus> {
    stored(seen).into_values().next().unwrap()
}

fn story(seen: &FleetSnapshot) -> DecisionStatus {
    status(seen).decision.clone().unwrap()
}

#[test]
fn the_wish_stands_next_to_what_was_granted_and_each_stage_is_told() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.75, 2.0);
    spec(&mut seen.variants[0]).max_replicas = Some(2);
    let story = story(&seen);
    assert_eq!((story.wanted, story.granted, story.decided_by.as_deref()), (Some(3), Some(2), Some("limits")));
    assert_eq!(story.signal.unwrap(), "0 of 2 replicas saturated, spare KV 0.050, spare queue 3.0");
    assert_eq!(story.need.unwrap(), "one more replica: KV spare Saturation low (0.050 < 0.100)");
    assert_eq!(story.solver.unwrap(), "saturation-only mode: no-change");
    assert_eq!((story.limits, story.hold), (vec!["maxReplicas=2".to_owned()], None));
    assert_eq!(story.time.unwrap().0, now());
}

#[test]
fn figures_that_move_make_no_new_story_and_another_number_or_obstacle_does() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.5, 1.0);
    seen.now = ago(5);
    seen.variants[0].status = Some(status(&seen));
    let first = story(&seen);
    let later = |change: fn(&mut FleetSnapshot)| {
        let mut seen = seen.clone();
        seen.now = now();
        change(&mut seen);
        story(&seen)
    };
    let moved = later(|seen| the_model(seen).pods.as_mut().unwrap()[0].kv = Some(0.55));
    assert_eq!(moved, first);
    let grown = later(|seen| the_model(seen).pods.as_mut().unwrap().iter_mut().for_each(|pod| pod.kv = Some(0.75)));
    assert_eq!((grown.granted, grown.time.unwrap().0), (Some(3), now()));
    let silent = later(|seen| the_model(seen).pods = Err(MetricsError::Stale("7m0s".into())));
    assert_eq!(
        (silent.decided_by.as_deref(), silent.hold.as_deref()),
        (Some("hold"), Some("the newest metrics are 7m0s old"))
    );
    let mut still = seen.clone();
    the_model(&mut still).pods = Err(MetricsError::Stale("7m0s".into()));
    still.variants[0].status = Some(status(&still));
    the_model(&mut still).pods = Err(MetricsError::Stale("12m30s".into()));
    assert_eq!(story(&still).hold.as_deref(), Some("the newest metrics are 7m0s old"), "older is no news");
    the_model(&mut still).pods = Err(MetricsError::QueryFailed("timeout".into()));
    assert_eq!(story(&still).hold.as_deref(), Some("the query of Prometheus failed: timeout"));
}

#[test]
fn an_obstacle_that_is_over_is_told_no_longer() {
    let mut seen = a_fleet(vec![a_variant("cheap", "5", 2), a_variant("dear", "20", 1)], 0.65, 1.0);
    target(&mut seen, 0).ready = 1;
    the_model(&mut seen).pods.as_mut().unwrap().retain(|pod| *pod.name != *"cheap-decode-1");
    seen.memory = plan(&seen).memory;
    seen.now += SignedDuration::from_mins(11);
    seen.variants[0].status = Some(status(&seen));
    let told = "; not ready for more than 10 minutes and ignored: 1 of variant cheap, check the pods";
    assert!(story(&seen).signal.unwrap().ends_with(told), "{:?}", story(&seen));
    let number = story(&seen).granted;
    target(&mut seen, 0).ready = 2;
    the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.65, 1.0));
    // It may crash again in a moment.
    assert_eq!(Some(status(&seen)), seen.variants[0].status);
    later(&mut seen, 3);
    let over = story(&seen);
    assert_eq!((over.granted, over.signal.unwrap().contains("ignored")), (number, false));
    // The load alone is no news.
    seen.variants[0].status = Some(status(&seen));
    the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.66, 0.5));
    assert_eq!(Some(status(&seen)), seen.variants[0].status);
}

#[test]
fn another_pod_or_another_model_is_another_story() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.5, 1.0);
    the_model(&mut seen).pods.as_mut().unwrap()[0].queue = None;
    seen.variants[0].status = Some(status(&seen));
    assert_eq!(story(&seen).hold.as_deref(), Some("pod v-decode-0 has no queue length"));
    let pods = the_model(&mut seen).pods.as_mut().unwrap();
    (pods[0].queue, pods[1].queue) = (Some(1.0), None);
    assert_eq!(story(&seen).hold.as_deref(), Some("pod v-decode-1 has no queue length"));
}

#[test]
fn however_much_there_is_to_tell_an_object_stays_small() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.5, 1.0);
    the_model(&mut seen).pods = Err(MetricsError::QueryFailed("ä".repeat(100_000)));
    let hold = story(&seen).hold.unwrap();
    assert!(hold.ends_with("ä…") && hold.len() <= 304, "{}", hold.len());
}

#[test]
fn a_number_that_waits_for_an_earlier_decision_says_so() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.5, 1.0);
    assert!(!decision(&seen, "v").trace.in_transition());
    seen.variants[0].status = Some(decided(3, "Earlier", ago(1)));
    let story = decision(&seen, "v").trace;
    assert!(story.in_transition(), "{story}");
}

/// Without the factors, both statuses would be told apart by their texts alone.
#[test]
fn new_cause_of_same_failure_refreshes_text() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.5, 1.0);
    the_model(&mut seen).pods = Err(MetricsError::QueryFailed("timeout".into()));
    seen.now = ago(5);
    seen.variants[0].status = Some(status(&seen));
    let first = story(&seen);
    seen.now = now();
    assert_eq!(story(&seen), first);
    the_model(&mut seen).pods = Err(MetricsError::QueryFailed("connection refused".into()));
    let second = story(&seen);
    assert_eq!(second.hold.as_deref(), Some("the query of Prometheus failed: connection refused"));
    assert_eq!((&second.factors, second.time.unwrap().0), (&first.factors, now()));
}

#[test]
fn cause_that_no_condition_shows_writes_nothing() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.5, 1.0);
    seen.config.zero.defaults.enabled = Some(true);
    the_model(&mut seen).requests = Lookup::Unknown("no answer within 9.8 s".into());
    seen.variants[0].status = Some(status(&seen));
    seen.now += SignedDuration::from_mins(1);
    the_model(&mut seen).requests = Lookup::Unknown("no answer within 10.1 s".into());
    assert_eq!(Some(status(&seen)), seen.variants[0].status);
}

#[test]
fn decision_names_its_target_and_factors() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.75, 2.0);
    spec(&mut seen.variants[0]).max_replicas = Some(2);
    let story = serde_json::to_value(story(&seen)).unwrap();
    assert_eq!(story["scaleTargetRef"], json!({ "kind": "Deployment", "name": "v-decode" }));
    let factors = json!([
        { "stage": "limits", "code": "MaxReplicas", "replicas": 2 },
        { "stage": "signal", "code": "ReplicaSaturation" },
    ]);
    assert_eq!(story["factors"], factors);
}

#[test]
fn status_page_lists_every_factor_code() {
    let page = include_str!("../../../../../docs/variant-status.md");
    let (_, table) = page.split_once("## Codes of factors").unwrap();
    let listed = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert!(listed.eq(FactorCode::ALL.iter().map(|code| code.as_str())), "in the order of the code");
}

#[test]
fn factors_refer_to_what_they_are_about() {
    let factors = |seen: &FleetSnapshot| serde_json::to_value(story(seen).factors).unwrap();
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.5, 1.0);
    the_model(&mut seen).pods = Err(MetricsError::Stale("7m0s".into()));
    let stale = |stage: &str| json!({ "stage": stage, "code": "MetricsStale", "model": "meta/llama" });
    assert_eq!(factors(&seen), json!([stale("hold"), stale("signal")]));
    the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.5, 1.0));
    the_model(&mut seen).pods.as_mut().unwrap()[1].queue = None;
    let pod = |stage: &str| json!({ "stage": stage, "code": "PodQueueUnknown", "pod": "v-decode-1" });
    assert_eq!(factors(&seen), json!([pod("hold"), pod("signal")]));
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.5, 1.0);
    seen.variants[0].status = Some(decided(3, "Earlier", ago(1)));
    let pending = json!([
        { "stage": "hold", "code": "InTransition" },
        { "stage": "hold", "code": "DecisionPending", "variant": "v" },
        { "stage": "signal", "code": "ReplicaSaturation" },
    ]);
    assert_eq!(factors(&seen), pending);
}

#[test]
fn factors_of_a_large_model_stay_bounded() {
    let mut variants: Vec<_> = (0..40).map(|number| a_variant(&format!("v{number}"), "5", 2)).collect();
    variants.iter_mut().for_each(|variant| variant.status = Some(decided(3, "Earlier", ago(1))));
    assert_eq!(story(&a_fleet(variants, 0.5, 1.0)).factors.len(), 16);
}

#[test]
fn number_outlives_a_target_that_is_left_out() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.5, 1.0);
    seen.variants[0].status = Some(status(&seen));
    let target = spec(&mut seen.variants[0]).scale_target_ref.take();
    seen.variants[0].status = Some(status(&seen));
    assert!(!seen.variants[0].is_retargeted());
    spec(&mut seen.variants[0]).scale_target_ref = target.clone();
    assert!(!seen.variants[0].is_retargeted());
    spec(&mut seen.variants[0]).scale_target_ref.as_mut().unwrap().name = "other".into();
    assert!(seen.variants[0].is_retargeted(), "the number is not that of another workload");
}
