//! The token-based saturation engine and the parsing of vLLM arguments.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use steersman_plan::variant::SchedulerQueue;
use steersman_plan::variant::analyze::engine_args::{Container, EngineArgs};
use steersman_plan::variant::analyze::saturation_tokens::{
    PodTokens, TokenAnalysis, TokenContext, VariantCapacity, analyze, derived,
};
use steersman_plan::variant::config::thresholds::Thresholds;
use steersman_plan::variant::memory::{CapacityOrigin, CapacityRecord, Memory};
use steersman_plan::variant::progress::VariantState;

use crate::file::{Difference, assert_known_differences, load_vectors, nearly_equal};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenVectors {
    cases: Vec<TokenCase>,
    #[serde(default)]
    estimate_capacity_from_params: Vec<Estimate>,
}

#[derive(Deserialize)]
struct TokenCase {
    name: String,
    steps: Vec<Step>,
    store: Option<Vec<StoredCapacity>>,
}

#[derive(Deserialize)]
struct Step {
    input: Input,
    expected: Expected,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Input {
    reps: Option<Vec<PodMetrics>>,
    states: Vec<WorkloadState>,
    queue: Option<Queue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PodMetrics {
    pod: String,
    variant: String,
    acc: String,
    cost: f64,
    tokens_in_use: i64,
    total_kv: i64,
    queue: i64,
    avg_in: f64,
    avg_out: f64,
    hit_rate: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WorkloadState {
    variant: String,
    current: i32,
    pending: i32,
    #[serde(rename = "GPU")]
    gpu: i32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Queue {
    queue_size: f64,
    queue_bytes: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StoredCapacity {
    variant: String,
    acc: String,
    from: CapacityOrigin,
    #[serde(rename = "GPU")]
    gpu: i32,
    total_kv: i64,
    effective: i64,
    params: Params,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Params {
    gpu_memory_utilization: f64,
    block_size: i64,
    kv_cache_dtype: String,
    tensor_parallel_size: i64,
    num_gpu_blocks_override: i64,
    max_num_batched_tokens: i64,
    max_num_seqs: i64,
    max_model_len: i64,
    enforce_eager: bool,
    #[serde(rename = "IsV1Engine")]
    v1: bool,
    chunked_prefill_enabled: bool,
    effective_max_batched_tokens: i64,
}

impl From<Params> for EngineArgs {
    fn from(source: Params) -> Self {
        Self {
            gpu_memory_utilization: source.gpu_memory_utilization,
            block_size: source.block_size,
            kv_cache_dtype: source.kv_cache_dtype,
            tensor_parallel_size: source.tensor_parallel_size,
            num_gpu_blocks_override: source.num_gpu_blocks_override,
            max_num_batched_tokens: source.max_num_batched_tokens,
            max_num_seqs: source.max_num_seqs,
            max_model_len: source.max_model_len,
            enforce_eager: source.enforce_eager,
            v1: source.v1,
            chunked_prefill: source.chunked_prefill_enabled,
            effective_batched_tokens: source.effective_max_batched_tokens,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expected {
    history_averages: BTreeMap<String, i64>,
    required_capacity: f64,
    spare_capacity: f64,
    total_demand: f64,
    total_supply: f64,
    utilization: f64,
    variants: Vec<Variant>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Variant {
    variant: String,
    accelerator: String,
    cost: f64,
    pending: i32,
    replica_count: i32,
    per_replica_capacity: f64,
    total_capacity: f64,
    total_demand: f64,
    utilization: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Estimate {
    avg_input: f64,
    avg_output: f64,
    capacity: i64,
    max_batched_tokens: i64,
    max_num_seqs: i64,
}

const KNOWN_DIFFERENCES: [(&str, &str); 1] =
    [("zero-replica-no-workload", "the tokens of one step are not the capacity of a replica")];

fn memory_from(capacities: Vec<StoredCapacity>) -> Memory {
    let records = capacities.into_iter().map(|source| {
        let record = CapacityRecord {
            model: "m".into(),
            accelerator: source.acc,
            gpus: source.gpu,
            origin: source.from,
            total_kv: source.total_kv,
            effective: source.effective,
            args: Some(source.params.into()),
            at: Timestamp::UNIX_EPOCH,
        };
        (Memory::key("ns", "m", &source.variant), record)
    });
    Memory { records: records.collect(), ..Memory::default() }
}

/// The quantities that differ from the recorded ones.
fn differing_quantities(analysis: &TokenAnalysis, expected: &Expected) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |place: &str, quantity: &str, value: f64, expected_value: f64| {
        if !nearly_equal(value, expected_value) {
            found.push(format!("{quantity} of {place} is {value}, not {expected_value}"));
        }
    };
    compare("the model", "required", analysis.required, expected.required_capacity);
    compare("the model", "spare", analysis.spare, expected.spare_capacity);
    compare("the model", "demand", analysis.demand, expected.total_demand);
    compare("the model", "supply", analysis.supply, expected.total_supply);
    compare("the model", "utilization", analysis.utilization, expected.utilization);
    for (variant, expected_variant) in analysis.variants.iter().zip(&expected.variants) {
        let place = &variant.variant;
        compare(place, "cost", variant.cost, expected_variant.cost);
        compare(place, "capacity", variant.capacity, expected_variant.per_replica_capacity);
        compare(place, "total", variant.total, expected_variant.total_capacity);
        compare(place, "demand", variant.demand, expected_variant.total_demand);
        compare(place, "utilization", variant.utilization, expected_variant.utilization);
    }
    let identity = |variant: &VariantCapacity| {
        (variant.variant.clone(), variant.accelerator.clone(), variant.ready, variant.pending)
    };
    let expected_identity = |variant: &Variant| {
        (variant.variant.clone(), variant.accelerator.clone(), variant.replica_count, variant.pending)
    };
    if !analysis.variants.iter().map(identity).eq(expected.variants.iter().map(expected_identity)) {
        found.push(format!("variants are {:?}", analysis.variants));
    }
    found
}

#[test]
fn token_engine_matches_upstream() {
    let Some(file) = load_vectors::<TokenVectors>("saturation-v2.json") else { return };
    let thresholds = Thresholds::default();
    let mut differences = Vec::new();
    for TokenCase { name, steps, store } in file.cases {
        let mut memory = memory_from(store.unwrap_or_default());
        for Step { input, expected } in steps {
            let pods = input.reps.unwrap_or_default().into_iter().map(|source| PodTokens {
                pod: source.pod,
                variant: source.variant,
                accelerator: source.acc,
                cost: source.cost,
                tokens_in_use: source.tokens_in_use,
                total_kv: source.total_kv,
                queue: source.queue,
                input: source.avg_in,
                output: source.avg_out,
                hit_rate: source.hit_rate,
            });
            let pods: Vec<PodTokens> = pods.collect();
            let states = input.states.into_iter().map(|WorkloadState { variant, current, pending, gpu }| {
                VariantState { variant, current, pending, gpus: gpu, ..VariantState::default() }
            });
            let states: Vec<VariantState> = states.collect();
            let queue =
                input.queue.map(|queue| SchedulerQueue { requests: queue.queue_size, bytes: queue.queue_bytes });
            let context = TokenContext {
                namespace: "ns",
                model: "m",
                now: Timestamp::UNIX_EPOCH,
                thresholds: &thresholds,
                queue,
            };
            let analysis = analyze(&context, &pods, &states, &mut memory);
            let averages = memory.history.keys().map(|key| (key.clone(), memory.average(key)));
            // Namespace and GPUs per replica are part of our keys only.
            let expected_averages =
                expected.history_averages.iter().map(|(key, average)| (format!("ns|{key}|1"), Some(*average)));
            assert!(averages.eq(expected_averages), "{name}: {:?}", memory.history);
            let differing_quantities = differing_quantities(&analysis, &expected);
            if !differing_quantities.is_empty() {
                differences.push(Difference { case: name.clone(), detail: differing_quantities.join(", ") });
            }
        }
    }
    assert_known_differences(&KNOWN_DIFFERENCES, &differences);
    for Estimate { avg_input, avg_output, capacity, max_batched_tokens, max_num_seqs } in
        file.estimate_capacity_from_params
    {
        let args = EngineArgs { effective_batched_tokens: max_batched_tokens, max_num_seqs, ..EngineArgs::default() };
        assert_eq!(derived(&args, avg_input, avg_output), capacity);
    }
}

#[derive(Deserialize)]
struct ArgumentVectors {
    cases: Vec<ArgumentCase>,
}

#[derive(Deserialize)]
struct ArgumentCase {
    name: String,
    command: Option<Vec<String>>,
    args: Option<Vec<String>>,
    env: Option<BTreeMap<String, String>>,
    expected: Params,
}

#[test]
fn server_arguments_are_parsed_like_upstream() {
    let Some(file) = load_vectors::<ArgumentVectors>("vllm-args.json") else { return };
    for ArgumentCase { name, command, args, env, expected } in file.cases {
        let container = Container {
            command: command.unwrap_or_default(),
            args: args.unwrap_or_default(),
            env: env.unwrap_or_default(),
        };
        assert_eq!(EngineArgs::read(&[container]), expected.into(), "{name}");
    }
}
