//! Texts of the workload variant autoscaler in the whole messages that users see, and the names that its users set. Each
//! row separates the earlier text, which is a contract, from the place before it and from the
//! rest, which may be reworded.

use std::collections::BTreeMap;

use steersman_plan::variant::bounds::Bounds;
use steersman_plan::variant::config::{Config, main_keys, read};
use steersman_plan::variant::fallback::{FallbackInput, Path, Previous, fall_back};
use steersman_plan::variant::gpu_limit::{GpuRequest, limit};
use steersman_plan::variant::{MetricsError, names};
use steersman_reconcile::{EventType, Lookup};

use super::steady;
use crate::variant::config::{SATURATION, SYSTEM, seen as config_sources};
use crate::variant::notes::told as event;
use crate::variant::report::{status, texts, told as condition};
use crate::variant::{a_fleet, a_variant, ago, by_tokens, decision, now, settle, the_model};

#[test]
fn condition_keeps_whole_message() {
    let unset = {
        let mut seen = steady();
        the_model(&mut seen).pods = Err(MetricsError::NotConfigured("set an address".into()));
        seen
    };
    let incomplete = {
        let mut seen = steady();
        the_model(&mut seen).pods.as_mut().unwrap().pop();
        seen
    };
    let missing = {
        let mut seen = steady();
        seen.variants[0].target = Lookup::Known(None);
        seen
    };
    for (seen, type_, reason, kept, ours) in [
        (&unset, "MetricsAvailable", "PrometheusError", "Prometheus API not configured", ": set an address"),
        (
            &incomplete,
            "MetricsAvailable",
            "MetricsMissing",
            "No saturation metrics available - pods may not be ready or metrics not yet scraped",
            ": 1 of 2 ready replicas of variant v have metrics. Replicas stay as they are until the metrics are complete",
        ),
        (
            &missing,
            "TargetResolved",
            "TargetNotFound",
            "Scale target Deployment v-decode not found",
            " in namespace team-a. Create it or correct spec.scaleTargetRef. No replicas are decided until then",
        ),
        (
            &missing,
            "OptimizationReady",
            "OptimizationFailed",
            "Deployment not found",
            ": Deployment v-decode does not exist in namespace team-a; create it or correct spec.scaleTargetRef",
        ),
    ] {
        assert_eq!(condition(&status(seen), type_), texts("False", reason, &[kept, ours].concat()));
    }
}

#[test]
fn invalid_thresholds_keep_whole_message() {
    let place = format!("ConfigMap {SYSTEM}/{SATURATION}, key default: ");
    let tokens = "analyzerName: saturation\n";
    for (entry, message) in [
        ("kvCacheThreshold: 1.5".to_owned(), "kvCacheThreshold must be between 0 and 1, got 1.50"),
        ("queueLengthThreshold: -1".to_owned(), "queueLengthThreshold must be >= 0, got -1.0"),
        ("kvSpareTrigger: -0.5".to_owned(), "kvSpareTrigger must be between 0 and 1, got -0.50"),
        ("queueSpareTrigger: -2".to_owned(), "queueSpareTrigger must be >= 0, got -2.0"),
        ("kvSpareTrigger: 0.9".to_owned(), "kvCacheThreshold (0.80) should be >= kvSpareTrigger (0.90)"),
        (format!("{tokens}scaleUpThreshold: 2"), "scaleUpThreshold must be in (0, 1], got 2.00"),
        (format!("{tokens}scaleDownBoundary: -1"), "scaleDownBoundary must be in (0, 1], got -1.00"),
        (format!("{tokens}scaleDownBoundary: 0.9"), "scaleUpThreshold (0.85) must be > scaleDownBoundary (0.90)"),
    ] {
        let sources = config_sources(&[(SYSTEM, SATURATION, &[("default", &entry)])]);
        let (_, findings) = read(&sources, &Config::default());
        let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(messages, [format!("{place}{message}.")]);
    }
}

#[test]
fn invalid_settings_keep_whole_message() {
    let entry = "modelID: m\nenableScaleToZero: true";
    let duplicate =
        config_sources(&[(SYSTEM, "model-scale-to-zero-config", &[("model.a", entry), ("model.b", entry)])]);
    let mut insecure = config_sources(&[]);
    insecure.environment.insert("PROMETHEUS_BASE_URL".to_owned(), "http://prometheus:9090".to_owned());
    let mut unset = config_sources(&[]);
    unset.environment.clear();
    for (sources, place, kept, ours) in [
        (
            duplicate,
            "ConfigMap steersman-system/model-scale-to-zero-config, key model.b: ",
            "Duplicate modelID found in scale-to-zero ConfigMap - first key wins (lexicographic order)",
            ": m.",
        ),
        (
            insecure,
            "Environment, key PROMETHEUS_BASE_URL: ",
            "HTTPS is required - URL must use https:// scheme: http://prometheus:9090",
            ".",
        ),
        (
            unset,
            "Environment, key PROMETHEUS_BASE_URL: ",
            "no Prometheus configuration found. Please set PROMETHEUS_BASE_URL environment variable or configure via \
             ConfigMap",
            ".",
        ),
    ] {
        let (_, findings) = read(&sources, &Config::default());
        let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(messages, [[place, kept, ours].concat()]);
    }
}

