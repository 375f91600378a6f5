//! Distributions by image in a running operator, with and without reading the labels of the image.

use rustix::process::Signal;
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::{Flavour, wait};

use super::test_env;
use crate::process::operator::OperatorProcess;
use crate::schemas::uninstall_crd;

#[tokio::test]
async fn unreachable_registry_blocks_image_unless_labels_disabled() {
    let Some(env) = test_env(Flavour::Bare, "image").await else { return };
    // No registry listens at this address.
    env.create("stack", json!({ "distribution": { "image": "127.0.0.1:1/a/b:1" }, "disabled": ["eval"] })).await;
    let until_condition = async |operator: &OperatorProcess, phase: &str, type_: &str, reason: &str| -> String {
        let message = async || {
            let status = env.objects().get("stack").await.unwrap().data["status"].clone();
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let found = conditions.into_iter().find(|known| known["type"] == type_ && known["reason"] == reason);
            found.filter(|_| status["phase"] == phase).map(|found: Value| found["message"].as_str().unwrap().to_owned())
        };
        let message = wait::eventually(&format!("{type_} is {reason}"), message).await;
        message.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()))
    };

    let mut reading = env.installation.start("asking", &[]).await;
    let message = until_condition(&reading, "Pending", "SpecAccepted", "ImageLabelsUnusable").await;
    assert!(message.contains("127.0.0.1:1 is at an address of this machine"), "{message}");
    until_condition(&reading, "Pending", "ConfigGenerated", "ImageLabelsAwaited").await;
    reading.signal(Signal::TERM);
    assert_eq!(reading.exit_code().await, Some(0));
    reading.assert_log_is_json();

    let not_reading = env.installation.start("mute", &["--image-labels", "off"]).await;
    let message = until_condition(&not_reading, "Failed", "ConfigGenerated", "BaseConfigRequired").await;
    assert!(message.starts_with("Direct image references require either overrideConfig.configMapName or"), "{message}");
    not_reading.assert_log_is_json();
    uninstall_crd(&env.admin, Family::Llsd).await;
}
