//! Queues that nobody can weigh, and capacities that queues show: the engine that counts tokens may add replicas, and takes none
//! away.

use jiff::SignedDuration;
use steersman_plan::variant::{DecidedBy, DecisionKind, FleetSnapshot, MetricsState, PodMetrics, plan};

use super::{a_fleet, a_variant, by_tokens, decision, replicas, target, the_model};

const WHY: &str = "scale-down blocked: a pod of variant v has queued requests but none completed in the last 5 minutes, so \
                   their length is unknown";

/// Its queue grows, and not one of its requests has ended within five minutes.
fn hang(pod: &mut PodMetrics, queue: f64) {
    (pod.queue, pod.input, pod.output, pod.hit_rate) = (Some(queue), None, None, None);
}

fn first(seen: &mut FleetSnapshot) -> &mut PodMetrics {
    &mut the_model(seen).pods.as_mut().unwrap()[0]
}

#[test]
fn a_full_replica_grows_even_if_none_of_its_requests_has_ended() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 1)], 0.95, 0.0);
    by_tokens(&mut seen);
    hang(first(&mut seen), 40.0);
    let grown = decision(&seen, "v");
    assert!(grown.replicas > Some(1), "{}", grown.trace);
    assert_eq!((grown.metrics, grown.trace.decided_by), (MetricsState::Available, DecidedBy::Solver));
    assert_eq!(grown.trace.hold_text(), Some(WHY));
}

#[test]
fn the_queue_is_weighed_as_the_model_s_other_requests_are_or_were() {
    let number = |seen: &FleetSnapshot| (replicas(seen, "v"), decision(seen, "v").trace.need);
    // By the other pod, which finishes requests of 100 tokens.
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.3, 0.0);
    by_tokens(&mut seen);
    let known = plan(&seen).memory;
    let mut measured = seen.clone();
    first(&mut measured).queue = Some(200.0);
    hang(first(&mut seen), 200.0);
    assert_eq!(number(&seen), number(&measured));
    // By neither of them now, and by both a while ago.
    hang(&mut the_model(&mut seen).pods.as_mut().unwrap()[1], 0.0);
    let blind = number(&seen);
    seen.memory = known;
    seen.now += SignedDuration::from_mins(30);
    let remembered = number(&seen);
    assert!(remembered.0 > blind.0, "{remembered:?} and {blind:?}");
    seen.now += SignedDuration::from_hours(24);
    assert_eq!(number(&seen), blind, "what was true yesterday is forgotten");
}

#[test]
fn what_is_only_guessed_lowers_nothing() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 4), a_variant("w", "20", 2)], 0.0, 0.0);
    by_tokens(&mut seen);
    assert!(replicas(&seen, "v") + replicas(&seen, "w") < 6, "without the queue they would shrink");
    hang(first(&mut seen), 1.0);
    for (name, count) in [("v", 4), ("w", 2)] {
        let held = decision(&seen, name);
        assert_eq!((held.replicas, held.kind), (Some(count), DecisionKind::Held), "{name}");
        assert_eq!((held.trace.decided_by, held.trace.hold_text()), (DecidedBy::Hold, Some(WHY)), "{name}");
    }
    // Another pod is no other story.
    first(&mut seen).queue = Some(0.0);
    hang(&mut the_model(&mut seen).pods.as_mut().unwrap()[1], 1.0);
    assert_eq!(decision(&seen, "v").trace.hold_text(), Some(WHY));
}

/// Pods of 100,000 tokens, each with its share in use and its queue.
fn loads(seen: &mut FleetSnapshot, loads: &[(f64, f64)]) {
    by_tokens(seen);
    for (pod, (kv, queue)) in the_model(seen).pods.as_mut().unwrap().iter_mut().zip(loads) {
        (pod.total_kv, pod.kv, pod.queue) = (Some(100_000), Some(*kv), Some(*queue));
    }
}

#[test]
fn only_a_replica_without_a_queue_shows_that_others_were_not_full() {
    for (queue, falls) in [(4.0, false), (1.0, false), (0.0, true)] {
        let mut seen = a_fleet(vec![a_variant("v", "5", 4)], 0.0, 0.0);
        loads(&mut seen, &[(0.2, 5.0), (0.2, 5.0), (0.20001, queue), (0.20001, queue)]);
        let decided = decision(&seen, "v");
        assert_eq!(decided.replicas < Some(4), falls, "queue {queue}: {}", decided.trace);
    }
}

#[test]
fn a_replica_on_more_accelerators_shows_nothing_about_one_on_fewer() {
    let mut seen = a_fleet(vec![a_variant("large", "20", 1), a_variant("small", "5", 2)], 0.0, 0.0);
    loads(&mut seen, &[(0.6, 0.0), (0.3, 5.0), (0.3, 0.0)]);
    let remembered = |gpus: i32| {
        let mut seen = seen.clone();
        target(&mut seen, 0).gpus = gpus;
        plan(&seen).memory.history.len()
    };
    assert_eq!((remembered(4), remembered(1)), (1, 0));
}
