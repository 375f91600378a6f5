//! Accelerators that all variants share.

use steersman_api::variant::v1alpha1::{CurrentAlloc, VariantAutoscalingStatus};
use steersman_plan::variant::config::thresholds::SaturationEntry;
use steersman_plan::variant::{DecidedBy, FleetSnapshot, MetricsError, ObservedTarget, plan};
use steersman_reconcile::{Lookup, NamespacedName};

use super::{MODEL, a_fleet, a_variant, ago, decided, decision, later, replicas, spec, target, the_model};

/// With the limiter on, and so many of each.
pub fn offer(seen: &mut FleetSnapshot, offered: &[(&str, i32)]) {
    let entries = &mut seen.config.saturation.entries;
    entries.entry("default".into()).or_default().enable_limiter = Some(true);
    seen.gpus = Lookup::Known(offered.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect());
}

#[test]
fn accelerators_go_to_the_most_saturated_where_they_are_short() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.79, 4.0);
    seen.config
        .saturation
        .entries
        .insert("default".into(), SaturationEntry { enable_limiter: Some(true), ..SaturationEntry::default() });
    let held = decision(&seen, "v");
    assert_eq!((held.replicas, held.trace.wanted), (Some(2), 3));
    let text = "gpu-limiter: cannot count the accelerators of the nodes: not counted; allow Steersman's service account to list \
                nodes, or correct WVA_NODE_SELECTOR";
    assert_eq!(held.trace.limit_texts(), [text]);
    seen.gpus = Lookup::Known([("H100".to_owned(), 2)].into());
    let limited = decision(&seen, "v");
    assert_eq!((limited.replicas, limited.trace.decided_by), (Some(2), DecidedBy::Limits));
    seen.gpus = Lookup::Known([("H100".to_owned(), 3)].into());
    assert_eq!(replicas(&seen, "v"), 3);
}

#[test]
fn where_the_cheapest_has_no_accelerator_left_the_next_one_grows() {
    for tokens in [false, true] {
        let mut seen = a_fleet(vec![a_variant("cheap", "5", 2), a_variant("dear", "20", 2)], 0.95, 2.0);
        if tokens {
            super::by_tokens(&mut seen);
        }
        spec(&mut seen.variants[1]).accelerator = Some("L40S".into());
        offer(&mut seen, &[("H100", 2), ("L40S", 8)]);
        let cheap = decision(&seen, "cheap");
        assert_eq!((cheap.replicas, cheap.trace.decided_by), (Some(2), DecidedBy::Limits), "{}", cheap.trace);
        assert!(cheap.trace.wanted > 2, "{}", cheap.trace);
        assert_eq!(cheap.trace.limit_texts(), ["gpu-limiter: the nodes have 2 H100 in total"]);
        assert!(replicas(&seen, "dear") > 2, "tokens {tokens}: {}", decision(&seen, "dear").trace);
    }
}

#[test]
fn a_model_that_may_not_sleep_begins_where_there_are_accelerators() {
    let mut seen = a_fleet(vec![a_variant("cheap", "5", 0), a_variant("dear", "20", 0)], 0.5, 1.0);
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    spec(&mut seen.variants[1]).accelerator = Some("L40S".into());
    offer(&mut seen, &[("H100", 8), ("L40S", 8)]);
    assert_eq!((replicas(&seen, "cheap"), replicas(&seen, "dear")), (1, 0));
    offer(&mut seen, &[("L40S", 8)]);
    assert_eq!((replicas(&seen, "cheap"), replicas(&seen, "dear")), (0, 1));
}

#[test]
fn an_object_that_cannot_be_looked_at_keeps_its_accelerators() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 4)], 0.9, 2.0);
    let mut other = a_variant("other", "5", 4);
    spec(&mut other).model_id = format!("{MODEL}-2");
    seen.variants.push(other);
    offer(&mut seen, &[("H100", 8)]);
    assert_eq!(replicas(&seen, "v"), 4, "all are in use");
    let mut told = VariantAutoscalingStatus::clone(seen.variants[1].status.as_ref().unwrap());
    told.current_alloc = Some(CurrentAlloc { num_replicas: 4 });
    seen.variants[1].status = Some(told.into());
    seen.variants[1].target = Lookup::Unknown("no answer".into());
    assert_eq!(replicas(&seen, "v"), 4, "nobody knows that they are free");
    let other = &mut seen.variants[1];
    other.target = a_variant("other", "5", 4).target;
    spec(other).max_replicas = Some(0);
    assert_eq!(replicas(&seen, "v"), 4, "they are in use whatever its spec says");
    seen.variants[1].target = Lookup::Known(None);
    assert_eq!(replicas(&seen, "v"), 5, "its workload is gone");
}

