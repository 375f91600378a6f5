//! The second saturation engine: compares tokens in use with the token capacity of the pods.

pub mod capacity;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use self::capacity::{Memory, Origin, Record};
use super::VariantState;
use super::engine_args::EngineArgs;
use crate::variant::config::thresholds::Thresholds;

/// Average size of a token in a request.
const BYTES_PER_TOKEN: f64 = 4.0;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Replica {
    pub pod: String,
    pub variant: String,
    pub accelerator: String,
    pub cost: f64,
    pub tokens_in_use: i64,
    /// KV cache capacity in tokens; 0 if unknown.
    pub total_kv: i64,
    pub queue: i64,
    /// Averages per request; 0 if there was no request.
    pub input: f64,
    pub output: f64,
    /// Share of the input that is found in the prefix cache.
    pub hit_rate: f64,
}

/// Requests that wait at the endpoint picker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SchedulerQueue {
    pub requests: f64,
    pub bytes: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Model<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub now: Timestamp,
    pub thresholds: &'a Thresholds,
    pub queue: Option<SchedulerQueue>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Analysis {
    pub variants: Vec<VariantCapacity>,
    pub supply: f64,
    /// Supply including starting replicas.
    pub anticipated: f64,
    pub demand: f64,
    pub required: f64,
    /// The ready replicas do not suffice. Starting replicas are ignored.
    pub short: bool,
    pub spare: f64,
    pub utilization: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VariantCapacity {
    pub variant: String,
    pub accelerator: String,
    pub cost: f64,
    pub ready: i32,
    pub pending: i32,
    /// Tokens per replica.
    pub capacity: f64,
    pub total: f64,
    pub demand: f64,
    pub utilization: f64,
}

/// Averages over pods with requests.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    input: f64,
    output: f64,
    hit_rate: f64,
}

pub fn analyze(model: &Model<'_>, replicas: &[Replica], states: &[VariantState], memory: &mut Memory) -> Analysis {
    let mut replicas: Vec<&Replica> = replicas.iter().collect();
    let history = |replica: &Replica| {
        let state = states.iter().find(|state| state.variant == replica.variant);
        history_key(model, replica, state.map_or(1, |state| state.gpus))
    };
    replicas.sort_by(|a, b| a.pod.cmp(&b.pod));
    // Observations are recorded before any capacity is computed, so that the order of the pods does not matter.
    for replica in replicas.iter().filter(|replica| full(model, replica)) {
        memory.observe(&history(replica), replica.tokens_in_use, model.now);
    }
    // A pod with a short queue is nearly full, so it does not refute anything.
    for replica in replicas.iter().filter(|replica| replica.queue == 0) {
        memory.refute(&history(replica), replica.tokens_in_use);
    }
    let mut capacities: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    let mut demands: BTreeMap<&str, f64> = BTreeMap::new();
    for replica in replicas.iter().filter(|replica| replica.total_kv > 0) {
        let memory_bound = scaled(replica.total_kv, model.thresholds.kv_cache);
        let effective = memory_bound.min(compute_bound(model, replica, &history(replica), memory_bound, memory));
        capacities.entry(&replica.variant).or_default().push(effective);
        *demands.entry(&replica.variant).or_default() += demand(replica);
    }
    for state in states {
        let own = replicas.iter().filter(|replica| replica.variant == state.variant && replica.total_kv > 0);
        if let Some((effective, total_kv)) =
            capacities.get(state.variant.as_str()).map(|all| median(all)).zip(own.map(|replica| replica.total_kv).max())
        {
            remember(model, state, &replicas, effective, total_kv, memory);
        }
    }
    let load = load(&replicas);
    let mut analysis = Analysis::default();
    for state in states {
        let pod = replicas.iter().find(|replica| replica.variant == state.variant);
        let measured = capacities.get(state.variant.as_str()).map(|all| median(all));
        let capacity = float(measured.unwrap_or_else(|| stored(model, state, load, memory)));
        let total = f64::from(state.ready()) * capacity;
        let demand = demands.get(state.variant.as_str()).copied().unwrap_or_default();
        analysis.supply += total;
        let coming = if state.stuck { 0 } else { state.pending };
        analysis.anticipated += f64::from(state.ready().saturating_add(coming)) * capacity;
        analysis.demand += demand;
        analysis.variants.push(VariantCapacity {
            variant: state.variant.clone(),
            accelerator: pod.map_or_else(|| state.accelerator.clone(), |pod| pod.accelerator.clone()),
            cost: pod.map_or(state.cost, |pod| pod.cost),
            ready: state.ready(),
            pending: state.pending,
            capacity,
            total,
            demand,
            utilization: ratio(demand, total),
        });
    }
    analysis.demand += model.queue.map_or(0.0, |queue| queued(queue, load));
    analysis.utilization = ratio(analysis.demand, analysis.supply);
    analysis.required = over(analysis.demand, model.thresholds.scale_up, analysis.anticipated);
    analysis.short = over(analysis.demand, model.thresholds.scale_up, analysis.supply) > 0.0;
    analysis.spare = (analysis.supply - analysis.demand / model.thresholds.scale_down).max(0.0);
    analysis
}

