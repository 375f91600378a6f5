//! Texts of the workload variant autoscaler that stay word for word: contracts with its users, whose alerts, scripts
//! and dashboards match them, so a change here is a breaking change.

mod whole_messages;

use jiff::SignedDuration;
use serde_json::json;
use steersman_api::meta::conditions;
use steersman_plan::variant::config::{Config, ConfigSources, read};
use steersman_plan::variant::{FleetSnapshot, MetricsError, excluded_status, hints};
use steersman_reconcile::{EventType, Lookup, NamespacedName};

use super::config::{SATURATION, SYSTEM, seen as config_sources};
use super::conflict::rivals;
use super::notes::told as event;
use super::report::{status, texts, told as condition};
use super::{
    NAMESPACE, a_fleet, a_variant, accelerators, ago, by_tokens, decided, decision, now, settle, spec, stored, target,
    the_model,
};

/// One variant `v` with two replicas whose metrics ask for another one.
fn saturated() -> FleetSnapshot {
    a_fleet(vec![a_variant("v", "5", 2)], 0.75, 2.0)
}

/// One variant `v` with two replicas whose metrics ask for no change.
fn steady() -> FleetSnapshot {
    a_fleet(vec![a_variant("v", "5", 2)], 0.4, 1.0)
}

fn without_metrics(error: MetricsError) -> FleetSnapshot {
    let mut seen = steady();
    the_model(&mut seen).pods = Err(error);
    seen
}

/// `lastUpdate.reason` of variant `v`.
fn reason(seen: &FleetSnapshot) -> String {
    let update = status(seen).desired_optimized_alloc.clone().unwrap().last_update.unwrap();
    update.reason.unwrap()
}

/// Expects a condition whose message begins with the earlier text, which ours continues with the next step.
#[track_caller]
fn assert_condition_begins(seen: &FleetSnapshot, type_: &str, expected: [&str; 3]) {
    let (truth, reason, message) = condition(&status(seen), type_);
    assert_eq!([truth.as_str(), reason.as_str()], expected[..2], "{type_}: {message}");
    assert!(message.starts_with(expected[2]), "{message}");
}

#[test]
fn decided_object_keeps_conditions() {
    let status = status(&saturated());
    for (type_, reason, message) in [
        ("TargetResolved", "TargetFound", "Scale target Deployment v-decode found"),
        ("MetricsAvailable", "MetricsFound", "Saturation metrics data is available for scaling decisions"),
        ("OptimizationReady", "OptimizationSucceeded", "Optimization completed: 3 replicas on H100"),
    ] {
        assert_eq!(condition(&status, type_), texts("True", reason, message));
    }
    let ours = "SpecAccepted";
    let types: Vec<&str> = status.conditions.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(types, ["TargetResolved", "MetricsAvailable", "OptimizationReady", ours]);
}

#[test]
fn missing_metrics_keep_condition() {
    for (error, reason, message) in [
        (
            MetricsError::NotFound,
            "MetricsMissing",
            "No vLLM metrics found for model 'meta/llama' in namespace 'team-a'. Check: (1) ServiceMonitor exists in \
             monitoring namespace, (2) ServiceMonitor selector matches vLLM service labels, (3) vLLM pods are running and \
             exposing /metrics endpoint, (4) Prometheus is scraping the monitoring namespace",
        ),
        (
            MetricsError::Stale("7m0s".into()),
            "MetricsStale",
            "vLLM metrics for model 'meta/llama' are stale (last update: 7m0s ago). ServiceMonitor may not be scraping \
             correctly.",
        ),
        (
            MetricsError::QueryFailed("connection refused".into()),
            "PrometheusError",
            "Failed to query Prometheus: connection refused",
        ),
    ] {
        let status = status(&without_metrics(error));
        assert_eq!(condition(&status, "MetricsAvailable"), texts("False", reason, message));
        let kept = texts("True", "FallbackUsed", "Earlier (2 replicas)");
        assert_eq!(condition(&status, "OptimizationReady"), kept);
    }
    let unset = without_metrics(MetricsError::NotConfigured("set an address".into()));
    assert_condition_begins(&unset, "MetricsAvailable", ["False", "PrometheusError", "Prometheus API not configured"]);
    let mut incomplete = steady();
    the_model(&mut incomplete).pods.as_mut().unwrap().pop();
    let message = "No saturation metrics available - pods may not be ready or metrics not yet scraped";
    assert_condition_begins(&incomplete, "MetricsAvailable", ["False", "MetricsMissing", message]);
}

