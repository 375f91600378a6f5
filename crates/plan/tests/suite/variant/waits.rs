//! How long something is waited for, and what is done then.

use steersman_plan::variant::{Binding, Metrics, Seen, Silence, TargetSeen, plan};
use steersman_reconcile::Lookup;

use super::{
    a_fleet, a_variant, ago, by_tokens, decided, decision, later, pods, replicas, spec, stored, target, the_model,
};

fn short(seen: &Seen) -> Vec<i32> {
    plan(seen).memory.waits.values().filter_map(|waits| waits.short).map(|(replicas, _)| replicas).collect()
}

#[test]
fn while_a_decision_is_carried_out_no_other_is_made() {
    let mut seen = a_fleet(vec![a_variant("a", "20", 2), a_variant("b", "5", 2)], 0.79, 4.0);
    seen.variants[0].status = Some(decided(4, "Earlier", ago(1)));
    assert_eq!((replicas(&seen, "a"), replicas(&seen, "b")), (4, 2));
    assert_eq!(decision(&seen, "b").story.binding, Binding::Hold);
    let words = "an earlier decision is still being carried out: a is to have 4 replicas and has 2";
    assert_eq!(decision(&seen, "b").story.hold_text(), Some(words));
    // A workload that does not follow, for example because somebody capped it, does not block the model for ever.
    later(&mut seen, 11);
    assert_eq!((replicas(&seen, "a"), replicas(&seen, "b")), (4, 3));
    the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.65, 1.0));
    let told = "saturation-only mode: no-change; the workload has 2 replicas and has not followed 4";
    let taken = decision(&seen, "a");
    assert_eq!((taken.replicas, taken.reason.as_str()), (Some(2), told));
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
        assert_eq!((kept.replicas, kept.story.binding), (Some(10), Binding::Limits), "{}", kept.story);
        assert!(kept.story.wish > 10, "{}", kept.story);
        assert_eq!(kept.story.limit_texts(), ["replicas that do not become ready"]);
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
            assert_eq!((kept.replicas, kept.story.wish, kept.story.binding), (Some(5), 5, Binding::Hold));
            let reason = "saturation-only mode: scale-down is taken back: both KV spare";
            assert!(kept.reason.starts_with(reason), "{}", kept.reason);
            let words = "an earlier decision is still being carried out: v was to have 4 replicas and keeps its 5, as one is \
                         missing";
            assert_eq!(kept.story.hold_text(), Some(words));
            seen.variants[0].status = stored(&seen).into_values().next();
        }
        assert!(replicas(&seen, "v") > 5, "tokens {tokens}: {}", decision(&seen, "v").story);
    }
}

#[test]
fn a_scale_down_that_a_bound_asks_for_is_not_told_as_taken_back() {
    for (max, number, back) in [(Some(3), 3, false), (Some(4), 4, true), (None, 5, true)] {
        let mut seen = a_fleet(vec![a_variant("v", "5", 5)], 0.95, 20.0);
        seen.variants[0].status = Some(decided(3, "Earlier", ago(1)));
        spec(&mut seen.variants[0]).max_replicas = max;
        let kept = decision(&seen, "v");
        assert_eq!((kept.replicas, kept.reason.contains("taken back")), (Some(number), back), "{}", kept.story);
        let words = match back {
            true => format!("v was to have 3 replicas and keeps its {number}, as one is missing"),
            false => "v is to have 3 replicas and has 5".to_owned(),
        };
        let hold = kept.story.hold.unwrap().text;
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
    assert_eq!((kept.replicas, kept.story.binding), (Some(5), Binding::Hold), "{}", kept.story);
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
    *target(&mut seen, 0) = TargetSeen { replicas: Some(3), ready: 3, gpus: 1, ..TargetSeen::default() };
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
        assert!(dear.replicas > Some(1), "tokens {tokens}: {}", dear.story);
        let told = "; 1 of cheap do not become ready and are not waited for, look at their pods";
        assert!(dear.story.signal.text.ends_with(told), "{}", dear.story);
        assert_eq!(replicas(&seen, "cheap"), 2, "it keeps its number, and gets no more: tokens {tokens}");
        target(&mut seen, 0).replicas = Some(3);
        assert_eq!(short(&seen), [3], "asked anew");
        seen.variants.remove(0);
        assert!(plan(&seen).memory.waits.is_empty(), "who is gone is forgotten");
    }
}

