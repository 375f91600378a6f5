//! Converts observed pods into the input of the engines, and records capacities derived from engine arguments.

use super::group::Group;
use crate::variant::factor::{Explanation, Factor, FactorCode, FactorSubject};
use crate::variant::limits::enforce::DEFAULT_COST;
use crate::variant::saturation::engine_args::EngineArgs;
use crate::variant::saturation::tokens::capacity::{Lengths, Memory, Origin, Record};
use crate::variant::saturation::{shares, tokens};
use crate::variant::snapshot::{ObservedVariant, PodMetrics};

/// Expects pods with all values.
pub fn by_share(pods: &[(&ObservedVariant, &PodMetrics)]) -> Vec<shares::Replica> {
    let replica = |(owner, pod): &(&ObservedVariant, &PodMetrics)| shares::Replica {
        pod: pod.name.to_string(),
        variant: owner.key.name.clone(),
        kv: pod.kv.unwrap_or_default(),
        queue: pod.queue.unwrap_or_default(),
        cost: owner.cost().unwrap_or(DEFAULT_COST),
    };
    pods.iter().map(replica).collect()
}

/// Distributes requests that wait at the endpoint picker over the replicas, where they would wait otherwise.
#[expect(clippy::cast_precision_loss, reason = "no fleet has so many pods")]
pub fn share_out(replicas: &mut [shares::Replica], waiting: f64) {
    let each = waiting / replicas.len() as f64;
    for replica in replicas.iter_mut().filter(|_| waiting.is_finite() && waiting > 0.0) {
        replica.queue += each;
    }
}

/// A pod with queued requests of unknown length, because none completed recently. A saturated pod looks exactly like
/// this. The length is estimated from other pods or earlier values; the estimate may add replicas but never removes
/// any.
pub struct Guessed {
    /// The variant of the pod. The pod is not named, because under load it changes with every reconcile.
    pub variant: String,
}

/// Fails if the capacity of a pod is unknown.
pub fn by_token(
    group: &Group<'_>,
    pods: &[(&ObservedVariant, &PodMetrics)],
    memory: &mut Memory,
) -> Result<(Vec<tokens::Replica>, Option<Guessed>), Explanation> {
    let usual = usual(group, pods, memory);
    let unweighed = |pod: &PodMetrics| pod.queue > Some(0.0) && valid(pod.input).is_none();
    let replica = |(owner, pod): &(&ObservedVariant, &PodMetrics)| {
        let key = Memory::key(group.namespace, group.model, &owner.key.name);
        let measured = || memory.records.get(&key).filter(|record| record.origin == Origin::Live);
        let known = pod.total_kv.filter(|total| *total > 0);
        let known = known.or_else(|| measured().map(|record| record.total_kv).filter(|total| *total > 0));
        let total_kv = known.ok_or_else(|| {
            let factor = Factor::about(FactorCode::PodCapacityUnknown, FactorSubject::Pod(pod.name.to_string()));
            Explanation::of(factor, format!("the KV cache size of pod {} is unknown", pod.name))
        })?;
        let queue = whole(pod.queue.unwrap_or_default());
        let guess = usual.filter(|_| unweighed(pod));
        Ok(tokens::Replica {
            pod: pod.name.to_string(),
            variant: owner.key.name.clone(),
            accelerator: owner.accelerator(),
            cost: owner.cost().unwrap_or(DEFAULT_COST),
            tokens_in_use: in_use(pod.kv.unwrap_or_default(), total_kv),
            total_kv,
            queue,
            input: valid(pod.input).or(guess.map(|usual| usual.input)).unwrap_or_default(),
            output: valid(pod.output).or(guess.map(|usual| usual.output)).unwrap_or_default(),
            hit_rate: valid(pod.hit_rate).filter(|rate| *rate <= 1.0).unwrap_or_default(),
        })
    };
    let replicas = pods.iter().map(replica).collect::<Result<Vec<_>, Explanation>>()?;
    let guessed = pods.iter().filter(|(_, pod)| unweighed(pod)).map(|(owner, _)| owner.key.name.clone()).min();
    Ok((replicas, guessed.map(|variant| Guessed { variant })))
}

/// Average request length of the model over pods with completed requests, or else the last known value.
fn usual(group: &Group<'_>, pods: &[(&ObservedVariant, &PodMetrics)], memory: &mut Memory) -> Option<Lengths> {
    let lengths = pods.iter().filter_map(|(_, pod)| {
        Some((valid(pod.input).filter(|input| *input > 0.0)?, valid(pod.output).unwrap_or_default()))
    });
    let lengths: Vec<(f64, f64)> = lengths.collect();
    let key = Memory::key(group.namespace, group.model, "");
    let Some(count) = u32::try_from(lengths.len()).ok().filter(|count| *count > 0).map(f64::from) else {
        return memory.lengths.get(&key).copied();
    };
    let mean = |value: fn(&(f64, f64)) -> f64| lengths.iter().map(value).sum::<f64>() / count;
    let usual = Lengths { input: mean(|one| one.0), output: mean(|one| one.1), at: group.seen.now };
    memory.lengths.insert(key, usual);
    Some(usual)
}

/// The value, if it can be a count or a share.
pub fn valid(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite() && *value >= 0.0)
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn in_use(kv: f64, total_kv: i64) -> i64 {
    whole((kv * total_kv as f64).round()).clamp(0, total_kv.max(0))
}

#[expect(clippy::cast_possible_truncation, reason = "truncation is intended; NaN becomes 0")]
fn whole(value: f64) -> i64 {
    value as i64
}

/// Records engine arguments for variants without measured pods. Changed arguments invalidate earlier measurements.
pub fn learn(group: &Group<'_>, memory: &mut Memory) {
    for variant in group.variants {
        let Some(target) = variant.target.known().and_then(Option::as_ref) else { continue };
        if target.containers.is_empty() {
            continue;
        }
        let args = EngineArgs::read(&target.containers);
        let key = Memory::key(group.namespace, group.model, &variant.key.name);
        let known = memory.records.get_mut(&key);
        match known {
            Some(record) if record.args.as_ref() == Some(&args) => record.at = group.seen.now,
            Some(record) if record.args.is_none() => record.args = Some(args),
            _ => {
                let record = Record {
                    model: group.model.to_owned(),
                    accelerator: variant.accelerator(),
                    gpus: variant.gpus(),
                    origin: Origin::Deployment,
                    total_kv: args.num_gpu_blocks_override.saturating_mul(args.block_size),
                    effective: args.effective_batched_tokens,
                    args: Some(args),
                    at: group.seen.now,
                };
                memory.records.insert(key, record);
            }
        }
    }
}
