//! Settings in ConfigMaps: which value applies, and how invalid values are reported.

use k8s_openapi::api::core::v1::Namespace as CoreNamespace;
use k8s_openapi::api::events::v1::Event;

use super::*;

/// A Prometheus that refuses every connection, so that each query fails at once with the same message.
const UNREACHABLE_PROMETHEUS: &str = "https://127.0.0.1:1";

async fn config_events(test: &TestNamespace) -> Vec<String> {
    let events = test.settings.api::<Event>().list(&ListParams::default()).await.unwrap();
    events.items.into_iter().filter_map(|event| event.note).filter(|note| !note.contains("PROMETHEUS")).collect()
}

#[tokio::test]
async fn invalid_value_keeps_last_valid_and_is_reported() {
    let Some(test) = TestNamespace::new("faults").await else { return };
    test.deploy("decode", 2).await;
    test.create("v", spec("decode")).await;
    test.set_config(
        MAIN_CONFIG,
        json!({ "GLOBAL_OPT_INTERVAL": "45s", "PROMETHEUS_BASE_URL": UNREACHABLE_PROMETHEUS }),
    )
    .await;
    let controller = test.controller(test.admin.clone());
    assert_eq!(reconcile_fleet(&controller).await.unwrap().interval.as_secs(), 45);
    assert_eq!(condition(&test.status("v").await, "ConfigurationValid").0, "");

    test.set_config(MAIN_CONFIG, json!({ "GLOBAL_OPT_INTERVAL": "soon" })).await;
    assert_eq!(reconcile_fleet(&controller).await.unwrap().interval.as_secs(), 45, "the last valid value applies");
    let (truth, reason, message) = condition(&test.status("v").await, "ConfigurationValid");
    assert_eq!((truth.as_str(), reason.as_str()), ("False", "ConfigValueInvalid"));
    let place = format!("ConfigMap {}/{MAIN_CONFIG}, key GLOBAL_OPT_INTERVAL: ", test.settings.name());
    assert!(message.starts_with(&place), "{message}");
    let events = config_events(&test).await;
    assert!(events.len() == 1 && events[0].starts_with(&place), "{events:?}");

    // The event is not repeated, neither by this controller nor by a new one.
    reconcile_fleet(&controller).await.unwrap();
    assert_eq!(
        test.reconcile().await.interval.as_secs(),
        60,
        "a controller that never read a valid value uses the default"
    );
    assert_eq!(config_events(&test).await.len(), 1);
    test.assert_no_writes().await;

    test.set_config(MAIN_CONFIG, json!({ "GLOBAL_OPT_INTERVAL": "30s" })).await;
    assert_eq!(reconcile_fleet(&controller).await.unwrap().interval.as_secs(), 30);
    assert_eq!(condition(&test.status("v").await, "ConfigurationValid").0, "", "the condition is removed");
}

#[tokio::test]
async fn conflicting_entries_are_reported() {
    let Some(test) = TestNamespace::new("clash").await else { return };
    test.deploy("decode", 2).await;
    test.create("v", spec("decode")).await;
    test.set_config(MAIN_CONFIG, json!({ "PROMETHEUS_BASE_URL": UNREACHABLE_PROMETHEUS })).await;
    let map = "workload-variant-autoscaler-saturation-scaling-config";
    let (wide, narrow) = ("model_id: meta/llama\nkvSpareTrigger: 0.5", "model_id: meta/llama\nkvCacheThreshold: 0.3");
    test.set_config(map, json!({ "wide": wide, "narrow": narrow })).await;
    test.reconcile().await;
    let (truth, reason, message) = condition(&test.status("v").await, "ConfigurationValid");
    assert_eq!((truth.as_str(), reason.as_str()), ("False", "ConfigEntriesClash"));
    let words = format!(
        "ConfigMap {}/{map}, keys narrow and wide contradict each other for model meta/llama: kvCacheThreshold (0.30) should \
         be >= kvSpareTrigger (0.50).",
        test.settings.name()
    );
    assert!(message.starts_with(&words) && message.contains("Change one of the entries"), "{message}");
    let events = config_events(&test).await;
    assert!(events.len() == 1 && events[0].starts_with(&words), "{events:?}");
    test.assert_no_writes().await;
    test.set_config(map, json!({ "narrow": "model_id: meta/llama\nkvCacheThreshold: 0.6" })).await;
    test.reconcile().await;
    assert_eq!(condition(&test.status("v").await, "ConfigurationValid").0, "", "the condition is removed");
}

#[tokio::test]
async fn missing_prometheus_is_reported_and_nothing_scales() {
    let Some(test) = TestNamespace::new("unmeasured").await else { return };
    test.deploy("decode", 2).await;
    test.create("v", spec("decode")).await;
    test.set_config(MAIN_CONFIG, json!({ "PROMETHEUS_BASE_URL": "http://user:secret@prometheus.example:9090" })).await;
    test.reconcile().await;
    let status = test.status("v").await;
    let (_, _, fault) = condition(&status, "ConfigurationValid");
    assert!(fault.contains("HTTPS is required - URL must use https:// scheme: http://…@prometheus.example"), "{fault}");
    let (_, reason, message) = condition(&status, "MetricsAvailable");
    assert_eq!(reason, "PrometheusError");
    assert!(message.starts_with("Prometheus API not configured: set PROMETHEUS_BASE_URL"), "{message}");
    assert_eq!(test.desired("v").await, Some(2));
    let written = format!("{status}{:?}", test.settings.api::<Event>().list(&ListParams::default()).await.unwrap());
    assert!(!written.contains("secret@"), "{written}");
}

