//! Workloads that several objects want, that are missing, that somebody else scales; and objects that go.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::wait;

use crate::follower::Follower;
use crate::player::Player;
use crate::scene::{Scene, condition, current, desired, spec};
use crate::stage::objects;
use crate::world::UNREADABLE;

#[tokio::test]
async fn of_two_objects_for_one_workload_the_older_decides_until_it_goes() {
    let Some(scene) = Scene::open("rivals").await else { return };
    scene.deploy("decode", "llama", 1).await;
    // By name it would come second.
    scene.variant("older", spec("decode", "llama", json!({}))).await;
    let player = Player::idle(&scene, "llama").await;
    player.until_pods(1).await;
    let seen = scene.until_settled("older", 1).await;
    let created: Timestamp = seen["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
    let later = async || (Timestamp::now().as_second() > created.as_second()).then_some(());
    wait::eventually("another second", later).await.unwrap();
    scene.variant("newer", spec("decode", "llama", json!({}))).await;

    let older = format!("{}/older", scene.name());
    let lost = ["True", "SuppressedDueToConflict", older.as_str()];
    let seen = scene.until_condition("newer", "DeploymentTargetConflict", lost).await;
    let (_, _, message) = condition(&seen, "DeploymentTargetConflict");
    assert!(message.ends_with("ACTION: Delete this VA or change scaleTargetRef to a unique deployment."), "{message}");
    assert_eq!(condition(&seen, "Ready").1, "DeploymentTargetConflict");
    assert_eq!(desired(&seen), None);
    let newer = format!("DELETE OR REASSIGN: {}/newer", scene.name());
    let won = ["True", "ConflictResolvedByArbitration", newer.as_str()];
    scene.until_condition("older", "DeploymentTargetConflict", won).await;
    for name in ["older", "newer"] {
        let (kind, _) = scene.event(name, "DeploymentTargetConflict").await;
        assert_eq!(kind, "Warning");
        scene.shown(name, &format!("conflict-{name}")).await;
    }
    scene.until_gauges("older", [Some(1.0), Some(1.0), Some(1.0)]).await;
    assert_eq!(scene.gauges("newer").await, [None; 3]);
    let contested = [("namespace", scene.name()), ("deployment", "decode")];
    assert_eq!(scene.voice.value("wva_deployment_target_conflicts_total", &contested).await, Some(2.0));
    let status = async |name: &str| {
        let labels = [("namespace", scene.name()), ("variant_name", name)];
        scene.voice.value("wva_conflict_resolution_status", &labels).await
    };
    assert_eq!((status("older").await, status("newer").await), (Some(1.0), Some(0.0)));
    scene.assert_silent_for(3, &["older", "newer"]).await;

    scene.delete("older").await;
    let seen = scene.until_settled("newer", 1).await;
    for gone in ["DeploymentTargetConflict", "Ready"] {
        assert_eq!(condition(&seen, gone), ("", "", ""), "{gone} is over");
    }
    scene.until_gauges("newer", [Some(1.0), Some(1.0), Some(1.0)]).await;
    scene.until_gauges("older", [None; 3]).await;
    assert_eq!(scene.voice.series("wva_deployment_target_conflicts_total", &contested).await, []);
}

#[tokio::test]
async fn a_workload_may_come_later_and_go_again() {
    let Some(scene) = Scene::open("later").await else { return };
    scene.variant("llama", spec("decode", "llama", json!({}))).await;
    let missing = ["False", "TargetNotFound", "Scale target Deployment decode not found"];
    let seen = scene.until_condition("llama", "TargetResolved", missing).await;
    let (status, why, message) = condition(&seen, "OptimizationReady");
    assert_eq!((status, why), ("False", "OptimizationFailed"));
    assert!(message.starts_with("Deployment not found"), "{message}");
    assert_eq!(desired(&seen), None);
    assert_eq!(scene.gauges("llama").await, [None; 3], "nothing is known that could be published");
    let (kind, message) = scene.event("llama", "OptimizationFailed").await;
    assert_eq!(kind, "Warning");
    assert!(message.starts_with("Deployment not found"), "{message}");
    scene.shown("llama", "target-missing").await;

    scene.deploy("decode", "llama", 2).await;
    scene.until_condition("llama", "TargetResolved", ["True", "TargetFound", "Deployment decode found"]).await;
    let player = Player::quiet(&scene, "llama").await;
    player.begin(2, 36).await;
    let seen = scene.until_settled("llama", 2).await;
    assert_eq!(condition(&seen, "OptimizationReady").0, "True");

    scene.namespace.all::<Deployment>().delete("decode", &DeleteParams::default()).await.unwrap();
    let seen = scene.until_condition("llama", "TargetResolved", missing).await;
    assert_eq!(desired(&seen), Some(2), "what was decided stays for whoever brings it back");
    scene.until_gauges("llama", [Some(2.0), Some(2.0), Some(1.0)]).await;
    scene.shown("llama", "target-gone").await;
}

#[tokio::test]
async fn a_hand_on_the_replicas_is_seen_at_once_and_what_is_decided_comes_back() {
    let Some(scene) = Scene::open("hand").await else { return };
    scene.deploy("decode", "llama", 2).await;
    scene.variant("llama", spec("decode", "llama", json!({}))).await;
    let player = Player::quiet(&scene, "llama").await;
    player.begin(2, 36).await;
    scene.until_settled("llama", 2).await;
    scene.scale("decode", 4).await;
    let seen = scene.until("llama", "four run", |seen| current(seen) == Some(4)).await;
    // While the new pods have no metrics yet, nobody can know that they are too many.
    assert!((2..=4).contains(&desired(&seen).unwrap()), "{seen:#}");
    scene.shown("llama", "scaled-by-hand").await;
    // An HPA puts it right.
    let follower = Follower::start(&scene, &scene.voice);
    scene.until_settled("llama", 2).await;
    scene.until_gauges("llama", [Some(2.0), Some(2.0), Some(1.0)]).await;

    drop(follower);
    scene.scale("decode", 1).await;
    let seen = scene.until("llama", "one runs", |seen| current(seen) == Some(1)).await;
    assert_eq!(desired(&seen), Some(2), "a hand does not change what the load needs");
    scene.until_gauges("llama", [Some(2.0), Some(1.0), Some(2.0)]).await;
}

#[tokio::test]
async fn an_object_takes_its_series_with_it_and_nobody_elses() {
    let Some(scene) = Scene::open("leaving").await else { return };
    for name in ["stays", "goes"] {
        scene.deploy(name, name, 1).await;
        scene.variant(name, spec(name, name, json!({}))).await;
    }
    let _players = (Player::idle(&scene, "stays").await, Player::idle(&scene, "goes").await);
    for name in ["stays", "goes"] {
        scene.until_settled(name, 1).await;
        scene.until_gauges(name, [Some(1.0), Some(1.0), Some(1.0)]).await;
    }
    scene.voice.passes(2).await;
    let before = scene.object("stays").await;
    scene.delete("goes").await;
    let gone = wait::eventually("no series names it", async || {
        let text = scene.voice.metrics().await?;
        let here = format!("namespace=\"{}\"", scene.name());
        let named = text.lines().any(|line| line.contains(&here) && line.contains("variant_name=\"goes\""));
        (!named).then_some(())
    });
    gone.await.unwrap();
    scene.voice.passes(2).await;
    let after = scene.object("stays").await;
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    assert_eq!(version(&before), version(&after), "{after:#}");
    assert_eq!(scene.gauges("stays").await, [Some(1.0), Some(1.0), Some(1.0)]);
    assert!(scene.namespace.get::<Deployment>("goes").await.unwrap().is_some(), "its workload is not its own");
}

#[tokio::test]
async fn what_is_wrong_with_one_object_is_nobody_elses_trouble() {
    let Some(scene) = Scene::open("bad").await else { return };
    for name in ["sound", "odd-number"] {
        scene.deploy(name, "llama", 1).await;
    }
    // Of a kind that nobody knows, and with a cost that no number can hold.
    let unknown = json!({ "apiVersion": "example.com/v1", "kind": "Rollout", "name": "decode" });
    scene.variant("odd-kind", spec("x", "other", json!({ "scaleTargetRef": unknown }))).await;
    let endless = "9".repeat(400);
    scene.variant("odd-number", spec("odd-number", "llama", json!({ "variantCost": endless }))).await;
    scene.variant("sound", spec("sound", "llama", json!({ "variantCost": "5" }))).await;
    let _follower = Follower::start(&scene, &scene.voice);
    let player = Player::quiet(&scene, "llama").await;
    player.begin(2, 60).await;
    scene.until_settled("sound", 2).await;
    let seen =
        scene.until_condition("odd-kind", "TargetResolved", ["Unknown", "TargetUnknown", "Rollout decode"]).await;
    assert_eq!(condition(&seen, "OptimizationReady").1, "OptimizationFailed");
    assert_eq!(desired(&seen), None);
    scene.shown("odd-kind", "odd-kind").await;
    let seen = scene.object("odd-number").await;
    assert_eq!(condition(&seen, "SpecAccepted").1, "VariantCostInvalid");
    assert!(condition(&seen, "SpecAccepted").2.contains("10 is used"), "{seen:#}");
    scene.shown("odd-number", "odd-number").await;

    // One that nobody can read was there before all others.
    let told = |line: &Value| line["msg"] == "a VariantAutoscaling cannot be read and is left alone";
    let lines: Vec<Value> = scene.voice.lines().into_iter().filter(told).collect();
    assert_eq!(lines.len(), 1, "it is told once: {lines:?}");
    assert_eq!((&lines[0]["namespace"], &lines[0]["name"]), (&json!(UNREADABLE.0), &json!(UNREADABLE.1)));
    let cause = lines[0]["cause"].as_str().unwrap();
    assert!(cause.contains("variantCost"), "it says where: {cause}");
    let object = objects(&scene.admin, Family::Va, UNREADABLE.0, "v1alpha1").get(UNREADABLE.1).await.unwrap();
    assert_eq!(object.data["status"], Value::Null, "it is left alone");
    let events: Api<Event> = Api::namespaced(scene.admin.clone(), UNREADABLE.0);
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let said: Vec<_> = events.iter().filter(|event| event.reason.as_deref() == Some("SpecUnreadable")).collect();
    assert_eq!(said.len(), 1, "{events:?}");
    assert!(said[0].message.as_ref().is_some_and(|message| message.contains(cause)), "{said:?}");
}
