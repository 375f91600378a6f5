//! Watches the operator's own ConfigMap with settings for all objects.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use steersman_plan::llamastack::{DefaultPolicy, Images, OPERATOR_CONFIG, OperatorConfig};
use steersman_runtime::client::{self, CallError, Server};
use steersman_runtime::rbac::Rule;
use steersman_runtime::store::relist::{RELIST_INTERVAL, with_restarts};
use steersman_runtime::store::watching::Watching;
use tokio::sync::watch;

/// Longest wait of a reconcile for the first result of the watches.
const FIRST_SYNC_TIMEOUT: Duration = Duration::from_secs(5);

/// Rules for the operator's own namespace, where it may have no right to other ConfigMaps.
pub fn own_rules() -> Vec<Rule> {
    vec![Rule {
        group: "",
        resource: "configmaps",
        names: vec![OPERATOR_CONFIG],
        verbs: &["get", "list", "watch"],
        namespaced: true,
        why: "watch its own ConfigMap with the settings for images and NetworkPolicies",
    }]
}

/// The ConfigMap in one of the namespaces.
#[derive(Clone, Debug, Default, PartialEq)]
enum ConfigMapState {
    #[default]
    Unknown,
    Absent,
    Present(BTreeMap<String, String>),
    /// The reason why it may not be read.
    Forbidden(String),
}

pub struct OperatorConfigWatch {
    /// The first namespace with a ConfigMap counts.
    namespaces: Vec<String>,
    state: Mutex<WatchState>,
    /// False from the start of the watches until their first result or error.
    synced: watch::Sender<bool>,
}

#[derive(Default)]
struct WatchState {
    found: BTreeMap<usize, ConfigMapState>,
    current: Option<Arc<OperatorConfig>>,
}

impl OperatorConfigWatch {
    pub fn new(namespaces: Vec<String>) -> Self {
        Self { namespaces, state: Mutex::default(), synced: watch::Sender::new(true) }
    }

    /// The current settings. Without a result of the watches they are read: objects must not be reconciled without them.
    pub async fn current(&self, server: &Server) -> Result<Arc<OperatorConfig>, CallError> {
        // `self` has the sender, so that waiting cannot fail.
        let _ = tokio::time::timeout(FIRST_SYNC_TIMEOUT, self.synced.subscribe().wait_for(|synced| *synced)).await;
        if let Some(current) = self.lock().current.clone() {
            return Ok(current);
        }
        let mut found = BTreeMap::new();
        for (index, namespace) in self.namespaces.iter().enumerate() {
            let maps: Api<ConfigMap> = Api::namespaced(server.client.clone(), namespace);
            let here = match server.call(maps.get_opt(OPERATOR_CONFIG)).await {
                Ok(map) => {
                    map.map_or(ConfigMapState::Absent, |map| ConfigMapState::Present(map.data.unwrap_or_default()))
                }
                Err(CallError::Answered { code: 403, message, .. }) => ConfigMapState::Forbidden(message),
                Err(error) => return Err(error),
            };
            found.insert(index, here);
        }
        Ok(Arc::new(self.decide(&found, None).unwrap_or_default()))
    }

    /// Watches the ConfigMaps. `changed` is called whenever the settings differ from before.
    pub async fn follow(&self, server: &Server, changed: impl Fn()) {
        self.synced.send_replace(false);
        let watches = self.namespaces.iter().enumerate().map(|(index, namespace)| {
            let maps: Api<ConfigMap> = Api::namespaced(server.client.clone(), namespace);
            let changes = with_restarts(RELIST_INTERVAL, move || {
                watcher::watch_object(maps.clone(), OPERATOR_CONFIG).default_backoff()
            });
            changes.map(move |change| (index, change)).boxed()
        });
        let mut watching: Vec<Watching> = self.namespaces.iter().map(|_| Watching::new("ConfigMap")).collect();
        let mut changes = pin!(stream::select_all(watches));
        while let Some((index, change)) = changes.next().await {
            let forbidden =
                change.as_ref().err().filter(|error| client::is_forbidden(error)).map(client::watch_error_cause);
            let received = watching.get_mut(index).and_then(|watching| watching.receive(change));
            let found = match (received, forbidden) {
                (Some(map), _) => {
                    map.map_or(ConfigMapState::Absent, |map| ConfigMapState::Present(map.data.unwrap_or_default()))
                }
                (None, Some(cause)) => ConfigMapState::Forbidden(cause),
                // Earlier settings stay valid; without any, reconciles read the ConfigMap themselves.
                (None, None) => {
                    self.synced.send_replace(true);
                    continue;
                }
            };
            if self.update(index, found) {
                changed();
            }
        }
    }