#[tokio::test]
async fn stored_decision_is_exported_before_first_reconcile() {
    let Some(test) = TestNamespace::new("republish").await else { return };
    test.create("v", spec("decode")).await;
    let status = json!({ "currentAlloc": { "numReplicas": 2 }, "desiredOptimizedAlloc": { "numReplicas": 7,
        "lastRunTime": "2026-11-16T06:00:00Z",
        "lastUpdate": { "updateTime": "2026-11-16T06:00:00Z", "numReplicasChanged": 5, "reason": "earlier" } } });
    let patch = Patch::Merge(json!({ "status": status }));
    test.objects().patch_status("v", &PatchParams::default(), &patch).await.unwrap();
    let scope = Scope::Namespace(test.namespace.name().to_owned());
    let context = fleet_context(test.cluster, test.admin.clone(), scope, test.settings.name(), &[]);
    let variants = FleetController::new(&context, DebounceConfig::default());
    variants.fill().await.unwrap();
    variants.republish();
    let labels = format!(
        "target_name=\"decode\",target_kind=\"Deployment\",variant_name=\"v\",namespace=\"{}\",accelerator_type=\"A100\"",
        test.namespace.name()
    );
    let text = context.controller.metrics.text().unwrap();
    for line in [
        format!("wva_desired_replicas{{{labels}}} 7"),
        format!("wva_current_replicas{{{labels}}} 2"),
        format!("wva_desired_ratio{{{labels}}} 3.5"),
    ] {
        assert!(text.lines().any(|known| known == line), "{line} in\n{text}");
    }
    variants.reconcile().await;
    assert!(
        context.controller.metrics.text().unwrap().contains(&format!("wva_desired_replicas{{{labels}}} 7")),
        "the exported decision must stay"
    );
    drop(variants);
    assert!(
        !context.controller.metrics.text().unwrap().contains("wva_desired_replicas{"),
        "a controller that does not lead must export nothing"
    );
}

#[tokio::test]
async fn namespace_config_map_applies_to_its_objects() {
    let Some(test) = TestNamespace::new("local").await else { return };
    test.deploy("decode", 1).await;
    test.create("v", spec("decode")).await;
    test.set_config(MAIN_CONFIG, json!({ "PROMETHEUS_BASE_URL": UNREACHABLE_PROMETHEUS })).await;
    set_config_map(&test.namespace, "wva-saturation-scaling-config", json!({ "default": "kvCacheThreshold: 7" })).await;
    // A ConfigMap of this name counts only in the operator's own namespaces.
    set_config_map(&test.namespace, MAIN_CONFIG, json!({ "GLOBAL_OPT_INTERVAL": "soon" })).await;
    test.reconcile().await;
    let (_, _, fault) = condition(&test.status("v").await, "ConfigurationValid");
    let place = format!("ConfigMap {}/wva-saturation-scaling-config, key default: ", test.namespace.name());
    assert!(fault.starts_with(&place) && !fault.contains("soon"), "{fault}");
}

/// ConfigMaps of a namespace without objects count if the namespace is labelled, and never if it is excluded.
#[tokio::test]
async fn empty_namespace_config_counts_when_labelled() {
    let Some(test) = TestNamespace::new("labelled").await else { return };
    let namespace = test.cluster.namespace("later").await.unwrap();
    let bad = json!({ "default": "kvCacheThreshold: 7" });
    set_config_map(&namespace, "wva-saturation-scaling-config", bad).await;
    test.create("v", spec("decode")).await;
    let labels = Patch::Merge(json!({ "metadata": { "labels": { "wva.llmd.ai/controller-instance": "labelled" } } }));
    test.objects().patch("v", &PatchParams::default(), &labels).await.unwrap();
    let variables = [("CONTROLLER_INSTANCE", "labelled")];
    let context = fleet_context(test.cluster, test.admin.clone(), Scope::Cluster, test.settings.name(), &variables);
    let variants = FleetController::new(&context, DebounceConfig::default());
    let event_count = async || namespace.api::<Event>().list(&ListParams::default()).await.unwrap().items.len();
    let namespaces: Api<CoreNamespace> = Api::all(test.admin.clone());
    let patch_and_reconcile = async |patch: Value| {
        namespaces.patch(namespace.name(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        reconcile_fleet(&variants).await.unwrap();
    };
    patch_and_reconcile(json!({ "metadata": { "labels": { "wva.llmd.ai/config-enabled": "true" },
        "annotations": { "wva.llmd.ai/exclude": "true" } } }))
    .await;
    assert_eq!(event_count().await, 0, "an excluded namespace must be ignored");
    patch_and_reconcile(json!({ "metadata": { "labels": { "wva.llmd.ai/config-enabled": null },
        "annotations": { "wva.llmd.ai/exclude": null } } }))
    .await;
    assert_eq!(event_count().await, 0, "an unlabelled namespace without objects must be ignored");
    patch_and_reconcile(json!({ "metadata": { "labels": { "wva.llmd.ai/config-enabled": "true" } } })).await;
    assert_eq!(event_count().await, 1, "a labelled namespace counts");
}
