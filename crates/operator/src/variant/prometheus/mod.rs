//! Queries Prometheus for the metrics of all models at once. Missing values are never zero.

mod batches;
mod client;
#[cfg(test)]
mod earlier_texts;
mod fleet_query;
mod pod_index;
mod promql;
mod query;
pub mod response;
mod results;
mod samples;
mod scrape;
mod scrape_schedule;
pub mod text_format;

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use steersman_plan::variant::config::prometheus::PrometheusConfig as Settings;
use steersman_plan::variant::{ModelMetrics, TargetName};
use steersman_reconcile::NamespacedName;

use batches::MAX_SERIES;
use client::Connection;
use fleet_query::FleetQuery;
pub use scrape::ScrapeConfig;
use scrape::Scraper;

/// Time for everything but the queries.
const MARGIN: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelQuery {
    pub key: NamespacedName,
    /// Period in which its requests count.
    pub retention: SignedDuration,
}

/// A living pod and its scale target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetPod {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub target: Arc<TargetName>,
    pub ip: Option<IpAddr>,
    pub ready: bool,
    /// Time of the change to ready.
    pub ready_since: Option<Timestamp>,
    pub started: Option<Timestamp>,
    /// GPUs that it requests, once its node has accepted it.
    pub gpus: i32,
    /// Whether it is a worker in a group of pods, whose leader stands for the replica. Its metrics are not read.
    pub worker: bool,
}

/// Client for one Prometheus.
#[derive(Clone)]
pub struct Prometheus {
    connection: Arc<Connection>,
    scraper: Option<Arc<Scraper>>,
}

impl fmt::Debug for Prometheus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Prometheus")
            .field("settings", &self.connection.settings)
            .field("scraper", &self.scraper)
            .finish()
    }
}

impl Prometheus {
    /// Fails if the settings are invalid. Missing or wrong files are not an error here, because they may be created
    /// later; until then each query reports them.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        Self { connection: Arc::new(Connection::new(settings)?), scraper: None }.scraping(Some(ScrapeConfig::default()))
    }

    /// Configures direct scraping of pods that Prometheus does not have.
    pub fn scraping(self, scraping: Option<ScrapeConfig>) -> Result<Self, String> {
        Ok(Self { scraper: scraping.map(Scraper::new).transpose()?.map(Arc::new), ..self })
    }

    /// Time after which a query of the fleet has ended by itself, with all answers until then. A shorter timeout loses
    /// them.
    pub fn time_limit(&self) -> Duration {
        let scraping = self.scraper.as_ref().map(|scraper| scraper.limit());
        fleet_query::TIME_LIMIT + scraping.unwrap_or_default() + MARGIN
    }

    /// Returns an entry for every model.
    pub async fn query<P: Borrow<FleetPod>>(
        &self,
        models: &[ModelQuery],
        pods: &[P],
        now: Timestamp,
    ) -> BTreeMap<NamespacedName, ModelMetrics> {
        if models.is_empty() {
            return BTreeMap::new();
        }
        let query = FleetQuery::new(models, pods, now);
        query.run(&self.connection, MAX_SERIES, self.scraper.as_deref()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller with the same timeout would give up before it gets the answers that arrived in time.
    #[test]
    fn outer_timeout_exceeds_queries_and_scrapes() {
        let address = Settings { base_url: "https://prometheus:9090".to_owned(), ..Settings::default() };
        let prometheus = Prometheus::new(&address).unwrap();
        assert!(prometheus.time_limit() > fleet_query::TIME_LIMIT + ScrapeConfig::default().limit);
        let (limit, without) = (Duration::from_secs(90), prometheus.clone().scraping(None).unwrap());
        assert!(without.time_limit() > fleet_query::TIME_LIMIT && without.time_limit() < prometheus.time_limit());
        let patient = prometheus.scraping(Some(ScrapeConfig { limit, ..ScrapeConfig::default() })).unwrap();
        assert!(patient.time_limit() > fleet_query::TIME_LIMIT + limit);
    }
}