#[test]
fn undecidable_object_keeps_conditions() {
    let mut seen = steady();
    seen.variants[0].target = Lookup::Known(None);
    let missing = "Scale target Deployment v-decode not found";
    assert_condition_begins(&seen, "TargetResolved", ["False", "TargetNotFound", missing]);
    assert_condition_begins(&seen, "OptimizationReady", ["False", "OptimizationFailed", "Deployment not found"]);
    let mut seen = steady();
    spec(&mut seen.variants[0]).model_id.clear();
    let message = "ModelID is empty - cannot optimize";
    assert_eq!(condition(&status(&seen), "OptimizationReady"), texts("False", "OptimizationFailed", message));
}

#[test]
fn target_conflict_keeps_conditions() {
    let all = stored(&rivals());
    let of = |name: &str, type_: &str| condition(&all[&NamespacedName::new(NAMESPACE, name)], type_);
    let message = "This VA won arbitration (oldest) but 1 other VA(s) also target the same deployment: team-a/young. \
                   DELETE OR REASSIGN: team-a/young";
    assert_eq!(of("old", "DeploymentTargetConflict"), texts("True", "ConflictResolvedByArbitration", message));
    let message = "SUPPRESSED: This VA targets deployment old-decode which is already managed by team-a/old (older VA). No \
                   optimization/metrics for this VA. ACTION: Delete this VA or change scaleTargetRef to a unique \
                   deployment.";
    assert_eq!(of("young", "DeploymentTargetConflict"), texts("True", "SuppressedDueToConflict", message));
    let message = "Suppressed due to deployment target conflict";
    assert_eq!(of("young", "Ready"), texts("False", "DeploymentTargetConflict", message));
    for type_ in ["OptimizationReady", "MetricsAvailable"] {
        assert_eq!(of("young", type_).1, "SkippedProcessing");
    }
    let winner = &all[&NamespacedName::new(NAMESPACE, "old")];
    assert!(conditions::find(&winner.conditions, "Ready").is_none());
}

#[test]
fn default_engine_keeps_reasons() {
    for (kv, queue, replicas, expected) in [
        (0.75, 1.0, 2, "saturation-only mode: scale-up: KV spare Saturation low (0.050 < 0.100)"),
        (0.4, 3.0, 2, "saturation-only mode: scale-up: queue spare Saturation low (2.0 < 3.0)"),
        (0.75, 3.0, 2, "saturation-only mode: scale-up: both KV spare (0.050 < 0.100) and queue spare (2.0 < 3.0)"),
        (0.05, 0.0, 4, "saturation-only mode: scale-down"),
    ] {
        let seen = a_fleet(vec![a_variant("v", "5", replicas)], kv, queue);
        assert_eq!(reason(&seen), expected);
    }
    assert_eq!(decision(&steady(), "v").reason, "saturation-only mode: no-change");
}

#[test]
fn token_engine_keeps_reasons() {
    for (kv, replicas, expected) in [
        (0.9, 2, "V2 scale-up (optimizer: cost-aware, required: "),
        (0.05, 4, "V2 scale-down (optimizer: cost-aware, spare: "),
    ] {
        let mut seen = a_fleet(vec![a_variant("v", "5", replicas)], kv, 0.0);
        by_tokens(&mut seen);
        let reason = reason(&seen);
        let number = reason.strip_prefix(expected).and_then(|rest| rest.strip_suffix(')'));
        let number = number.unwrap_or_else(|| panic!("{reason}"));
        assert!(number.parse::<u64>().is_ok_and(|tokens| tokens > 0), "{reason}");
    }
    let mut seen = a_fleet(vec![a_variant("v", "5", 2)], 0.6, 0.0);
    by_tokens(&mut seen);
    assert_eq!(decision(&seen, "v").reason, "V2 steady state");
}

#[test]
fn kept_number_keeps_reason() {
    let unknown = || without_metrics(MetricsError::NotFound);
    let first_run = |max| {
        let mut seen = unknown();
        seen.variants[0].status = None;
        spec(&mut seen.variants[0]).max_replicas = max;
        seen
    };
    assert_eq!(reason(&first_run(None)), "Last resort: first run, using max(minReplicas=0, current=2) = 2");
    assert_eq!(
        reason(&first_run(Some(1))),
        "Last resort: first run, using max(minReplicas=0, current=2) (clamped to maxReplicas=1)"
    );
    let mut seen = unknown();
    seen.variants[0].status = Some(decided(2, "", ago(60)));
    assert_eq!(reason(&seen), "Fallback: preserving previous allocation (no optimizer solution)");
    let mut seen = unknown();
    spec(&mut seen.variants[0]).max_replicas = Some(1);
    target(&mut seen, 0).replicas = Some(1);
    assert_eq!(reason(&seen), "Earlier (clamped from 2 to 1 for bounds)");
}

