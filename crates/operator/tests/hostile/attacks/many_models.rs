//! The attacker's servers register many models: 20,000 in one object of 400 kB, or as many as one may have, in many objects.

use std::time::Instant;

use futures::future::join_all;
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

/// Servers with lists at their limits, and how often each is written.
const SERVERS: usize = 2;
const WRITES: usize = 2;

/// A server with as many models, shields, variables, peers and providers as one may have.
fn server_at_its_limits(name: &str, change: usize) -> Value {
    let names =
        |prefix: &str, count: usize| -> Vec<String> { (0..count).map(|number| format!("{prefix}{number}")).collect() };
    let models: Vec<Value> = names("m", 2_000).into_iter().map(|name| json!({ "name": name })).collect();
    let variables: Vec<Value> =
        names("A", 1_000).into_iter().map(|name| json!({ "name": name, "value": "1" })).collect();
    let providers: Vec<Value> = names("p", 200)
        .into_iter()
        .map(|id| json!({ "id": id, "provider": "vllm", "endpoint": format!("http://vllm:8000/{change}") }))
        .collect();
    server(
        name,
        json!({
            "distribution": { "name": "starter" },
            "providers": { "inference": providers },
            "resources": { "models": models, "shields": names("s", 2_000) },
            "networking": { "allowedFrom": { "namespaces": names("n", 1_000), "labels": names("l", 1_000) } },
            "workload": { "overrides": { "env": variables } },
        }),
    )
}

/// The cost of an object grows with the length of its lists, and not with their square.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn specs_at_their_limits_delay_nobody() {
    let Some(case) = HostileCase::open("limits").await else { return };
    for change in 0..WRITES {
        let started = Instant::now();
        let applied =
            (0..SERVERS).map(|number| case.attacker.apply(server_at_its_limits(&format!("s-{number}"), change)));
        for result in join_all(applied).await {
            result.unwrap();
        }
        println!("{SERVERS} servers at their limits are stored within {:?}", started.elapsed());
    }
    case.expect_victim_served().await;
}
