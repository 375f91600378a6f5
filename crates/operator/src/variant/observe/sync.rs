//! Waits until the stores of the fleet are complete enough to export metrics and to decide, and logs what is missing.

use std::pin::pin;
use std::time::Duration;

use steersman_plan::variant::target::{DEPLOYMENT, GROUPS, LEADER_WORKER_SET, STATEFUL_SET};

use super::Fleet;
use steersman_runtime::store::SyncState;

/// Interval of the log lines that name the lists that are missing.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

impl Fleet {
    /// Returns once all objects that we act on are known, and with them the decisions in their status.
    pub async fn wait_for_variants(&self) {
        self.log_while_waiting(LOG_INTERVAL, self.variants_listed(), |awaited| {
            tracing::warn!(
                awaited,
                "waiting for these lists; no gauge is published and no replicas are decided before"
            );
        })
        .await;
    }

    /// Returns once everything was listed. Before that, an object that seems absent may only be unknown.
    pub async fn wait_for_all(&self) {
        self.log_while_waiting(LOG_INTERVAL, self.all_listed(), |awaited| {
            tracing::warn!(
                awaited,
                "waiting for these lists; stored decisions stay published, and no replicas are decided before"
            );
        })
        .await;
    }

    async fn log_while_waiting(&self, interval: Duration, listed: impl Future<Output = ()>, log: impl Fn(String)) {
        let mut listed = pin!(listed);
        while tokio::time::timeout(interval, &mut listed).await.is_err() {
            log(self.awaited().join("; "));
        }
    }

    async fn variants_listed(&self) {
        self.variants.synced().await;
        self.namespaces.synced().await;
    }

    async fn all_listed(&self) {
        self.variants_listed().await;
        self.deployments.synced().await;
        self.stateful_sets.synced().await;
        // The cluster may lack LeaderWorkerSets, our role may not include them, and their API may fail. That concerns only the
        // objects that name one.
        self.groups.tried().await;
        self.pods.synced().await;
        self.config_maps.answered().await;
    }

    /// The kinds that were not listed so far and have to be, with the cause if one is known.
    fn awaited(&self) -> Vec<String> {
        let mut all = vec![
            ("VariantAutoscalings".to_owned(), self.variants.sync_state()),
            ("Namespaces".to_owned(), self.namespaces.sync_state()),
            (format!("{DEPLOYMENT}s"), self.deployments.sync_state()),
            (format!("{STATEFUL_SET}s"), self.stateful_sets.sync_state()),
            (format!("{LEADER_WORKER_SET}s"), tried(self.groups.sync_state())),
            ("Pods".to_owned(), self.pods.sync_state()),
        ];
        let maps = &self.config_maps;
        all.push((format!("ConfigMaps of namespace {}", maps.namespace), answered(maps.own.sync_state())));
        all.extend(
            self.config_maps.local.iter().map(|(name, maps)| (format!("ConfigMaps named {name}"), maps.sync_state())),
        );
        let awaited = |(kind, state)| match state {
            SyncState::Synced | SyncState::NotServed => None,
            SyncState::Forbidden(cause) | SyncState::Failed(cause) => Some(format!("{kind} ({cause})")),
            SyncState::NotSynced | SyncState::Relisting => Some(kind),
        };
        all.into_iter().filter_map(awaited).collect()
    }

    /// The cause why the LeaderWorkerSets are unknown, with the remedy. `None` if they are known.
    pub(super) fn groups_unknown(&self) -> Option<String> {
        match self.groups.sync_state() {
            SyncState::Synced | SyncState::NotServed => None,
            SyncState::Forbidden(cause) => Some(format!(
                "{}; allow Steersman's service account to get, list and watch leaderworkersets of {GROUPS}",
                cause.trim_end_matches('.')
            )),
            SyncState::Failed(cause) => Some(format!("{LEADER_WORKER_SET}s cannot be listed: {cause}")),
            SyncState::NotSynced | SyncState::Relisting => {
                Some(format!("{LEADER_WORKER_SET}s have not been listed yet"))
            }
        }
    }
}

/// The state of a store of which an answer is enough, even if it is that we may not list the objects.
fn answered(state: SyncState) -> SyncState {
    if matches!(state, SyncState::NotSynced | SyncState::Failed(_)) { state } else { SyncState::Synced }
}

