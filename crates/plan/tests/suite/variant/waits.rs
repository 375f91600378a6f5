//! How long something is waited for, and what is done then.

use steersman_plan::variant::{DecidedBy, FleetSnapshot, MetricsError, MetricsState, ObservedTarget, plan};
use steersman_reconcile::Lookup;

use super::{
    a_fleet, a_variant, ago, by_tokens, decided, decision, later, pods, replicas, spec, stored, target, the_model,
};

fn short(seen: &FleetSnapshot) -> Vec<i32> {
    plan(seen).memory.progress.values().filter_map(|progress| progress.unready).map(|(replicas, _)| replicas).collect()
}

#[test]
fn while_a_decision_is_carried_out_no_other_is_made() {
    let mut seen = a_fleet(vec![a_variant("a", "20", 2), a_variant("b", "5", 2)], 0.79, 4.0);
    seen.variants[0].status = Some(decided(4, "Earlier", ago(1)));
    assert_eq!((replicas(&seen, "a"), replicas(&seen, "b")), (4, 2));
    assert_eq!(decision(&seen, "b").trace.decided_by, DecidedBy::Hold);
    let words = "waiting for an earlier decision to be carried out: variant a has 2 replicas, 4 are desired";
    assert_eq!(decision(&seen, "b").trace.hold_text(), Some(words));
    // A workload that does not follow, for example because somebody capped it, does not block the model for ever.
    later(&mut seen, 11);
    assert_eq!((replicas(&seen, "a"), replicas(&seen, "b")), (4, 3));
    the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.65, 1.0));
    let told = "saturation-only mode: no-change; the scale target stayed at 2 replicas instead of 4";
    let taken = decision(&seen, "a");
    assert_eq!((taken.replicas, taken.reason.as_str()), (Some(2), told));
}

#[test]
fn unfollowed_scale_down_is_awaited_for_ten_minutes() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 5)], 0.6, 1.0);
    seen.variants[0].status = Some(decided(4, "Earlier", ago(1)));
    let awaited = decision(&seen, "v");
    assert_eq!((awaited.replicas, awaited.trace.decided_by), (Some(4), DecidedBy::Hold), "{}", awaited.trace);
    later(&mut seen, 9);
    assert_eq!(replicas(&seen, "v"), 4);
    // Somebody keeps the workload at five: the load decides again, and it needs all of them.
    later(&mut seen, 2);
    let kept = decision(&seen, "v");
    let told = "saturation-only mode: no-change; the scale target stayed at 5 replicas instead of 4";
    assert_eq!((kept.replicas, kept.reason.as_str()), (Some(5), told), "{}", kept.trace);
}

#[test]
fn what_a_replica_that_hangs_keeps_a_model_from_is_told() {
    for tokens in [false, true] {
        let mut seen = a_fleet(vec![a_variant("v", "5", 10)], 0.95, 2.0);
        if tokens {
            by_tokens(&mut seen);
        }
        target(&mut seen, 0).ready = 9;
        the_model(&mut seen).pods.as_mut().unwrap().pop();
        later(&mut seen, 11);
        let kept = decision(&seen, "v");
        assert_eq!((kept.replicas, kept.trace.decided_by), (Some(10), DecidedBy::Limits), "{}", kept.trace);
        assert!(kept.trace.wanted > 10, "{}", kept.trace);
        assert_eq!(kept.trace.limit_texts(), ["replicas that do not become ready"]);
    }
}

#[test]
fn a_scale_down_that_nobody_has_followed_yet_is_taken_back_while_replicas_are_missing() {
    for tokens in [false, true] {
        let mut seen = a_fleet(vec![a_variant("v", "5", 5)], 0.95, 20.0);
        if tokens {
            by_tokens(&mut seen);
        }
        seen.variants[0].status = Some(decided(4, "Earlier", ago(1)));
        let kept = decision(&seen, "v");
        if !tokens {
            assert_eq!((kept.replicas, kept.trace.wanted, kept.trace.decided_by), (Some(5), 5, DecidedBy::Hold));
            let reason = "saturation-only mode: scale-down cancelled: both KV spare";
            assert!(kept.reason.starts_with(reason), "{}", kept.reason);
            let words = "waiting for an earlier decision to be carried out: scale-down of variant v to 4 cancelled, 5 replicas \
                         stay: one more is needed";
            assert_eq!(kept.trace.hold_text(), Some(words));
            seen.variants[0].status = stored(&seen).into_values().next();
        }
        assert!(replicas(&seen, "v") > 5, "tokens {tokens}: {}", decision(&seen, "v").trace);
    }
}

