//! What a process has used so far.
//! Comes in: its number and where it serves its measurements; goes out: seconds of CPU, memory, requests to the API server.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result};

/// Since the start of the process.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    pub cpu_seconds: f64,
    pub resident_mb: f64,
    /// The most that was resident at once.
    pub most_resident_mb: f64,
    pub requests: f64,
}

pub fn used(id: u32, metrics: &str) -> Result<Used> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).context("the operator has ended")?;
    let megabytes = |name: &str| -> Result<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such line in /proc")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0 / 1e6)
    };
    Ok(Used {
        cpu_seconds: cpu_seconds(id)?,
        resident_mb: megabytes("VmRSS:")?,
        most_resident_mb: megabytes("VmHWM:")?,
        requests: requests(metrics)?,
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

fn requests(metrics: &str) -> Result<f64> {
    Ok(sum(&scrape(metrics)?, "rest_client_requests_total{"))
}

/// Of all series that begin so.
pub fn sum(text: &str, series: &str) -> f64 {
    let counts = text.lines().filter(|line| line.starts_with(series));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// All measurements of the operator, as text.
pub fn scrape(metrics: &str) -> Result<String> {
    let mut stream = TcpStream::connect(metrics).context("the operator serves no measurements")?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
