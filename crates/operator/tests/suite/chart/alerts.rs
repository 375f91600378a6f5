//! Alerts and dashboard: each expression is evaluated by a real Prometheus and reads only metrics that the operator has. Each
//! alert fires on its fault, and no other alert does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use steersman::metrics::FamilyMetrics;
use steersman::variant::metrics::GaugeValues;
use steersman_reconcile::NamespacedName;
use steersman_runtime::telemetry::metrics::{Metrics, ReconcileResult};
use steersman_testkit::prometheus::ClientAuth;
use steersman_testkit::{FakePodMetrics, Flavour, PrometheusServer, shared_cluster, skip, wait};

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
    let prefixes =
        ["controller_runtime_", "steersman_", "wva_", "rest_client_", "leader_election_", "dynamo_", "workqueue_"];
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
    metrics.queued("llsd", 1, 1);
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

/// Length of a case. It is longer than the range and the duration of every alert together.
const MINUTES: u64 = 100;

/// Distance between two cases in the data of one Prometheus, so that no alert reads the samples of two.
const CASE_DISTANCE: Duration = Duration::from_hours(4);

/// The operator's metrics in one minute of a case.
struct Minute<'a> {
    metrics: &'a Metrics,
    families: &'a FamilyMetrics,
    number: u64,
    now: Timestamp,
}

impl Minute<'_> {
    fn is_after_start(&self) -> bool {
        self.number > 5
    }

    /// An operator without faults.
    fn work(&self) {
        self.metrics.leads("steersman", true);
        for controller in ["dgdr", "llsd", "va"] {
            self.metrics.reconciled(controller, ReconcileResult::Success, Duration::from_millis(5));
        }
        for controller in ["dgdr", "llsd"] {
            self.metrics.queued(controller, 0, 0);
        }
        self.metrics.certificate_expires(self.in_days(80));
        (0..20).for_each(|_| self.metrics.reviewed("/convert", "answered", Duration::from_millis(1)));
        self.families.fleet.reconciled(1, 1, self.now);
    }

    fn in_days(&self, days: i64) -> i64 {
        (self.now + SignedDuration::from_hours(24 * days)).as_second()
    }

    fn fail(&self, controller: &'static str, times: u32) {
        (0..times).for_each(|_| self.metrics.reconciled(controller, ReconcileResult::Error, Duration::from_millis(5)));
    }

    fn review(&self, outcome: &'static str, times: u32) {
        (0..times).for_each(|_| self.metrics.reviewed("/convert", outcome, Duration::from_millis(1)));
    }

    fn decide(&self, desired: i32) {
        let values =
            GaugeValues { target_name: "served".into(), desired: Some(desired), current: 2, ..Default::default() };
        self.families.fleet.publish([(NamespacedName::new("team", "variant"), values)].into());
    }

    fn factors(&self, factors: &[(&'static str, u64)]) {
        self.families.fleet.set_factors(factors.iter().copied().collect());
    }

    /// A leader that reconciles its variants, and whose queue of servers does not move.
    fn work_except_servers(&self, waiting: usize, started: usize) {
        self.metrics.leads("steersman", true);
        self.metrics.reconciled("va", ReconcileResult::Success, Duration::from_millis(5));
        self.metrics.queued("llsd", waiting, started);
        self.families.fleet.reconciled(1, 1, self.now);
    }
}

/// What the operator measures in each minute, and the alerts that fire at the end.
struct Case {
    name: &'static str,
    play: fn(&Minute<'_>),
    fires: &'static [&'static str],
}

fn case(name: &'static str, fires: &'static [&'static str], play: fn(&Minute<'_>)) -> Case {
    Case { name, play, fires }
}

fn cases() -> Vec<Case> {
    vec![
        case("healthy", &[], |minute| {
            minute.work();
            minute.decide(2);
        }),
        case("every fifth reconcile fails", &["SteersmanReconcileErrors"], |minute| {
            (0..4).for_each(|_| minute.work());
            minute.fail("llsd", 1);
        }),
        case("few reconciles fail", &[], |minute| {
            (0..20).for_each(|_| minute.work());
            minute.fail("llsd", 1);
        }),
        case("errors of a few minutes", &[], |minute| {
            minute.work();
            minute.fail("dgdr", if (90..96).contains(&minute.number) { 1 } else { 0 });
        }),
        case("no replica leads", &["SteersmanNoLeader"], |minute| {
            minute.metrics.leads("steersman", false);
            minute.metrics.certificate_expires(minute.in_days(80));
        }),
        case("the fleet is not reconciled", &["SteersmanReconcileStalled"], |minute| {
            minute.metrics.leads("steersman", true);
            if !minute.is_after_start() {
                minute.work();
            }
        }),
        case("servers wait", &["SteersmanReconcileStalled"], |minute| minute.work_except_servers(3, 0)),
        case("reconciles of servers do not end", &["SteersmanReconcileStalled"], |minute| {
            if minute.is_after_start() {
                minute.work_except_servers(0, 16);
            } else {
                minute.work();
            }
        }),
        case("servers wait for others", &[], |minute| {
            minute.work();
            minute.metrics.queued("llsd", 500, 16);
        }),
        case("no servers exist", &[], |minute| minute.work_except_servers(0, 0)),
        case("metrics are missing", &["SteersmanMetricsFailing"], |minute| {
            minute.work();
            minute.factors(&[("MetricsMissing", 1)]);
        }),
        case("metrics were missing", &[], |minute| {
            minute.work();
            minute.factors(&[("MetricsMissing", u64::from(minute.number < 90))]);
        }),
        case("accelerators are short", &["SteersmanGpusExhausted"], |minute| {
            minute.work();
            minute.factors(&[("AcceleratorsShort", 2)]);
        }),
        case("replicas go up and down", &["SteersmanThrashing"], |minute| {
            minute.work();
            minute.decide(if minute.number % 6 < 3 { 5 } else { 2 });
        }),
        case("replicas go up", &[], |minute| {
            minute.work();
            minute.decide(i32::try_from(minute.number).unwrap());
        }),
        case("the certificate is not renewed", &["SteersmanCertificateExpiry"], |minute| {
            minute.work();
            minute.metrics.certificate_expires(minute.in_days(6));
        }),
        case("webhooks fail", &["SteersmanWebhookFailures"], |minute| {
            minute.work();
            minute.review("failed", 5);
        }),
        case("webhooks deny", &[], |minute| {
            minute.work();
            minute.review("denied", 50);
        }),
    ]
}

/// The samples of a case that alerts read, in the text format with timestamps.
fn samples(case: &Case, start: Timestamp, read: &BTreeSet<String>) -> String {
    let (metrics, families) = Metrics::new(start, FamilyMetrics::register);
    let mut text = String::new();
    for number in 0..MINUTES {
        let now = start + SignedDuration::from_mins(i64::try_from(number).unwrap());
        (case.play)(&Minute { metrics: &metrics, families: &families, number, now });
        let exposed = metrics.text().unwrap();
        let of_alerts = |line: &&str| line.split(['{', ' ']).next().is_some_and(|name| read.contains(name));
        for line in exposed.lines().filter(of_alerts) {
            writeln!(text, "{line} {}", now.as_millisecond()).unwrap();
        }
    }
    text
}

/// Length of the `for` of an alert.
fn duration_of(rule: &Value) -> u64 {
    let Some(text) = rule["for"].as_str() else { return 0 };
    let (number, unit) = text.split_at(text.len() - 1);
    let minutes = if unit == "h" { 60 } else { 1 };
    assert!(["h", "m"].contains(&unit), "{text}");
    number.parse::<u64>().unwrap() * minutes
}

/// The names of the alerts that fire at this time: their expression had a result in each minute of their `for`.
async fn firing(prometheus: &PrometheusServer, rules: &[Value], at: Timestamp) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for rule in rules {
        let evaluations = duration_of(rule) + 1;
        let expression = rule["expr"].as_str().unwrap();
        let query = format!("count_over_time(({expression})[{evaluations}m:1m] @ {}) == {evaluations}", at.as_second());
        let found = prometheus.query(&query).await.unwrap();
        if !found.as_array().unwrap().is_empty() {
            names.insert(rule["alert"].as_str().unwrap().to_owned());
        }
    }
    names
}

