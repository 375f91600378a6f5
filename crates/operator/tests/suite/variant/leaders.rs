//! Several operators at once: replicas of one, of which one is paused at the worst moment, and instances with objects of
//! their own.

use k8s_openapi::api::coordination::v1::Lease;
use rustix::process::Signal;
use steersman_testkit::wait;

use super::process::until_desired;
use super::*;
use crate::process::operator::Operator;

const SERIES: &str = "wva_desired_replicas{";

/// What a scrape finds of the object's number; None: no series.
async fn shown(operator: &Operator) -> Option<String> {
    let text = wait::eventually("a scrape", async || operator.metrics("/metrics", None).await).await.unwrap().1;
    let line = text.lines().find(|line| line.starts_with(SERIES))?;
    line.rsplit(' ').next().map(str::to_owned)
}

async fn until_shown(operator: &Operator, number: &str) {
    let what = format!("{number} is shown");
    let is = wait::eventually(&what, async || (shown(operator).await.as_deref() == Some(number)).then_some(()));
    is.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
}

/// Version and status: whoever writes, even the same again, changes the first.
async fn stored(scene: &Scene) -> (Option<String>, Value) {
    let object = scene.objects().get("v").await.unwrap();
    (object.metadata.resource_version, object.data["status"].clone())
}

#[tokio::test]
async fn a_leader_that_was_paused_undoes_nothing_when_it_wakes() {
    let Some(scene) = Scene::new("paused").await else { return };
    // Whoever wakes has a pass to make at once.
    scene.set(MAIN, json!({ "GLOBAL_OPT_INTERVAL": "1s" })).await;
    scene.deploy("decode", 2).await;
    scene.create("v", spec("decode")).await;
    let (_turn, place) = scene.place().await;
    let mut first = place.start("first", &scene.flags()).await;
    place.until_led_by("first").await;
    until_desired(&scene, "v", 2, &first).await;
    until_shown(&first, "2").await;
    let mut second = place.start("second", &scene.flags()).await;
    second.until_said("waiting for the lease").await;
    assert_eq!(shown(&second).await, None, "two series of one object would be added up");

    first.signal(Signal::STOP);
    // What only the next leader gets to know.
    scene.scale("decode", 4).await;
    place.until_led_by("second").await;
    until_desired(&scene, "v", 4, &second).await;
    until_shown(&second, "4").await;
    let before = stored(&scene).await;

    first.signal(Signal::CONT);
    assert_eq!(shown(&first).await, None, "not even before it knows that it leads no more");
    first.until_said("lost the lease: standing by").await;
    let passes = async || second.times_said("Starting reconciliation", |_| true);
    let made = passes().await;
    wait::eventually("another pass", async || (passes().await > made).then_some(())).await.unwrap();
    assert_eq!(stored(&scene).await, before, "nobody wrote\n{}", first.log());
    assert_eq!((shown(&first).await, place.holder().await.as_str()), (None, "second"));

    scene.scale("decode", 5).await;
    until_desired(&scene, "v", 5, &second).await;
    second.signal(Signal::TERM);
    place.until_led_by("first").await;
    until_shown(&first, "5").await;
    assert_eq!(second.exit_code().await, Some(0));
    assert_eq!(scene.desired("v").await, Some(5));
    first.signal(Signal::TERM);
    assert_eq!(first.exit_code().await, Some(0));
    first.assert_log_is_json();
    second.assert_log_is_json();
}

#[tokio::test]
async fn instances_act_side_by_side_each_on_its_own_objects() {
    let Some(scene) = Scene::new("instances").await else { return };
    scene.set(MAIN, json!({ "GLOBAL_OPT_INTERVAL": "1h" })).await;
    for (instance, replicas) in [("blue", 2), ("green", 3)] {
        scene.deploy(instance, replicas).await;
        let wish: DynamicObject = object(json!({ "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
            "metadata": { "name": instance, "labels": { "wva.llmd.ai/controller-instance": instance } },
            "spec": spec(instance) }));
        scene.objects().create(&PostParams::default(), &wish).await.unwrap();
    }
    scene.create("nobodys", spec("blue")).await;
    let (_turn, place) = scene.place().await;
    // The namespace by its variable, as the Go operator's manifests have it.
    let flags = ["--controllers", "va", "--config-namespace", scene.settings.name()];
    let namespace = scene.namespace.name();
    let start = async |instance: &str| {
        let variables = [("CONTROLLER_INSTANCE", instance), ("WATCH_NAMESPACE", namespace)];
        place.start_with(instance, &flags, &variables).await
    };
    let (blue, green) = (start("blue").await, start("green").await);
    for (operator, own, replicas, other) in [(&blue, "blue", 2, "green"), (&green, "green", 3, "blue")] {
        until_desired(&scene, own, replicas, operator).await;
        let series = format!(
            "variant_name=\"{own}\",namespace=\"{namespace}\",accelerator_type=\"A100\",controller_instance=\"{own}\"}} {replicas}"
        );
        operator.until_metric(&series).await;
        let text = operator.metrics("/metrics", None).await.unwrap().1;
        assert!(!text.contains(&format!("variant_name=\"{other}\"")), "{text}");
        assert!(text.contains(&format!("leader_election_master_status{{name=\"steersman-{own}\"}} 1")), "{text}");
        let lease: Lease = Api::namespaced(scene.admin.clone(), steersman::installation::NAMESPACE)
            .get(&format!("steersman-{own}"))
            .await
            .unwrap();
        assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some(own));
    }
    assert!(scene.status("nobodys").await.is_null(), "without the label it is neither's");
}
