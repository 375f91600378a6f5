//! The operator's own ConfigMap, which speaks of all objects.
//! Comes in: watches on it, where it may be; goes out: what it says now, and a word whenever that changes.

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

/// How long a pass waits for the first word of the watches.
const FIRST_WORD: Duration = Duration::from_secs(5);

/// In the operator's own namespace, where it may have no rights to other ConfigMaps.
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

/// What is known of one of the places where it may be.
#[derive(Clone, Debug, Default, PartialEq)]
enum Found {
    /// Nobody looked yet.
    #[default]
    Unknown,
    Absent,
    There(BTreeMap<String, String>),
    /// We may not look; why.
    Forbidden(String),
}

pub struct Config {
    /// The first that has one counts.
    namespaces: Vec<String>,
    state: Mutex<State>,
    /// Whether there is an answer; also true where nobody watches.
    heard: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    found: BTreeMap<usize, Found>,
    current: Option<Arc<OperatorConfig>>,
}

impl Config {
    pub fn new(namespaces: Vec<String>) -> Self {
        Self { namespaces, state: Mutex::default(), heard: watch::Sender::new(true) }
    }

    /// Asked for where no watch has said it yet: objects must not be acted on without it.
    pub async fn current(&self, server: &Server) -> Result<Arc<OperatorConfig>, CallError> {
        // The sender is ours, so that waiting cannot fail.
        let _ = tokio::time::timeout(FIRST_WORD, self.heard.subscribe().wait_for(|heard| *heard)).await;
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

    /// Follows it for as long as it is polled. `changed` is called whenever it says something else than before.
    pub async fn follow(&self, server: &Server, changed: impl Fn()) {
        self.heard.send_replace(false);
        let watches = self.namespaces.iter().enumerate().map(|(index, namespace)| {
            let maps: Api<ConfigMap> = Api::namespaced(server.client.clone(), namespace);
            let changes = watcher::watch_object(maps, OPERATOR_CONFIG).default_backoff();
            changes.map(move |change| (index, change)).boxed()
        });
        let mut watching: Vec<Watching> = self.namespaces.iter().map(|_| Watching::new("ConfigMap")).collect();
        let mut changes = pin!(stream::select_all(watches));
        while let Some((index, change)) = changes.next().await {
            let forbidden =
                change.as_ref().err().filter(|error| client::is_forbidden(error)).map(client::watch_trouble);
            let heard = watching.get_mut(index).and_then(|watching| watching.receive(change));
            let found = match (heard, forbidden) {
                (Some(map), _) => map.map_or(Found::Absent, |map| Found::There(map.data.unwrap_or_default())),
                (None, Some(cause)) => Found::Forbidden(cause),
                // What was said before still counts, and if nothing was, passes ask for themselves.
                (None, None) => {
                    self.heard.send_replace(true);
                    continue;
                }
            };
            if self.take_in(index, found) {
                changed();
            }
        }
    }

    /// Whether it says something else now.
    fn take_in(&self, index: usize, found: Found) -> bool {
        let mut state = self.lock();
        state.found.insert(index, found);
        let before = state.current.clone();
        let Some(now) = self.decide(&state.found, before.as_deref()) else { return false };
        let other = before.as_deref() != Some(&now);
        if other {
            say(&now);
            state.current = Some(Arc::new(now));
        }
        drop(state);
        self.heard.send_replace(true);
        other
    }

    /// None: it is not known yet where it is.
    fn decide(&self, found: &BTreeMap<usize, Found>, before: Option<&OperatorConfig>) -> Option<OperatorConfig> {
        for (index, namespace) in self.namespaces.iter().enumerate() {
            let place = format!("{namespace}/{OPERATOR_CONFIG}");
            match found.get(&index).unwrap_or(&Found::Unknown) {
                Found::Unknown => return None,
                Found::There(data) => return Some(OperatorConfig::read(&place, data, before)),
                Found::Forbidden(cause) if index == 0 => return Some(OperatorConfig::unknown(&place, cause, before)),
                // Who was given no right to the Go operator's namespace does not want it read.
                Found::Absent | Found::Forbidden(_) => {}
            }
        }
        Some(OperatorConfig::default())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn say(config: &OperatorConfig) {
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
    fn the_first_place_that_has_one_counts_once_it_is_known() {
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
    fn where_it_may_not_be_read_what_was_known_stays_and_the_former_place_does_not_matter() {
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
