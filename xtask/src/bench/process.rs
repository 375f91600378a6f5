//! Reads the CPU time, memory and number of requests of the operator's process, from `/proc` and from its metrics.

use std::fs;

use anyhow::{Context, Result};
use steersman_testkit::metrics;

/// Resources used since the start of the process.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    pub cpu_seconds: f64,
    pub resident_mb: f64,
    pub peak_resident_mb: f64,
    /// Requests to the API server.
    pub requests: f64,
    pub reconciles: f64,
    /// ConversionReviews answered.
    pub conversions: f64,
    /// AdmissionReviews answered.
    pub admissions: f64,
}

pub async fn usage(id: u32, address: &str) -> Result<Usage> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).context("the operator has exited")?;
    let megabytes = |name: &str| -> Result<f64> {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .with_context(|| format!("/proc/{id}/status has no line {name}"))?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0 / 1e6)
    };
    let text = scrape(address).await?;
    let reviews =
        |webhook: &str| metrics::sum_series(&text, &format!("steersman_webhook_reviews_total{{webhook=\"{webhook}"));
    Ok(Usage {
        cpu_seconds: cpu_seconds(id)?,
        resident_mb: megabytes("VmRSS:")?,
        peak_resident_mb: megabytes("VmHWM:")?,
        requests: metrics::sum_series(&text, "rest_client_requests_total{"),
        reconciles: metrics::sum_series(&text, "controller_runtime_reconcile_total{"),
        conversions: reviews("/convert"),
        admissions: reviews("/validate") + reviews("/mutate"),
    })
}

/// CPU time of the process without its children, in user and in system mode.
fn cpu_seconds(id: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).context("the operator has exited")?;
    // The name of the program may contain any character, so the fields are counted from its closing bracket.
    let (_, fields) = stat.rsplit_once(") ").with_context(|| format!("cannot parse /proc/{id}/stat"))?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = |place: usize| fields.get(place).and_then(|ticks| ticks.parse::<f64>().ok());
    let ticks = ticks(11).zip(ticks(12)).with_context(|| format!("cannot parse /proc/{id}/stat"))?;
    Ok((ticks.0 + ticks.1) / rustix::param::clock_ticks_per_second() as f64)
}

/// The operator's metrics in the text format.
pub async fn scrape(address: &str) -> Result<String> {
    metrics::scrape(address).await.context("cannot read the operator's metrics")
}
