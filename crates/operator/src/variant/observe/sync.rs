//! Waits until the stores are synced, and reports what is missing.

use std::pin::pin;
use std::time::Duration;

use steersman_plan::variant::target::{DEPLOYMENT, GROUPS, LEADER_WORKER_SET, STATEFUL_SET};

use super::Fleet;
use steersman_runtime::store::SyncState;

const REMIND: Duration = Duration::from_secs(60);

impl Fleet {
    /// Returns once objects and namespaces are synced, and with them the stored decisions.
    pub async fn shown(&self) {
        self.remind(REMIND, self.who_is_listed(), |awaited| {
            tracing::warn!(awaited, "nothing is shown or decided before these could be listed");
        })
        .await;
    }

    /// Returns once everything is synced. Before that, a missing object may only be unknown.
    pub async fn synced(&self) {
        self.remind(REMIND, self.all_listed(), |awaited| {
            tracing::warn!(awaited, "nothing is decided before these could be listed; what was decided still holds");
        })
        .await;
    }

    async fn remind(&self, every: Duration, listed: impl Future<Output = ()>, say: impl Fn(String)) {
        let mut listed = pin!(listed);
        while tokio::time::timeout(every, &mut listed).await.is_err() {
            say(self.awaited().join("; "));
        }
    }

    async fn who_is_listed(&self) {
        self.variants.synced().await;
        self.namespaces.synced().await;
    }

    async fn all_listed(&self) {
        self.who_is_listed().await;
        self.deployments.synced().await;
        self.stateful_sets.synced().await;
        // The LeaderWorkerSet API may be absent, forbidden or failing. That affects only the objects that reference
        // one.
        self.groups.tried().await;
        self.pods.synced().await;
        self.maps.answered().await;
    }

    /// Stores that are not synced yet, with the cause if it is known.
    fn awaited(&self) -> Vec<String> {
        let mut all = vec![
            ("VariantAutoscalings".to_owned(), self.variants.sync_state()),
            ("Namespaces".to_owned(), self.namespaces.sync_state()),
            (format!("{DEPLOYMENT}s"), self.deployments.sync_state()),
            (format!("{STATEFUL_SET}s"), self.stateful_sets.sync_state()),
            (format!("{LEADER_WORKER_SET}s"), tried(self.groups.sync_state())),
            ("Pods".to_owned(), self.pods.sync_state()),
        ];
        let own = self.maps.own.iter();
        all.extend(own.map(|(place, maps)| (format!("ConfigMaps of namespace {place}"), answered(maps.sync_state()))));
        all.extend(self.maps.local.iter().map(|(name, maps)| (format!("ConfigMaps named {name}"), maps.sync_state())));
        let awaited = |(what, heard)| match heard {
            SyncState::Synced => None,
            SyncState::Forbidden(cause) | SyncState::Failed(cause) => Some(format!("{what} ({cause})")),
            SyncState::NotSynced | SyncState::Relisting => Some(what),
        };
        all.into_iter().filter_map(awaited).collect()
    }

    /// Why LeaderWorkerSets are unknown, and what to do. `None` if they are known.
    pub(super) fn groups_unknown(&self) -> Option<String> {
        match self.groups.sync_state() {
            SyncState::Synced => None,
            SyncState::Forbidden(cause) => Some(format!(
                "{}; grant Steersman's account the right to get, list and watch leaderworkersets of {GROUPS}",
                cause.trim_end_matches('.')
            )),
            SyncState::Failed(cause) => Some(format!("{LEADER_WORKER_SET}s cannot be listed: {cause}")),
            SyncState::NotSynced | SyncState::Relisting => {
                Some(format!("{LEADER_WORKER_SET}s have not been listed yet"))
            }
        }
    }
}

/// For stores that count as synced even if they are forbidden.
fn answered(heard: SyncState) -> SyncState {
    if matches!(heard, SyncState::NotSynced | SyncState::Failed(_)) { heard } else { SyncState::Synced }
}

