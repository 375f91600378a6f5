//! Registers the metrics that belong to a single family.

use std::sync::Arc;

use prometheus_client::registry::Registry;

use crate::dynamo::metrics::RequestMetrics;
use crate::variant::metrics::Gauges;

#[derive(Clone, Debug)]
pub struct FamilyMetrics {
    /// Metrics of DynamoGraphDeploymentRequests.
    pub requests: Arc<RequestMetrics>,
    /// Gauges of VariantAutoscalings, which HPA and KEDA read.
    pub fleet: Arc<Gauges>,
}

impl FamilyMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let requests = Arc::new(RequestMetrics::register(registry));
        let fleet = Arc::new(Gauges::default());
        registry.register_collector(Box::new(fleet.clone()));
        Self { requests, fleet }
    }
}
