//! What Prometheus knows of the fleet: one look answers for all models at once.
//! Comes in: which models are asked about and which pods there are; goes out: for each of them its metrics, or why there are
//! none. Nothing that is missing is ever a zero.

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

/// For what a look does beside asking.
const MARGIN: Duration = Duration::from_secs(10);

/// A model of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelAsked {
    pub key: NamespacedName,
    /// How far back its requests count.
    pub retention: SignedDuration,
}

/// A pod that lives, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPlace {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    /// The workload that it belongs to.
    pub target: Arc<TargetName>,
    pub ip: Option<IpAddr>,
    pub ready: bool,
    pub started: Option<Timestamp>,
}

/// The way to one Prometheus.
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
    /// Err: it cannot be asked with these settings, and why. Files that are missing or wrong are no reason: they may come,
    /// and until then each look says what is the matter with them.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        Self { way: Arc::new(Way::new(settings)?), scraper: None }.scraping(Some(Scraping::default()))
    }

    /// Whether, and how, pods are asked themselves where Prometheus has nothing of them.
    pub fn scraping(self, scraping: Option<Scraping>) -> Result<Self, String> {
        Ok(Self { scraper: scraping.map(Scraper::new).transpose()?.map(Arc::new), ..self })
    }

    /// By when a look has ended by itself, with all that was answered until then. Who waits for less throws that away.
    pub fn longest(&self) -> Duration {
        let scraping = self.scraper.as_ref().map(|scraper| scraper.limit());
        look::LIMIT + scraping.unwrap_or_default() + MARGIN
    }

    /// Every model that was asked about has its answer.
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

    /// Who stopped waiting at the same moment would never hear what was answered until then.
    #[test]
    fn a_look_has_time_to_end_by_itself_and_to_ask_pods_after_that() {
        let address = Settings { base_url: "https://prometheus:9090".to_owned(), ..Settings::default() };
        let prometheus = Prometheus::new(&address).unwrap();
        assert!(prometheus.longest() > look::LIMIT + Scraping::default().limit);
        let (limit, without) = (Duration::from_secs(90), prometheus.clone().scraping(None).unwrap());
        assert!(without.longest() > look::LIMIT && without.longest() < prometheus.longest());
        let patient = prometheus.scraping(Some(Scraping { limit, ..Scraping::default() })).unwrap();
        assert!(patient.longest() > look::LIMIT + limit);
    }
}
