//! Workloads that do not follow a larger number.

use steersman_plan::variant::memory::Memory;
use steersman_plan::variant::{DecidedBy, FleetSnapshot, ObservedTarget, plan};

use super::{
    a_fleet, a_variant, ago, by_tokens, decided, decision, later, pods, replicas, settle, spec, stored, target,
    the_model,
};

#[test]
fn a_workload_that_does_not_follow_leaves_the_growth_to_the_next_and_says_so() {
    for tokens in [false, true] {
        let mut seen = a_fleet(vec![a_variant("cheap", "5", 10), a_variant("dear", "20", 1)], 0.95, 2.0);
        if tokens {
            by_tokens(&mut seen);
        }
        let number = replicas(&seen, "cheap");
        assert!(number > 10, "tokens {tokens}");
        seen.variants[0].status = Some(decided(number, "Earlier", ago(1)));
        assert_eq!(replicas(&seen, "dear"), 1, "tokens {tokens}: it may only be late");
        // Its HPA goes no further.
        later(&mut seen, 11);
        let cheap = decision(&seen, "cheap");
        assert_eq!((cheap.replicas, cheap.trace.decided_by), (Some(number), DecidedBy::Limits), "{}", cheap.trace);
        let told = format!(
            "the scale target, which stays at 10 replicas instead of {number}: check maxReplicas of its HPA or ScaledObject and \
             resource quotas, or set spec.maxReplicas; an HPA also ignores differences of up to 10 % (its tolerance)"
        );
        assert_eq!(cheap.trace.limit_texts(), [told.as_str()]);
        assert!(replicas(&seen, "dear") > 1, "tokens {tokens}: {}", decision(&seen, "dear").trace);
        let status = stored(&seen).into_values().next().unwrap();
        let says = format!("replicas on H100; wanted {number}, limited by {told}");
        assert!(status.conditions.iter().any(|one| one.message.ends_with(&says)), "{:?}", status.conditions);
        // Nothing is missing for a while; the next time nobody waits ten minutes again.
        the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.65, 0.0));
        assert_eq!(replicas(&seen, "cheap"), 10, "tokens {tokens}");
        later(&mut seen, 30);
        seen.variants[0].status = Some(decided(10, "Earlier", ago(1)));
        the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.95, 2.0));
        assert!(replicas(&seen, "dear") > 1, "tokens {tokens}: {}", decision(&seen, "dear").trace);
        // Once it moves it is asked first again.
        *target(&mut seen, 0) = ObservedTarget { replicas: Some(11), ready: 11, gpus: 1, ..ObservedTarget::default() };
        seen.variants[0].status = Some(decided(11, "Earlier", ago(1)));
        the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.95, 2.0));
        assert_eq!(replicas(&seen, "dear"), 1, "tokens {tokens}");
    }
}

#[test]
fn a_workload_that_does_not_begin_leaves_it_to_the_next() {
    for tokens in [false, true] {
        let variants = vec![a_variant("runs", "5", 2), a_variant("middle", "10", 0), a_variant("dear", "20", 0)];
        let mut seen = a_fleet(variants, 0.95, 2.0);
        if tokens {
            by_tokens(&mut seen);
            // What they can take is known from before.
            let mut before = a_fleet(vec![a_variant("middle", "10", 1), a_variant("dear", "20", 1)], 0.5, 0.0);
            by_tokens(&mut before);
            seen.memory = plan(&before).memory;
        }
        spec(&mut seen.variants[0]).max_replicas = Some(2);
        seen.variants[1].status = Some(decided(1, "Earlier", ago(1)));
        assert_eq!((replicas(&seen, "middle"), replicas(&seen, "dear")), (1, 0), "tokens {tokens}");
        later(&mut seen, 11);
        assert_eq!(replicas(&seen, "dear"), 1, "tokens {tokens}: {}", decision(&seen, "dear").trace);
    }
}

#[test]
fn a_variant_that_somebody_set_to_zero_is_taken_so_after_a_while_where_others_serve() {
    let mut seen = a_fleet(vec![a_variant("by-hand", "5", 0), a_variant("other", "20", 2)], 0.65, 1.0);
    seen.variants[0].status = Some(decided(3, "Earlier", ago(60)));
    let kept = decision(&seen, "by-hand");
    assert_eq!((kept.replicas, kept.trace.decided_by), (Some(3), DecidedBy::Hold), "{}", kept.trace);
    let words = "waiting for an earlier decision to be carried out: the scale target has 0 replicas, 3 are desired";
    assert_eq!(kept.trace.hold_text(), Some(words));
    later(&mut seen, 11);
    let taken = decision(&seen, "by-hand");
    assert_eq!(taken.replicas, Some(0), "{}", taken.trace);
    let told = "saturation-only mode: no-change; the scale target stayed at 0 replicas instead of 3";
    assert_eq!(taken.reason, told);
    // Once something is missing it is asked again, and nobody waits for it.
    the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.95, 2.0));
    let asked = decision(&seen, "by-hand");
    assert_eq!((asked.replicas, asked.trace.decided_by), (Some(3), DecidedBy::Limits), "{}", asked.trace);
    let told = "the scale target, which stays at 0 replicas instead of 3: an HPA does not scale up from 0; scale the workload \
                to 1, use KEDA, or enable the feature gate HPAScaleToZero";
    assert_eq!(asked.trace.limit_texts(), [told]);
    assert_eq!(replicas(&seen, "other"), 3);
}

