//! Metric names, labels and help texts of the earlier operators that stay word for word: contracts with their users,
//! whose alerts, scripts and dashboards match them, so a change here is a breaking change.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use steersman::dynamo::metrics::ReconcileResult;
use steersman::metrics::FamilyMetrics;
use steersman::variant::metrics::{ConflictResolution, GaugeValues};
use steersman_reconcile::NamespacedName;
use steersman_runtime::telemetry::metrics::Metrics;

fn registered() -> (Metrics, FamilyMetrics) {
    Metrics::new(Timestamp::UNIX_EPOCH, FamilyMetrics::register)
}

/// Expects each line in the exposition.
#[track_caller]
fn assert_exposed(metrics: &Metrics, lines: &[&str]) {
    let text = metrics.text().unwrap();
    for line in lines {
        assert!(text.lines().any(|exposed| exposed == *line), "{line} is not in\n{text}");
    }
}

#[test]
fn dgdr_metrics_keep_names_and_labels() {
    let (metrics, FamilyMetrics { requests, .. }) = registered();
    requests.set_phase("team-a", "qwen", "Deployed");
    requests.record_reconcile("team-a", ReconcileResult::Success, Duration::from_millis(1));
    requests.record_reconcile("team-a", ReconcileResult::Requeue, Duration::from_millis(1));
    requests.record_reconcile("team-a", ReconcileResult::Error(Some(403)), Duration::from_millis(1));
    requests.record_review("CREATE", None, Duration::from_millis(1));
    requests.record_review("UPDATE", Some("Invalid"), Duration::from_millis(1));
    assert_exposed(
        &metrics,
        &[
            "# TYPE dynamo_operator_reconcile_duration_seconds histogram",
            "dynamo_operator_reconcile_duration_seconds_count{resource_type=\"DynamoGraphDeploymentRequest\",\
             namespace=\"team-a\",result=\"success\"} 1",
            "dynamo_operator_reconcile_total{resource_type=\"DynamoGraphDeploymentRequest\",namespace=\"team-a\",\
             result=\"success\"} 1",
            "dynamo_operator_reconcile_total{resource_type=\"DynamoGraphDeploymentRequest\",namespace=\"team-a\",\
             result=\"requeue\"} 1",
            "dynamo_operator_reconcile_total{resource_type=\"DynamoGraphDeploymentRequest\",namespace=\"team-a\",\
             result=\"error\"} 1",
            "dynamo_operator_reconcile_errors_total{resource_type=\"DynamoGraphDeploymentRequest\",namespace=\"team-a\",\
             error_type=\"forbidden\"} 1",
            "dynamo_operator_resources_total{resource_type=\"DynamoGraphDeploymentRequest\",namespace=\"team-a\",\
             status=\"Deployed\"} 1",
            "# TYPE dynamo_operator_webhook_duration_seconds histogram",
            "dynamo_operator_webhook_duration_seconds_count{resource_type=\"DynamoGraphDeploymentRequest\",\
             operation=\"CREATE\"} 1",
            "dynamo_operator_webhook_requests_total{resource_type=\"DynamoGraphDeploymentRequest\",operation=\"CREATE\",\
             result=\"allowed\"} 1",
            "dynamo_operator_webhook_requests_total{resource_type=\"DynamoGraphDeploymentRequest\",operation=\"UPDATE\",\
             result=\"denied\"} 1",
            "dynamo_operator_webhook_denials_total{resource_type=\"DynamoGraphDeploymentRequest\",operation=\"UPDATE\",\
             reason=\"Invalid\"} 1",
        ],
    );
}

#[test]
fn dgdr_reconcile_errors_keep_types() {
    for (status, error_type) in [
        (404, "not_found"),
        (409, "conflict"),
        (422, "validation"),
        (400, "bad_request"),
        (401, "unauthorized"),
        (403, "forbidden"),
        (408, "timeout"),
        (504, "server_timeout"),
        (503, "unavailable"),
        (429, "rate_limited"),
        (500, "internal"),
    ] {
        let (metrics, FamilyMetrics { requests, .. }) = registered();
        requests.record_reconcile("team-a", ReconcileResult::Error(Some(status)), Duration::from_millis(1));
        let text = metrics.text().unwrap();
        assert!(text.contains(&format!("error_type=\"{error_type}\"}} 1")), "{status}\n{text}");
    }
}

#[test]
fn va_gauges_keep_names_and_labels() {
    let (metrics, FamilyMetrics { fleet, .. }) = registered();
    fleet.set_instance(Some("blue".to_owned()));
    let values = |desired| GaugeValues {
        target_name: "llama-decode".to_owned(),
        target_kind: "Deployment".to_owned(),
        accelerator: "A100".to_owned(),
        desired: Some(desired),
        current: 2,
        reason: "solver",
        conflict: Some(ConflictResolution::Winner(2)),
        ..GaugeValues::default()
    };
    let suppressed = GaugeValues { desired: None, conflict: Some(ConflictResolution::Suppressed), ..values(0) };
    for desired in [2, 5] {
        fleet.publish(BTreeMap::from([
            (NamespacedName::new("team-a", "llama"), values(desired)),
            (NamespacedName::new("team-a", "young"), suppressed.clone()),
        ]));
    }
    let labels = "target_name=\"llama-decode\",target_kind=\"Deployment\",variant_name=\"llama\",namespace=\"team-a\",\
                  accelerator_type=\"A100\",controller_instance=\"blue\"";
    assert_exposed(
        &metrics,
        &[
            "# HELP wva_desired_replicas Desired number of replicas for each scale target",
            "# TYPE wva_desired_replicas gauge",
            &format!("wva_desired_replicas{{{labels}}} 5"),
            "# HELP wva_current_replicas Current number of replicas for each scale target",
            "# TYPE wva_current_replicas gauge",
            &format!("wva_current_replicas{{{labels}}} 2"),
            "# HELP wva_desired_ratio Ratio of the desired number of replicas and the current number of replicas for each \
             scale target",
            "# TYPE wva_desired_ratio gauge",
            &format!("wva_desired_ratio{{{labels}}} 2.5"),
            "# HELP wva_replica_scaling Total number of replica scaling operations",
            &format!("wva_replica_scaling_total{{{labels},direction=\"up\",reason=\"solver\"}} 1"),
            "# TYPE wva_deployment_target_conflicts_total gauge",
            "wva_deployment_target_conflicts_total{deployment=\"llama-decode\",namespace=\"team-a\"} 2",
            "# TYPE wva_conflict_resolution_status gauge",
            "wva_conflict_resolution_status{variant_name=\"llama\",namespace=\"team-a\",deployment=\"llama-decode\",\
             resolution=\"winner\"} 1",
            "wva_conflict_resolution_status{variant_name=\"young\",namespace=\"team-a\",deployment=\"llama-decode\",\
             resolution=\"suppressed\"} 0",
        ],
    );
}
