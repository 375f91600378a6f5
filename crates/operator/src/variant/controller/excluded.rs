//! Writes a last status and an event to objects whose namespace was excluded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use jiff::Timestamp;
use steersman_plan::variant::excluded;

use super::Variants;
use super::pass::{AT_ONCE, Ended};

/// Longer than an event that times out, so that the status can still be written after it.
const TELLING: Duration = Duration::from_secs(30);

impl Variants {
    /// Returns how many could not be written because of a conflict or lack of time, and how many because a call failed.
    pub async fn tell_excluded(&self) -> (usize, usize) {
        let untold = self.fleet.untold();
        let now = Timestamp::now();
        let mut left = BTreeMap::new();
        let told = untold.iter().filter_map(|(seen, stamp)| {
            let (status, note) = excluded(seen, now)?;
            left.insert(&seen.key, seen);
            Some(async move { (seen, self.write(seen, stamp, Some(note), Arc::new(status)).await) }.boxed())
        });
        let told: Vec<_> = told.collect();
        let (mut overtaken, mut failed) = (0, 0);
        let mut told = stream::iter(told).buffer_unordered(AT_ONCE);
        // The reconcile runs this together with the metrics queries and waits for both, so the time is bounded.
        let until = tokio::time::Instant::now() + TELLING;
        while let Ok(Some((seen, ended))) = tokio::time::timeout_at(until, told.next()).await {
            let (namespace, variant) = (&seen.key.namespace, &seen.key.name);
            match ended {
                Ended::Written => {
                    left.remove(&seen.key);
                    tracing::info!(namespace, variant, "left alone, as its namespace is excluded");
                }
                Ended::Overtaken => overtaken += 1,
                Ended::Failed => failed += 1,
            }
        }
        let late = left.len().saturating_sub(overtaken + failed);
        left.into_values().for_each(|seen| self.fleet.back(seen));
        (overtaken + late, failed)
    }
}
