//! Watches the operator's own ConfigMap with settings for all objects.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use steersman_plan::llamastack::{DefaultPolicy, Images, OPERATOR_CONFIG, OperatorConfig};
use steersman_runtime::client::{self, CallError, Server};
use steersman_runtime::rbac::Rule;
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

/// What is known about the ConfigMap.
#[derive(Clone, Debug, PartialEq)]
enum ConfigMapState {
    Absent,
    Present(BTreeMap<String, String>),
    /// The reason why it may not be read.
    Forbidden(String),
}

pub struct OperatorConfigWatch {
    namespace: String,
    /// None: not known yet.
    current: Mutex<Option<Arc<OperatorConfig>>>,
    /// False from the start of the watch until its first result or error.
    synced: watch::Sender<bool>,
}

impl OperatorConfigWatch {
    pub fn new(namespace: String) -> Self {
        Self { namespace, current: Mutex::default(), synced: watch::Sender::new(true) }
    }

    /// The current settings. Without a result of the watch they are read: objects must not be reconciled without them.
    pub async fn current(&self, server: &Server) -> Result<Arc<OperatorConfig>, CallError> {
        // `self` has the sender, so that waiting cannot fail.
        let _ = tokio::time::timeout(FIRST_SYNC_TIMEOUT, self.synced.subscribe().wait_for(|synced| *synced)).await;
        if let Some(current) = self.lock().clone() {
            return Ok(current);
        }
        let found = match server.call(self.config_maps(server).get_opt(OPERATOR_CONFIG)).await {
            Ok(map) => ConfigMapState::of(map),
            Err(CallError::Answered { code: 403, message, .. }) => ConfigMapState::Forbidden(message),
            Err(error) => return Err(error),
        };
        Ok(Arc::new(self.decide(&found, None)))
    }

    /// Watches the ConfigMap. `changed` is called whenever the settings differ from before.
    pub async fn follow(&self, server: &Server, changed: impl Fn()) {
        self.synced.send_replace(false);
        let mut watching = Watching::new("ConfigMap");
        let mut changes = pin!(watcher::watch_object(self.config_maps(server), OPERATOR_CONFIG).default_backoff());
        while let Some(change) = changes.next().await {
            let forbidden =
                change.as_ref().err().filter(|error| client::is_forbidden(error)).map(client::watch_error_cause);
            let found = match (watching.receive(change), forbidden) {
                (Some(map), _) => ConfigMapState::of(map),
                (None, Some(cause)) => ConfigMapState::Forbidden(cause),
                // Earlier settings stay valid; without any, reconciles read the ConfigMap themselves.
                (None, None) => {
                    self.synced.send_replace(true);
                    continue;
                }
            };
            if self.update(&found) {
                changed();
            }
        }
    }

    fn config_maps(&self, server: &Server) -> Api<ConfigMap> {
        Api::namespaced(server.client.clone(), &self.namespace)
    }

    /// Returns whether the settings have changed.
    fn update(&self, found: &ConfigMapState) -> bool {
        let mut current = self.lock();
        let now = self.decide(found, current.as_deref());
        let other = current.as_deref() != Some(&now);
        if other {
            log(&now);
            *current = Some(Arc::new(now));
        }
        drop(current);
        self.synced.send_replace(true);
        other
    }

    fn decide(&self, found: &ConfigMapState, before: Option<&OperatorConfig>) -> OperatorConfig {
        let place = format!("{}/{OPERATOR_CONFIG}", self.namespace);
        match found {
            ConfigMapState::Absent => OperatorConfig::default(),
            ConfigMapState::Present(data) => OperatorConfig::read(&place, data, before),
            ConfigMapState::Forbidden(cause) => OperatorConfig::unknown(&place, cause, before),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<OperatorConfig>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConfigMapState {
    fn of(map: Option<ConfigMap>) -> Self {
        map.map_or(Self::Absent, |map| Self::Present(map.data.unwrap_or_default()))
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

    fn present(image: &str) -> ConfigMapState {
        ConfigMapState::Present([("image-overrides".to_owned(), format!("starter: {image}"))].into())
    }

    #[test]
    fn unchanged_settings_are_not_reported() {
        let config = OperatorConfigWatch::new("own".to_owned());
        assert!(config.update(&present("own:1")));
        assert_eq!(config.lock().clone().unwrap().place, "own/llama-stack-operator-config");
        assert!(!config.update(&present("own:1")));
        assert!(config.update(&present("own:2")));
        assert!(config.update(&ConfigMapState::Absent));
        assert_eq!(*config.lock().clone().unwrap(), OperatorConfig::default());
    }

    #[test]
    fn forbidden_config_keeps_last_settings() {
        let config = OperatorConfigWatch::new("own".to_owned());
        config.update(&present("own:1"));
        config.update(&ConfigMapState::Forbidden("no".to_owned()));
        let now = config.lock().clone().unwrap();
        assert_eq!(now.images, Images::Known([("starter".to_owned(), "own:1".to_owned())].into()));
        assert!(now.faults[0].message.contains("cannot be read: no"), "{now:?}");
    }
}