#[test]
fn a_replica_that_is_ready_for_moments_is_not_waited_for_anew_each_time() {
    let mut seen = a_fleet(vec![a_variant("cheap", "5", 2), a_variant("dear", "20", 1)], 0.9, 2.0);
    let crashes = |seen: &mut Seen, ready: i32| {
        target(seen, 0).ready = ready;
        the_model(seen).pods = Ok(pods(&seen.variants, 0.9, 2.0));
    };
    for (ready, minutes) in [(1, 4), (2, 1), (1, 4), (2, 1), (1, 1)] {
        crashes(&mut seen, ready);
        assert_eq!(replicas(&seen, "dear"), 1, "{}", decision(&seen, "dear").story);
        later(&mut seen, minutes);
    }
    assert_eq!(replicas(&seen, "dear"), 2, "{}", decision(&seen, "dear").story);
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
        *target(&mut seen, 0) = TargetSeen { replicas: Some(replicas), ready, gpus: 1, ..TargetSeen::default() };
        the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.65, 1.0));
        seen.variants[0].status = Some(decided(replicas, "Earlier", ago(60)));
        let signal = decision(&seen, "v").story.signal.text;
        assert!(!signal.contains("not waited for"), "{replicas} of which {ready} are ready: {signal}");
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
    assert!(seen.memory.waits.is_empty());
    seen.variants[0].target = known;
    assert!(!decision(&seen, "v").story.signal.text.contains("not waited for"));
}

#[test]
fn replicas_that_begin_again_after_sleep_are_not_taken_for_those_that_hung_before_it() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 3)], 0.5, 1.0);
    target(&mut seen, 0).ready = 2;
    the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.5, 1.0));
    later(&mut seen, 60);
    assert!(decision(&seen, "v").story.signal.text.contains("not waited for"));
    let awake = seen.variants[0].target.clone();
    *target(&mut seen, 0) = TargetSeen { replicas: Some(0), gpus: 1, ..TargetSeen::default() };
    the_model(&mut seen).pods = Err(Silence::Missing);
    assert_eq!(decision(&seen, "v").metrics, Metrics::Asleep);
    later(&mut seen, 60);
    seen.variants[0].target = awake;
    the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.5, 1.0));
    let woken = decision(&seen, "v");
    assert!(!woken.story.signal.text.contains("not waited for"), "{}", woken.story);
    assert_eq!(woken.story.binding, Binding::Hold);
}

#[test]
fn a_rollout_that_pauses_with_more_pods_than_replicas_does_not_freeze_the_model() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 3)], 0.79, 4.0);
    *target(&mut seen, 0) = TargetSeen { ready: 4, ready_pods: 4, ..target(&mut seen, 0).clone() };
    the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.79, 4.0));
    let held = decision(&seen, "v");
    assert_eq!((held.replicas, held.story.binding), (Some(3), Binding::Hold), "{}", held.story);
    later(&mut seen, 11);
    let grown = decision(&seen, "v");
    assert_eq!(grown.replicas, Some(4), "one more than it is to have: {}", grown.story);
    let told = "; v has more pods than its 3 replicas, does a rollout of it pause?";
    assert!(grown.story.signal.text.ends_with(told), "{}", grown.story);
}

#[test]
fn a_replica_on_its_way_out_is_not_missed() {
    // A StatefulSet counts it as ready until it is gone.
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.79, 4.0);
    target(&mut seen, 0).ready = 3;
    target(&mut seen, 0).ready_pods = 2;
    let grown = decision(&seen, "v");
    assert_eq!((grown.replicas, grown.metrics), (Some(3), Metrics::Found));
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
    assert_eq!(decision(&seen, "cheap").story.limit_texts(), ["maxReplicas=2"]);
    // It is chosen once.
    seen.variants[1].status = Some(decided(1, "Earlier", ago(0)));
    assert_eq!((replicas(&seen, "middle"), replicas(&seen, "dear")), (1, 0));
    // A replica that is about to come is waited for.
    seen.variants[1].status = Some(decided(0, "Earlier", ago(60)));
    target(&mut seen, 0).ready = 1;
    assert_eq!((replicas(&seen, "middle"), replicas(&seen, "dear")), (0, 0));
}
