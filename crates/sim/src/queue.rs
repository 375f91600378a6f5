//! The event queue and simulated clock. Events at the same time keep the order in which they were scheduled.

use std::collections::BTreeMap;

use crate::Millis;

/// Identifies a scheduled event, so that it can be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    // The order of the fields is the order of the queue.
    at: Millis,
    number: u64,
}

#[derive(Clone, Debug)]
pub struct Queue<E> {
    now: Millis,
    next_number: u64,
    // A tree instead of a heap: ties stay in order, and a cancelled event is removed at once.
    events: BTreeMap<Ticket, E>,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { now: 0, next_number: 0, events: BTreeMap::new() }
    }
}

impl<E> Queue<E> {
    /// The time of the last event taken.
    pub fn now(&self) -> Millis {
        self.now
    }

    /// An event in the past is due now: time never runs backwards.
    pub fn schedule(&mut self, at: Millis, event: E) -> Ticket {
        let ticket = Ticket { at: at.max(self.now), number: self.next_number };
        self.next_number += 1;
        self.events.insert(ticket, event);
        ticket
    }

    /// Cancels an event. `None` if it has already happened or been cancelled.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<E> {
        self.events.remove(&ticket)
    }

    /// Takes the next event and moves the clock to its time.
    pub fn pop(&mut self) -> Option<(Millis, E)> {
        let (ticket, event) = self.events.pop_first()?;
        self.now = ticket.at;
        Some((ticket.at, event))
    }

    pub fn next_at(&self) -> Option<Millis> {
        self.events.first_key_value().map(|(ticket, _)| ticket.at)
    }

    pub fn len(&self) -> usize {
        self.events.len()
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}