/// The state of a store of which a first attempt to list is enough.
fn tried(state: SyncState) -> SyncState {
    if state == SyncState::NotSynced { state } else { SyncState::Synced }
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
        let installation = Installation { config_namespace: Some("settings".to_owned()), ..Installation::default() };
        Fleet::new(&installation, &Options::default(), &Scope::Cluster)
    }

    #[test]
    fn awaited_kinds_are_named_until_listed() {
        let fleet = fleet();
        let awaited = fleet.awaited();
        for kind in ["VariantAutoscalings", "Namespaces", "Deployments", "StatefulSets", "LeaderWorkerSets", "Pods"] {
            assert!(awaited.iter().any(|known| known == kind), "{kind}: {awaited:?}");
        }
        assert!(awaited.contains(&"ConfigMaps of namespace settings".to_owned()), "{awaited:?}");
        fleet.variants.clear();
        assert_eq!(fleet.variants_listed().now_or_never(), None);
        fleet.namespaces.failed("500".to_owned());
        assert!(fleet.awaited().contains(&"Namespaces (500)".to_owned()), "{:?}", fleet.awaited());
        fleet.namespaces.clear();
        assert_eq!(fleet.variants_listed().now_or_never(), Some(()), "past decisions do not depend on workloads");
        fleet.deployments.clear();
        fleet.stateful_sets.clear();
        fleet.config_maps.own.failed("500".to_owned());
        assert!(
            fleet.awaited().contains(&"ConfigMaps of namespace settings (500)".to_owned()),
            "settings have to be known"
        );
        fleet.config_maps.own.forbidden("no".to_owned());
        fleet.config_maps.local.iter().for_each(|(_, maps)| drop(maps.clear()));
        fleet.pods.forbidden("pods is forbidden".to_owned());
        assert_eq!(fleet.awaited(), ["LeaderWorkerSets", "Pods (pods is forbidden)"]);
        assert_eq!(fleet.all_listed().now_or_never(), None);
        fleet.pods.clear();
        assert_eq!(fleet.all_listed().now_or_never(), None, "no list of groups was tried");
        fleet.groups.failed("500".to_owned());
        assert_eq!(
            (fleet.awaited(), fleet.all_listed().now_or_never()),
            (vec![], Some(())),
            "other objects need no groups"
        );
        fleet.groups.forbidden("no".to_owned());
        assert_eq!((fleet.awaited(), fleet.all_listed().now_or_never()), (vec![], Some(())));
    }

    #[tokio::test]
    async fn awaited_kinds_are_logged_repeatedly() {
        let (fleet, logged) = (fleet(), Mutex::new(Vec::new()));
        fleet.variants.clear();
        let moment = Duration::from_millis(1);
        let wait =
            fleet.log_while_waiting(moment, fleet.variants_listed(), |awaited| logged.lock().unwrap().push(awaited));
        let twice = async {
            while logged.lock().unwrap().len() < 2 {
                tokio::time::sleep(moment).await;
            }
            fleet.namespaces.clear();
        };
        tokio::join!(wait, twice);
        let logged = logged.into_inner().unwrap();
        assert!(logged.iter().all(|awaited| awaited.starts_with("Namespaces; Deployments; ")), "{logged:?}");
    }

    #[test]
    fn groups_are_unknown_until_listed() {
        let fleet = fleet();
        assert_eq!(fleet.groups_unknown().as_deref(), Some("LeaderWorkerSets have not been listed yet"));
        fleet.groups.not_served();
        assert_eq!(fleet.groups_unknown(), None, "there are none");
        fleet.groups.relist();
        assert_eq!(fleet.groups_unknown().as_deref(), Some("LeaderWorkerSets have not been listed yet"));
        fleet.groups.failed("the server answers 500".to_owned());
        let failed = "LeaderWorkerSets cannot be listed: the server answers 500";
        assert_eq!(fleet.groups_unknown().as_deref(), Some(failed));
        fleet.groups.forbidden("they are forbidden.".to_owned());
        let why = "they are forbidden; allow Steersman's service account to get, list and watch leaderworkersets of \
                   leaderworkerset.x-k8s.io";
        assert_eq!(fleet.groups_unknown().as_deref(), Some(why));
        fleet.groups.clear();
        assert_eq!(fleet.groups_unknown(), None);
    }
}