/// Two models with a variant each, of which one accelerator more is free; both want it.
pub fn rivals() -> FleetSnapshot {
    let mut seen = a_fleet(vec![a_variant("a", "5", 2)], 0.9, 2.0);
    let mut rival = a_variant("b", "5", 2);
    spec(&mut rival).model_id = format!("{MODEL}-2");
    seen.variants.push(rival);
    let mut rivals = the_model(&mut seen).clone();
    let target = seen.variants[1].spec.scale_target_ref.as_ref().map(steersman_plan::variant::TargetName::from);
    let target = std::sync::Arc::new(target.unwrap());
    rivals.pods.as_mut().unwrap().iter_mut().for_each(|pod| pod.target = target.clone());
    seen.models.insert(NamespacedName::new(super::NAMESPACE, format!("{MODEL}-2")), rivals);
    offer(&mut seen, &[("H100", 5)]);
    seen
}

#[test]
fn claimed_accelerators_are_not_taken_from_others() {
    let fleet = || {
        let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.9, 2.0);
        let mut greedy = a_variant("greedy", "1", 2);
        spec(&mut greedy).model_id = format!("{MODEL}-2");
        spec(&mut greedy).accelerator_count = Some(1_000);
        seen.variants.push(greedy);
        seen
    };
    // Its pods request one GPU each: 5 are offered, 2 + 2 are in use.
    let mut seen = fleet();
    offer(&mut seen, &[("H100", 5)]);
    assert_eq!(replicas(&seen, "v"), 3);
    offer(&mut seen, &[("H100", 4)]);
    assert_eq!(replicas(&seen, "v"), 2, "what its pods request is in use");

    // Its pods request none, however many replicas there are.
    let mut seen = fleet();
    *target(&mut seen, 1) = ObservedTarget { gpus: 0, replicas: Some(900), ..target(&mut seen, 1).clone() };
    offer(&mut seen, &[("H100", 3)]);
    assert_eq!(replicas(&seen, "v"), 3);

    // A scale target that cannot be read does not make the claim count.
    seen.variants[1].target = Lookup::Unknown("forbidden".into());
    offer(&mut seen, &[("H100", 5)]);
    assert_eq!(replicas(&seen, "v"), 3);
}

#[test]
fn replicas_without_a_node_take_no_accelerators_from_others() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.9, 2.0);
    let mut greedy = a_variant("greedy", "1", 2);
    spec(&mut greedy).model_id = format!("{MODEL}-2");
    seen.variants.push(greedy);
    target(&mut seen, 0).used_gpus = Some(2);
    *target(&mut seen, 1) =
        ObservedTarget { gpus: 8, replicas: Some(900), used_gpus: Some(0), ..target(&mut seen, 1).clone() };
    offer(&mut seen, &[("H100", 3)]);
    assert_eq!(replicas(&seen, "v"), 3);
    target(&mut seen, 1).used_gpus = Some(1);
    assert_eq!(replicas(&seen, "v"), 2, "a node runs what has the third one");

    // Its own replicas without a node come before further ones.
    target(&mut seen, 0).used_gpus = Some(0);
    assert_eq!(replicas(&seen, "v"), 2);
    target(&mut seen, 1).used_gpus = Some(0);
    assert_eq!(replicas(&seen, "v"), 3);
}

/// Users can write the status of their objects.
#[test]
fn numbers_in_a_written_status_take_no_accelerators_from_others() {
    for target_of_a in [Lookup::Known(()), Lookup::Unknown("forbidden".to_owned())] {
        let mut seen = rivals();
        offer(&mut seen, &[("H100", 4)]);
        later(&mut seen, 1);
        offer(&mut seen, &[("H100", 5)]);
        let mut written = VariantAutoscalingStatus::clone(&decided(900, "Written", ago(1)));
        written.current_alloc = Some(CurrentAlloc { num_replicas: 900 });
        seen.variants[0].status = Some(written.into());
        seen.models.get_mut(&NamespacedName::new(super::NAMESPACE, MODEL)).unwrap().pods = Err(MetricsError::NotFound);
        if let Lookup::Unknown(why) = target_of_a {
            seen.variants[0].target = Lookup::Unknown(why);
        }
        assert_eq!(replicas(&seen, "b"), 3);
        later(&mut seen, 1);
        assert_eq!(replicas(&seen, "b"), 3, "{}", decision(&seen, "b").trace);
    }
}

