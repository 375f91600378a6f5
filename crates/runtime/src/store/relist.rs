//! Restarts watches with a new list from time to time.
//!
//! After etcd was restored from a backup, versions are lower than before. A watch that continues at its last version then stays
//! silent until the versions have caught up, and never reports the changes in between.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::Resource;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use serde::de::DeserializeOwned;

/// Time between two lists, without its jitter. A list of a hundred thousand pods takes seconds of the API server and of the
/// network, so that this is far from a load.
pub const RELIST_INTERVAL: Duration = Duration::from_secs(30 * 60);

/// Watches the objects, and lists them again after each [`RELIST_INTERVAL`].
pub fn watch_with_relists<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    with_restarts(RELIST_INTERVAL, move || watch(api.clone(), config.clone()).default_backoff())
}

/// Restarts a watch after each interval. The interval is up to a fifth longer at random, so that the watches of an operator,
/// and operators that started together, do not list at the same time.
pub fn with_restarts<S: Stream>(interval: Duration, start: impl Fn() -> S) -> impl Stream<Item = S::Item> {
    stream::repeat_with(move || start().take_until(tokio::time::sleep(interval.saturating_add(jitter(interval / 5)))))
        .flatten()
}

/// A random duration below `most`.
fn jitter(most: Duration) -> Duration {
    // Each `RandomState` has random keys.
    let random = RandomState::new().build_hasher().finish();
    let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(random.checked_rem(most).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicU64, Ordering};

    use kube::api::DynamicObject;
    use serde_json::json;
    use steersman_reconcile::NamespacedName;

    use super::super::records::{Record, Revision, Store};
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Versioned(Revision);

    impl Record for Versioned {
        fn revision(&self) -> Option<&Revision> {
            Some(&self.0)
        }
    }

    fn object(name: &str, version: u64) -> DynamicObject {
        let metadata = json!({ "namespace": "a", "name": name, "uid": name, "resourceVersion": version.to_string() });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    /// A backup has `kept` at an older version, not `lost`, and again the `removed` object. The watch from before stays silent.
    #[tokio::test]
    async fn restored_etcd_replaces_the_store() {
        let starts = AtomicU64::new(0);
        let start = || {
            let objects = match starts.fetch_add(1, Ordering::SeqCst) {
                0 => vec![object("kept", 900), object("lost", 950)],
                _ => vec![object("kept", 400), object("removed", 300)],
            };
            let listed = objects.into_iter().map(Event::InitApply);
            let events = [Event::Init].into_iter().chain(listed).chain([Event::InitDone]);
            stream::iter(events).chain(stream::pending())
        };
        let store: Store<Versioned> = Store::default();
        let mut events = pin!(with_restarts(Duration::from_millis(20), start));
        let receive =
            |event: Event<DynamicObject>| store.receive(event, &|object| Some(Versioned(Revision::of(object))));
        let mut lists = 0;
        while lists < 2 {
            let event = events.next().await.unwrap();
            lists += u64::from(matches!(event, Event::InitDone));
            receive(event);
        }
        let version = |name: &str| store.with(&NamespacedName::new("a", name), |record| record.0.version).flatten();
        assert_eq!((version("kept"), version("lost"), version("removed")), (Some(400), None, Some(300)));
        // Later events have versions below those from before the restore.
        assert_eq!(receive(Event::Apply(object("kept", 410))).len(), 1);
        assert_eq!(version("kept"), Some(410));
    }

    #[test]
    fn jitter_is_random_and_bounded() {
        let most = Duration::from_secs(360);
        let all: Vec<Duration> = (0..100).map(|_| jitter(most)).collect();
        assert!(all.iter().all(|one| *one < most));
        assert!(all.iter().any(|one| *one != all[0]));
        assert_eq!(jitter(Duration::ZERO), Duration::ZERO);
    }
}
