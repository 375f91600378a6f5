//! Several operators at once: replicas of one operator, of which one is paused while it leads, and instances with
//! objects of their own.

use k8s_openapi::api::coordination::v1::Lease;
use rustix::process::Signal;
use steersman_testkit::wait;

use super::process::until_desired;
use super::*;
use crate::process::operator::OperatorProcess;

const DESIRED_REPLICAS_SERIES: &str = "wva_desired_replicas{";

/// The exported desired replicas; None if there is no series.
async fn exported_replicas(operator: &OperatorProcess) -> Option<String> {
    let text = wait::eventually("a scrape", async || operator.metrics("/metrics", None).await).await.unwrap().1;
    let line = text.lines().find(|line| line.starts_with(DESIRED_REPLICAS_SERIES))?;
    line.rsplit(' ').next().map(str::to_owned)
}

async fn until_exported(operator: &OperatorProcess, number: &str) {
    let what = format!("{number} is exported");
    let reached =
        wait::eventually(&what, async || (exported_replicas(operator).await.as_deref() == Some(number)).then_some(()));
    reached.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
}

/// Resource version and status. Every write that changes the object changes the resource version.
async fn version_and_status(test: &TestNamespace) -> (Option<String>, Value) {
    let object = test.objects().get("v").await.unwrap();
    (object.metadata.resource_version, object.data["status"].clone())
}

#[tokio::test]
async fn resumed_leader_overwrites_nothing() {
    let Some(test) = TestNamespace::new("paused").await else { return };
    // With this interval, a resumed leader reconciles at once.
    test.set_config(MAIN_CONFIG, json!({ "GLOBAL_OPT_INTERVAL": "1s" })).await;
    test.deploy("decode", 2).await;
    test.create("v", spec("decode")).await;
    let (_lease_lock, installation) = test.installation().await;
    let mut first = installation.start("first", &test.flags()).await;
    installation.until_led_by("first").await;
    until_desired(&test, "v", 2, &first).await;
    until_exported(&first, "2").await;
    let mut second = installation.start("second", &test.flags()).await;
    second.wait_for_log("waiting for the lease").await;
    assert_eq!(
        exported_replicas(&second).await,
        None,
        "a standby must export no series, or sums over replicas are wrong"
    );

    first.signal(Signal::STOP);
    // The paused leader does not observe this change.
    test.scale("decode", 4).await;
    installation.until_led_by("second").await;
    until_desired(&test, "v", 4, &second).await;
    until_exported(&second, "4").await;
    let before = version_and_status(&test).await;

    first.signal(Signal::CONT);
    assert_eq!(
        exported_replicas(&first).await,
        None,
        "a resumed leader must export nothing even before it notices the lost Lease"
    );
    first.wait_for_log("lost the lease: standing by").await;
    let reconciles = async || second.count_logged("Starting reconciliation", |_| true);
    let before_count = reconciles().await;
    wait::eventually("another reconcile", async || (reconciles().await > before_count).then_some(())).await.unwrap();
    assert_eq!(version_and_status(&test).await, before, "no operator may write\n{}", first.log());
    assert_eq!((exported_replicas(&first).await, installation.holder().await.as_str()), (None, "second"));

    test.scale("decode", 5).await;
    until_desired(&test, "v", 5, &second).await;
    second.signal(Signal::TERM);
    installation.until_led_by("first").await;
    until_exported(&first, "5").await;
    assert_eq!(second.exit_code().await, Some(0));
    assert_eq!(test.desired("v").await, Some(5));
    first.signal(Signal::TERM);
    assert_eq!(first.exit_code().await, Some(0));
    first.assert_log_is_json();
    second.assert_log_is_json();
}

#[tokio::test]
async fn instances_act_only_on_their_own_objects() {
    let Some(test) = TestNamespace::new("instances").await else { return };
    test.set_config(MAIN_CONFIG, json!({ "GLOBAL_OPT_INTERVAL": "1h" })).await;
    for (instance, replicas) in [("blue", 2), ("green", 3)] {
        test.deploy(instance, replicas).await;
        let variant: DynamicObject = object(json!({ "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
            "metadata": { "name": instance, "labels": { "wva.llmd.ai/controller-instance": instance } },
            "spec": spec(instance) }));
        test.objects().create(&PostParams::default(), &variant).await.unwrap();
    }
    test.create("nobodys", spec("blue")).await;
    let (_lease_lock, installation) = test.installation().await;
    // The namespace is set by an environment variable, as in the manifests of the Go operator.
    let flags = ["--controllers", "va", "--config-namespace", test.settings.name()];
    let namespace = test.namespace.name();
    let start = async |instance: &str| {
        let variables = [("CONTROLLER_INSTANCE", instance), ("WATCH_NAMESPACE", namespace)];
        installation.start_with(instance, &flags, &variables).await
    };
    let (blue, green) = (start("blue").await, start("green").await);
    for (operator, own, replicas, other) in [(&blue, "blue", 2, "green"), (&green, "green", 3, "blue")] {
        until_desired(&test, own, replicas, operator).await;
        let series = format!(
            "variant_name=\"{own}\",namespace=\"{namespace}\",accelerator_type=\"A100\",controller_instance=\"{own}\"}} {replicas}"
        );
        operator.until_metric(&series).await;
        let text = operator.metrics("/metrics", None).await.unwrap().1;
        assert!(!text.contains(&format!("variant_name=\"{other}\"")), "{text}");
        assert!(text.contains(&format!("leader_election_master_status{{name=\"steersman-{own}\"}} 1")), "{text}");
        let lease: Lease = Api::namespaced(test.admin.clone(), steersman::installation::NAMESPACE)
            .get(&format!("steersman-{own}"))
            .await
            .unwrap();
        assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some(own));
    }
    assert!(test.status("nobodys").await.is_null(), "an object without the label belongs to no instance");
}