/// A model that lacks replicas, in either engine.
fn lacking(tokens: bool, cheap: i32, dear: i32) -> FleetSnapshot {
    let mut seen = a_fleet(vec![a_variant("cheap", "5", cheap), a_variant("dear", "20", dear)], 0.95, 2.0);
    if tokens {
        by_tokens(&mut seen);
    }
    seen
}

/// The next pass, after this one was stored.
fn next(seen: &mut FleetSnapshot, minutes: i64) {
    let (told, memory) = (stored(seen), plan(seen).memory);
    seen.variants.iter_mut().for_each(|variant| variant.status = told.get(&variant.key).cloned());
    seen.memory = memory;
    seen.now += jiff::SignedDuration::from_mins(minutes);
}

#[test]
fn numbers_that_move_with_the_load_are_asked_for_as_one() {
    for tokens in [false, true] {
        let mut seen = lacking(tokens, 10, 1);
        for number in [12, 13, 12] {
            seen.variants[0].status = Some(decided(number, "Earlier", ago(1)));
            assert_eq!(replicas(&seen, "dear"), 1, "tokens {tokens}");
            later(&mut seen, 4);
        }
        assert!(replicas(&seen, "dear") > 1, "tokens {tokens}: {}", decision(&seen, "dear").trace);
        assert_eq!(replicas(&seen, "cheap"), 12, "tokens {tokens}");
    }
}

#[test]
fn a_number_that_is_not_followed_stands_while_something_is_missing_whoever_is_the_cheapest() {
    for tokens in [false, true] {
        let mut seen = lacking(tokens, 2, 3);
        spec(&mut seen.variants[0]).max_replicas = Some(2);
        seen.variants[1].status = Some(decided(4, "Earlier", ago(1)));
        later(&mut seen, 11);
        for _ in 0..3 {
            let asked = decision(&seen, "dear");
            assert_eq!(asked.replicas, Some(4), "tokens {tokens}: {}", asked.trace);
            assert!(asked.trace.limits[0].text.contains("stays at 3 replicas instead of 4"), "{}", asked.trace);
            next(&mut seen, 60);
        }
        // Its HPA may go further now.
        seen.variants[1].target = a_variant("dear", "20", 4).target;
        the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.95, 2.0));
        let moved = decision(&seen, "dear");
        assert!(moved.replicas > Some(4), "tokens {tokens}: {}", moved.trace);
    }
}

#[test]
fn a_number_that_is_not_followed_stands_while_others_grow_in_its_place() {
    for tokens in [false, true] {
        let mut seen = lacking(tokens, 10, 1);
        seen.variants[0].status = Some(decided(11, "Earlier", ago(1)));
        later(&mut seen, 11);
        let stands = |seen: &FleetSnapshot| {
            let asked = decision(seen, "cheap");
            assert_eq!(asked.replicas, Some(11), "tokens {tokens}: {}", asked.trace);
        };
        stands(&seen);
        let grown = replicas(&seen, "dear");
        assert!(grown > 1, "tokens {tokens}");
        next(&mut seen, 1);
        target(&mut seen, 1).replicas = Some(grown);
        stands(&seen);
        next(&mut seen, 1);
        target(&mut seen, 1).ready = grown;
        the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.95, 2.0));
        stands(&seen);
    }
}

#[test]
fn an_hour_after_it_was_last_asked_a_workload_is_asked_first_again() {
    for tokens in [false, true] {
        let mut seen = lacking(tokens, 10, 1);
        seen.variants[0].status = Some(decided(11, "Earlier", ago(1)));
        later(&mut seen, 11);
        the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.65, 0.0));
        next(&mut seen, 1);
        next(&mut seen, 61);
        the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.95, 2.0));
        assert!(replicas(&seen, "cheap") > 10, "tokens {tokens}");
        assert_eq!(replicas(&seen, "dear"), 1, "tokens {tokens}");
    }
}

#[test]
fn an_operator_that_has_just_begun_reads_from_the_object_that_its_number_is_not_followed() {
    for tokens in [false, true] {
        let mut seen = lacking(tokens, 10, 1);
        seen.variants[0].status = Some(decided(11, "Earlier", ago(1)));
        later(&mut seen, 11);
        settle(&mut seen);
        seen.variants[1].status = Some(decided(1, "Earlier", ago(60)));
        seen.memory = Memory::default();
        assert_eq!(replicas(&seen, "cheap"), 11, "tokens {tokens}");
        assert!(replicas(&seen, "dear") > 1, "tokens {tokens}: {}", decision(&seen, "dear").trace);
        // What is told of another count is over.
        seen.variants[0].target = a_variant("cheap", "5", 9).target;
        the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.95, 2.0));
        assert_eq!(replicas(&seen, "dear"), 1, "tokens {tokens}");
    }
}
