//! The event queue, compared with a stable sort by time.

use proptest::prelude::*;
use steersman_sim::queue::Queue;

fn drain<E>(queue: &mut Queue<E>) -> Vec<(u64, E)> {
    std::iter::from_fn(|| queue.pop()).collect()
}

#[test]
fn clock_follows_events_and_never_goes_back() {
    let mut queue = Queue::default();
    queue.schedule(10, "late");
    queue.schedule(5, "early");
    assert_eq!((queue.now(), queue.next_at(), queue.len()), (0, Some(5), 2));
    assert_eq!(queue.pop(), Some((5, "early")));
    queue.schedule(1, "overdue");
    assert_eq!(drain(&mut queue), [(5, "overdue"), (10, "late")]);
    assert_eq!((queue.now(), queue.next_at(), queue.is_empty()), (10, None, true));
}

#[test]
fn ticket_cancels_once_and_before_the_event() {
    let mut queue = Queue::default();
    let kept = queue.schedule(3, "kept");
    let dropped = queue.schedule(3, "dropped");
    assert_eq!(queue.cancel(dropped), Some("dropped"));
    assert_eq!(queue.cancel(dropped), None);
    assert_eq!(drain(&mut queue), [(3, "kept")]);
    assert_eq!(queue.cancel(kept), None);
}

proptest! {
    #[test]
    fn events_are_ordered_by_time_then_scheduling(times in prop::collection::vec(0..20u64, 0..60)) {
        let mut queue = Queue::default();
        let mut model: Vec<(u64, usize)> = times.iter().copied().zip(0..).collect();
        for (at, event) in &model {
            queue.schedule(*at, *event);
        }
        model.sort_by_key(|(at, _)| *at);
        prop_assert_eq!(drain(&mut queue), model);
    }

    #[test]
    fn cancel_removes_exactly_the_cancelled_events(events in prop::collection::vec((0..20u64, any::<bool>()), 0..60)) {
        let mut queue = Queue::default();
        let tickets: Vec<_> = events.iter().enumerate().map(|(event, (at, _))| queue.schedule(*at, event)).collect();
        for (event, ticket) in tickets.iter().enumerate().filter(|(event, _)| events[*event].1) {
            prop_assert_eq!(queue.cancel(*ticket), Some(event));
        }
        let mut remaining: Vec<_> = drain(&mut queue).into_iter().map(|(_, event)| event).collect();
        remaining.sort_unstable();
        let kept: Vec<_> = (0..events.len()).filter(|event| !events[*event].1).collect();
        prop_assert_eq!(remaining, kept);
    }

    #[test]
    fn scheduling_during_events_keeps_time_order(seeds in prop::collection::vec((0..50u64, 0..50u64), 1..40)) {
        let mut queue = Queue::default();
        for (at, after) in &seeds {
            queue.schedule(*at, Some(*after));
        }
        let mut times = vec![];
        while let Some((now, event)) = queue.pop() {
            prop_assert_eq!(now, queue.now());
            times.push(now);
            if let Some(after) = event {
                queue.schedule(now + after, None);
            }
        }
        prop_assert!(times.is_sorted());
        prop_assert_eq!(times.len(), 2 * seeds.len());
    }
}
