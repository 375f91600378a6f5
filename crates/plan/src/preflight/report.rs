//! Renders the report of the preflight, as aligned lines for people and as data for scripts.

use serde::Serialize;
use steersman_reconcile::{Finding, Lookup, Severity};

use super::plan::OLDEST_SERVER;
use super::snapshot::{ClusterSnapshot, Conversion, ObservedCrd, ObservedFamily};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// No blocker was found. Warnings do not count.
    pub ready: bool,
    pub findings: Vec<Finding>,
    #[serde(rename = "seen")]
    pub snapshot: ClusterSnapshot,
    /// The report as text. The JSON output does not contain it.
    #[serde(skip)]
    pub lines: Vec<String>,
}

pub fn report(snapshot: ClusterSnapshot, findings: Vec<Finding>) -> Report {
    let ready = findings.iter().all(|finding| finding.severity != Severity::Blocker);
    let mut lines = facts(&snapshot);
    lines.push(String::new());
    lines.extend(aligned(&families(&snapshot.families)));
    if !findings.is_empty() {
        lines.push(String::new());
        lines.extend(findings.iter().flat_map(finding_lines));
    }
    lines.push(String::new());
    lines.push(verdict(ready, &findings));
    let lines = lines.iter().map(|line| printable(line)).collect();
    Report { ready, findings, snapshot, lines }
}

/// Escapes control characters: names and messages come from the cluster, where anyone may have put a line break or a
/// terminal sequence.
fn printable(line: &str) -> String {
    line.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

fn facts(snapshot: &ClusterSnapshot) -> Vec<String> {
    let server = match &snapshot.server {
        Lookup::Known(version) => format!("Kubernetes {version} ({OLDEST_SERVER} or newer is needed)"),
        Lookup::Unknown(_) => "unknown".to_owned(),
    };
    let user = snapshot.user.known().map_or("unknown", String::as_str);
    let allowed = snapshot.rights.iter().filter(|right| right.allowed == Lookup::Known(true)).count();
    aligned(&[
        vec!["Server".to_owned(), server],
        vec!["User".to_owned(), user.to_owned()],
        vec!["Permissions".to_owned(), format!("{allowed} of {} allowed", snapshot.rights.len())],
    ])
}

fn families(families: &[ObservedFamily]) -> Vec<Vec<String>> {
    let head = ["FAMILY", "KIND", "CRD", "SERVED", "STORED", "CONVERSION", "OBJECTS"].map(str::to_owned).to_vec();
    let rows = families.iter().map(|observed| {
        let name = [observed.family.short_name().to_owned(), observed.family.kind().to_owned()];
        let crd = match &observed.crd {
            Lookup::Known(Some(crd)) => crd_cells(crd),
            Lookup::Known(None) => ["absent", "-", "-", "-", "-"].map(str::to_owned),
            Lookup::Unknown(_) => ["unknown", "-", "-", "-", "-"].map(str::to_owned),
        };
        name.into_iter().chain(crd).collect()
    });
    std::iter::once(head).chain(rows).collect()
}

fn crd_cells(crd: &ObservedCrd) -> [String; 5] {
    [
        if crd.established { "established" } else { "not established" }.to_owned(),
        crd.served.join(","),
        crd.storage.clone(),
        match &crd.conversion {
            Conversion::None => "none".to_owned(),
            Conversion::Service { namespace, name } => format!("{namespace}/{name}"),
            Conversion::Url(url) => url.clone(),
        },
        crd.objects.known().map_or_else(|| "unknown".to_owned(), u64::to_string),
    ]
}

fn finding_lines(finding: &Finding) -> [String; 2] {
    let word = match finding.severity {
        Severity::Blocker => "BLOCKER",
        Severity::Warning => "WARNING",
        Severity::Info => "INFO",
    };
    [format!("{word:<9}{}", finding.message), format!("{:<9}{}", "", finding.remedy)]
}

fn verdict(ready: bool, findings: &[Finding]) -> String {
    let count = |severity: Severity, word: &str| {
        let number = findings.iter().filter(|finding| finding.severity == severity).count();
        format!("{number} {word}{}", if number == 1 { "" } else { "s" })
    };
    let (blockers, warnings) = (count(Severity::Blocker, "blocker"), count(Severity::Warning, "warning"));
    let verdict = if ready { "Ready" } else { "Not ready" };
    format!("{verdict}: {blockers}, {warnings}.")
}

/// Pads each column to its widest cell, with two spaces in between and none at the end of a line.
fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    rows.iter()
        .map(|row| {
            let cells = row.iter().enumerate().map(|(column, cell)| format!("{cell:<width$}", width = width(column)));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        })
        .collect()
}
