//! The metrics of single families, next to those that all controllers share.

use std::sync::Arc;

use prometheus_client::registry::Registry;

use crate::dynamo::metrics::Requests;
use crate::variant::metrics::Gauges;

#[derive(Clone, Debug)]
pub struct FamilyMetrics {
    /// Of DynamoGraphDeploymentRequests.
    pub requests: Arc<Requests>,
    /// Read by HPA and KEDA.
    pub fleet: Arc<Gauges>,
}

impl FamilyMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let requests = Arc::new(Requests::register(registry));
        let fleet = Arc::new(Gauges::default());
        registry.register_collector(Box::new(fleet.clone()));
        Self { requests, fleet }
    }
}
