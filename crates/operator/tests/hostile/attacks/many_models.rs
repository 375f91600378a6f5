//! The attacker's server registers 20,000 models, in an object of 400 kB.

use std::time::Instant;

use serde_json::{Value, json};

use crate::tenants::{HostileCase, server};

const MODELS: usize = 20_000;

/// Admission answers at once, and names the field and the limit.
#[tokio::test]
async fn thousands_of_models_are_rejected_at_once() {
    let Some(case) = HostileCase::open("models").await else { return };
    let models: Vec<Value> = (0..MODELS).map(|number| json!({ "name": format!("m-{number}") })).collect();
    let provider = json!({ "inference": { "provider": "vllm", "endpoint": "http://vllm:8000" } });
    let spec =
        json!({ "distribution": { "name": "starter" }, "providers": provider, "resources": { "models": models } });
    let started = Instant::now();
    let rejection = case.attacker.apply(server("greedy", spec)).await.expect_err("the models must be rejected");
    let time = started.elapsed();
    println!("{MODELS} models are rejected within {time:?}");
    assert!(time < case.env.time_limit(), "the rejection took {time:?}");
    let expected = "spec.resources.models: it has 20000 entries, but at most 2000 are allowed";
    assert!(rejection.contains(expected), "{}", &rejection[..rejection.len().min(1000)]);
    case.expect_victim_served().await;
}
