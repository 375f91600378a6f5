//! The APIs that a provider needs: a server that lacks one of them does not start.

use serde_json::Value;

/// A need of a provider, checked against the packages by `cargo xtask test --suite llamastack-real`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub api: &'static str,
    /// Prefix of the provider's type. Empty: any type without a line above.
    pub kind: &'static str,
    pub needs: &'static [&'static str],
}

const fn need(api: &'static str, kind: &'static str, needs: &'static [&'static str]) -> Need {
    Need { api, kind, needs }
}

/// The name of `responses` before llama-stack 0.7.
pub(in super::super) const AGENTS: &str = "agents";
pub(in super::super) const RESPONSES: &str = "responses";

/// The first matching line counts; a provider without one needs nothing. `responses` also means `agents`.
pub const NEEDS: [Need; 11] = [
    need("batches", "", &["files", "inference"]),
    need("eval", "", &["datasetio", "inference", RESPONSES, "scoring"]),
    need("file_processors", "", &["files"]),
    need("post_training", "inline::", &["datasetio"]),
    need(RESPONSES, "", &["files", "inference", "tool_runtime", "vector_io"]),
    need("safety", "inline::llama-guard", &["inference"]),
    need("scoring", "inline::llm-as-judge", &["datasetio", "inference"]),
    need("scoring", "", &["datasetio"]),
    need("tool_runtime", "inline::file-search", &["files", "inference", "vector_io"]),
    need("tool_runtime", "inline::rag-runtime", &["files", "inference", "vector_io"]),
    need("vector_io", "", &["inference"]),
];

/// A provider that keeps the server from starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    pub api: String,
    pub provider_id: String,
    pub provider_type: String,
    /// In alphabetical order, never empty.
    pub missing: Vec<&'static str>,
}

/// The providers that need an API without providers, in the order of the APIs and their lists.
pub fn unmet(config: &Value) -> Vec<Unmet> {
    let Some(providers) = config["providers"].as_object() else { return Vec::new() };
    let mut found = Vec::new();
    for (api, list) in providers {
        for entry in list.as_array().into_iter().flatten() {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            let provider_type = text("provider_type");
            let missing = missing(api, &provider_type, |needed| providers.contains_key(needed));
            if !missing.is_empty() {
                found.push(Unmet { api: api.clone(), provider_id: text("provider_id"), provider_type, missing });
            }
        }
    }
    found
}

pub(in super::super) fn missing(api: &str, provider_type: &str, has: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let there = |needed: &str| has(needed) || (needed == RESPONSES && has(AGENTS));
    needs(api, provider_type).iter().copied().filter(|needed| !there(needed)).collect()
}

fn needs(api: &str, provider_type: &str) -> &'static [&'static str] {
    let api = if api == AGENTS { RESPONSES } else { api };
    let line = NEEDS.iter().find(|line| line.api == api && provider_type.starts_with(line.kind));
    line.map_or(&[], |line| line.needs)
}
