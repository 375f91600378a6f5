//! Tells objects of namespaces that are left alone from now on.
//! Comes in: the objects that were not told yet; goes out: a last status and an event for each, and how many are still to be
//! told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use jiff::Timestamp;
use steersman_plan::variant::excluded;

use super::Variants;
use super::pass::{AT_ONCE, Ended};

/// Longer than one event that nobody takes, after which there is the status to write.
const TELLING: Duration = Duration::from_secs(30);

impl Variants {
    /// Numbers that could not be told for now, because the object was changed or time ran out, or because the call failed.
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
        // The pass waits for it while it looks at the metrics, and not for ever.
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
