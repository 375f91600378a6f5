//! Keeps the Prometheus client between reconciles, and replaces it when its settings change.

use steersman_plan::variant::config::prometheus::PrometheusConfig;
use steersman_reconcile::{Finding, Severity};
use steersman_runtime::http::Inside;

use crate::variant::observe::MetricsClient;
use crate::variant::prometheus::{Prometheus, ScrapeConfig};

const NOT_CONFIGURED: &str = "set PROMETHEUS_BASE_URL in the main ConfigMap (in Steersman's namespace; by default its \
                              name ends with variantautoscaling-config) or in Steersman's environment. If it is set, \
                              condition ConfigurationValid says why it cannot be used";

#[derive(Default)]
pub struct MetricsSource {
    /// Routing of scrapes to pods.
    inside: Inside,
    /// The settings that were last tried.
    config: Option<PrometheusConfig>,
    /// Why they cannot be used.
    fault: Option<String>,
    /// The last client that could be built.
    client: Option<Prometheus>,
}

impl MetricsSource {
    pub fn new(inside: Inside) -> Self {
        Self { inside, ..Self::default() }
    }

    /// Invalid settings keep the last working client, and are reported as long as they are set.
    pub fn configure(&mut self, config: Option<&PrometheusConfig>) -> Option<Finding> {
        let Some(config) = config else {
            *self = Self::new(std::mem::take(&mut self.inside));
            return None;
        };
        if self.config.as_ref() != Some(config) {
            let scraping = ScrapeConfig { inside: self.inside.clone(), ..ScrapeConfig::default() };
            match Prometheus::new(config).and_then(|client| client.scraping(Some(scraping))) {
                Ok(client) => (self.client, self.fault) = (Some(client), None),
                Err(why) => self.fault = Some(why),
            }
            self.config = Some(config.clone());
        }
        self.fault.as_ref().map(|why| Finding {
            severity: Severity::Warning,
            reason: "ConfigValueInvalid",
            message: format!("The PROMETHEUS_* settings cannot be used: {why}."),
            remedy:
                "Correct these settings where PROMETHEUS_BASE_URL is set: in Steersman's environment, or else in the \
                     main ConfigMap (in Steersman's namespace; by default its name ends with \
                     variantautoscaling-config). Until then the last valid settings are used; if there are none, the \
                     load is unknown and replicas stay as they are."
                    .to_owned(),
        })
    }

    pub fn client(&self) -> MetricsClient<'_> {
        self.client.as_ref().ok_or_else(|| self.fault.clone().unwrap_or_else(|| NOT_CONFIGURED.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(base_url: &str, server_name: Option<&str>) -> PrometheusConfig {
        PrometheusConfig {
            base_url: base_url.to_owned(),
            server_name: server_name.map(ToOwned::to_owned),
            ..PrometheusConfig::default()
        }
    }

    #[test]
    fn invalid_address_keeps_the_last_valid_one() {
        let mut source = MetricsSource::default();
        let (good, bad) = (address("https://prom", None), address("https://prom", Some("a b")));
        assert!(source.configure(Some(&bad)).is_some() && source.client().is_err_and(|why| why.contains("\"a b\"")));
        assert!(source.configure(Some(&good)).is_none() && source.client().is_ok());
        for _ in 0..2 {
            let finding = source.configure(Some(&bad)).unwrap();
            assert!(finding.message.contains("\"a b\" is neither a host name nor an IP address"), "{finding:?}");
            assert!(format!("{:?}", source.client().unwrap()).contains("server_name: None"));
        }
        assert!(source.configure(Some(&good)).is_none(), "the finding must disappear");
    }

    #[test]
    fn removed_address_stops_queries() {
        let mut source = MetricsSource::default();
        source.configure(Some(&address("https://prom", None)));
        assert!(source.client().is_ok() && source.configure(None).is_none());
        assert!(source.client().is_err_and(|why| why.starts_with("set PROMETHEUS_BASE_URL")));
    }
}
