//! The attacker gives large ConfigMaps the labels by which the operator finds the children of its objects.

use futures::StreamExt;
use futures::stream;
use serde_json::json;
use steersman_plan::dynamo::names;

use crate::tenants::{HostileCase, config_map, request};

const CONFIG_MAPS: usize = 400;
const BYTES: usize = 900_000;

/// Memory that the operator may use, in MiB. Its container has a limit of 512 MiB, and with all of the ConfigMaps it would be
/// beyond that.
const MAX_MEMORY: u64 = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labelled_config_maps_take_no_memory() {
    let Some(case) = HostileCase::open("labels").await else { return };
    case.attacker.apply(request("profiled")).await.unwrap();
    let mut labels = names::labels("profiled", case.attacker.name());
    labels.insert("app.kubernetes.io/managed-by".to_owned(), "llama-stack-operator".to_owned());
    let text = "x".repeat(BYTES);
    let create = async |number: usize| {
        let mut map = config_map(&format!("labelled-{number}"), json!({ "text": text }));
        map["metadata"]["labels"] = json!(labels);
        case.attacker.apply(map).await.unwrap();
    };
    stream::iter(0..CONFIG_MAPS).for_each_concurrent(8, create).await;
    case.expect_victim_served().await;
    let resident = case.env.memory_mib();
    println!("resident after {CONFIG_MAPS} ConfigMaps of {BYTES} bytes: {resident} MiB");
    assert!(resident < MAX_MEMORY, "resident: {resident} MiB");
}
