//! Generation of config.yaml from a spec, rule by rule.

mod disabled_apis;
mod external;
mod laws;
mod merge;
mod networking;
mod providers;
mod real_bases;
mod references;
mod resources;
mod secrets;
mod snapshots;
mod storage;
pub mod validate;
mod version;

use serde_json::Value;
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_plan::llamastack::config::{Base, FieldError, Generated, Input, Merge, generate};

const OPERATOR: &str = "registry.example/steersman:1";

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn starter() -> Base {
    let config = yaml(include_str!("../../fixtures/llamastack_config/base.yaml"));
    Base { name: "starter".into(), server_version: "0.7.1".into(), config }
}

fn remote_vllm() -> Base {
    let config = yaml(include_str!("../../fixtures/llamastack_config/base-remote-vllm.yaml"));
    Base { name: "remote-vllm".into(), server_version: "0.7.1".into(), config }
}

/// The starter base after a change to its configuration.
fn modified_starter(change: impl FnOnce(&mut Value)) -> Base {
    let mut base = starter();
    change(&mut base.config);
    base
}

fn spec(text: &str) -> LlamaStackDistributionSpec {
    let mut value = yaml(text);
    if value["distribution"].is_null() {
        value["distribution"] = serde_json::json!({"name": "starter"});
    }
    serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn input<'a>(spec: &'a LlamaStackDistributionSpec, base: &'a Base) -> Input<'a> {
    Input { spec, base: Some(base), merge: Merge::Overlay, operator_image: OPERATOR }
}

/// Generates the configuration of a spec on a base.
fn try_generate_on(base: &Base, text: &str) -> Result<Generated, Vec<FieldError>> {
    generate(&input(&spec(text), base))
}

fn generate_on(base: &Base, text: &str) -> Generated {
    try_generate_on(base, text).unwrap_or_else(|problems| panic!("{problems:#?}\n{text}"))
}

fn generate_starter(text: &str) -> Generated {
    generate_on(&starter(), text)
}

/// The generated file, parsed.
fn config(generated: &Generated) -> Value {
    yaml(&generated.config_yaml)
}

/// The parsed configuration of a spec on the starter base.
fn config_for(text: &str) -> Value {
    config(&generate_starter(text))
}

/// `path: message` of each error, in order, on the starter base.
fn errors(text: &str) -> Vec<String> {
    errors_on(&starter(), text)
}

fn errors_on(base: &Base, text: &str) -> Vec<String> {
    try_generate_on(base, text).expect_err(text).iter().map(|one| format!("{}: {}", one.path, one.message)).collect()
}

/// `path: message` of each remark, in order.
fn remarks(generated: &Generated) -> Vec<String> {
    generated.remarks.iter().map(|one| format!("{}: {}", one.path, one.message)).collect()
}

/// The provider entry of an API with this id.
fn entry<'a>(config: &'a Value, api: &str, id: &str) -> &'a Value {
    let list = config["providers"][api].as_array().unwrap_or_else(|| panic!("no {api}\n{config:#}"));
    list.iter().find(|entry| entry["provider_id"] == id).unwrap_or_else(|| panic!("no {id} in {api}\n{list:#?}"))
}

fn ids(config: &Value, api: &str) -> Vec<String> {
    let list = config["providers"][api].as_array().cloned().unwrap_or_default();
    list.iter().map(|entry| entry["provider_id"].as_str().unwrap_or("-").to_owned()).collect()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().map(|list| list.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}
