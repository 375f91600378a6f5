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
use steersman_runtime::store::watching::Watching;
use tokio::sync::watch;

/// Longest wait of a reconcile for the first result of the watches.
const FIRST_WORD: Duration = Duration::from_secs(5);

/// Rules for the operator's own namespace, where it may have no right to other ConfigMaps.
pub fn own_rules() -> Vec<Rule> {
    vec![Rule {
        group: "",
        resource: "configmaps",
        names: vec![OPERATOR_CONFIG],
        verbs: &["get", "list", "watch"],
        namespaced: true,
        why: "follow what its own ConfigMap says of images and NetworkPolicies",
    }]
}

/// The ConfigMap in one of the namespaces.
#[derive(Clone, Debug, Default, PartialEq)]
enum Found {
    #[default]
    Unknown,
    Absent,
    There(BTreeMap<String, String>),
    /// The reason why it may not be read.
    Forbidden(String),
}

pub struct Config {
    /// The first namespace with a ConfigMap counts.
    namespaces: Vec<String>,
    state: Mutex<State>,
    /// False from the start of the watches until their first result or error.
    synced: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    found: BTreeMap<usize, Found>,
    current: Option<Arc<OperatorConfig>>,
}

impl Config {
    pub fn new(namespaces: Vec<String>) -> Self {
        Self { namespaces, state: Mutex::default(), synced: watch::Sender::new(true) }
    }

    /// The current settings. Without a result of the watches they are read: objects must not be reconciled without them.
    pub async fn current(&self, server: &Server) -> Result<Arc<OperatorConfig>, CallError> {
        // `self` has the sender, so that waiting cannot fail.
        let _ = tokio::time::timeout(FIRST_WORD, self.synced.subscribe().wait_for(|synced| *synced)).await;
        if let Some(current) = self.lock().current.clone() {
            return Ok(current);
        }
        let mut found = BTreeMap::new();
        for (index, namespace) in self.namespaces.iter().enumerate() {
            let maps: Api<ConfigMap> = Api::namespaced(server.client.clone(), namespace);
            let here = match server.call(maps.get_opt(OPERATOR_CONFIG)).await {
                Ok(map) => map.map_or(Found::Absent, |map| Found::There(map.data.unwrap_or_default())),
                Err(CallError::Answered { code: 403, message, .. }) => Found::Forbidden(message),
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
            let changes = watcher::watch_object(maps, OPERATOR_CONFIG).default_backoff();
            changes.map(move |change| (index, change)).boxed()
        });
        let mut watching: Vec<Watching> = self.namespaces.iter().map(|_| Watching::new("ConfigMap")).collect();
        let mut changes = pin!(stream::select_all(watches));
        while let Some((index, change)) = changes.next().await {
            let forbidden =
                change.as_ref().err().filter(|error| client::is_forbidden(error)).map(client::watch_error_cause);
            let received = watching.get_mut(index).and_then(|watching| watching.receive(change));
            let found = match (received, forbidden) {
                (Some(map), _) => map.map_or(Found::Absent, |map| Found::There(map.data.unwrap_or_default())),
                (None, Some(cause)) => Found::Forbidden(cause),
                // Earlier settings stay valid; without any, reconciles read the ConfigMap themselves.
                (None, None) => {
                    self.synced.send_replace(true);
                    continue;
                }
            };
            if self.take_in(index, found) {
                changed();
            }
        }
    }

    /// Returns whether the settings have changed.
    fn take_in(&self, index: usize, found: Found) -> bool {
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
    fn decide(&self, found: &BTreeMap<usize, Found>, before: Option<&OperatorConfig>) -> Option<OperatorConfig> {
        for (index, namespace) in self.namespaces.iter().enumerate() {
            let place = format!("{namespace}/{OPERATOR_CONFIG}");
            match found.get(&index).unwrap_or(&Found::Unknown) {
                Found::Unknown => return None,
                Found::There(data) => return Some(OperatorConfig::read(&place, data, before)),
                Found::Forbidden(cause) if index == 0 => return Some(OperatorConfig::unknown(&place, cause, before)),
                // An operator without rights in the Go operator's namespace is not meant to read it.
                Found::Absent | Found::Forbidden(_) => {}
            }
        }
        Some(OperatorConfig::default())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
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
            "the operator's ConfigMap is wrong"
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
    tracing::info!(config_map = place, images_replaced = images, network_policy = policy, "settings of all objects");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new(vec!["own".to_owned(), "former".to_owned()])
    }

    fn there(image: &str) -> Found {
        Found::There([("image-overrides".to_owned(), format!("starter: {image}"))].into())
    }

    fn place(config: &Config) -> Option<String> {
        config.lock().current.as_ref().map(|current| current.place.clone())
    }

    #[test]
    fn first_known_namespace_with_config_counts() {
        let config = config();
        assert!(!config.take_in(1, there("former:1")), "the own namespace is not known yet");
        assert_eq!(place(&config), None);
        assert!(config.take_in(0, Found::Absent));
        assert_eq!(place(&config).unwrap(), "former/llama-stack-operator-config");
        assert!(config.take_in(0, there("own:1")));
        assert_eq!(place(&config).unwrap(), "own/llama-stack-operator-config");
        assert!(!config.take_in(1, there("former:2")), "that one does not count");
        assert!(!config.take_in(0, there("own:1")), "it says the same");
        assert!(config.take_in(0, there("own:2")));
    }

    #[test]
    fn forbidden_config_keeps_last_settings() {
        let config = config();
        config.take_in(1, Found::Forbidden("no".to_owned()));
        assert!(config.take_in(0, Found::Absent));
        assert_eq!(*config.lock().current.clone().unwrap(), OperatorConfig::default());
        config.take_in(0, there("own:1"));
        config.take_in(0, Found::Forbidden("no".to_owned()));
        let now = config.lock().current.clone().unwrap();
        assert_eq!(now.images, Images::Known([("starter".to_owned(), "own:1".to_owned())].into()));
        assert!(now.faults[0].message.contains("cannot be read: no"), "{now:?}");
    }
}
