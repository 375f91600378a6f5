//! Scale targets: of any kind and name, missing, created late, scaled manually, or shared by two objects.

use std::time::Duration;

use http::Request;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, Namespace as CoreNamespace, ReplicationController};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams};
use kube::client::Body;
use kube::core::GroupVersionKind;
use steersman_runtime::client::Server;
use steersman_testkit::fault_injection::{RequestFault, inject_by_request};
use steersman_testkit::wait;
use tokio::net::TcpListener;

use super::*;

#[tokio::test]
async fn object_name_may_differ_from_target_name() {
    let Some(test) = TestNamespace::new("names").await else { return };
    test.deploy("vllm-deployment", 2).await;
    test.deploy("other", 5).await;
    test.create("my-variant-a100-config", spec("vllm-deployment")).await;
    // A Deployment with the name of the object is not its target.
    test.deploy("my-variant-a100-config", 7).await;
    let outcome = test.reconcile().await;
    assert_eq!((outcome.decided, outcome.written), (1, 1));
    let status = test.status("my-variant-a100-config").await;
    assert_eq!(status["currentAlloc"]["numReplicas"], 2, "{status}");
    assert_eq!(status["desiredOptimizedAlloc"]["numReplicas"], 2, "{status}");
    assert_eq!(status["actuation"]["applied"], true);
    let found = "Scale target Deployment vllm-deployment found";
    assert_eq!(condition(&status, "TargetResolved"), ("True".into(), "TargetFound".into(), found.into()));
    let (metrics, reason, message) = condition(&status, "MetricsAvailable");
    assert_eq!((metrics.as_str(), reason.as_str()), ("False", "PrometheusError"));
    assert!(message.contains("set PROMETHEUS_BASE_URL in the main ConfigMap"), "{message}");
    test.assert_no_writes().await;
}

#[tokio::test]
async fn late_or_manually_scaled_target_is_followed() {
    let Some(test) = TestNamespace::new("late").await else { return };
    test.create("late", spec("decode")).await;
    test.reconcile().await;
    let status = test.status("late").await;
    let (truth, reason, message) = condition(&status, "TargetResolved");
    assert_eq!((truth.as_str(), reason.as_str()), ("False", "TargetNotFound"));
    assert!(message.starts_with("Scale target Deployment decode not found in namespace "), "{message}");
    assert!(condition(&status, "OptimizationReady").2.starts_with("Deployment not found: "), "{status}");
    assert_eq!(condition(&status, "MetricsAvailable").1, "MetricsMissing", "the printed column must not be empty");
    assert_eq!(test.desired("late").await, None, "there is no decision without a target");
    test.assert_no_writes().await;
    let events = test.namespace.api::<Event>().list(&ListParams::default()).await.unwrap();
    let reasons: Vec<_> = events.items.iter().filter_map(|event| event.reason.as_deref()).collect();
    assert_eq!(reasons, ["OptimizationFailed"]);

    test.deploy("decode", 2).await;
    test.reconcile().await;
    assert_eq!(test.desired("late").await, Some(2));
    assert_eq!(condition(&test.status("late").await, "TargetResolved").1, "TargetFound");
    test.scale("decode", 4).await;
    test.reconcile().await;
    assert_eq!(test.desired("late").await, Some(4), "without metrics, manual scaling is not reverted");
    test.assert_no_writes().await;

    test.namespace.api::<Deployment>().delete("decode", &DeleteParams::default()).await.unwrap();
    test.reconcile().await;
    let status = test.status("late").await;
    assert_eq!(condition(&status, "TargetResolved").1, "TargetNotFound");
    assert_eq!(status["desiredOptimizedAlloc"]["numReplicas"], 4, "the last decision is kept");
    assert_eq!(status["currentAlloc"]["numReplicas"], 4, "the last observed replicas are kept");
    test.assert_no_writes().await;
}

