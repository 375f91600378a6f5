//! Workloads: of any kind and name, absent, late, scaled by hand, contested.

use std::time::Duration;

use http::Request;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, Namespace as CoreNamespace, ReplicationController};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams};
use kube::client::Body;
use kube::core::GroupVersionKind;
use steersman_runtime::client::Server;
use steersman_testkit::cut::{Fate, fated};
use steersman_testkit::wait;
use tokio::net::TcpListener;

use super::*;

#[tokio::test]
async fn an_object_may_have_another_name_than_its_workload() {
    let Some(scene) = Scene::new("names").await else { return };
    scene.deploy("vllm-deployment", 2).await;
    scene.deploy("other", 5).await;
    scene.create("my-variant-a100-config", spec("vllm-deployment")).await;
    // A workload of the object's own name means nothing.
    scene.deploy("my-variant-a100-config", 7).await;
    let passed = scene.pass().await;
    assert_eq!((passed.decided, passed.written), (1, 1));
    let status = scene.status("my-variant-a100-config").await;
    assert_eq!(status["currentAlloc"]["numReplicas"], 2, "{status}");
    assert_eq!(status["desiredOptimizedAlloc"]["numReplicas"], 2, "{status}");
    assert_eq!(status["actuation"]["applied"], true);
    let found = "Scale target Deployment vllm-deployment found";
    assert_eq!(condition(&status, "TargetResolved"), ("True".into(), "TargetFound".into(), found.into()));
    let (metrics, reason, message) = condition(&status, "MetricsAvailable");
    assert_eq!((metrics.as_str(), reason.as_str()), ("False", "PrometheusError"));
    assert!(message.contains("set PROMETHEUS_BASE_URL in the main ConfigMap"), "{message}");
    scene.assert_silent().await;
}

#[tokio::test]
async fn a_workload_that_comes_late_or_is_scaled_by_hand_is_followed() {
    let Some(scene) = Scene::new("late").await else { return };
    scene.create("late", spec("decode")).await;
    scene.pass().await;
    let status = scene.status("late").await;
    let (truth, reason, message) = condition(&status, "TargetResolved");
    assert_eq!((truth.as_str(), reason.as_str()), ("False", "TargetNotFound"));
    assert!(message.starts_with("Scale target Deployment decode not found in namespace "), "{message}");
    assert!(condition(&status, "OptimizationReady").2.starts_with("Deployment not found: "), "{status}");
    assert_eq!(condition(&status, "MetricsAvailable").1, "MetricsMissing", "the column is not empty");
    assert_eq!(scene.desired("late").await, None, "nobody knows a number");
    scene.assert_silent().await;
    let events = scene.namespace.all::<Event>().list(&ListParams::default()).await.unwrap();
    let reasons: Vec<_> = events.items.iter().filter_map(|event| event.reason.as_deref()).collect();
    assert_eq!(reasons, ["OptimizationFailed"]);

    scene.deploy("decode", 2).await;
    scene.pass().await;
    assert_eq!(scene.desired("late").await, Some(2));
    assert_eq!(condition(&scene.status("late").await, "TargetResolved").1, "TargetFound");
    scene.scale("decode", 4).await;
    scene.pass().await;
    assert_eq!(scene.desired("late").await, Some(4), "without metrics a hand is not overruled");
    scene.assert_silent().await;

    scene.namespace.all::<Deployment>().delete("decode", &DeleteParams::default()).await.unwrap();
    scene.pass().await;
    let status = scene.status("late").await;
    assert_eq!(condition(&status, "TargetResolved").1, "TargetNotFound");
    assert_eq!(status["desiredOptimizedAlloc"]["numReplicas"], 4, "what was decided stays");
    assert_eq!(status["currentAlloc"]["numReplicas"], 4, "and what was last seen");
    scene.assert_silent().await;
}