#[test]
fn a_scale_down_that_a_bound_asks_for_is_not_told_as_taken_back() {
    for (max, number, back) in [(Some(3), 3, false), (Some(4), 4, true), (None, 5, true)] {
        let mut seen = a_fleet(vec![a_variant("v", "5", 5)], 0.95, 20.0);
        seen.variants[0].status = Some(decided(3, "Earlier", ago(1)));
        spec(&mut seen.variants[0]).max_replicas = max;
        let kept = decision(&seen, "v");
        assert_eq!((kept.replicas, kept.reason.contains("cancelled")), (Some(number), back), "{}", kept.trace);
        let words = match back {
            true => format!("scale-down of variant v to 3 cancelled, {number} replicas stay: one more is needed"),
            false => "variant v has 5 replicas, 3 are desired".to_owned(),
        };
        let hold = kept.trace.hold.unwrap().text;
        assert!(hold.ends_with(&words), "{hold}");
    }
}

#[test]
fn a_number_that_was_decided_long_ago_stands_when_somebody_sets_the_workload_back() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 5)], 0.6, 1.0);
    later(&mut seen, 1);
    // As a sync of manifests does; the pods are about to go.
    target(&mut seen, 0).replicas = Some(1);
    let kept = decision(&seen, "v");
    assert_eq!((kept.replicas, kept.trace.decided_by), (Some(5), DecidedBy::Hold), "{}", kept.trace);
    the_model(&mut seen).pods.as_mut().unwrap().truncate(1);
    target(&mut seen, 0).ready = 1;
    assert_eq!(replicas(&seen, "v"), 5);
    later(&mut seen, 9);
    assert_eq!(replicas(&seen, "v"), 5);
    later(&mut seen, 2);
    assert_eq!(replicas(&seen, "v"), 1, "nobody restores it");
}

#[test]
fn a_workload_that_moves_is_waited_for_anew() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.5, 1.0);
    seen.variants[0].status = Some(decided(4, "Earlier", ago(60)));
    later(&mut seen, 9);
    *target(&mut seen, 0) = ObservedTarget { replicas: Some(3), ready: 3, gpus: 1, ..ObservedTarget::default() };
    the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.5, 1.0));
    later(&mut seen, 9);
    assert_eq!(replicas(&seen, "v"), 4);
    later(&mut seen, 2);
    assert_eq!(replicas(&seen, "v"), 3);
}

#[test]
fn replicas_that_do_not_become_ready_hold_the_others_back_for_a_while_and_no_longer() {
    for tokens in [false, true] {
        let mut seen = a_fleet(vec![a_variant("cheap", "5", 2), a_variant("dear", "20", 1)], 0.9, 2.0);
        if tokens {
            by_tokens(&mut seen);
        }
        target(&mut seen, 0).ready = 1;
        the_model(&mut seen).pods.as_mut().unwrap().retain(|pod| *pod.name != *"cheap-decode-1");
        if !tokens {
            assert_eq!((replicas(&seen, "cheap"), replicas(&seen, "dear")), (2, 1), "they may only be starting");
        }
        later(&mut seen, 11);
        let dear = decision(&seen, "dear");
        assert!(dear.replicas > Some(1), "tokens {tokens}: {}", dear.trace);
        let told = "; not ready for more than 10 minutes and ignored: 1 of variant cheap, check the pods";
        assert!(dear.trace.signal.text.ends_with(told), "{}", dear.trace);
        assert_eq!(replicas(&seen, "cheap"), 2, "it keeps its number, and gets no more: tokens {tokens}");
        target(&mut seen, 0).replicas = Some(3);
        assert_eq!(short(&seen), [3], "asked anew");
        seen.variants.remove(0);
        assert!(plan(&seen).memory.progress.is_empty(), "who is gone is forgotten");
    }
}

#[test]
fn a_replica_that_is_ready_for_moments_is_not_waited_for_anew_each_time() {
    let mut seen = a_fleet(vec![a_variant("cheap", "5", 2), a_variant("dear", "20", 1)], 0.9, 2.0);
    let crashes = |seen: &mut FleetSnapshot, ready: i32| {
        target(seen, 0).ready = ready;
        the_model(seen).pods = Ok(pods(&seen.variants, 0.9, 2.0));
    };
    for (ready, minutes) in [(1, 4), (2, 1), (1, 4), (2, 1), (1, 1)] {
        crashes(&mut seen, ready);
        assert_eq!(replicas(&seen, "dear"), 1, "{}", decision(&seen, "dear").trace);
        later(&mut seen, minutes);
    }
    assert_eq!(replicas(&seen, "dear"), 2, "{}", decision(&seen, "dear").trace);
    crashes(&mut seen, 2);
    assert_eq!((replicas(&seen, "cheap"), replicas(&seen, "dear")), (3, 1), "now all are ready");
    later(&mut seen, 3);
    crashes(&mut seen, 1);
    assert_eq!(replicas(&seen, "dear"), 1, "after some minutes it is another failure");
}

