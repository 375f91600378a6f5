//! Queries Prometheus for the metrics of all models at once. Missing values are never zero.

mod answer;
mod ask;
mod batches;
mod figures;
mod found;
mod look;
mod places;
mod queries;
mod scrape;
mod text;
mod way;

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use steersman_plan::variant::config::prometheus::Prometheus as Settings;
use steersman_plan::variant::{ModelSeen, TargetName};
use steersman_reconcile::NamespacedName;

use batches::MOST_SERIES;
use look::Look;
use scrape::Scraper;
pub use scrape::Scraping;
use way::Way;

/// Time for everything but the queries.
const MARGIN: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelAsked {
    pub key: NamespacedName,
    /// Period in which its requests count.
    pub retention: SignedDuration,
}

/// A living pod and its scale target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPlace {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub target: Arc<TargetName>,
    pub ip: Option<IpAddr>,
    pub ready: bool,
    pub started: Option<Timestamp>,
}

/// Client for one Prometheus.
#[derive(Clone)]
pub struct Prometheus {
    way: Arc<Way>,
    scraper: Option<Arc<Scraper>>,
}

impl fmt::Debug for Prometheus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Prometheus").field("settings", &self.way.settings).field("scraper", &self.scraper).finish()
    }
}

impl Prometheus {
    /// Fails if the settings are invalid. Missing or wrong files are not an error here, because they may be created
    /// later; until then each query reports them.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        Self { way: Arc::new(Way::new(settings)?), scraper: None }.scraping(Some(Scraping::default()))
    }

    /// Configures direct scraping of pods that Prometheus does not have.
    pub fn scraping(self, scraping: Option<Scraping>) -> Result<Self, String> {
        Ok(Self { scraper: scraping.map(Scraper::new).transpose()?.map(Arc::new), ..self })
    }

    /// Time after which a query of the fleet has ended by itself, with all answers until then. A shorter timeout loses
    /// them.
    pub fn longest(&self) -> Duration {
        let scraping = self.scraper.as_ref().map(|scraper| scraper.limit());
        look::LIMIT + scraping.unwrap_or_default() + MARGIN
    }

    /// Returns an entry for every model.
    pub async fn look<P: Borrow<PodPlace>>(
        &self,
        models: &[ModelAsked],
        pods: &[P],
        now: Timestamp,
    ) -> BTreeMap<NamespacedName, ModelSeen> {
        if models.is_empty() {
            return BTreeMap::new();
        }
        let look = Look::new(models, pods, now);
        look.look(&self.way, MOST_SERIES, self.scraper.as_deref()).await
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
        assert!(prometheus.longest() > look::LIMIT + Scraping::default().limit);
        let (limit, without) = (Duration::from_secs(90), prometheus.clone().scraping(None).unwrap());
        assert!(without.longest() > look::LIMIT && without.longest() < prometheus.longest());
        let patient = prometheus.scraping(Some(Scraping { limit, ..Scraping::default() })).unwrap();
        assert!(patient.longest() > look::LIMIT + limit);
    }
}