#[tokio::test]
async fn of_two_objects_for_one_workload_the_older_decides_until_it_is_gone() {
    let Some(scene) = Scene::new("rivals").await else { return };
    scene.deploy("decode", 3).await;
    scene.create("zeta", spec("decode")).await;
    // The API server counts ages in seconds.
    let created = scene.objects().get("zeta").await.unwrap().metadata.creation_timestamp.unwrap().0;
    let later = async || (Timestamp::now().as_second() > created.as_second()).then_some(());
    wait::eventually("a second later", later).await.unwrap();
    scene.create("alpha", spec("decode")).await;
    let scope = Scope::Namespace(scene.namespace.name().to_owned());
    let given = given(scene.cluster, scene.admin.clone(), scope, scene.settings.name(), &[]);
    let controller = FleetController::new(&given, DebounceConfig::default());
    pass(&controller).await.unwrap();
    let namespace = scene.namespace.name();
    let contested =
        format!("wva_deployment_target_conflicts_total{{deployment=\"decode\",namespace=\"{namespace}\"}} 2");
    let lost = format!(
        "wva_conflict_resolution_status{{variant_name=\"alpha\",namespace=\"{namespace}\",deployment=\"decode\",\
         resolution=\"suppressed\"}} 0"
    );
    let text = given.controller.metrics.text().unwrap();
    assert!(text.contains(&contested) && text.contains(&lost), "{text}");
    assert_eq!(text.matches("wva_desired_replicas{").count(), 1, "of one of both: {text}");
    let (winner, loser) = (scene.status("zeta").await, scene.status("alpha").await);
    assert_eq!(condition(&winner, "DeploymentTargetConflict").1, "ConflictResolvedByArbitration");
    let (_, reason, message) = condition(&loser, "DeploymentTargetConflict");
    assert_eq!(reason, "SuppressedDueToConflict");
    assert!(message.contains(&format!("{}/zeta", scene.namespace.name())), "{message}");
    assert_eq!(condition(&loser, "Ready").2, "Suppressed due to deployment target conflict");
    assert_eq!((scene.desired("zeta").await, scene.desired("alpha").await), (Some(3), None));
    scene.assert_silent().await;

    scene.objects().delete("zeta", &DeleteParams::default()).await.unwrap();
    pass(&controller).await.unwrap();
    let text = given.controller.metrics.text().unwrap();
    assert!(
        !text.contains("wva_deployment_target_conflicts_total{") && text.contains("variant_name=\"alpha\""),
        "{text}"
    );
    let status = scene.status("alpha").await;
    assert_eq!(scene.desired("alpha").await, Some(3));
    for resolved in ["DeploymentTargetConflict", "Ready"] {
        assert_eq!(condition(&status, resolved).0, "", "{status}");
    }
}

#[tokio::test]
async fn anything_that_can_be_scaled_is_a_workload() {
    let Some(scene) = Scene::new("kinds").await else { return };
    let set: StatefulSet = object(json!({
        "metadata": { "name": "set" }, "spec": { "replicas": 2, "serviceName": "set",
        "selector": { "matchLabels": { "app": "set" } }, "template": template("set") },
    }));
    scene.namespace.all().create(&PostParams::default(), &set).await.unwrap();
    let old: ReplicationController =
        object(json!({ "metadata": { "name": "old" }, "spec": { "replicas": 3, "template": template("old") } }));
    scene.namespace.all().create(&PostParams::default(), &old).await.unwrap();
    let target = |api_version: Option<&str>, kind: &str, name: &str| {
        let mut spec = spec(name);
        spec["modelID"] = name.into();
        spec["scaleTargetRef"]["kind"] = kind.into();
        spec["scaleTargetRef"]["apiVersion"] = api_version.map_or(Value::Null, Value::from);
        if api_version.is_none() {
            spec["scaleTargetRef"].as_object_mut().unwrap().remove("apiVersion");
        }
        spec
    };
    scene.create("set", target(Some("apps/v1"), "StatefulSet", "set")).await;
    scene.create("old", target(Some("v1"), "ReplicationController", "old")).await;
    scene.create("none", target(Some("v1"), "ReplicationController", "none")).await;
    scene.create("unclear", target(None, "Rollout", "old")).await;
    scene.create("unserved", target(Some("argoproj.io/v1alpha1"), "Rollout", "old")).await;
    scene.create("unscaled", target(Some("v1"), "ConfigMap", "old")).await;
    scene.create("custom", target(Some("llmd.ai/v1alpha1"), "VariantAutoscaling", "missing")).await;
    scene.pass().await;
    for (name, replicas) in [("set", 2), ("old", 3)] {
        assert_eq!(scene.desired(name).await, Some(replicas), "{name}");
    }
    for (name, truth, words) in [
        ("none", "False", "Scale target ReplicationController none not found"),
        ("unclear", "Unknown", "spec.scaleTargetRef.apiVersion is missing"),
        ("unserved", "Unknown", "the cluster does not serve kind Rollout of argoproj.io/v1alpha1"),
        ("unscaled", "Unknown", "kind ConfigMap has no scale subresource"),
        ("custom", "Unknown", "kind VariantAutoscaling has no scale subresource"),
    ] {
        let (status, _, message) = condition(&scene.status(name).await, "TargetResolved");
        assert!(status == truth && message.contains(words), "{name}: {status} {message}");
    }
    scene.assert_silent().await;
}

