//! An image of the user's own under the operator as it is shipped, with and without a look at its labels.

use rustix::process::Signal;
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::{Flavour, wait};

use super::world;
use crate::process::operator::Operator;
use crate::schemas::uninstall;

#[tokio::test]
async fn an_image_waits_for_its_registry_unless_labels_are_switched_off() {
    let Some(world) = world(Flavour::Bare, "image").await else { return };
    // Nobody listens there.
    world.create("stack", json!({ "distribution": { "image": "127.0.0.1:1/a/b:1" }, "disabled": ["eval"] })).await;
    let reached = async |operator: &Operator, phase: &str, type_: &str, reason: &str| -> String {
        let told = async || {
            let status = world.objects().get("stack").await.unwrap().data["status"].clone();
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let found = conditions.into_iter().find(|known| known["type"] == type_ && known["reason"] == reason);
            found.filter(|_| status["phase"] == phase).map(|found: Value| found["message"].as_str().unwrap().to_owned())
        };
        let said = wait::eventually(&format!("{type_} is {reason}"), told).await;
        said.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()))
    };

    let mut asking = world.place.start("asking", &[]).await;
    let said = reached(&asking, "Pending", "SpecAccepted", "ImageLabelsUnusable").await;
    assert!(said.contains("127.0.0.1:1 refuses connections"), "{said}");
    reached(&asking, "Pending", "ConfigGenerated", "ImageLabelsAwaited").await;
    asking.signal(Signal::TERM);
    assert_eq!(asking.exit_code().await, Some(0));
    asking.assert_log_is_json();

    let mute = world.place.start("mute", &["--image-labels", "off"]).await;
    let said = reached(&mute, "Failed", "ConfigGenerated", "BaseConfigRequired").await;
    assert!(said.starts_with("Direct image references require either overrideConfig.configMapName or"), "{said}");
    mute.assert_log_is_json();
    uninstall(&world.admin, Family::Llsd).await;
}
