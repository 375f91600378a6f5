//! The token engine: compares tokens in use with the token capacity of the pods, and adds all missing capacity at once.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use steersman_reconcile::Lookup;

use super::engine_args::EngineArgs;
use super::{MeasuredPod, Recommendation, queue_unknown, valid};
use crate::variant::config::thresholds::Thresholds;
use crate::variant::memory::{CapacityOrigin, CapacityRecord, Memory, RequestLengths};
use crate::variant::optimize::cost_aware;
use crate::variant::progress::VariantState;
use crate::variant::snapshot::{ObservedModel, PodMetrics, SchedulerQueue};
use crate::variant::trace::{Explanation, Factor, FactorCode, FactorSubject};

/// Average size of a token in a request.
const BYTES_PER_TOKEN: f64 = 4.0;

/// A measured pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PodTokens {
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

/// The model that is analyzed, and its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenContext<'a> {
    pub namespace: &'a str,
    pub model: &'a str,
    pub now: Timestamp,
    pub thresholds: &'a Thresholds,
    pub queue: Option<SchedulerQueue>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TokenAnalysis {
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

pub fn analyze(
    context: &TokenContext<'_>,
    replicas: &[PodTokens],
    states: &[VariantState],
    memory: &mut Memory,
) -> TokenAnalysis {
    let mut replicas: Vec<&PodTokens> = replicas.iter().collect();
    let history = |replica: &PodTokens| {
        let state = states.iter().find(|state| state.variant == replica.variant);
        history_key(context, replica, state.map_or(1, |state| state.gpus))
    };
    replicas.sort_by(|a, b| a.pod.cmp(&b.pod));
    // Observations are recorded before any capacity is computed, so that the order of the pods does not matter.
    for replica in replicas.iter().filter(|replica| full(context, replica)) {
        memory.observe(&history(replica), replica.tokens_in_use, context.now);
    }
    // A pod with a short queue is nearly full, so it does not refute anything.
    for replica in replicas.iter().filter(|replica| replica.queue == 0) {
        memory.refute(&history(replica), replica.tokens_in_use);
    }
    let mut capacities: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    let mut demands: BTreeMap<&str, f64> = BTreeMap::new();
    for replica in replicas.iter().filter(|replica| replica.total_kv > 0) {
        let memory_bound = scaled(replica.total_kv, context.thresholds.kv_cache);
        let effective = memory_bound.min(compute_bound(context, replica, &history(replica), memory_bound, memory));
        capacities.entry(&replica.variant).or_default().push(effective);
        *demands.entry(&replica.variant).or_default() += demand(replica);
    }
    for state in states {
        let own = replicas.iter().filter(|replica| replica.variant == state.variant && replica.total_kv > 0);
        if let Some((effective, total_kv)) =
            capacities.get(state.variant.as_str()).map(|all| median(all)).zip(own.map(|replica| replica.total_kv).max())
        {
            remember(context, state, &replicas, effective, total_kv, memory);
        }
    }
    let load = load(&replicas);
    let mut analysis = TokenAnalysis::default();
    for state in states {
        let pod = replicas.iter().find(|replica| replica.variant == state.variant);
        let measured = capacities.get(state.variant.as_str()).map(|all| median(all));
        let capacity = float(measured.unwrap_or_else(|| stored(context, state, load, memory)));
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
    analysis.demand += context.queue.map_or(0.0, |queue| queued(queue, load));
    analysis.utilization = ratio(analysis.demand, analysis.supply);
    analysis.required = over(analysis.demand, context.thresholds.scale_up, analysis.anticipated);
    analysis.short = over(analysis.demand, context.thresholds.scale_up, analysis.supply) > 0.0;
    analysis.spare = (analysis.supply - analysis.demand / context.thresholds.scale_down).max(0.0);
    analysis
}

fn over(demand: f64, threshold: f64, anticipated: f64) -> f64 {
    (demand / threshold - anticipated).max(0.0)
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn demand(replica: &PodTokens) -> f64 {
    let waiting = if replica.input > 0.0 { replica.queue.saturating_mul(truncated(replica.input)) } else { 0 };
    float(replica.tokens_in_use.saturating_add(waiting))
}

fn queued(queue: SchedulerQueue, load: Load) -> f64 {
    let input = (queue.bytes / BYTES_PER_TOKEN).max(queue.requests * load.input);
    input * (1.0 - load.hit_rate) + queue.requests * load.output
}

fn load(replicas: &[&PodTokens]) -> Load {
    let busy: Vec<&&PodTokens> =
        replicas.iter().filter(|replica| replica.input > 0.0 || replica.output > 0.0).collect();
    let Ok(count) = u32::try_from(busy.len()) else { return Load::default() };
    let mean = |value: fn(&PodTokens) -> f64| match count {
        0 => 0.0,
        count => busy.iter().map(|replica| value(replica)).sum::<f64>() / f64::from(count),
    };
    Load { input: mean(|pod| pod.input), output: mean(|pod| pod.output), hit_rate: mean(|pod| pod.hit_rate) }
}

/// The tokens in use of a pod with a long queue are its capacity.
fn full(context: &TokenContext<'_>, replica: &PodTokens) -> bool {
    let queue = replica.queue >= truncated(context.thresholds.queue_length);
    queue && replica.tokens_in_use > 0 && replica.total_kv > 0
}

fn compute_bound(
    context: &TokenContext<'_>,
    replica: &PodTokens,
    key: &str,
    memory_bound: i64,
    memory: &Memory,
) -> i64 {
    if full(context, replica) {
        return replica.tokens_in_use;
    }
    let from_args = |memory: &Memory| {
        let record = memory.records.get(&Memory::key(context.namespace, context.model, &replica.variant))?;
        Some(derived(record.args.as_ref()?, replica.input, replica.output)).filter(|tokens| *tokens > 0)
    };
    memory.average(key).or_else(|| from_args(memory)).unwrap_or(memory_bound)
}

fn history_key(context: &TokenContext<'_>, replica: &PodTokens, gpus: i32) -> String {
    let length = match replica.output {
        output if output < 100.0 => "short",
        output if output < 500.0 => "medium",
        _ => "long",
    };
    // Another namespace may run the same model with other settings, and a replica with more GPUs has more capacity.
    format!("{}|{}|{}|{length}|{gpus}", context.namespace, context.model, replica.accelerator)
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
    context: &TokenContext<'_>,
    state: &VariantState,
    replicas: &[&PodTokens],
    effective: i64,
    total_kv: i64,
    memory: &mut Memory,
) {
    let key = Memory::key(context.namespace, context.model, &state.variant);
    let args = memory.records.get(&key).and_then(|record| record.args.clone());
    let pod = replicas.iter().find(|replica| replica.variant == state.variant);
    let record = CapacityRecord {
        model: context.model.to_owned(),
        accelerator: pod.map_or_else(|| state.accelerator.clone(), |pod| pod.accelerator.clone()),
        gpus: state.gpus,
        origin: CapacityOrigin::Live,
        total_kv,
        effective,
        args,
        at: context.now,
    };
    memory.records.insert(key, record);
}

/// Capacity of a variant without measured pods.
fn stored(context: &TokenContext<'_>, state: &VariantState, load: Load, memory: &Memory) -> i64 {
    let key = Memory::key(context.namespace, context.model, &state.variant);
    let Some(record) = memory.records.get(&key) else { return 0 };
    // Another namespace may run the same model with other settings.
    let like = memory
        .similar_record(&key, &format!("{}|", context.namespace), record)
        .filter(|like| like.origin == CapacityOrigin::Live);
    if record.origin == CapacityOrigin::Live {
        return record.effective;
    }
    let from_args = record.args.as_ref().map_or(0, |args| derived(args, load.input, load.output));
    if from_args > 0 {
        let own =
            Some(record.total_kv).filter(|total| *total > 0).map(|total| scaled(total, context.thresholds.kv_cache));
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

/// Fails if a value is unknown without which nothing can be decided.
pub fn recommend(
    model: &ObservedModel<'_>,
    thresholds: &Thresholds,
    pods: &[MeasuredPod<'_>],
    states: &[VariantState],
    memory: &mut Memory,
) -> Result<Recommendation, Explanation> {
    let queue = match model.metrics.map(|metrics| &metrics.queue) {
        Some(Lookup::Known(queue)) => *queue,
        Some(Lookup::Unknown(why)) => return Err(queue_unknown(why)),
        None => None,
    };
    let replicas = pod_tokens(model, pods, memory)?;
    let (namespace, now) = (model.namespace, model.snapshot.now);
    let context = TokenContext { namespace, model: model.name, now, thresholds, queue };
    let analysis = analyze(&context, &replicas, states, memory);
    let mut recommendation = cost_aware::recommend(&analysis, states);
    // The pod is not named, because under load it changes with every reconcile.
    let estimated = pods.iter().filter(|(_, pod)| has_unknown_lengths(pod)).map(|(owner, _)| &owner.key.name).min();
    if let Some(variant) = estimated {
        let text = format!(
            "a pod of variant {variant} has queued requests but none completed in the last 5 minutes, so their length is unknown"
        );
        let factor = Factor::about(FactorCode::RequestLengthUnknown, FactorSubject::Variant(variant.clone()));
        recommendation.block_scale_down(model, Explanation::of(factor, text));
    }
    Ok(recommendation)
}

/// Whether a pod has queued requests of unknown length, because none completed recently. A saturated pod looks exactly
/// like this. The length is estimated from other pods or earlier values; the estimate may add replicas but never
/// removes any.
fn has_unknown_lengths(pod: &PodMetrics) -> bool {
    pod.queue > Some(0.0) && valid(pod.input).is_none()
}

/// Fails if the capacity of a pod is unknown.
fn pod_tokens(
    model: &ObservedModel<'_>,
    pods: &[MeasuredPod<'_>],
    memory: &mut Memory,
) -> Result<Vec<PodTokens>, Explanation> {
    let usual = usual_lengths(model, pods, memory);
    let replica = |(owner, pod): &MeasuredPod<'_>| {
        let measured =
            || memory.records.get(&owner.memory_key()).filter(|record| record.origin == CapacityOrigin::Live);
        let known = pod.total_kv.filter(|total| *total > 0);
        let known = known.or_else(|| measured().map(|record| record.total_kv).filter(|total| *total > 0));
        let total_kv = known.ok_or_else(|| {
            let factor = Factor::about(FactorCode::PodCapacityUnknown, FactorSubject::Pod(pod.name.to_string()));
            Explanation::of(factor, format!("the KV cache size of pod {} is unknown", pod.name))
        })?;
        let estimate = usual.filter(|_| has_unknown_lengths(pod));
        Ok(PodTokens {
            pod: pod.name.to_string(),
            variant: owner.key.name.clone(),
            accelerator: owner.accelerator(),
            cost: owner.cost(&model.snapshot.config.costs),
            tokens_in_use: tokens_in_use(pod.kv.unwrap_or_default(), total_kv),
            total_kv,
            queue: truncated(pod.queue.unwrap_or_default()),
            input: valid(pod.input).or(estimate.map(|usual| usual.input)).unwrap_or_default(),
            output: valid(pod.output).or(estimate.map(|usual| usual.output)).unwrap_or_default(),
            hit_rate: valid(pod.hit_rate).filter(|rate| *rate <= 1.0).unwrap_or_default(),
        })
    };
    pods.iter().map(replica).collect()
}

/// Average request length of the model over pods with completed requests, or else the last known value.
pub(super) fn usual_lengths(
    model: &ObservedModel<'_>,
    pods: &[MeasuredPod<'_>],
    memory: &mut Memory,
) -> Option<RequestLengths> {
    let lengths = pods.iter().filter_map(|(_, pod)| {
        Some((valid(pod.input).filter(|input| *input > 0.0)?, valid(pod.output).unwrap_or_default()))
    });
    let lengths: Vec<(f64, f64)> = lengths.collect();
    let key = Memory::key(model.namespace, model.name, "");
    let Some(count) = u32::try_from(lengths.len()).ok().filter(|count| *count > 0).map(f64::from) else {
        return memory.lengths.get(&key).copied();
    };
    let mean = |value: fn(&(f64, f64)) -> f64| lengths.iter().map(value).sum::<f64>() / count;
    let usual = RequestLengths { input: mean(|one| one.0), output: mean(|one| one.1), at: model.snapshot.now };
    memory.lengths.insert(key, usual);
    Some(usual)
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn tokens_in_use(kv: f64, total_kv: i64) -> i64 {
    truncated((kv * total_kv as f64).round()).clamp(0, total_kv.max(0))
}

/// Records engine arguments for variants without measured pods. Changed arguments invalidate earlier measurements.
pub fn record_engine_args(model: &ObservedModel<'_>, memory: &mut Memory) {
    for variant in model.variants {
        let Some(target) = variant.scale_target().filter(|target| !target.containers.is_empty()) else { continue };
        let args = EngineArgs::read(&target.containers);
        let key = variant.memory_key();
        match memory.records.get_mut(&key) {
            Some(record) if record.args.as_ref() == Some(&args) => record.at = model.snapshot.now,
            Some(record) if record.args.is_none() => record.args = Some(args),
            _ => {
                let record = CapacityRecord {
                    model: model.name.to_owned(),
                    accelerator: variant.accelerator(),
                    gpus: variant.gpus(),
                    origin: CapacityOrigin::Deployment,
                    total_kv: args.num_gpu_blocks_override.saturating_mul(args.block_size),
                    effective: args.effective_batched_tokens,
                    args: Some(args),
                    at: model.snapshot.now,
                };
                memory.records.insert(key, record);
            }
        }
    }
}
