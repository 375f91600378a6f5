//! Reads the settings that determine the capacity of a vLLM server from its containers, and fills in defaults.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A container of the workload's pod template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Container {
    pub command: Vec<String>,
    pub args: Vec<String>,
    /// Only variables with a literal value.
    pub env: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineArgs {
    pub gpu_memory_utilization: f64,
    pub block_size: i64,
    pub kv_cache_dtype: String,
    pub tensor_parallel_size: i64,
    /// 0 if not set.
    pub num_gpu_blocks_override: i64,
    pub max_num_batched_tokens: i64,
    pub max_num_seqs: i64,
    pub max_model_len: i64,
    pub enforce_eager: bool,
    /// The V1 engine, default since vLLM 0.8.
    pub v1: bool,
    pub chunked_prefill: bool,
    /// Tokens per scheduler step.
    pub effective_batched_tokens: i64,
}

impl Default for EngineArgs {
    fn default() -> Self {
        Self {
            gpu_memory_utilization: 0.9,
            block_size: 16,
            kv_cache_dtype: "auto".to_owned(),
            tensor_parallel_size: 1,
            num_gpu_blocks_override: 0,
            max_num_batched_tokens: 0,
            max_num_seqs: 256,
            max_model_len: 0,
            enforce_eager: false,
            v1: true,
            chunked_prefill: true,
            effective_batched_tokens: V1_TOKENS,
        }
    }
}

const V1_TOKENS: i64 = 8192;
const V0_TOKENS: i64 = 2048;

impl EngineArgs {
    /// Equal for servers of equal capacity on equal hardware.
    pub fn capacity_key(&self) -> String {
        let Self { gpu_memory_utilization, block_size, kv_cache_dtype, tensor_parallel_size, .. } = self;
        let Self { num_gpu_blocks_override, max_num_seqs, max_model_len, enforce_eager, v1, .. } = self;
        let tokens = self.effective_batched_tokens;
        format!(
            "{gpu_memory_utilization}/{block_size}/{kv_cache_dtype}/{tensor_parallel_size}/{num_gpu_blocks_override}/\
             {max_num_seqs}/{max_model_len}/{enforce_eager}/{v1}/{tokens}"
        )
    }

    pub fn read(containers: &[Container]) -> Self {
        let mut read = Self { chunked_prefill: false, ..Self::default() };
        for container in containers {
            if let Some(value) = container.env.get("VLLM_USE_V1") {
                read.v1 = value != "0";
            }
            let words: Vec<String> = container.command.iter().chain(&container.args).cloned().collect();
            read.take(&unwrapped(words));
        }
        read.chunked_prefill |= read.v1;
        read.effective_batched_tokens = match &read {
            Self { max_num_batched_tokens: explicit @ 1.., .. } => *explicit,
            Self { v1: true, .. } => V1_TOKENS,
            Self { chunked_prefill: true, .. } => V0_TOKENS,
            Self { max_model_len, .. } => (*max_model_len).max(V0_TOKENS),
        };
        read
    }

    fn take(&mut self, words: &[String]) {
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--") else { continue };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, words.next_if(|next| !next.starts_with("--")).cloned()),
            };
            self.set(&name.replace('_', "-"), value.as_deref());
        }
    }

    fn set(&mut self, name: &str, value: Option<&str>) {
        let on = value.is_none_or(|value| !value.eq_ignore_ascii_case("false"));
        let number = |field: &mut i64| {
            if let Some(given) = value.and_then(|value| value.parse().ok()).filter(|given| *given > 0) {
                *field = given;
            }
        };
        match name {
            "gpu-memory-utilization" => {
                let given = value.and_then(|value| value.parse().ok());
                if let Some(share) = given.filter(|share: &f64| *share > 0.0 && *share <= 1.0) {
                    self.gpu_memory_utilization = share;
                }
            }
            "kv-cache-dtype" => {
                if let Some(dtype) = value {
                    dtype.clone_into(&mut self.kv_cache_dtype);
                }
            }
            "block-size" => number(&mut self.block_size),
            "tensor-parallel-size" => number(&mut self.tensor_parallel_size),
            "num-gpu-blocks-override" => number(&mut self.num_gpu_blocks_override),
            "max-num-batched-tokens" => number(&mut self.max_num_batched_tokens),
            "max-num-seqs" => number(&mut self.max_num_seqs),
            "max-model-len" => number(&mut self.max_model_len),
            "enforce-eager" => self.enforce_eager = on,
            "enable-chunked-prefill" => self.chunked_prefill = on,
            "no-enable-chunked-prefill" => self.chunked_prefill = false,
            _ => {}
        }
    }

    /// Whether both servers have the same token capacity.
    pub fn alike(&self, other: &Self) -> bool {
        let of = |args: &Self| {
            (
                args.block_size,
                args.kv_cache_dtype.clone(),
                args.tensor_parallel_size,
                args.num_gpu_blocks_override,
                args.effective_batched_tokens,
            )
        };
        of(self) == of(other) && (self.gpu_memory_utilization - other.gpu_memory_utilization).abs() < 1e-9
    }
}

/// Replaces a `sh -c` command line by its words.
fn unwrapped(words: Vec<String>) -> Vec<String> {
    let shell = words.first().is_some_and(|first| matches!(first.rsplit('/').next(), Some("sh" | "bash")));
    let line = words.iter().position(|word| word == "-c" || word == "-lc" || word == "-ec");
    match line.filter(|_| shell).and_then(|at| words.get(at + 1)) {
        Some(line) => split(line),
        None => words,
    }
}

/// Splits like a shell, with quotes and continued lines. Variables are not expanded.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (Some('"') | None, '\\') => match letters.next() {
                Some('\n') | None => {}
                Some(escaped) => word.get_or_insert_default().push(escaped),
            },
            (None, space) if space.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}
