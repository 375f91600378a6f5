//! One pod that serves a model.
//! Comes in: how fast it is, requests to serve and the time; goes out: what it has room for, what it holds and what it has
//! counted since it started.

use std::collections::BTreeMap;

use crate::Millis;
use crate::queue::Ticket;

/// What every request of a model is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Tokens of the prompt.
    pub input: u32,
    /// Tokens of the answer.
    pub output: u32,
    /// Of the prompt's tokens, those that a server knows from earlier prompts.
    pub known: u32,
}

/// How fast a server is, and how much it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// From its creation, or a restart, until it serves.
    pub start: Millis,
    /// Tokens of prompts that it reads in a second, for each request.
    pub prefill: u32,
    /// Tokens of answers that it writes in a second, for each request.
    pub decode: u32,
    /// Requests that it serves at the same time, at most.
    pub sequences: u32,
    /// The KV cache, in blocks of so many tokens.
    pub blocks: u32,
    pub block_size: u32,
}

impl Speed {
    /// Tokens that fit into the KV cache.
    pub fn capacity(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.block_size)
    }

    /// How long a prompt is read.
    pub fn reading(&self, shape: Shape) -> Millis {
        duration(shape.input.saturating_sub(shape.known), self.prefill)
    }

    /// How long an answer is written.
    pub fn writing(&self, shape: Shape) -> Millis {
        duration(shape.output, self.decode)
    }
}

/// A server without any speed still ends some day, as all time does.
fn duration(tokens: u32, per_second: u32) -> Millis {
    (u64::from(tokens) * 1000).div_ceil(u64::from(per_second.max(1)))
}

/// When it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub arrived: Millis,
}

/// A request that is being served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    pub request: Request,
    pub began: Millis,
    /// Of its end.
    pub ticket: Ticket,
}

/// What a server has counted since it started; a restart begins anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub requests: u64,
    pub input: u64,
    pub output: u64,
    pub known: u64,
    /// From arrivals to first tokens.
    pub first_token: Millis,
    /// From first tokens to last.
    pub writing: Millis,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub speed: Speed,
    /// It has started, and serves.
    pub ready: bool,
    /// It serves, and says nothing of it.
    pub silent: bool,
    pub counted: Counted,
    /// By number, which is the order in which they were begun.
    pub(crate) serving: BTreeMap<u64, Served>,
    /// Of its start.
    pub(crate) starting: Option<Ticket>,
}

impl Server {
    pub(crate) fn new(speed: Speed) -> Self {
        let counted = Counted::default();
        Self { speed, ready: false, silent: false, counted, serving: BTreeMap::new(), starting: None }
    }

    pub fn running(&self) -> usize {
        self.serving.len()
    }

    /// Room for one more: each request may come to need its whole length.
    pub(crate) fn has_room(&self, shape: Shape) -> bool {
        let needed = (u64::from(shape.input) + u64::from(shape.output)) * (self.serving.len() as u64 + 1);
        self.ready && self.serving.len() < self.speed.sequences as usize && needed <= self.speed.capacity()
    }

    pub(crate) fn finish(&mut self, number: u64, shape: Shape, now: Millis) {
        let Some(served) = self.serving.remove(&number) else { return };
        let first = served.began + self.speed.reading(shape);
        let counted = &mut self.counted;
        counted.requests += 1;
        counted.input += u64::from(shape.input);
        counted.output += u64::from(shape.output);
        counted.known += u64::from(shape.known.min(shape.input));
        counted.first_token += first.saturating_sub(served.request.arrived);
        counted.writing += now.saturating_sub(first);
    }

    /// Tokens in the KV cache: prompts that were read and answers as far as they are written.
    pub fn held(&self, shape: Shape, now: Millis) -> u64 {
        let (reading, writing) = (self.speed.reading(shape), self.speed.writing(shape));
        let of = |served: &Served| {
            let spent = now.saturating_sub(served.began);
            let read = part(shape.input, spent, reading);
            read + part(shape.output, spent.saturating_sub(reading), writing)
        };
        self.serving.values().map(of).sum()
    }
}

/// How much of `whole` is done after `spent` of `all`.
fn part(whole: u32, spent: Millis, all: Millis) -> u64 {
    if spent >= all { u64::from(whole) } else { u64::from(whole) * spent / all }
}
