//! Writes a last status and an event to objects whose namespace was excluded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use jiff::Timestamp;
use steersman_plan::variant::excluded_status;

use super::FleetController;
use super::reconcile::{MAX_CONCURRENT_WRITES, WriteResult};

/// Longer than an event that times out, so that the status can still be written after it.
const TIME_LIMIT: Duration = Duration::from_secs(30);

impl FleetController {
    /// Returns how many could not be written because of a conflict or lack of time, and how many because a call failed.
    pub async fn report_excluded(&self) -> (usize, usize) {
        let pending = self.fleet.pending_exclusions();
        let now = Timestamp::now();
        let mut left = BTreeMap::new();
        let writes = pending.iter().filter_map(|(variant, version)| {
            let (status, event) = excluded_status(variant, now)?;
            left.insert(&variant.key, variant);
            Some(async move { (variant, self.write(variant, version, Some(event), Arc::new(status)).await) }.boxed())
        });
        let writes: Vec<_> = writes.collect();
        let (mut conflicts, mut failed) = (0, 0);
        let mut writes = stream::iter(writes).buffer_unordered(MAX_CONCURRENT_WRITES);
        // The reconcile runs this together with the metrics queries and waits for both, so the time is bounded.
        let until = tokio::time::Instant::now() + TIME_LIMIT;
        while let Ok(Some((variant, result))) = tokio::time::timeout_at(until, writes.next()).await {
            let (namespace, name) = (&variant.key.namespace, &variant.key.name);
            match result {
                WriteResult::Written => {
                    left.remove(&variant.key);
                    tracing::info!(
                        namespace,
                        variant = name,
                        "namespace is excluded; the object is no longer reconciled"
                    );
                }
                WriteResult::Conflict => conflicts += 1,
                WriteResult::Failed => failed += 1,
            }
        }
        let late = left.len().saturating_sub(conflicts + failed);
        left.into_values().for_each(|variant| self.fleet.retry_exclusion(variant));
        (conflicts + late, failed)
    }
}
