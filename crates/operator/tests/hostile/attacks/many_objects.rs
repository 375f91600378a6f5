//! The attacker creates many objects at once, whose references never exist.

use futures::future::join_all;
use serde_json::json;

use crate::tenants::{HostileCase, server};

/// Servers of the attacker, more than the operator reconciles at a time.
const SERVERS: usize = 60;

/// The victim's objects are created after those of the attacker and do not wait for all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn burst_of_objects_delays_nobody() {
    let Some(case) = HostileCase::open("burst").await else { return };
    let image = json!({ "image": "registry.invalid/nothing:1" });
    let spec = json!({ "distribution": image, "resources": { "models": [{ "name": "m", "provider": "p" }] } });
    let created = (0..SERVERS).map(|number| case.attacker.apply(server(&format!("s-{number}"), spec.clone())));
    for result in join_all(created).await {
        result.unwrap();
    }
    case.expect_victim_served().await;
}
