//! Measures how long the operator does not renew its Lease.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use steersman::installation::{NAME, NAMESPACE};
use steersman_testkit::Cluster;

use crate::network::RUNTIME;

/// Interval of reads. It is shorter than that of renewals, so that none is missed.
const READ_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Default)]
struct Renewals {
    last: Option<Timestamp>,
    longest_gap: Duration,
}

/// Reads the Lease until the end of the process.
pub struct LeaseMonitor {
    renewals: Arc<Mutex<Renewals>>,
}

impl LeaseMonitor {
    pub fn start(cluster: &'static Cluster) -> Self {
        let renewals = Arc::<Mutex<Renewals>>::default();
        let seen = renewals.clone();
        RUNTIME.spawn(async move {
            let leases: Api<Lease> = Api::namespaced(cluster.admin().await.unwrap(), NAMESPACE);
            loop {
                if let Ok(lease) = leases.get(NAME).await {
                    seen.lock().unwrap().add(lease);
                }
                tokio::time::sleep(READ_INTERVAL).await;
            }
        });
        Self { renewals }
    }

    /// The longest time between two renewals, and since the last one.
    pub fn longest_gap(&self) -> Duration {
        let renewals = self.renewals.lock().unwrap();
        let since_last = renewals.last.map(|last| gap(last, Timestamp::now()));
        renewals.longest_gap.max(since_last.unwrap_or_default())
    }
}

impl Renewals {
    fn add(&mut self, lease: Lease) {
        let Some(renewed) = lease.spec.and_then(|spec| spec.renew_time).map(|time| time.0) else { return };
        let last = self.last.replace(renewed).unwrap_or(renewed);
        self.longest_gap = self.longest_gap.max(gap(last, renewed));
    }
}

fn gap(from: Timestamp, until: Timestamp) -> Duration {
    until.duration_since(from).try_into().unwrap_or_default()
}