#[test]
fn replicas_of_another_count_are_waited_for_anew() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 4)], 0.65, 1.0);
    for (replicas, ready, minutes) in [(4, 3, 9), (4, 4, 1), (5, 5, 1), (4, 3, 0)] {
        *target(&mut seen, 0) =
            ObservedTarget { replicas: Some(replicas), ready, gpus: 1, ..ObservedTarget::default() };
        the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.65, 1.0));
        seen.variants[0].status = Some(decided(replicas, "Earlier", ago(60)));
        let signal = decision(&seen, "v").trace.signal.text;
        assert!(!signal.contains("ignored"), "{replicas} of which {ready} are ready: {signal}");
        later(&mut seen, minutes);
    }
}

#[test]
fn replicas_that_nobody_measures_cost_what_their_object_says() {
    let mut seen = a_fleet(vec![a_variant("cheap", "5", 2), a_variant("dear", "20", 2)], 0.1, 0.0);
    target(&mut seen, 1).ready = 0;
    the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.1, 0.0));
    later(&mut seen, 11);
    assert_eq!((replicas(&seen, "cheap"), replicas(&seen, "dear")), (2, 1));
}

#[test]
fn what_was_awaited_before_an_outage_of_the_workload_is_awaited_anew() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.5, 1.0);
    target(&mut seen, 0).ready = 1;
    later(&mut seen, 60);
    let known = seen.variants[0].target.clone();
    seen.variants[0].target = Lookup::Unknown("no answer".into());
    later(&mut seen, 1);
    assert!(seen.memory.progress.is_empty());
    seen.variants[0].target = known;
    assert!(!decision(&seen, "v").trace.signal.text.contains("ignored"));
}

#[test]
fn replicas_that_begin_again_after_sleep_are_not_taken_for_those_that_hung_before_it() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 3)], 0.5, 1.0);
    target(&mut seen, 0).ready = 2;
    the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.5, 1.0));
    later(&mut seen, 60);
    assert!(decision(&seen, "v").trace.signal.text.contains("ignored"));
    let awake = seen.variants[0].target.clone();
    *target(&mut seen, 0) = ObservedTarget { replicas: Some(0), gpus: 1, ..ObservedTarget::default() };
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    assert_eq!(decision(&seen, "v").metrics, MetricsState::NoReplicas);
    later(&mut seen, 60);
    seen.variants[0].target = awake;
    the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.5, 1.0));
    let woken = decision(&seen, "v");
    assert!(!woken.trace.signal.text.contains("ignored"), "{}", woken.trace);
    assert_eq!(woken.trace.decided_by, DecidedBy::Hold);
}

#[test]
fn a_rollout_that_pauses_with_more_pods_than_replicas_does_not_freeze_the_model() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 3)], 0.79, 4.0);
    *target(&mut seen, 0) = ObservedTarget { ready: 4, ready_pods: 4, ..target(&mut seen, 0).clone() };
    the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.79, 4.0));
    let held = decision(&seen, "v");
    assert_eq!((held.replicas, held.trace.decided_by), (Some(3), DecidedBy::Hold), "{}", held.trace);
    later(&mut seen, 11);
    let grown = decision(&seen, "v");
    assert_eq!(grown.replicas, Some(4), "one more than it is to have: {}", grown.trace);
    let told = "; variant v has more ready pods than its 3 replicas, check whether a rollout is paused";
    assert!(grown.trace.signal.text.ends_with(told), "{}", grown.trace);
}

#[test]
fn a_replica_on_its_way_out_is_not_missed() {
    // A StatefulSet counts it as ready until it is gone.
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.79, 4.0);
    target(&mut seen, 0).ready = 3;
    target(&mut seen, 0).ready_pods = 2;
    let grown = decision(&seen, "v");
    assert_eq!((grown.replicas, grown.metrics), (Some(3), MetricsState::Available));
}

#[test]
fn where_those_that_run_may_not_grow_one_begins_that_does_not_run() {
    let variants = vec![a_variant("cheap", "5", 2), a_variant("middle", "10", 0), a_variant("dear", "20", 0)];
    let mut seen = a_fleet(variants, 0.9, 2.0);
    assert_eq!((replicas(&seen, "cheap"), replicas(&seen, "middle")), (3, 0));
    spec(&mut seen.variants[0]).max_replicas = Some(2);
    let begun = decision(&seen, "middle");
    assert_eq!((replicas(&seen, "cheap"), begun.replicas, replicas(&seen, "dear")), (2, Some(1), 0));
    assert!(begun.reason.starts_with("saturation-only mode: scale-up: both KV spare"), "{}", begun.reason);
    assert_eq!(decision(&seen, "cheap").trace.limit_texts(), ["maxReplicas=2"]);
    // It is chosen once.
    seen.variants[1].status = Some(decided(1, "Earlier", ago(0)));
    assert_eq!((replicas(&seen, "middle"), replicas(&seen, "dear")), (1, 0));
    // A replica that is about to come is waited for.
    seen.variants[1].status = Some(decided(0, "Earlier", ago(60)));
    target(&mut seen, 0).ready = 1;
    assert_eq!((replicas(&seen, "middle"), replicas(&seen, "dear")), (0, 0));
}
