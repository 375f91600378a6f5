//! Measurements.
//! Comes in: what the parts of the process count and set; goes out: the text that Prometheus scrapes. Names that tools look
//! for are those of controller-runtime; labels take their values from short fixed lists.

use std::fmt;
use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// What the answer to a scrape is written in.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All measurements of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    leads: Family<Lease, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Lease {
    name: &'static str,
}

impl Metrics {
    pub fn new(started: Timestamp) -> Self {
        let mut registry = Registry::default();
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("steersman_build", "The version of this program", build);
        let start = Gauge::<f64, AtomicU64>::default();
        start.set(started.as_duration().as_secs_f64());
        registry.register("process_start_time_seconds", "When this process started, in seconds since 1970", start);
        let leads = Family::<Lease, Gauge>::default();
        let help = "Whether this process holds the Lease of this name: 1 yes, 0 no";
        registry.register("leader_election_master_status", help, leads.clone());
        Self { registry, leads }
    }

    /// Says whether this process holds the Lease `name`.
    pub fn leads(&self, name: &'static str, leads: bool) {
        self.leads.get_or_create(&Lease { name }).set(leads.into());
    }

    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_names_that_tools_look_for() {
        let metrics = Metrics::new("2026-11-16T00:00:00.25Z".parse().unwrap());
        metrics.leads("steersman", false);
        metrics.leads("steersman", true);
        let expected = format!(
            "# HELP steersman_build The version of this program.\n\
             # TYPE steersman_build info\n\
             steersman_build_info{{version=\"{}\"}} 1\n\
             # HELP process_start_time_seconds When this process started, in seconds since 1970.\n\
             # TYPE process_start_time_seconds gauge\n\
             process_start_time_seconds 1794787200.25\n\
             # HELP leader_election_master_status Whether this process holds the Lease of this name: 1 yes, 0 no.\n\
             # TYPE leader_election_master_status gauge\n\
             leader_election_master_status{{name=\"steersman\"}} 1\n\
             # EOF\n",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(metrics.text().unwrap(), expected);
    }
}