/// A LeaderWorkerSet and an object for it, both of this name. Their CRD is installed once for all tests.
pub async fn create_group(scene: &Scene, name: &str, replicas: i32) {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let kind = GroupVersionKind::gvk("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet");
    let resource = ApiResource::from_gvk_with_plural(&kind, "leaderworkersets");
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let crd: CustomResourceDefinition = object(json!({
        "metadata": { "name": "leaderworkersets.leaderworkerset.x-k8s.io" },
        "spec": { "group": kind.group, "scope": "Namespaced",
            "names": { "kind": kind.kind, "plural": "leaderworkersets", "singular": "leaderworkerset" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }] },
    }));
    INSTALLED.get_or_init(async || install(&scene.admin, &crd, &resource).await).await;
    let groups: Api<DynamicObject> = Api::namespaced_with(scene.admin.clone(), scene.namespace.name(), &resource);
    let template = json!({ "size": 4, "workerTemplate": template("w") });
    let set: DynamicObject = object(json!({ "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": { "name": name }, "spec": { "replicas": replicas, "leaderWorkerTemplate": template } }));
    groups.create(&PostParams::default(), &set).await.unwrap();
    let mut spec = spec(name);
    spec["scaleTargetRef"]["kind"] = "LeaderWorkerSet".into();
    scene.create(name, spec).await;
}

#[tokio::test]
async fn a_group_of_pods_is_one_replica() {
    let Some(scene) = Scene::new("groups").await else { return };
    create_group(&scene, "wide", 2).await;
    scene.pass().await;
    let status = scene.status("wide").await;
    assert_eq!(status["currentAlloc"]["numReplicas"], 2, "groups, not pods: {status}");
}

#[tokio::test]
async fn only_the_namespace_that_is_watched_and_nothing_that_is_excluded_is_acted_on() {
    let Some(scene) = Scene::new("scope").await else { return };
    let excluded = scene.cluster.namespace_with("excluded", &[("wva.llmd.ai/exclude", "true")]).await.unwrap();
    for namespace in [&scene.namespace, &excluded] {
        deploy(namespace, "decode", 2).await.unwrap();
        let made = create(&scene.admin, namespace.name(), "v", spec("decode")).await.unwrap();
        let label = json!({ "metadata": { "labels": { "wva.llmd.ai/controller-instance": "scope-test" } } });
        let objects = objects(&scene.admin, namespace.name());
        let name = made.metadata.name.unwrap();
        objects.patch(&name, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    }
    let settled = async |namespace: &str| {
        objects(&scene.admin, namespace).get("v").await.unwrap().data["status"]["actuation"]["applied"] == true
    };
    let elsewhere = Scope::Namespace(scene.settings.name().to_owned());
    let given_there = given(scene.cluster, scene.admin.clone(), elsewhere, scene.settings.name(), &[]);
    let passed = pass(&FleetController::new(&given_there, DebounceConfig::default())).await.unwrap();
    assert_eq!(passed.decided, 0);
    assert!(!settled(scene.namespace.name()).await);

    // Cluster-wide there are objects of other tests, which are not ours by their label.
    let ours = [("CONTROLLER_INSTANCE", "scope-test")];
    let given_all = given(scene.cluster, scene.admin.clone(), Scope::Cluster, scene.settings.name(), &ours);
    let variants = FleetController::new(&given_all, DebounceConfig::default());
    let passed = pass(&variants).await.unwrap();
    assert_eq!(passed.decided, 1);
    assert!(settled(scene.namespace.name()).await && !settled(excluded.name()).await);
    let text = given_all.controller.metrics.text().unwrap();
    assert!(text.contains("controller_instance=\"scope-test\"} 2") && !text.contains(excluded.name()), "{text}");

    let namespaces: Api<CoreNamespace> = Api::all(scene.admin.clone());
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "wva.llmd.ai/exclude": null } } }));
    namespaces.patch(excluded.name(), &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(pass(&variants).await.unwrap().decided, 2);
    assert!(settled(excluded.name()).await);

    // From now on left alone again, which it is told with its last write, also by an operator that only starts then.
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "wva.llmd.ai/exclude": "true" } } }));
    namespaces.patch(excluded.name(), &PatchParams::default(), &patch).await.unwrap();
    let variants = FleetController::new(&given_all, DebounceConfig::default());
    assert_eq!(pass(&variants).await.unwrap().decided, 1);
    let told = async || objects(&scene.admin, excluded.name()).get("v").await.unwrap();
    let before = told().await;
    assert_eq!(condition(&before.data["status"], "OptimizationReady").1, "NamespaceExcluded");
    assert!(!given_all.controller.metrics.text().unwrap().contains(excluded.name()), "its series is gone");
    pass(&variants).await.unwrap();
    pass(&FleetController::new(&given_all, DebounceConfig::default())).await.unwrap();
    assert_eq!(told().await.metadata.resource_version, before.metadata.resource_version, "once");
}