#[test]
fn growth_without_gpu_requests_leaves_accelerators_to_others() {
    let mut seen = rivals();
    spec(&mut seen.variants[0]).accelerator_count = Some(1);
    target(&mut seen, 0).gpus = 0;
    offer(&mut seen, &[("H100", 3)]);
    assert_eq!((replicas(&seen, "a"), replicas(&seen, "b")), (3, 3), "both grow into the one that is free");
    target(&mut seen, 0).used_gpus = Some(0);
    assert_eq!((replicas(&seen, "a"), replicas(&seen, "b")), (3, 3), "it waits for none");
    offer(&mut seen, &[("H100", 2)]);
    assert_eq!((replicas(&seen, "a"), replicas(&seen, "b")), (2, 2), "none is free");
}

#[test]
fn a_change_that_the_limiter_makes_is_told_as_its_own() {
    let seen = rivals();
    assert_eq!((replicas(&seen, "a"), replicas(&seen, "b")), (3, 2), "both saw one that is free");
    let told = "; limited by gpu-limiter: no scale-up (target=2, current=2); the nodes have 5 H100 in total";
    assert!(decision(&seen, "b").reason.ends_with(told), "{}", decision(&seen, "b").reason);
}

#[test]
fn what_was_granted_is_not_taken_back_because_another_is_saturated_a_little_more() {
    let mut seen = rivals();
    // That of a has one replica with a little to spare.
    the_model(&mut seen).pods.as_mut().unwrap()[0].kv = Some(0.79);
    assert_eq!((replicas(&seen, "a"), replicas(&seen, "b")), (2, 3), "nobody was granted it before");
    seen.variants[0].status = Some(decided(3, "Earlier", ago(1)));
    assert_eq!((replicas(&seen, "a"), replicas(&seen, "b")), (3, 2), "its HPA is about to follow");
    // Whoever does not follow keeps nothing from others.
    seen.memory = plan(&seen).memory;
    seen.now += jiff::SignedDuration::from_mins(11);
    assert_eq!((replicas(&seen, "a"), replicas(&seen, "b")), (2, 3));
}

#[test]
fn a_model_that_sleeps_keeps_a_grant_from_others_for_ten_minutes_and_no_longer() {
    let mut seen = rivals();
    seen.variants[0] = a_variant("a", "5", 0);
    seen.variants[0].status = Some(decided(1, "Earlier", ago(1)));
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    offer(&mut seen, &[("H100", 3)]);
    later(&mut seen, 1);
    assert_eq!((replicas(&seen, "a"), replicas(&seen, "b")), (1, 2), "its HPA is about to follow");
    later(&mut seen, 10);
    assert_eq!((replicas(&seen, "a"), replicas(&seen, "b")), (0, 3));
}

#[test]
fn a_grant_outlives_a_gap_in_the_metrics_and_not_a_workload_that_does_not_take_it() {
    let mut seen = rivals();
    seen.variants[0].status = Some(decided(3, "Earlier", ago(1)));
    assert_eq!((replicas(&seen, "a"), replicas(&seen, "b")), (3, 2));
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    assert_eq!((replicas(&seen, "a"), replicas(&seen, "b")), (3, 2));
    later(&mut seen, 1);
    later(&mut seen, 11);
    assert_eq!((replicas(&seen, "a"), replicas(&seen, "b")), (2, 3));
}

#[test]
fn where_another_is_about_to_take_the_last_accelerator_one_of_another_kind_begins() {
    let mut seen = rivals();
    let mut other = a_variant("c", "20", 0);
    let own = spec(&mut other);
    (own.model_id, own.accelerator) = (format!("{MODEL}-2"), Some("L40S".into()));
    seen.variants.push(other);
    offer(&mut seen, &[("H100", 5), ("L40S", 8)]);
    seen.variants[0].status = Some(decided(3, "Earlier", ago(1)));
    later(&mut seen, 1);
    assert_eq!((replicas(&seen, "a"), replicas(&seen, "b"), replicas(&seen, "c")), (3, 2, 1));
}
