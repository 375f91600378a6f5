//! What a process has used so far.
//! Comes in: its number and where it serves its measurements; goes out: seconds of CPU, memory, and
//! how much it has done.

use std::fs;

use anyhow::{Context, Result};
use steersman_testkit::metrics;

/// Since the start of the process.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    pub cpu_seconds: f64,
    pub resident_mb: f64,
    /// The most that was resident at once.
    pub most_resident_mb: f64,
    /// To the API server.
    pub requests: f64,
    pub reconciles: f64,
    /// Reviews that the webhooks have answered.
    pub conversions: f64,
    pub admissions: f64,
}

pub async fn used(id: u32, address: &str) -> Result<Used> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).context("the operator has ended")?;
    let megabytes = |name: &str| -> Result<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such line in /proc")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0 / 1e6)
    };
    let text = scraped(address).await?;
    let reviews = |webhook: &str| metrics::sum(&text, &format!("steersman_webhook_reviews_total{{webhook=\"{webhook}"));
    Ok(Used {
        cpu_seconds: cpu_seconds(id)?,
        resident_mb: megabytes("VmRSS:")?,
        most_resident_mb: megabytes("VmHWM:")?,
        requests: metrics::sum(&text, "rest_client_requests_total{"),
        reconciles: metrics::sum(&text, "controller_runtime_reconcile_total{"),
        conversions: reviews("/convert"),
        admissions: reviews("/validate") + reviews("/mutate"),
    })
}

/// Of the process itself, in user and in system mode.
fn cpu_seconds(id: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).context("the operator has ended")?;
    // The name of the program may have any character; the fields begin behind its bracket.
    let (_, fields) = stat.rsplit_once(") ").context("/proc has another form than expected")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = |place: usize| fields.get(place).and_then(|ticks| ticks.parse::<f64>().ok());
    let ticks = ticks(11).zip(ticks(12)).context("/proc has another form than expected")?;
    Ok((ticks.0 + ticks.1) / rustix::param::clock_ticks_per_second() as f64)
}

/// All measurements of the operator, as text.
pub async fn scraped(address: &str) -> Result<String> {
    metrics::scrape(address).await.context("the operator serves no measurements")
}
