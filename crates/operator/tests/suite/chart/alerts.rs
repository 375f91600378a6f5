//! Alerts and dashboard: each expression is evaluated by a real Prometheus and reads only metrics that the operator has.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use steersman::metrics::FamilyMetrics;
use steersman_runtime::telemetry::metrics::{Metrics, ReconcileResult};
use steersman_testkit::{Flavour, shared_cluster};

use super::folder;

fn read(file: &str) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(folder().join("files").join(file)).unwrap()).unwrap()
}

/// The alerts by name, with their expressions.
fn alerts() -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let file = read("alerts.yaml");
    let groups = file["groups"].as_array().unwrap();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    rules.map(|rule| (text(&rule["alert"]), text(&rule["expr"]))).collect()
}

fn panels() -> Vec<(String, String)> {
    let dashboard = read("dashboard.json");
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            all.push((panel["title"].as_str().unwrap().to_owned(), target["expr"].as_str().unwrap().to_owned()));
        }
    }
    all
}

/// Words of an expression that look like metrics of the operator.
fn metrics_of(expression: &str) -> BTreeSet<&str> {
    let prefixes = ["controller_runtime_", "steersman_", "wva_", "rest_client_", "leader_election_", "dynamo_"];
    let words = expression.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
    words.filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix))).collect()
}

#[test]
fn required_alerts_exist() {
    let names: BTreeSet<String> = alerts().into_iter().map(|(name, _)| name).collect();
    for name in [
        "SteersmanReconcileErrors",
        "SteersmanReconcileStalled",
        "SteersmanMetricsFailing",
        "SteersmanGpusExhausted",
        "SteersmanThrashing",
        "SteersmanCertificateExpiry",
    ] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
}

#[test]
fn expressions_read_metrics_that_exist() {
    let (metrics, families) = Metrics::new(Timestamp::now(), FamilyMetrics::register);
    // Families without a series are not described.
    metrics.leads("steersman", true);
    metrics.reconciled("va", ReconcileResult::Error, Duration::from_secs(1));
    metrics.reviewed("/convert", "answered", Duration::from_secs(1));
    metrics.requested("GET", Some(200));
    metrics.certificate_expires(1_800_000_000);
    families.fleet.reconciled(1, 1, Timestamp::now());
    let text = metrics.text().unwrap();
    let described: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let exists = |metric: &str| {
        let suffixes = ["_total", "_bucket", "_count", "_sum"];
        described.contains(metric)
            || suffixes.iter().any(|suffix| metric.strip_suffix(suffix).is_some_and(|name| described.contains(name)))
    };
    for (name, expression) in alerts().into_iter().chain(panels()) {
        let metrics = metrics_of(&expression);
        assert!(!metrics.is_empty(), "{name}");
        for metric in metrics {
            assert!(exists(metric), "{name} reads {metric}, which the operator does not export");
        }
    }
}

#[test]
fn factors_of_alerts_exist() {
    use steersman_plan::variant::FactorCode;
    let known: BTreeSet<&str> = FactorCode::ALL.iter().map(|code| code.as_str()).collect();
    let mut seen = 0;
    for (name, expression) in alerts() {
        let Some((_, rest)) = expression.split_once("factor=") else { continue };
        let values = rest.trim_start_matches('~').trim_start_matches('"').split('"').next().unwrap();
        for factor in values.split('|') {
            seen += 1;
            assert!(known.contains(factor), "{name}: {factor}");
        }
    }
    assert!(seen >= 5);
}

#[tokio::test]
async fn prometheus_evaluates_every_expression() {
    let Some(cluster) = shared_cluster(Flavour::Full).await else { return };
    for (name, expression) in alerts().into_iter().chain(panels()) {
        let answer = cluster.query(&expression).await;
        assert!(answer.is_ok(), "{name}: {:#}", answer.unwrap_err());
    }
    assert!(cluster.query("sum by (controller").await.is_err(), "an invalid expression is rejected");
}
