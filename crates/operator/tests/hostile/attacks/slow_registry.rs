//! The attacker's images are in a registry that accepts connections and never answers.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::join_all;
use serde_json::{Value, json};
use steersman_testkit::{condition, wait};

use crate::fake_registry::HOST;
use crate::network::SILENT_REGISTRY;
use crate::tenants::{HostileCase, server};

/// Images of the attacker, more than the operator reads at a time.
const IMAGES: usize = 12;

/// Shorter than the 15 seconds after which the operator gives up on a registry that does not answer.
const MAX_READ_TIME: Duration = Duration::from_secs(12);

const BASE_CONFIG: &str = "version: 2\ndistro_name: of-the-victim\nproviders: {}\n";

/// A server whose configuration is generated from the one in a label of its image.
fn labelled(name: &str, image: &str) -> Value {
    server(name, json!({ "distribution": { "image": image }, "disabled": ["eval"] }))
}

/// The images of another namespace are read meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_registry_delays_no_other_image() {
    let Some(case) = HostileCase::open("registry").await else { return };
    let labels = json!({ "io.llamastack.config.base64": STANDARD.encode(BASE_CONFIG) });
    case.env.network.registry.push("victim/server", "1", labels, &[]);
    let created = (0..IMAGES).map(|number| {
        let image = format!("{SILENT_REGISTRY}/attacker/{number}:1");
        case.attacker.apply(labelled(&format!("s-{number}"), &image))
    });
    for result in join_all(created).await {
        result.unwrap();
    }
    let is_read = async || (case.env.network.silent_connections() > 0).then_some(());
    wait::eventually("the operator waits for the registry", is_read).await.unwrap();

    let own = labelled("labelled", &format!("{HOST}/victim/server:1"));
    case.victim.apply(own.clone()).await.unwrap();
    let time = case.env.expect_in_time("the configuration is generated from the label of the image", async || {
        let generated = case.victim.read(&own).await;
        (condition(&generated, "ConfigGenerated")["status"] == "True").then_some(())
    });
    let time = time.await;
    println!("the victim's image is read within {time:?}");
    assert!(time < MAX_READ_TIME, "the image was read after {time:?}, when the operator gave up on the other registry");
    case.expect_victim_served().await;
    let waiting = case.attacker.read(&labelled("s-0", "")).await;
    assert_ne!(condition(&waiting, "ConfigGenerated")["status"], "True", "{waiting:#}");
}
