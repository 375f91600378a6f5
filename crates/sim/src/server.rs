//! Simulates one pod that serves a model: its capacity, its running requests and its counters.

use std::collections::{BTreeMap, VecDeque};

use crate::Millis;
use crate::queue::Ticket;

/// Token counts of every request of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestShape {
    /// Tokens of the prompt.
    pub input: u32,
    /// Tokens of the answer.
    pub output: u32,
    /// Prompt tokens in the prefix cache.
    pub cached: u32,
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
    pub fn prefill_time(&self, shape: RequestShape) -> Millis {
        duration(shape.input.saturating_sub(shape.cached), self.prefill)
    }

    /// Duration of the decode phase.
    pub fn decode_time(&self, shape: RequestShape) -> Millis {
        duration(shape.output, self.decode)
    }
}

/// A speed of 0 counts as 1 token per second, so that every request ends.
fn duration(tokens: u32, per_second: u32) -> Millis {
    (u64::from(tokens) * 1000).div_ceil(u64::from(per_second.max(1)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedRequest {
    pub arrived: Millis,
}

/// A running request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningRequest {
    pub request: QueuedRequest,
    pub began: Millis,
    /// Cancels the event of its end.
    pub ticket: Ticket,
}

/// Counters since the start of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    pub requests: u64,
    pub input: u64,
    pub output: u64,
    pub cached: u64,
    /// Sum of the times from arrival to the first token.
    pub first_token_time: Millis,
    /// Sum of the times from the first to the last token.
    pub decode_time: Millis,
    /// Sum of the times from the start to the last token, without the time in the queue.
    pub inference_time: Millis,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelServer {
    pub speed: Speed,
    pub ready: bool,
    /// The server exposes no metrics.
    pub metrics_hidden: bool,
    pub counters: ServerCounters,
    /// By number, in the order of their start.
    pub(crate) running_requests: BTreeMap<u64, RunningRequest>,
    /// Requests that were routed to this pod and have not been started. Empty if the pods share one queue.
    pub(crate) queued_requests: VecDeque<QueuedRequest>,
    /// Cancels the event of its start.
    pub(crate) start_ticket: Option<Ticket>,
}

impl ModelServer {
    pub(crate) fn new(speed: Speed) -> Self {
        let counters = ServerCounters::default();
        Self {
            speed,
            ready: false,
            metrics_hidden: false,
            counters,
            running_requests: BTreeMap::new(),
            queued_requests: VecDeque::new(),
            start_ticket: None,
        }
    }

    pub fn running(&self) -> usize {
        self.running_requests.len()
    }

    /// Requests that wait at this pod. Always 0 if the pods share one queue.
    pub fn queued(&self) -> usize {
        self.queued_requests.len()
    }

    /// Whether one more request fits. Each may need the tokens of its whole length.
    pub(crate) fn has_room(&self, shape: RequestShape) -> bool {
        let needed = (u64::from(shape.input) + u64::from(shape.output)) * (self.running_requests.len() as u64 + 1);
        self.ready && self.running_requests.len() < self.speed.sequences as usize && needed <= self.speed.capacity()
    }

    pub(crate) fn finish(&mut self, number: u64, shape: RequestShape, now: Millis) {
        let Some(served) = self.running_requests.remove(&number) else { return };
        let first = served.began + self.speed.prefill_time(shape);
        let counters = &mut self.counters;
        counters.requests += 1;
        counters.input += u64::from(shape.input);
        counters.output += u64::from(shape.output);
        counters.cached += u64::from(shape.cached.min(shape.input));
        counters.first_token_time += first.saturating_sub(served.request.arrived);
        counters.decode_time += now.saturating_sub(first);
        counters.inference_time += now.saturating_sub(served.began);
    }

    /// Tokens in the KV cache: the part of prompts and answers that is processed.
    pub fn kv_tokens(&self, shape: RequestShape, now: Millis) -> u64 {
        let (prefill_time, decode_time) = (self.speed.prefill_time(shape), self.speed.decode_time(shape));
        let of = |served: &RunningRequest| {
            let spent = now.saturating_sub(served.began);
            let prompt = part(shape.input, spent, prefill_time);
            prompt + part(shape.output, spent.saturating_sub(prefill_time), decode_time)
        };
        self.running_requests.values().map(of).sum()
    }
}

/// Part of `whole` that is done after `spent` of `all`.
fn part(whole: u32, spent: Millis, all: Millis) -> u64 {
    if spent >= all { u64::from(whole) } else { u64::from(whole) * spent / all }
}
