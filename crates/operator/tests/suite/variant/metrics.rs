//! The documentation of metrics, compared with the exported series.

use std::collections::BTreeSet;
use std::time::Duration;

use steersman::variant::metrics::{ConflictResolution, GaugeValues, LatencySeconds, ReconcileStep};
use steersman_reconcile::NamespacedName;

use super::*;

type Series = BTreeMap<String, BTreeSet<String>>;

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/variant-metrics.md")).unwrap()
}

/// Series in the tables of the page, whose rows are: name, type, labels, meaning.
fn documented_series() -> Series {
    let page = page();
    let rows = page.lines().filter(|line| line.starts_with("| `wva_") || line.starts_with("| `steersman_fleet_"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 4, "{line}");
        assert!(["gauge", "counter", "histogram"].contains(&cells[1]) && !cells[3].is_empty(), "{line}");
        let labels = cells[2].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (cells[0].trim_matches('`').to_owned(), labels)
    };
    rows.map(row).collect()
}

/// Every series that can be exported, with all labels.
fn exported_series() -> Series {
    let (metrics, FamilyMetrics { fleet: gauges, .. }) = Metrics::new(Timestamp::UNIX_EPOCH, FamilyMetrics::register);
    gauges.set_instance(Some("blue".to_owned()));
    let latency = LatencySeconds { ttft: Some(0.5), itl: Some(0.02) };
    let shown = |desired: Option<i32>, conflict: ConflictResolution| GaugeValues {
        desired,
        conflict: Some(conflict),
        predicted: latency,
        measured: latency,
        ..GaugeValues::default()
    };
    for desired in [2, 3] {
        let winner = (NamespacedName::new("a", "old"), shown(Some(desired), ConflictResolution::Winner(2)));
        gauges.publish([winner, (NamespacedName::new("a", "new"), shown(None, ConflictResolution::Suppressed))].into());
    }
    gauges.set_factors([("MetricsMissing", 1)].into());
    gauges.reconciled(2, 1, Timestamp::UNIX_EPOCH);
    gauges.step(ReconcileStep::Decide, Duration::from_millis(1));
    let text = metrics.text().unwrap();
    let lines = text.lines().filter(|line| line.starts_with("wva_") || line.starts_with("steersman_fleet_"));
    let series = |line: &str| {
        let (name, labels) = line.split_once(['{', ' ']).unwrap();
        let labels = labels.rsplit_once('}').map_or("", |(labels, _)| labels);
        // The page names a histogram without the suffixes of its series.
        let name = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let names = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
        (name.to_owned(), names.filter(|name| name != "le").collect())
    };
    lines.map(series).collect()
}

#[test]
fn metrics_page_lists_exactly_exported_series() {
    assert_eq!(documented_series(), exported_series());
    assert!(exported_series().len() > 9, "{:?}", exported_series());
}

/// The test cluster does not serve the kinds of KEDA and the adapter, so only syntax and the queried series are checked.
#[test]
fn metrics_page_yaml_queries_exported_series() {
    let page = page();
    let blocks: Vec<&str> = page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 2, "expected one block for KEDA and one for the adapter");
    for block in blocks {
        let value: Value = serde_saphyr::from_str(block).unwrap_or_else(|error| panic!("{error}: {block}"));
        assert!(value.is_object() && value.to_string().contains("wva_desired_replicas{"), "{block}");
    }
}