    /// Returns whether the settings have changed.
    fn update(&self, index: usize, found: ConfigMapState) -> bool {
        let mut state = self.lock();
        state.found.insert(index, found);
        let before = state.current.clone();
        let Some(now) = self.decide(&state.found, before.as_deref()) else { return false };
        let other = before.as_deref() != Some(&now);
        if other {
            log(&now);
            state.current = Some(Arc::new(now));
        }
        drop(state);
        self.synced.send_replace(true);
        other
    }

    /// None if a namespace that comes first is not known yet.
    fn decide(
        &self,
        found: &BTreeMap<usize, ConfigMapState>,
        before: Option<&OperatorConfig>,
    ) -> Option<OperatorConfig> {
        for (index, namespace) in self.namespaces.iter().enumerate() {
            let place = format!("{namespace}/{OPERATOR_CONFIG}");
            match found.get(&index).unwrap_or(&ConfigMapState::Unknown) {
                ConfigMapState::Unknown => return None,
                ConfigMapState::Present(data) => return Some(OperatorConfig::read(&place, data, before)),
                ConfigMapState::Forbidden(cause) if index == 0 => {
                    return Some(OperatorConfig::unknown(&place, cause, before));
                }
                // An operator without rights in the Go operator's namespace is not meant to read it.
                ConfigMapState::Absent | ConfigMapState::Forbidden(_) => {}
            }
        }
        Some(OperatorConfig::default())
    }

    fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log(config: &OperatorConfig) {
    let OperatorConfig { place, images, policy, faults } = config;
    for fault in faults {
        tracing::warn!(
            config_map = place,
            fault = fault.message,
            remedy = fault.remedy,
            "invalid entry in the operator's ConfigMap"
        );
    }
    let images = match images {
        Images::Known(images) => images.keys().cloned().collect::<Vec<_>>().join(","),
        Images::Unknown => "unknown".to_owned(),
    };
    let policy = match policy {
        DefaultPolicy::On => "on",
        DefaultPolicy::Off => "off",
        DefaultPolicy::Unknown => "unknown",
    };
    tracing::info!(
        config_map = place,
        images_replaced = images,
        network_policy = policy,
        "read the settings for all LlamaStackDistributions"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> OperatorConfigWatch {
        OperatorConfigWatch::new(vec!["own".to_owned(), "former".to_owned()])
    }

    fn present(image: &str) -> ConfigMapState {
        ConfigMapState::Present([("image-overrides".to_owned(), format!("starter: {image}"))].into())
    }

    fn place(config: &OperatorConfigWatch) -> Option<String> {
        config.lock().current.as_ref().map(|current| current.place.clone())
    }

    #[test]
    fn first_known_namespace_with_config_counts() {
        let config = config();
        assert!(!config.update(1, present("former:1")), "the state of the first namespace is unknown");
        assert_eq!(place(&config), None);
        assert!(config.update(0, ConfigMapState::Absent));
        assert_eq!(place(&config).unwrap(), "former/llama-stack-operator-config");
        assert!(config.update(0, present("own:1")));
        assert_eq!(place(&config).unwrap(), "own/llama-stack-operator-config");
        assert!(!config.update(1, present("former:2")), "the second namespace is not used");
        assert!(!config.update(0, present("own:1")), "unchanged");
        assert!(config.update(0, present("own:2")));
    }

    #[test]
    fn forbidden_config_keeps_last_settings() {
        let config = config();
        config.update(1, ConfigMapState::Forbidden("no".to_owned()));
        assert!(config.update(0, ConfigMapState::Absent));
        assert_eq!(*config.lock().current.clone().unwrap(), OperatorConfig::default());
        config.update(0, present("own:1"));
        config.update(0, ConfigMapState::Forbidden("no".to_owned()));
        let now = config.lock().current.clone().unwrap();
        assert_eq!(now.images, Images::Known([("starter".to_owned(), "own:1".to_owned())].into()));
        assert!(now.faults[0].message.contains("cannot be read: no"), "{now:?}");
    }
}