#[test]
fn first_replica_keeps_reason() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 0)], 0.4, 1.0);
    seen.variants[0].status = None;
    the_model(&mut seen).pods = Err(MetricsError::NotFound);
    assert_eq!(reason(&seen), "First run: bootstrapping with 1 replica for Prometheus discovery");
}

#[test]
fn accelerator_limit_keeps_step_texts() {
    let limits = |seen: &FleetSnapshot| {
        stored(seen)[&NamespacedName::new(NAMESPACE, "b")].decision.clone().unwrap().limits.join("\n")
    };
    let found = limits(&accelerators::rivals());
    assert!(found.starts_with("gpu-limiter: no scale-up (target=2, current=2); "), "{found}");
    // Both models ask for three more replicas, and there are accelerators for five.
    let mut seen = accelerators::rivals();
    by_tokens(&mut seen);
    for pod in seen.models.values_mut().flat_map(|model| model.pods.as_mut().unwrap()) {
        (pod.kv, pod.queue) = (Some(1.0), Some(100.0));
    }
    accelerators::offer(&mut seen, &[("H100", 9)]);
    let found = limits(&seen);
    assert!(found.starts_with("gpu-limiter: limited: allocated 2 GPUs for +2 replicas; "), "{found}");
}

#[test]
fn changes_keep_event_reasons() {
    let expect = |seen: &FleetSnapshot, type_: EventType, reason: &str| {
        let found = event(seen).unwrap_or_else(|| panic!("no {reason}"));
        assert_eq!((found.type_, found.reason), (type_, reason));
    };
    expect(&saturated(), EventType::Normal, "ScaledUp");
    expect(&a_fleet(vec![a_variant("v", "5", 4)], 0.05, 0.0), EventType::Normal, "ScaledDown");

    let mut idle = a_fleet(vec![a_variant("v", "5", 2)], 0.0, 0.0);
    idle.config.zero.defaults.enabled = Some(true);
    the_model(&mut idle).requests = Lookup::Known(0.0);
    expect(&idle, EventType::Normal, "ScaledToZero");

    let mut limited = saturated();
    spec(&mut limited.variants[0]).max_replicas = Some(2);
    expect(&limited, EventType::Warning, "ResourceConstrained");

    let mut silent = steady();
    settle(&mut silent);
    the_model(&mut silent).pods = Err(MetricsError::NotFound);
    expect(&silent, EventType::Warning, "MetricsUnavailable");

    let mut missing = steady();
    missing.variants[0].target = Lookup::Known(None);
    expect(&missing, EventType::Warning, "OptimizationFailed");
}

#[test]
fn invalid_thresholds_keep_message() {
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
        assert!(findings.iter().any(|finding| finding.message.contains(message)), "{findings:?}\n{message}");
    }
}

#[test]
fn invalid_settings_keep_message() {
    let first_message = |sources: &ConfigSources| {
        let (_, findings) = read(sources, &Config::default());
        findings.first().map(|finding| finding.message.clone()).unwrap_or_default()
    };
    let entry = "modelID: m\nenableScaleToZero: true";
    let sources = config_sources(&[(SYSTEM, "model-scale-to-zero-config", &[("model.a", entry), ("model.b", entry)])]);
    let duplicate = "Duplicate modelID found in scale-to-zero ConfigMap - first key wins (lexicographic order)";
    let found = first_message(&sources);
    assert!(found.contains(duplicate), "{found}");
    let mut sources = config_sources(&[]);
    sources.environment.insert("PROMETHEUS_BASE_URL".to_owned(), "http://prometheus:9090".to_owned());
    let found = first_message(&sources);
    let insecure = "HTTPS is required - URL must use https:// scheme: http://prometheus:9090";
    assert!(found.contains(insecure), "{found}");
    sources.environment.clear();
    let found = first_message(&sources);
    let unset = "no Prometheus configuration found. Please set PROMETHEUS_BASE_URL environment variable or configure via \
                 ConfigMap";
    assert!(found.contains(unset), "{found}");
}

#[test]
fn unusual_fleet_keeps_log_messages() {
    let mut seen = a_fleet(vec![a_variant("a", "10", 2), a_variant("b", "10", 2)], 0.4, 1.0);
    seen.variants.iter_mut().for_each(|variant| spec(variant).min_replicas = 1);
    let messages: Vec<&str> = hints(&seen).into_iter().map(|hint| hint.message).collect();
    assert_eq!(
        messages,
        [
            "Warning: Multiple variants detected with some using default variantCost",
            "Multiple variants with minReplicas > 0 may lead to unnecessary GPU utilization",
        ]
    );
}