#[tokio::test]
async fn older_object_wins_shared_target() {
    let Some(test) = TestNamespace::new("rivals").await else { return };
    test.deploy("decode", 3).await;
    test.create("zeta", spec("decode")).await;
    // Creation timestamps have a resolution of one second.
    let created = test.objects().get("zeta").await.unwrap().metadata.creation_timestamp.unwrap().0;
    let later = async || (Timestamp::now().as_second() > created.as_second()).then_some(());
    wait::eventually("a second later", later).await.unwrap();
    test.create("alpha", spec("decode")).await;
    let scope = Scope::Namespace(test.namespace.name().to_owned());
    let context = fleet_context(test.cluster, test.admin.clone(), scope, test.settings.name(), &[]);
    let controller = FleetController::new(&context, DebounceConfig::default());
    reconcile_fleet(&controller).await.unwrap();
    let namespace = test.namespace.name();
    let contested =
        format!("wva_deployment_target_conflicts_total{{deployment=\"decode\",namespace=\"{namespace}\"}} 2");
    let lost = format!(
        "wva_conflict_resolution_status{{variant_name=\"alpha\",namespace=\"{namespace}\",deployment=\"decode\",\
         resolution=\"suppressed\"}} 0"
    );
    let text = context.controller.metrics.text().unwrap();
    assert!(text.contains(&contested) && text.contains(&lost), "{text}");
    assert_eq!(text.matches("wva_desired_replicas{").count(), 1, "only the winner is exported: {text}");
    let (winner, loser) = (test.status("zeta").await, test.status("alpha").await);
    assert_eq!(condition(&winner, "DeploymentTargetConflict").1, "ConflictResolvedByArbitration");
    let (_, reason, message) = condition(&loser, "DeploymentTargetConflict");
    assert_eq!(reason, "SuppressedDueToConflict");
    assert!(message.contains(&format!("{}/zeta", test.namespace.name())), "{message}");
    assert_eq!(condition(&loser, "Ready").2, "Suppressed due to deployment target conflict");
    assert_eq!((test.desired("zeta").await, test.desired("alpha").await), (Some(3), None));
    test.assert_no_writes().await;

    test.objects().delete("zeta", &DeleteParams::default()).await.unwrap();
    reconcile_fleet(&controller).await.unwrap();
    let text = context.controller.metrics.text().unwrap();
    assert!(
        !text.contains("wva_deployment_target_conflicts_total{") && text.contains("variant_name=\"alpha\""),
        "{text}"
    );
    let status = test.status("alpha").await;
    assert_eq!(test.desired("alpha").await, Some(3));
    for resolved in ["DeploymentTargetConflict", "Ready"] {
        assert_eq!(condition(&status, resolved).0, "", "{status}");
    }
}

#[tokio::test]
async fn any_kind_with_scale_subresource_is_target() {
    let Some(test) = TestNamespace::new("kinds").await else { return };
    let set: StatefulSet = object(json!({
        "metadata": { "name": "set" }, "spec": { "replicas": 2, "serviceName": "set",
        "selector": { "matchLabels": { "app": "set" } }, "template": template("set") },
    }));
    test.namespace.api().create(&PostParams::default(), &set).await.unwrap();
    let old: ReplicationController =
        object(json!({ "metadata": { "name": "old" }, "spec": { "replicas": 3, "template": template("old") } }));
    test.namespace.api().create(&PostParams::default(), &old).await.unwrap();
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
    test.create("set", target(Some("apps/v1"), "StatefulSet", "set")).await;
    test.create("old", target(Some("v1"), "ReplicationController", "old")).await;
    test.create("none", target(Some("v1"), "ReplicationController", "none")).await;
    test.create("unclear", target(None, "Rollout", "old")).await;
    test.create("unserved", target(Some("argoproj.io/v1alpha1"), "Rollout", "old")).await;
    test.create("unscaled", target(Some("v1"), "ConfigMap", "old")).await;
    test.create("custom", target(Some("llmd.ai/v1alpha1"), "VariantAutoscaling", "missing")).await;
    test.reconcile().await;
    for (name, replicas) in [("set", 2), ("old", 3)] {
        assert_eq!(test.desired(name).await, Some(replicas), "{name}");
    }
    for (name, truth, words) in [
        ("none", "False", "Scale target ReplicationController none not found"),
        ("unclear", "Unknown", "spec.scaleTargetRef.apiVersion is missing"),
        ("unserved", "Unknown", "the cluster does not serve kind Rollout of argoproj.io/v1alpha1"),
        ("unscaled", "Unknown", "kind ConfigMap has no scale subresource"),
        ("custom", "Unknown", "kind VariantAutoscaling has no scale subresource"),
    ] {
        let (status, _, message) = condition(&test.status(name).await, "TargetResolved");
        assert!(status == truth && message.contains(words), "{name}: {status} {message}");
    }
    test.assert_no_writes().await;
}

