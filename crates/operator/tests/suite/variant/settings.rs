//! Settings: what holds, what is bad in them, and who is told.

use k8s_openapi::api::core::v1::Namespace as CoreNamespace;
use k8s_openapi::api::events::v1::Event;

use super::*;

/// Where every call is refused at once, in the same words.
const NOBODY: &str = "https://127.0.0.1:1";

async fn faults(scene: &Scene) -> Vec<String> {
    let events = scene.settings.all::<Event>().list(&ListParams::default()).await.unwrap();
    events.items.into_iter().filter_map(|event| event.note).filter(|note| !note.contains("PROMETHEUS")).collect()
}

#[tokio::test]
async fn a_bad_value_leaves_the_last_good_one_and_is_told_where_it_is_and_on_the_objects() {
    let Some(scene) = Scene::new("faults").await else { return };
    scene.deploy("decode", 2).await;
    scene.create("v", spec("decode")).await;
    scene.set(MAIN, json!({ "GLOBAL_OPT_INTERVAL": "45s", "PROMETHEUS_BASE_URL": NOBODY })).await;
    let controller = scene.controller(scene.admin.clone());
    assert_eq!(pass(&controller).await.unwrap().interval.as_secs(), 45);
    assert_eq!(condition(&scene.status("v").await, "ConfigurationValid").0, "");

    scene.set(MAIN, json!({ "GLOBAL_OPT_INTERVAL": "soon" })).await;
    assert_eq!(pass(&controller).await.unwrap().interval.as_secs(), 45, "the last good one");
    let (truth, reason, message) = condition(&scene.status("v").await, "ConfigurationValid");
    assert_eq!((truth.as_str(), reason.as_str()), ("False", "ConfigValueInvalid"));
    let place = format!("ConfigMap {}/{MAIN}, key GLOBAL_OPT_INTERVAL: ", scene.settings.name());
    assert!(message.starts_with(&place), "{message}");
    let told = faults(&scene).await;
    assert!(told.len() == 1 && told[0].starts_with(&place), "{told:?}");

    // Neither the same process nor the next one tells it again.
    pass(&controller).await.unwrap();
    assert_eq!(scene.pass().await.interval.as_secs(), 60, "who never saw a good one takes the default");
    assert_eq!(faults(&scene).await.len(), 1);
    scene.assert_silent().await;

    scene.set(MAIN, json!({ "GLOBAL_OPT_INTERVAL": "30s" })).await;
    assert_eq!(pass(&controller).await.unwrap().interval.as_secs(), 30);
    assert_eq!(condition(&scene.status("v").await, "ConfigurationValid").0, "", "mended");
}

#[tokio::test]
async fn entries_that_cannot_hold_together_are_told_where_they_are_and_on_the_objects() {
    let Some(scene) = Scene::new("clash").await else { return };
    scene.deploy("decode", 2).await;
    scene.create("v", spec("decode")).await;
    scene.set(MAIN, json!({ "PROMETHEUS_BASE_URL": NOBODY })).await;
    let map = "workload-variant-autoscaler-saturation-scaling-config";
    let (wide, narrow) = ("model_id: meta/llama\nkvSpareTrigger: 0.5", "model_id: meta/llama\nkvCacheThreshold: 0.3");
    scene.set(map, json!({ "wide": wide, "narrow": narrow })).await;
    scene.pass().await;
    let (truth, reason, message) = condition(&scene.status("v").await, "ConfigurationValid");
    assert_eq!((truth.as_str(), reason.as_str()), ("False", "ConfigEntriesClash"));
    let words = format!(
        "ConfigMap {}/{map}, keys narrow and wide contradict each other for model meta/llama: kvCacheThreshold (0.30) should \
         be >= kvSpareTrigger (0.50).",
        scene.settings.name()
    );
    assert!(message.starts_with(&words) && message.contains("Change one of them"), "{message}");
    let told = faults(&scene).await;
    assert!(told.len() == 1 && told[0].starts_with(&words), "{told:?}");
    scene.assert_silent().await;
    scene.set(map, json!({ "narrow": "model_id: meta/llama\nkvCacheThreshold: 0.6" })).await;
    scene.pass().await;
    assert_eq!(condition(&scene.status("v").await, "ConfigurationValid").0, "", "mended");
}

#[tokio::test]
async fn without_prometheus_objects_are_told_and_nothing_is_scaled() {
    let Some(scene) = Scene::new("unmeasured").await else { return };
    scene.deploy("decode", 2).await;
    scene.create("v", spec("decode")).await;
    scene.set(MAIN, json!({ "PROMETHEUS_BASE_URL": "http://user:secret@prometheus.example:9090" })).await;
    scene.pass().await;
    let status = scene.status("v").await;
    let (_, _, fault) = condition(&status, "ConfigurationValid");
    assert!(fault.contains("HTTPS is required - URL must use https:// scheme: http://…@prometheus.example"), "{fault}");
    let (_, reason, message) = condition(&status, "MetricsAvailable");
    assert_eq!(reason, "PrometheusError");
    assert!(message.starts_with("Prometheus API not configured: set PROMETHEUS_BASE_URL"), "{message}");
    assert_eq!(scene.desired("v").await, Some(2));
    let said = format!("{status}{:?}", scene.settings.all::<Event>().list(&ListParams::default()).await.unwrap());
    assert!(!said.contains("secret@"), "{said}");
}