fn over(demand: f64, threshold: f64, anticipated: f64) -> f64 {
    (demand / threshold - anticipated).max(0.0)
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn demand(replica: &Replica) -> f64 {
    let waiting = if replica.input > 0.0 { replica.queue.saturating_mul(truncated(replica.input)) } else { 0 };
    float(replica.tokens_in_use.saturating_add(waiting))
}

fn queued(queue: SchedulerQueue, load: Load) -> f64 {
    let input = (queue.bytes / BYTES_PER_TOKEN).max(queue.requests * load.input);
    input * (1.0 - load.hit_rate) + queue.requests * load.output
}

fn load(replicas: &[&Replica]) -> Load {
    let busy: Vec<&&Replica> = replicas.iter().filter(|replica| replica.input > 0.0 || replica.output > 0.0).collect();
    let Ok(count) = u32::try_from(busy.len()) else { return Load::default() };
    let mean = |value: fn(&Replica) -> f64| match count {
        0 => 0.0,
        count => busy.iter().map(|replica| value(replica)).sum::<f64>() / f64::from(count),
    };
    Load { input: mean(|pod| pod.input), output: mean(|pod| pod.output), hit_rate: mean(|pod| pod.hit_rate) }
}

/// The tokens in use of a pod with a long queue are its capacity.
fn full(model: &Model<'_>, replica: &Replica) -> bool {
    let queue = replica.queue >= truncated(model.thresholds.queue_length);
    queue && replica.tokens_in_use > 0 && replica.total_kv > 0
}

fn compute_bound(model: &Model<'_>, replica: &Replica, key: &str, memory_bound: i64, memory: &Memory) -> i64 {
    if full(model, replica) {
        return replica.tokens_in_use;
    }
    let from_args = |memory: &Memory| {
        let record = memory.records.get(&Memory::key(model.namespace, model.name, &replica.variant))?;
        Some(derived(record.args.as_ref()?, replica.input, replica.output)).filter(|tokens| *tokens > 0)
    };
    memory.average(key).or_else(|| from_args(memory)).unwrap_or(memory_bound)
}

fn history_key(model: &Model<'_>, replica: &Replica, gpus: i32) -> String {
    let length = match replica.output {
        output if output < 100.0 => "short",
        output if output < 500.0 => "medium",
        _ => "long",
    };
    // Another namespace may run the same model with other settings, and a replica with more GPUs has more capacity.
    format!("{}|{}|{}|{length}|{gpus}", model.namespace, model.name, replica.accelerator)
}

/// Tokens in flight if as many requests run as fit into one scheduler step.
pub fn derived(args: &EngineArgs, input: f64, output: f64) -> i64 {
    if output <= 0.0 {
        return 0;
    }
    let running = (float(args.effective_batched_tokens) * output / (input + output)).min(float(args.max_num_seqs));
    truncated(running * (input + output / 2.0))
}

fn remember(
    model: &Model<'_>,
    state: &VariantState,
    replicas: &[&Replica],
    effective: i64,
    total_kv: i64,
    memory: &mut Memory,
) {
    let key = Memory::key(model.namespace, model.name, &state.variant);
    let args = memory.records.get(&key).and_then(|record| record.args.clone());
    let pod = replicas.iter().find(|replica| replica.variant == state.variant);
    let record = Record {
        model: model.name.to_owned(),
        accelerator: pod.map_or_else(|| state.accelerator.clone(), |pod| pod.accelerator.clone()),
        gpus: state.gpus,
        origin: Origin::Live,
        total_kv,
        effective,
        args,
        at: model.now,
    };
    memory.records.insert(key, record);
}

/// Capacity of a variant without measured pods.
fn stored(model: &Model<'_>, state: &VariantState, load: Load, memory: &Memory) -> i64 {
    let key = Memory::key(model.namespace, model.name, &state.variant);
    let Some(record) = memory.records.get(&key) else { return 0 };
    // Another namespace may run the same model with other settings.
    let like = memory.like(&key, &format!("{}|", model.namespace), record).filter(|like| like.origin == Origin::Live);
    if record.origin == Origin::Live {
        return record.effective;
    }
    let from_args = record.args.as_ref().map_or(0, |args| derived(args, load.input, load.output));
    if from_args > 0 {
        let own =
            Some(record.total_kv).filter(|total| *total > 0).map(|total| scaled(total, model.thresholds.kv_cache));
        let others = like.map(|like| like.effective);
        return own.into_iter().chain(others).fold(from_args, i64::min);
    }
    // Tokens per scheduler step are far fewer than a replica holds; as a capacity they would add replicas without end.
    like.map_or(0, |like| like.effective)
}

fn median(values: &[i64]) -> i64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (Some(value), 1) => *value,
        (Some(value), _) => sorted[middle - 1].midpoint(*value),
        (None, _) => 0,
    }
}

fn scaled(tokens: i64, share: f64) -> i64 {
    truncated(float(tokens) * share)
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn float(tokens: i64) -> f64 {
    tokens as f64
}

/// NaN becomes 0, and large values saturate.
#[expect(clippy::cast_possible_truncation, reason = "truncation is intended")]
fn truncated(value: f64) -> i64 {
    value as i64
}
