//! Keeps the Prometheus client between reconciles, and replaces it when its settings change.

use steersman_plan::variant::config::prometheus::Prometheus as Address;
use steersman_reconcile::{Finding, Severity};

use crate::variant::observe::Metering as Way;
use crate::variant::prometheus::Prometheus;

const NOT_CONFIGURED: &str = "set PROMETHEUS_BASE_URL in the main ConfigMap or in Steersman's environment; what is wrong \
                              with an address that is set says ConfigurationValid";

#[derive(Default)]
pub struct Metering {
    /// The settings that were last tried.
    address: Option<Address>,
    /// Why they cannot be used.
    fault: Option<String>,
    /// The last client that could be built.
    good: Option<Prometheus>,
}

impl Metering {
    /// Invalid settings keep the last working client, and are reported as long as they are set.
    pub fn follow(&mut self, address: Option<&Address>) -> Option<Finding> {
        let Some(address) = address else {
            *self = Self::default();
            return None;
        };
        if self.address.as_ref() != Some(address) {
            match Prometheus::new(address) {
                Ok(way) => (self.good, self.fault) = (Some(way), None),
                Err(why) => self.fault = Some(why),
            }
            self.address = Some(address.clone());
        }
        self.fault.as_ref().map(|why| Finding {
            severity: Severity::Warning,
            reason: "ConfigValueInvalid",
            message: format!("Main ConfigMap or environment, keys PROMETHEUS_*: {why}."),
            remedy:
                "Correct the value; until then Prometheus is asked as before, or else no load is known and replicas \
                     stay as they are."
                    .to_owned(),
        })
    }

    pub fn way(&self) -> Way<'_> {
        self.good.as_ref().ok_or_else(|| self.fault.clone().unwrap_or_else(|| NOT_CONFIGURED.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(base_url: &str, server_name: Option<&str>) -> Address {
        Address { base_url: base_url.to_owned(), server_name: server_name.map(ToOwned::to_owned), ..Address::default() }
    }

    #[test]
    fn invalid_address_keeps_the_last_valid_one() {
        let mut metering = Metering::default();
        let (good, bad) = (address("https://prom", None), address("https://prom", Some("a b")));
        assert!(metering.follow(Some(&bad)).is_some() && metering.way().is_err_and(|why| why.contains("\"a b\"")));
        assert!(metering.follow(Some(&good)).is_none() && metering.way().is_ok());
        for _ in 0..2 {
            let told = metering.follow(Some(&bad)).unwrap();
            assert!(told.message.contains("\"a b\" is neither a host name nor an address"), "{told:?}");
            assert!(format!("{:?}", metering.way().unwrap()).contains("server_name: None"));
        }
        assert!(metering.follow(Some(&good)).is_none(), "mended");
    }

    #[test]
    fn removed_address_stops_queries() {
        let mut metering = Metering::default();
        metering.follow(Some(&address("https://prom", None)));
        assert!(metering.way().is_ok() && metering.follow(None).is_none());
        assert!(metering.way().is_err_and(|why| why.starts_with("set PROMETHEUS_BASE_URL")));
    }
}
