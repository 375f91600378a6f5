//! Simulates one pod that serves a model: its capacity, its running requests and its counters.

use std::collections::BTreeMap;

use crate::Millis;
use crate::queue::Ticket;

/// Token counts of every request of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Tokens of the prompt.
    pub input: u32,
    /// Tokens of the answer.
    pub output: u32,
    /// Prompt tokens in the prefix cache.
    pub known: u32,
}

/// Speed and capacity of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// Time from creation or restart until it is ready.
    pub start: Millis,
    /// Prompt tokens per second and request.
    pub prefill: u32,
    /// Answer tokens per second and request.
    pub decode: u32,
    /// Maximum of concurrent requests.
    pub sequences: u32,
    /// Size of the KV cache in blocks of `block_size` tokens.
    pub blocks: u32,
    pub block_size: u32,
}

impl Speed {
    /// KV cache capacity in tokens.
    pub fn capacity(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.block_size)
    }

    /// Duration of the prefill phase.
    pub fn reading(&self, shape: Shape) -> Millis {
        duration(shape.input.saturating_sub(shape.known), self.prefill)
    }

    /// Duration of the decode phase.
    pub fn writing(&self, shape: Shape) -> Millis {
        duration(shape.output, self.decode)
    }
}

/// A speed of 0 counts as 1 token per second, so that every request ends.
fn duration(tokens: u32, per_second: u32) -> Millis {
    (u64::from(tokens) * 1000).div_ceil(u64::from(per_second.max(1)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub arrived: Millis,
}

/// A running request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    pub request: Request,
    pub began: Millis,
    /// Cancels the event of its end.
    pub ticket: Ticket,
}

/// Counters since the start of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub requests: u64,
    pub input: u64,
    pub output: u64,
    pub known: u64,
    /// Sum of the times from arrival to the first token.
    pub first_token: Millis,
    /// Sum of the times from the first to the last token.
    pub writing: Millis,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub speed: Speed,
    pub ready: bool,
    /// The server exposes no metrics.
    pub silent: bool,
    pub counted: Counted,
    /// By number, in the order of their start.
    pub(crate) running_requests: BTreeMap<u64, Served>,
    /// Cancels the event of its start.
    pub(crate) start_ticket: Option<Ticket>,
}

impl Server {
    pub(crate) fn new(speed: Speed) -> Self {
        let counted = Counted::default();
        Self { speed, ready: false, silent: false, counted, running_requests: BTreeMap::new(), start_ticket: None }
    }

    pub fn running(&self) -> usize {
        self.running_requests.len()
    }

    /// Whether one more request fits. Each may need the tokens of its whole length.
    pub(crate) fn has_room(&self, shape: Shape) -> bool {
        let needed = (u64::from(shape.input) + u64::from(shape.output)) * (self.running_requests.len() as u64 + 1);
        self.ready && self.running_requests.len() < self.speed.sequences as usize && needed <= self.speed.capacity()
    }

    pub(crate) fn finish(&mut self, number: u64, shape: Shape, now: Millis) {
        let Some(served) = self.running_requests.remove(&number) else { return };
        let first = served.began + self.speed.reading(shape);
        let counted = &mut self.counted;
        counted.requests += 1;
        counted.input += u64::from(shape.input);
        counted.output += u64::from(shape.output);
        counted.known += u64::from(shape.known.min(shape.input));
        counted.first_token += first.saturating_sub(served.request.arrived);
        counted.writing += now.saturating_sub(first);
    }

    /// Tokens in the KV cache: the part of prompts and answers that is processed.
    pub fn held(&self, shape: Shape, now: Millis) -> u64 {
        let (reading, writing) = (self.speed.reading(shape), self.speed.writing(shape));
        let of = |served: &Served| {
            let spent = now.saturating_sub(served.began);
            let read = part(shape.input, spent, reading);
            read + part(shape.output, spent.saturating_sub(reading), writing)
        };
        self.running_requests.values().map(of).sum()
    }
}

/// Part of `whole` that is done after `spent` of `all`.
fn part(whole: u32, spent: Millis, all: Millis) -> u64 {
    if spent >= all { u64::from(whole) } else { u64::from(whole) * spent / all }
}