#[tokio::test]
async fn what_was_decided_before_a_start_is_shown_before_the_first_pass() {
    let Some(scene) = Scene::new("republish").await else { return };
    scene.create("v", spec("decode")).await;
    let status = json!({ "currentAlloc": { "numReplicas": 2 }, "desiredOptimizedAlloc": { "numReplicas": 7,
        "lastRunTime": "2026-11-16T06:00:00Z",
        "lastUpdate": { "updateTime": "2026-11-16T06:00:00Z", "numReplicasChanged": 5, "reason": "earlier" } } });
    let patch = Patch::Merge(json!({ "status": status }));
    scene.objects().patch_status("v", &PatchParams::default(), &patch).await.unwrap();
    let scope = Scope::Namespace(scene.namespace.name().to_owned());
    let given = given(scene.cluster, scene.admin.clone(), scope, scene.settings.name(), &[]);
    let variants = FleetController::new(&given, DebounceConfig::default());
    variants.fill().await.unwrap();
    variants.republish();
    let labels = format!(
        "target_name=\"decode\",target_kind=\"Deployment\",variant_name=\"v\",namespace=\"{}\",accelerator_type=\"A100\"",
        scene.namespace.name()
    );
    let text = given.controller.metrics.text().unwrap();
    for line in [
        format!("wva_desired_replicas{{{labels}}} 7"),
        format!("wva_current_replicas{{{labels}}} 2"),
        format!("wva_desired_ratio{{{labels}}} 3.5"),
    ] {
        assert!(text.lines().any(|known| known == line), "{line} in\n{text}");
    }
    variants.reconcile().await;
    assert!(
        given.controller.metrics.text().unwrap().contains(&format!("wva_desired_replicas{{{labels}}} 7")),
        "it stays"
    );
    drop(variants);
    assert!(
        !given.controller.metrics.text().unwrap().contains("wva_desired_replicas{"),
        "who does not lead shows nothing"
    );
}

#[tokio::test]
async fn a_namespace_has_settings_of_its_own() {
    let Some(scene) = Scene::new("local").await else { return };
    scene.deploy("decode", 1).await;
    scene.create("v", spec("decode")).await;
    scene.set(MAIN, json!({ "PROMETHEUS_BASE_URL": NOBODY })).await;
    set(&scene.namespace, "wva-saturation-scaling-config", json!({ "default": "kvCacheThreshold: 7" })).await;
    // Of a name that counts only in the operator's own namespaces.
    set(&scene.namespace, MAIN, json!({ "GLOBAL_OPT_INTERVAL": "soon" })).await;
    scene.pass().await;
    let (_, _, fault) = condition(&scene.status("v").await, "ConfigurationValid");
    let place = format!("ConfigMap {}/wva-saturation-scaling-config, key default: ", scene.namespace.name());
    assert!(fault.starts_with(&place) && !fault.contains("soon"), "{fault}");
}

/// Maps of a namespace without objects count once it says so, and those of an excluded one never.
#[tokio::test]
async fn a_namespace_without_objects_has_settings_once_it_is_labelled() {
    let Some(scene) = Scene::new("labelled").await else { return };
    let here = scene.cluster.namespace("later").await.unwrap();
    let bad = json!({ "default": "kvCacheThreshold: 7" });
    set(&here, "wva-saturation-scaling-config", bad).await;
    scene.create("v", spec("decode")).await;
    let labels = Patch::Merge(json!({ "metadata": { "labels": { "wva.llmd.ai/controller-instance": "labelled" } } }));
    scene.objects().patch("v", &PatchParams::default(), &labels).await.unwrap();
    let ours = [("CONTROLLER_INSTANCE", "labelled")];
    let given = given(scene.cluster, scene.admin.clone(), Scope::Cluster, scene.settings.name(), &ours);
    let variants = FleetController::new(&given, DebounceConfig::default());
    let told = async || here.all::<Event>().list(&ListParams::default()).await.unwrap().items.len();
    let namespaces: Api<CoreNamespace> = Api::all(scene.admin.clone());
    let mark = async |patch: Value| {
        namespaces.patch(here.name(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        pass(&variants).await.unwrap();
    };
    mark(json!({ "metadata": { "labels": { "wva.llmd.ai/config-enabled": "true" },
        "annotations": { "wva.llmd.ai/exclude": "true" } } }))
    .await;
    assert_eq!(told().await, 0, "excluded");
    mark(json!({ "metadata": { "labels": { "wva.llmd.ai/config-enabled": null },
        "annotations": { "wva.llmd.ai/exclude": null } } }))
    .await;
    assert_eq!(told().await, 0, "nobody's");
    mark(json!({ "metadata": { "labels": { "wva.llmd.ai/config-enabled": "true" } } })).await;
    assert_eq!(told().await, 1, "labelled");
}