#[tokio::test]
async fn every_alert_fires_on_its_fault_only() {
    // Prometheus reads all samples in one scrape.
    let interval = Duration::from_secs(10);
    let Some(prometheus) = PrometheusServer::start_with_interval(ClientAuth::NotRequired, interval).await.unwrap()
    else {
        return skip::skip(
            "every_alert_fires_on_its_fault_only",
            "Prometheus is not built; `cargo xtask test` builds it",
        );
    };
    let file = read("alerts.yaml");
    let rules: Vec<Value> = file["groups"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap().clone())
        .collect();
    let metrics: BTreeSet<String> =
        rules.iter().flat_map(|rule| metrics_of(rule["expr"].as_str().unwrap())).map(str::to_owned).collect();
    let cases = cases();
    let hour = Timestamp::now().as_second() / 3600 * 3600;
    let last = Timestamp::from_second(hour).unwrap() - SignedDuration::from_hours(4);
    let mut starts = BTreeMap::new();
    let mut text = String::new();
    for (index, case) in cases.iter().enumerate() {
        let distance = CASE_DISTANCE * u32::try_from(cases.len() - index).unwrap();
        let start = last - SignedDuration::try_from(distance).unwrap();
        starts.insert(case.name, start);
        text += &samples(case, start, &metrics);
    }
    let served = FakePodMetrics::start().await.unwrap();
    served.set("cases", "all", text);
    let path = json!({ "__metrics_path__": "/pods/cases/all/metrics" });
    prometheus.add_target("cases", &served.address().to_string(), &path).unwrap();
    let end = |case: &Case| starts[case.name] + SignedDuration::from_mins(i64::try_from(MINUTES).unwrap() - 1);
    let stored = format!("leader_election_master_status @ {}", end(cases.last().unwrap()).as_second());
    let scraped = async || prometheus.query(&stored).await.ok()?.as_array()?.first().map(drop);
    wait::eventually("Prometheus has the samples of all cases", scraped).await.unwrap();

    let mut fired = BTreeSet::new();
    for case in &cases {
        let names = firing(&prometheus, &rules, end(case)).await;
        let expected: BTreeSet<String> = case.fires.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(names, expected, "{}", case.name);
        fired.extend(names);
    }
    let all: BTreeSet<String> = alerts().into_iter().map(|(name, _)| name).collect();
    assert_eq!(fired, all, "each alert has a case in which it fires");
}