/// Creates a LeaderWorkerSet and an object for it, both with this name. Installs the CRD once for all tests.
pub async fn create_group(test: &TestNamespace, name: &str, replicas: i32) {
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
    INSTALLED.get_or_init(async || install_crd(&test.admin, &crd, &resource).await).await;
    let groups: Api<DynamicObject> = Api::namespaced_with(test.admin.clone(), test.namespace.name(), &resource);
    let template = json!({ "size": 4, "workerTemplate": template("w") });
    let set: DynamicObject = object(json!({ "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": { "name": name }, "spec": { "replicas": replicas, "leaderWorkerTemplate": template } }));
    groups.create(&PostParams::default(), &set).await.unwrap();
    let mut spec = spec(name);
    spec["scaleTargetRef"]["kind"] = "LeaderWorkerSet".into();
    test.create(name, spec).await;
}

#[tokio::test]
async fn leader_worker_group_counts_as_one_replica() {
    let Some(test) = TestNamespace::new("groups").await else { return };
    create_group(&test, "wide", 2).await;
    test.reconcile().await;
    let status = test.status("wide").await;
    assert_eq!(status["currentAlloc"]["numReplicas"], 2, "replicas count groups, not pods: {status}");
}

#[tokio::test]
async fn only_watched_and_not_excluded_namespaces_are_reconciled() {
    let Some(test) = TestNamespace::new("scope").await else { return };
    let excluded =
        test.cluster.namespace_with_annotations("excluded", &[("wva.llmd.ai/exclude", "true")]).await.unwrap();
    for namespace in [&test.namespace, &excluded] {
        deploy(namespace, "decode", 2).await.unwrap();
        let made = create(&test.admin, namespace.name(), "v", spec("decode")).await.unwrap();
        let label = json!({ "metadata": { "labels": { "wva.llmd.ai/controller-instance": "scope-test" } } });
        let objects = objects(&test.admin, namespace.name());
        let name = made.metadata.name.unwrap();
        objects.patch(&name, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    }
    let is_applied = async |namespace: &str| {
        objects(&test.admin, namespace).get("v").await.unwrap().data["status"]["actuation"]["applied"] == true
    };
    let elsewhere = Scope::Namespace(test.settings.name().to_owned());
    let other_context = fleet_context(test.cluster, test.admin.clone(), elsewhere, test.settings.name(), &[]);
    let outcome = reconcile_fleet(&FleetController::new(&other_context, DebounceConfig::default())).await.unwrap();
    assert_eq!(outcome.decided, 0);
    assert!(!is_applied(test.namespace.name()).await);

    // The label keeps this cluster-wide controller from the objects of other tests.
    let variables = [("CONTROLLER_INSTANCE", "scope-test")];
    let cluster_context =
        fleet_context(test.cluster, test.admin.clone(), Scope::Cluster, test.settings.name(), &variables);
    let variants = FleetController::new(&cluster_context, DebounceConfig::default());
    let outcome = reconcile_fleet(&variants).await.unwrap();
    assert_eq!(outcome.decided, 1);
    assert!(is_applied(test.namespace.name()).await && !is_applied(excluded.name()).await);
    let text = cluster_context.controller.metrics.text().unwrap();
    assert!(text.contains("controller_instance=\"scope-test\"} 2") && !text.contains(excluded.name()), "{text}");

    let namespaces: Api<CoreNamespace> = Api::all(test.admin.clone());
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "wva.llmd.ai/exclude": null } } }));
    namespaces.patch(excluded.name(), &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(reconcile_fleet(&variants).await.unwrap().decided, 2);
    assert!(is_applied(excluded.name()).await);

    // Excluded again: the status reports it once, even if the operator starts after the exclusion.
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "wva.llmd.ai/exclude": "true" } } }));
    namespaces.patch(excluded.name(), &PatchParams::default(), &patch).await.unwrap();
    let variants = FleetController::new(&cluster_context, DebounceConfig::default());
    assert_eq!(reconcile_fleet(&variants).await.unwrap().decided, 1);
    let excluded_object = async || objects(&test.admin, excluded.name()).get("v").await.unwrap();
    let before = excluded_object().await;
    assert_eq!(condition(&before.data["status"], "OptimizationReady").1, "NamespaceExcluded");
    assert!(
        !cluster_context.controller.metrics.text().unwrap().contains(excluded.name()),
        "the series of the excluded namespace must be removed"
    );
    reconcile_fleet(&variants).await.unwrap();
    reconcile_fleet(&FleetController::new(&cluster_context, DebounceConfig::default())).await.unwrap();
    assert_eq!(
        excluded_object().await.metadata.resource_version,
        before.metadata.resource_version,
        "the exclusion is reported once"
    );
}