#[test]
fn config_maps_keep_names_and_keys() {
    let config =
        |name: &str, data: &[(&str, &str)]| read(&config_sources(&[(SYSTEM, name, data)]), &Config::default()).0;
    for name in [
        "workload-variant-autoscaler-variantautoscaling-config",
        "variantautoscaling-config",
        "wva-variantautoscaling-config",
    ] {
        let interval = config(name, &[("GLOBAL_OPT_INTERVAL", "30s")]).interval;
        assert_eq!(interval, SignedDuration::from_secs(30), "{name}");
    }
    for name in ["workload-variant-autoscaler-saturation-scaling-config", "wva-saturation-scaling-config"] {
        let entry = "{kvCacheThreshold: 0.7, queueLengthThreshold: 6, kvSpareTrigger: 0.2, queueSpareTrigger: 2, \
                     enableLimiter: true, analyzerName: saturation, scaleUpThreshold: 0.8, scaleDownBoundary: 0.6}";
        let thresholds = config(name, &[("default", entry)]).thresholds("ns", "m");
        let expected = json!({ "kv_cache": 0.7, "queue_length": 6.0, "kv_spare": 0.2, "queue_spare": 2.0, "scale_up": 0.8,
            "scale_down": 0.6, "analyzer": "Tokens", "limiter": true });
        assert_eq!(json!(thresholds), expected, "{name}");
    }
    for (name, data) in [
        ("model-scale-to-zero-config", [("__defaults__", "enableScaleToZero: true\nretentionPeriod: 2m")]),
        ("wva-model-scale-to-zero-config", [("default", "enable_scale_to_zero: true\nretention_period: 2m")]),
    ] {
        let config = config(name, &data);
        let zero = config.zero("ns");
        assert_eq!(
            (zero.enabled("ns", "m"), zero.retention("ns", "m")),
            (true, SignedDuration::from_mins(2)),
            "{name}"
        );
    }
    let costs = config("accelerator-unit-costs", &[("A100", r#"{"device": "NVIDIA-A100", "cost": "40"}"#)]).costs;
    assert_eq!(costs.cents["A100"], 40.0);
    let class = "name: Premium\npriority: 1\ndata:\n- model: m\n  slo-tpot: 24\n  slo-ttft: 500\n";
    let classes = config("service-classes-config", &[("premium.yaml", class)]).classes;
    assert_eq!(classes.find("ns", "m", None).unwrap().target.tpot, 24.0);
}

#[test]
fn environment_keeps_variable_names() {
    let sources = |pairs: &[(&str, &str)]| {
        let map: &[(&str, &str)] = &[("GLOBAL_OPT_INTERVAL", "30s")];
        let entry: &[(&str, &str)] = &[("default", "{kvCacheThreshold: 0.7}")];
        let mut sources = config_sources(&[(SYSTEM, "mine", map), (SYSTEM, "my-thresholds", entry)]);
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        sources.environment.extend(pairs);
        read(&sources, &Config::default()).0
    };
    let config = sources(&[
        ("CONFIG_MAP_NAME", "mine"),
        ("SATURATION_CONFIG_MAP_NAME", "my-thresholds"),
        ("WVA_SCALE_TO_ZERO", "true"),
    ]);
    assert_eq!(config.interval, SignedDuration::from_secs(30));
    assert_eq!(config.thresholds("ns", "m").kv_cache, 0.7);
    assert!(config.zero("ns").enabled("ns", "m"));
    let config = sources(&[("PROMETHEUS_BEARER_TOKEN", "x"), ("PROMETHEUS_CA_CERT", "/ca.crt")]);
    let prometheus = format!("{:?}", config.prometheus.unwrap());
    assert!(prometheus.contains("https://prometheus:9090") && prometheus.contains("/ca.crt"), "{prometheus}");
}

#[test]
fn objects_keep_label_and_annotation_keys() {
    let mut seen = saturated();
    spec(&mut seen.variants[0]).accelerator = None;
    seen.variants[0].labels.insert("inference.optimization/acceleratorName".into(), "L40S".into());
    let message = "Optimization completed: 3 replicas on L40S";
    assert_eq!(condition(&status(&seen), "OptimizationReady"), texts("True", "OptimizationSucceeded", message));
    let (_, excluded) = excluded_status(&seen.variants[0], now()).unwrap();
    assert!(excluded.message.contains("wva.llmd.ai/exclude=true"), "{}", excluded.message);
}