#[test]
fn wva_48_lost_metrics_event_keeps_message() {
    let mut silent = steady();
    settle(&mut silent);
    the_model(&mut silent).pods = Err(MetricsError::QueryFailed("connection refused".into()));
    let found = event(&silent).unwrap();
    let message = "Failed to query Prometheus: connection refused";
    assert_eq!(
        (found.type_, found.reason, found.message.as_str()),
        (EventType::Warning, "MetricsUnavailable", message)
    );
}

/// A variant without a number of an engine: its current replicas, bounds and earlier decision.
fn variant(current: i32, (min, max): (i32, Option<i32>), previous: Previous) -> FallbackInput {
    FallbackInput { bounds: Bounds { min, max }, current, created: ago(120), previous, others_run: false }
}

fn previous(replicas: i32, reason: &str, minutes: Option<i64>) -> Previous {
    Previous { replicas, reason: reason.into(), unclamped_reason: None, at: minutes.map(ago) }
}

#[test]
fn wva_25_fallback_keeps_reasons() {
    let free = (0, None);
    let first = || previous(0, "", None);
    for (path, variant, reason) in [
        (
            Path::LastResort,
            variant(3, free, previous(2, "Earlier", Some(1))),
            "Last resort: deployment discovered late, using current=3 (was 2) = 3",
        ),
        (
            Path::LastResort,
            variant(1, (1, None), previous(2, "Earlier", Some(1))),
            "Last resort: maintaining controller intent: max(minReplicas=1, previousOptimized=2) = 2",
        ),
        (
            Path::LastResort,
            FallbackInput { others_run: true, ..variant(0, free, first()) },
            "Last resort: first run, other variants handling load, starting at 0 = 0",
        ),
        (
            Path::LastResort,
            variant(0, free, first()),
            "Last resort: first run with current=0, using safe default of 1 (waiting for deployment discovery) = 1",
        ),
        (
            Path::LastResort,
            variant(0, free, previous(2, "Earlier", None)),
            "Last resort: preserving previous desired=2 (current temporarily 0) = 2",
        ),
        (
            Path::LastResort,
            variant(1, free, first()),
            "Last resort: first run, using max(minReplicas=0, current=1) = 1",
        ),
        (
            Path::LastResort,
            variant(12, (0, Some(10)), first()),
            "Last resort: first run, using max(minReplicas=0, current=12) (clamped to maxReplicas=10)",
        ),
        (
            Path::Fallback,
            variant(5, (0, Some(3)), previous(5, "Previous optimization", Some(1))),
            "Previous optimization (clamped from 5 to 3 for bounds)",
        ),
        (
            Path::Fallback,
            variant(2, free, previous(2, "", Some(1))),
            "Fallback: preserving previous allocation (no optimizer solution)",
        ),
    ] {
        assert_eq!(fall_back(path, &variant, now()).reason, reason);
    }
}

#[test]
fn wva_42_gpu_limiter_keeps_step_texts() {
    for (offered, target, reason) in [
        (8, 4, "allocated 4 GPUs for +2 replicas"),
        (6, 5, "limited: allocated 2 GPUs for +1 replicas"),
        (4, 3, "no scale-up (target=2, current=2)"),
    ] {
        let accelerator = "A100".to_owned();
        let wanted =
            GpuRequest { accelerator: accelerator.clone(), current: 2, target, gpus: 2, ..GpuRequest::default() };
        let granted = limit(&[wanted], &BTreeMap::from([(accelerator, offered)]));
        assert_eq!(granted[0].reason, reason);
    }
}

#[test]
fn wva_41_token_engine_keeps_whole_reasons() {
    for (kv, replicas, reason) in [
        (0.9, 2, "V2 scale-up (optimizer: cost-aware, required: 8282)"),
        (0.05, 4, "V2 scale-down (optimizer: cost-aware, spare: 46629)"),
    ] {
        let mut seen = a_fleet(vec![a_variant("v", "5", replicas)], kv, 0.0);
        by_tokens(&mut seen);
        assert_eq!(decision(&seen, "v").reason, reason);
    }
}

#[test]
fn labels_annotations_and_variables_keep_names() {
    let keys: Vec<&str> = main_keys().collect();
    for kept in [
        "GLOBAL_OPT_INTERVAL",
        "PROMETHEUS_BASE_URL",
        "PROMETHEUS_TLS_INSECURE_SKIP_VERIFY",
        "PROMETHEUS_CA_CERT_PATH",
        "PROMETHEUS_CLIENT_CERT_PATH",
        "PROMETHEUS_CLIENT_KEY_PATH",
        "PROMETHEUS_SERVER_NAME",
        "PROMETHEUS_BEARER_TOKEN",
        "PROMETHEUS_TOKEN_PATH",
    ] {
        assert!(keys.contains(&kept), "{kept}");
    }
    for (name, expected) in [
        (names::ACCELERATOR_LABEL, "inference.optimization/acceleratorName"),
        (names::INSTANCE_LABEL, "wva.llmd.ai/controller-instance"),
        (names::CONFIG_LABEL, "wva.llmd.ai/config-enabled"),
        (names::EXCLUDE_ANNOTATION, "wva.llmd.ai/exclude"),
        (names::NODES_VARIABLE, "WVA_NODE_SELECTOR"),
        (names::INSTANCE_VARIABLE, "CONTROLLER_INSTANCE"),
    ] {
        assert_eq!(name, expected);
    }
}