#[tokio::test]
async fn namespace_excluded_during_reconcile_is_not_exported() {
    let Some(test) = TestNamespace::new("midway").await else { return };
    test.deploy("decode", 2).await;
    test.create("v", spec("decode")).await;
    let label = json!({ "metadata": { "labels": { "wva.llmd.ai/controller-instance": "midway" } } });
    test.objects().patch("v", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    let variables = [("CONTROLLER_INSTANCE", "midway")];
    let context = fleet_context(test.cluster, test.admin.clone(), Scope::Cluster, test.settings.name(), &variables);
    let variants = FleetController::new(&context, DebounceConfig::default());
    reconcile_fleet(&variants).await.unwrap();
    let exported = || context.controller.metrics.text().unwrap().contains(test.namespace.name());
    assert!(exported());

    // A Prometheus that accepts connections but never answers delays the next reconcile.
    let prometheus = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}", prometheus.local_addr().unwrap());
    test.set_config(MAIN_CONFIG, json!({ "PROMETHEUS_BASE_URL": address })).await;
    variants.fill().await.unwrap();
    let exclude_meanwhile = async {
        let connection = prometheus.accept().await.unwrap();
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "wva.llmd.ai/exclude": "true" } } }));
        let namespaces: Api<CoreNamespace> = Api::all(test.admin.clone());
        namespaces.patch(test.namespace.name(), &PatchParams::default(), &patch).await.unwrap();
        variants.fill().await.unwrap();
        drop((connection, prometheus));
    };
    let (outcome, ()) = tokio::join!(variants.reconcile(), exclude_meanwhile);
    assert_eq!((outcome.decided, outcome.conflicts, outcome.written), (1, 1, 0));
    assert!(!exported(), "{}", context.controller.metrics.text().unwrap());
}

#[tokio::test]
async fn exclusion_is_reported_while_events_hang() {
    let Some(test) = TestNamespace::new("muted").await else { return };
    test.deploy("decode", 2).await;
    test.create("v", spec("decode")).await;
    let label = json!({ "metadata": { "labels": { "wva.llmd.ai/controller-instance": "muted" } } });
    test.objects().patch("v", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    let variables = [("CONTROLLER_INSTANCE", "muted")];
    let hang_events =
        |request: &Request<Body>| request.uri().path().ends_with("/events").then_some(RequestFault::NoResponse);
    let context = fleet_context(test.cluster, test.admin.clone(), Scope::Cluster, test.settings.name(), &variables);
    // A call timeout slightly above the default.
    let server = Server::new(inject_by_request(&test.admin, hang_events), String::new(), Duration::from_secs(12));
    let controller = ControllerContext { server, ..context.controller.clone() };
    let context = FleetContext { controller, ..context };
    let variants = FleetController::new(&context, DebounceConfig::default());
    reconcile_fleet(&variants).await.unwrap();
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "wva.llmd.ai/exclude": "true" } } }));
    let namespaces: Api<CoreNamespace> = Api::all(test.admin.clone());
    namespaces.patch(test.namespace.name(), &PatchParams::default(), &patch).await.unwrap();
    reconcile_fleet(&variants).await.unwrap();
    assert_eq!(condition(&test.status("v").await, "OptimizationReady").1, "NamespaceExcluded");
}