#[tokio::test]
async fn whose_namespace_is_excluded_while_a_pass_is_under_way_is_not_shown_by_it() {
    let Some(scene) = Scene::new("midway").await else { return };
    scene.deploy("decode", 2).await;
    scene.create("v", spec("decode")).await;
    let label = json!({ "metadata": { "labels": { "wva.llmd.ai/controller-instance": "midway" } } });
    scene.objects().patch("v", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    let ours = [("CONTROLLER_INSTANCE", "midway")];
    let given = given(scene.cluster, scene.admin.clone(), Scope::Cluster, scene.settings.name(), &ours);
    let variants = FleetController::new(&given, DebounceConfig::default());
    pass(&variants).await.unwrap();
    let shown = || given.controller.metrics.text().unwrap().contains(scene.namespace.name());
    assert!(shown());

    // A Prometheus that listens and says nothing holds the next pass up.
    let prometheus = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}", prometheus.local_addr().unwrap());
    scene.set(MAIN, json!({ "PROMETHEUS_BASE_URL": address })).await;
    variants.fill().await.unwrap();
    let meanwhile = async {
        let asked = prometheus.accept().await.unwrap();
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "wva.llmd.ai/exclude": "true" } } }));
        let namespaces: Api<CoreNamespace> = Api::all(scene.admin.clone());
        namespaces.patch(scene.namespace.name(), &PatchParams::default(), &patch).await.unwrap();
        variants.fill().await.unwrap();
        drop((asked, prometheus));
    };
    let (passed, ()) = tokio::join!(variants.reconcile(), meanwhile);
    assert_eq!((passed.decided, passed.conflicts, passed.written), (1, 1, 0));
    assert!(!shown(), "{}", given.controller.metrics.text().unwrap());
}

#[tokio::test]
async fn who_is_left_alone_is_told_though_nobody_takes_the_event() {
    let Some(scene) = Scene::new("muted").await else { return };
    scene.deploy("decode", 2).await;
    scene.create("v", spec("decode")).await;
    let label = json!({ "metadata": { "labels": { "wva.llmd.ai/controller-instance": "muted" } } });
    scene.objects().patch("v", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    let ours = [("CONTROLLER_INSTANCE", "muted")];
    let mute = |request: &Request<Body>| request.uri().path().ends_with("/events").then_some(Fate::Hangs);
    let given = given(scene.cluster, scene.admin.clone(), Scope::Cluster, scene.settings.name(), &ours);
    // A little more than a call usually has.
    let server = Server::new(fated(&scene.admin, mute), String::new(), Duration::from_secs(12));
    let controller = ControllerContext { server, ..given.controller.clone() };
    let given = FleetContext { controller, ..given };
    let variants = FleetController::new(&given, DebounceConfig::default());
    pass(&variants).await.unwrap();
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "wva.llmd.ai/exclude": "true" } } }));
    let namespaces: Api<CoreNamespace> = Api::all(scene.admin.clone());
    namespaces.patch(scene.namespace.name(), &PatchParams::default(), &patch).await.unwrap();
    pass(&variants).await.unwrap();
    assert_eq!(condition(&scene.status("v").await, "OptimizationReady").1, "NamespaceExcluded");
}
