//! The token engine, and the reading of vLLM's arguments.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use steersman_plan::variant::Mode;
use steersman_plan::variant::config::thresholds::Thresholds;
use steersman_plan::variant::saturation::VariantState;
use steersman_plan::variant::saturation::engine_args::{Container, EngineArgs};
use steersman_plan::variant::saturation::tokens::capacity::{Memory, Origin, Record};
use steersman_plan::variant::saturation::tokens::{Model, Replica, SchedulerQueue, analyze, derived};

use crate::file::{differ_only_in, near, vectors};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    cases: Vec<Case>,
    #[serde(default)]
    estimate_capacity_from_params: Vec<Estimate>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    steps: Vec<Step>,
    store: Option<Vec<Stored>>,
}

#[derive(Deserialize)]
struct Step {
    input: Input,
    expected: Expected,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Input {
    reps: Option<Vec<Pod>>,
    states: Vec<Workload>,
    queue: Option<Queue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Pod {
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
struct Workload {
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
struct Stored {
    variant: String,
    acc: String,
    from: Origin,
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
    fn from(given: Params) -> Self {
        Self {
            gpu_memory_utilization: given.gpu_memory_utilization,
            block_size: given.block_size,
            kv_cache_dtype: given.kv_cache_dtype,
            tensor_parallel_size: given.tensor_parallel_size,
            num_gpu_blocks_override: given.num_gpu_blocks_override,
            max_num_batched_tokens: given.max_num_batched_tokens,
            max_num_seqs: given.max_num_seqs,
            max_model_len: given.max_model_len,
            enforce_eager: given.enforce_eager,
            v1: given.v1,
            chunked_prefill: given.chunked_prefill_enabled,
            effective_batched_tokens: given.effective_max_batched_tokens,
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

const OTHERWISE: [(&str, &str); 1] =
    [("zero-replica-no-workload", "the tokens of one step are not what a replica holds")];

fn memory(stored: Vec<Stored>) -> Memory {
    let records = stored.into_iter().map(|given| {
        let record = Record {
            model: "m".into(),
            accelerator: given.acc,
            gpus: given.gpu,
            origin: given.from,
            total_kv: given.total_kv,
            effective: given.effective,
            args: Some(given.params.into()),
            at: Timestamp::UNIX_EPOCH,
        };
        (Memory::key("ns", "m", &given.variant), record)
    });
    Memory { records: records.collect(), ..Memory::default() }
}

#[test]
fn the_token_engine_answers_as_upstream() {
    let Some(file) = vectors::<File>("saturation-v2.json") else { return };
    let thresholds = Thresholds::default();
    let mut differ = Vec::new();
    for Case { name, steps, store } in file.cases {
        let mut upstream = memory(store.unwrap_or_default());
        let mut ours = upstream.clone();
        for Step { input, expected } in steps {
            let pods = input.reps.unwrap_or_default().into_iter().map(|given| Replica {
                pod: given.pod,
                variant: given.variant,
                accelerator: given.acc,
                cost: given.cost,
                tokens_in_use: given.tokens_in_use,
                total_kv: given.total_kv,
                queue: given.queue,
                input: given.avg_in,
                output: given.avg_out,
                hit_rate: given.hit_rate,
            });
            let pods: Vec<Replica> = pods.collect();
            let states = input.states.into_iter().map(|Workload { variant, current, pending, gpu }| VariantState {
                variant,
                current,
                pending,
                gpus: gpu,
                ..VariantState::default()
            });
            let states: Vec<VariantState> = states.collect();
            let queue =
                input.queue.map(|queue| SchedulerQueue { requests: queue.queue_size, bytes: queue.queue_bytes });
            let model = |mode| Model {
                namespace: "ns",
                name: "m",
                now: Timestamp::UNIX_EPOCH,
                mode,
                thresholds: &thresholds,
                queue,
            };
            let found = analyze(&model(Mode::Upstream), &pods, &states, &mut upstream);
            for (key, average) in &expected.history_averages {
                assert_eq!(upstream.average(key), Some(*average), "{name}: {key}");
            }
            assert_eq!(upstream.history.len(), expected.history_averages.len(), "{name}");
            for (what, value, wanted) in [
                ("required", found.required, expected.required_capacity),
                ("spare", found.spare, expected.spare_capacity),
                ("demand", found.demand, expected.total_demand),
                ("supply", found.supply, expected.total_supply),
                ("utilization", found.utilization, expected.utilization),
            ] {
                assert!(near(value, wanted), "{name}: {what} is {value}, not {wanted}");
            }
            assert_eq!(found.variants.len(), expected.variants.len(), "{name}");
            for (variant, wanted) in found.variants.iter().zip(&expected.variants) {
                assert_eq!(
                    (&variant.variant, &variant.accelerator, variant.ready, variant.pending),
                    (&wanted.variant, &wanted.accelerator, wanted.replica_count, wanted.pending),
                    "{name}"
                );
                for (what, value, wanted) in [
                    ("cost", variant.cost, wanted.cost),
                    ("capacity", variant.capacity, wanted.per_replica_capacity),
                    ("total", variant.total, wanted.total_capacity),
                    ("demand", variant.demand, wanted.total_demand),
                    ("utilization", variant.utilization, wanted.utilization),
                ] {
                    assert!(near(value, wanted), "{name}: {what} of {} is {value}, not {wanted}", variant.variant);
                }
            }
            if analyze(&model(Mode::Steersman), &pods, &states, &mut ours) != found {
                differ.push(name.clone());
            }
        }
    }
    differ_only_in(&OTHERWISE, &differ);
    for Estimate { avg_input, avg_output, capacity, max_batched_tokens, max_num_seqs } in
        file.estimate_capacity_from_params
    {
        let args = EngineArgs { effective_batched_tokens: max_batched_tokens, max_num_seqs, ..EngineArgs::default() };
        assert_eq!(derived(&args, avg_input, avg_output), capacity);
    }
}

#[derive(Deserialize)]
struct Arguments {
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
fn the_arguments_of_a_server_are_read_as_upstream_does() {
    let Some(file) = vectors::<Arguments>("vllm-args.json") else { return };
    for ArgumentCase { name, command, args, env, expected } in file.cases {
        let container = Container {
            command: command.unwrap_or_default(),
            args: args.unwrap_or_default(),
            env: env.unwrap_or_default(),
        };
        assert_eq!(EngineArgs::read(&[container]), expected.into(), "{name}");
    }
}