/// For stores that count as synced after the first attempt.
fn tried(heard: SyncState) -> SyncState {
    if heard == SyncState::NotSynced { heard } else { SyncState::Synced }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::FutureExt;

    use super::super::Options;
    use super::*;
    use crate::installation::Installation;
    use steersman_runtime::store::Scope;

    fn fleet() -> Fleet {
        let told = Installation { config_namespace: Some("settings".to_owned()), ..Installation::default() };
        Fleet::new(&told, &Options::default(), &Scope::Cluster)
    }

    #[test]
    fn what_is_awaited_is_named_until_it_is_listed() {
        let fleet = fleet();
        let awaited = fleet.awaited();
        for kind in ["VariantAutoscalings", "Namespaces", "Deployments", "StatefulSets", "LeaderWorkerSets", "Pods"] {
            assert!(awaited.iter().any(|known| known == kind), "{kind}: {awaited:?}");
        }
        assert!(awaited.contains(&"ConfigMaps of namespace settings".to_owned()), "{awaited:?}");
        fleet.variants.clear();
        assert_eq!(fleet.who_is_listed().now_or_never(), None);
        fleet.namespaces.failed("500".to_owned());
        assert!(fleet.awaited().contains(&"Namespaces (500)".to_owned()), "{:?}", fleet.awaited());
        fleet.namespaces.clear();
        assert_eq!(
            fleet.who_is_listed().now_or_never(),
            Some(()),
            "nobody has to wait for workloads to show what was decided"
        );
        fleet.deployments.clear();
        fleet.stateful_sets.clear();
        fleet.maps.own.iter().for_each(|(_, maps)| maps.failed("500".to_owned()));
        assert!(
            fleet.awaited().contains(&"ConfigMaps of namespace settings (500)".to_owned()),
            "settings have to be known"
        );
        fleet.maps.own.iter().for_each(|(_, maps)| maps.forbidden("no".to_owned()));
        fleet.maps.local.iter().for_each(|(_, maps)| drop(maps.clear()));
        fleet.pods.forbidden("pods is forbidden".to_owned());
        assert_eq!(fleet.awaited(), ["LeaderWorkerSets", "Pods (pods is forbidden)"]);
        assert_eq!(fleet.all_listed().now_or_never(), None);
        fleet.pods.clear();
        assert_eq!(fleet.all_listed().now_or_never(), None, "whether there is a right to groups is not known");
        fleet.groups.failed("500".to_owned());
        assert_eq!((fleet.awaited(), fleet.all_listed().now_or_never()), (vec![], Some(())), "others need none");
        fleet.groups.forbidden("no".to_owned());
        assert_eq!((fleet.awaited(), fleet.all_listed().now_or_never()), (vec![], Some(())));
    }

    #[tokio::test]
    async fn what_is_awaited_is_said_again_and_again() {
        let (fleet, said) = (fleet(), Mutex::new(Vec::new()));
        fleet.variants.clear();
        let moment = Duration::from_millis(1);
        let shown = fleet.remind(moment, fleet.who_is_listed(), |awaited| said.lock().unwrap().push(awaited));
        let twice = async {
            while said.lock().unwrap().len() < 2 {
                tokio::time::sleep(moment).await;
            }
            fleet.namespaces.clear();
        };
        tokio::join!(shown, twice);
        let said = said.into_inner().unwrap();
        assert!(said.iter().all(|awaited| awaited.starts_with("Namespaces; Deployments; ")), "{said:?}");
    }

    #[test]
    fn groups_are_not_absent_before_they_are_listed() {
        let fleet = fleet();
        assert_eq!(fleet.groups_unknown().as_deref(), Some("LeaderWorkerSets have not been listed yet"));
        fleet.groups.clear();
        assert_eq!(fleet.groups_unknown(), None, "their API is not served");
        fleet.groups.relist();
        assert_eq!(fleet.groups_unknown().as_deref(), Some("LeaderWorkerSets have not been listed yet"));
        fleet.groups.failed("the server answers 500".to_owned());
        let failed = "LeaderWorkerSets cannot be listed: the server answers 500";
        assert_eq!(fleet.groups_unknown().as_deref(), Some(failed));
        fleet.groups.forbidden("they are forbidden.".to_owned());
        let why = "they are forbidden; grant Steersman's account the right to get, list and watch leaderworkersets of \
                   leaderworkerset.x-k8s.io";
        assert_eq!(fleet.groups_unknown().as_deref(), Some(why));
        fleet.groups.clear();
        assert_eq!(fleet.groups_unknown(), None);
    }
}
