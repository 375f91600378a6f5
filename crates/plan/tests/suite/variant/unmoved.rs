//! Workloads that do not follow a larger number.

use steersman_plan::variant::saturation::tokens::capacity::Memory;
use steersman_plan::variant::{Binding, Seen, TargetSeen, plan};

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
        assert_eq!((cheap.replicas, cheap.story.binding), (Some(number), Binding::Limits), "{}", cheap.story);
        let told = format!(
            "its workload, which has stayed at 10 and does not follow {number}: look at maxReplicas of its HPA or ScaledObject, \
             or at a quota; or set spec.maxReplicas; an HPA also ignores differences of 10 % (its tolerance)"
        );
        assert_eq!(cheap.story.limit_texts(), [told.as_str()]);
        assert!(replicas(&seen, "dear") > 1, "tokens {tokens}: {}", decision(&seen, "dear").story);
        let status = stored(&seen).into_values().next().unwrap();
        let says = format!("replicas on H100; wanted {number}, limited by {told}");
        assert!(status.conditions.iter().any(|one| one.message.ends_with(&says)), "{:?}", status.conditions);
        // Nothing is missing for a while; the next time nobody waits ten minutes again.
        the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.65, 0.0));
        assert_eq!(replicas(&seen, "cheap"), 10, "tokens {tokens}");
        later(&mut seen, 30);
        seen.variants[0].status = Some(decided(10, "Earlier", ago(1)));
        the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.95, 2.0));
        assert!(replicas(&seen, "dear") > 1, "tokens {tokens}: {}", decision(&seen, "dear").story);
        // Once it moves it is asked first again.
        *target(&mut seen, 0) = TargetSeen { replicas: Some(11), ready: 11, gpus: 1, ..TargetSeen::default() };
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
        assert_eq!(replicas(&seen, "dear"), 1, "tokens {tokens}: {}", decision(&seen, "dear").story);
    }
}

#[test]
fn a_variant_that_somebody_set_to_zero_is_taken_so_after_a_while_where_others_serve() {
    let mut seen = a_fleet(vec![a_variant("by-hand", "5", 0), a_variant("other", "20", 2)], 0.65, 1.0);
    seen.variants[0].status = Some(decided(3, "Earlier", ago(60)));
    let kept = decision(&seen, "by-hand");
    assert_eq!((kept.replicas, kept.story.binding), (Some(3), Binding::Hold), "{}", kept.story);
    let words = "an earlier decision is still being carried out: it is to have 3 replicas and has 0";
    assert_eq!(kept.story.hold_text(), Some(words));
    later(&mut seen, 11);
    let taken = decision(&seen, "by-hand");
    assert_eq!(taken.replicas, Some(0), "{}", taken.story);
    let told = "saturation-only mode: no-change; the workload has 0 replicas and has not followed 3";
    assert_eq!(taken.reason, told);
    // Once something is missing it is asked again, and nobody waits for it.
    the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.95, 2.0));
    let asked = decision(&seen, "by-hand");
    assert_eq!((asked.replicas, asked.story.binding), (Some(3), Binding::Limits), "{}", asked.story);
    let told = "its workload, which has stayed at 0 and does not follow 3: an HPA does nothing at 0 replicas: scale the workload \
                to 1, or use KEDA or the feature gate HPAScaleToZero";
    assert_eq!(asked.story.limit_texts(), [told]);
    assert_eq!(replicas(&seen, "other"), 3);
}

/// A model that lacks replicas, in either engine.
fn lacking(tokens: bool, cheap: i32, dear: i32) -> Seen {
    let mut seen = a_fleet(vec![a_variant("cheap", "5", cheap), a_variant("dear", "20", dear)], 0.95, 2.0);
    if tokens {
        by_tokens(&mut seen);
    }
    seen
}

/// The next pass, after this one was stored.
fn next(seen: &mut Seen, minutes: i64) {
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
        assert!(replicas(&seen, "dear") > 1, "tokens {tokens}: {}", decision(&seen, "dear").story);
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
            assert_eq!(asked.replicas, Some(4), "tokens {tokens}: {}", asked.story);
            assert!(asked.story.limits[0].text.contains("has stayed at 3 and does not follow 4"), "{}", asked.story);
            next(&mut seen, 60);
        }
        // Its HPA may go further now.
        seen.variants[1].target = a_variant("dear", "20", 4).target;
        the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.95, 2.0));
        let moved = decision(&seen, "dear");
        assert!(moved.replicas > Some(4), "tokens {tokens}: {}", moved.story);
    }
}

#[test]
fn a_number_that_is_not_followed_stands_while_others_grow_in_its_place() {
    for tokens in [false, true] {
        let mut seen = lacking(tokens, 10, 1);
        seen.variants[0].status = Some(decided(11, "Earlier", ago(1)));
        later(&mut seen, 11);
        let stands = |seen: &Seen| {
            let asked = decision(seen, "cheap");
            assert_eq!(asked.replicas, Some(11), "tokens {tokens}: {}", asked.story);
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
        assert!(replicas(&seen, "dear") > 1, "tokens {tokens}: {}", decision(&seen, "dear").story);
        // What is told of another count is over.
        seen.variants[0].target = a_variant("cheap", "5", 9).target;
        the_model(&mut seen).pods = Ok(pods(&seen.variants, 0.95, 2.0));
        assert_eq!(replicas(&seen, "dear"), 1, "tokens {tokens}");
    }
}
