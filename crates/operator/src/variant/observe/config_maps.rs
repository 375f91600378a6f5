//! Stores the ConfigMaps with settings, and the labels and annotations of namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use kube::ResourceExt;
use kube::api::DynamicObject;
use steersman_plan::variant::config::{ConfigData, ConfigSources, MAX_LOCAL_BYTES};
use steersman_plan::variant::names;
use steersman_reconcile::NamespacedName;

use steersman_runtime::store::{Record, Store, SyncState};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapRecord {
    pub uid: String,
    /// `None` if the ConfigMap is too large, or if the store has no room for it.
    pub data: Option<ConfigData>,
}

impl Record for ConfigMapRecord {
    fn bytes(&self) -> usize {
        self.data.as_ref().map_or(0, data_bytes)
    }

    fn shrink(&mut self) {
        self.data = None;
    }
}

fn data_bytes(data: &ConfigData) -> usize {
    data.iter().map(|(key, value)| key.len() + value.len()).sum()
}

/// Labels and annotations of a namespace that the operator reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceRecord {
    /// ConfigMaps of the namespace are read even if it has no VariantAutoscaling.
    pub enabled: bool,
    /// VariantAutoscalings of the namespace are not reconciled.
    pub excluded: bool,
}

impl Record for NamespaceRecord {}

pub struct ConfigMaps {
    /// Namespace of the settings for the whole fleet.
    pub namespace: String,
    /// ConfigMaps of that namespace.
    pub own: Store<ConfigMapRecord>,
    /// ConfigMaps of users' namespaces, by name.
    pub local: Vec<(String, Store<ConfigMapRecord>)>,
    environment: BTreeMap<String, String>,
    allow_http: bool,
}

impl ConfigMaps {
    pub fn new(namespace: String, environment: BTreeMap<String, String>, allow_http: bool) -> Self {
        let mut local = names::saturation_maps(&environment);
        local.extend([names::ZERO_CAMEL, names::ZERO_SNAKE].map(ToOwned::to_owned));
        local.sort();
        local.dedup();
        Self {
            namespace,
            own: Store::default(),
            local: local.into_iter().map(|name| (name, Store::default())).collect(),
            environment,
            allow_http,
        }
    }

    /// `None` if the name is not one of the operator's own ConfigMaps.
    pub fn own_map(&self, object: &DynamicObject) -> Option<ConfigMapRecord> {
        let name = object.name_any();
        let fixed = [names::COSTS, names::CLASSES, names::ZERO_CAMEL, names::ZERO_SNAKE].contains(&name.as_str());
        let known = fixed
            || names::main_maps(&self.environment).contains(&name)
            || names::saturation_maps(&self.environment).contains(&name);
        known.then(|| record(object))
    }

    /// `None` in the namespace of the fleet's settings, which `own_map` covers.
    pub fn local_map(&self, object: &DynamicObject) -> Option<ConfigMapRecord> {
        if object.namespace().unwrap_or_default() == self.namespace {
            return None;
        }
        let mut record = record(object);
        if record.bytes() > MAX_LOCAL_BYTES {
            record.shrink();
        }
        Some(record)
    }

    pub async fn answered(&self) {
        self.own.answered().await;
        for (_, store) in &self.local {
            store.synced().await;
        }
    }

    /// All settings. `local`: namespaces whose own ConfigMaps apply. The error is the reason why the ConfigMaps of the fleet
    /// may not be read.
    pub fn sources(&self, local: BTreeSet<String>) -> Result<ConfigSources, String> {
        if let SyncState::Forbidden(cause) = self.own.sync_state() {
            return Err(cause);
        }
        let (mut maps, mut too_large) = (BTreeMap::new(), BTreeSet::new());
        self.own.each(|namespace, name, map| {
            maps.insert((namespace.to_owned(), name.to_owned()), map.data.clone().unwrap_or_default());
        });
        for (_, store) in &self.local {
            store.each(|namespace, name, map| {
                if local.contains(namespace) {
                    let key = (namespace.to_owned(), name.to_owned());
                    if map.data.is_none() {
                        too_large.insert(key.clone());
                    }
                    maps.insert(key, map.data.clone().unwrap_or_default());
                }
            });
        }
        Ok(ConfigSources { maps, too_large, local, ..self.environment_only() })
    }

    /// The settings of the environment alone.
    pub fn environment_only(&self) -> ConfigSources {
        ConfigSources {
            namespace: self.namespace.clone(),
            environment: self.environment.clone(),
            allow_http: self.allow_http,
            ..ConfigSources::default()
        }
    }

    pub fn uid(&self, key: &NamespacedName) -> Option<String> {
        let local = self.local.iter().map(|(_, store)| store);
        iter::once(&self.own).chain(local).find_map(|store| Some(store.get(key)?.uid))
    }
}

fn record(object: &DynamicObject) -> ConfigMapRecord {
    ConfigMapRecord {
        uid: object.uid().unwrap_or_default(),
        data: Some(serde_json::from_value(object.data["data"].clone()).unwrap_or_default()),
    }
}

/// `None` without labels and annotations of ours, so that most namespaces take no space.
pub fn namespace_record(object: &DynamicObject) -> Option<NamespaceRecord> {
    let is = |value: Option<&String>| value.is_some_and(|value| value == "true");
    let record = NamespaceRecord {
        enabled: is(object.labels().get(names::CONFIG_LABEL)),
        excluded: is(object.annotations().get(names::EXCLUDE_ANNOTATION)),
    };
    (record != NamespaceRecord::default()).then_some(record)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn large_map_of_user_is_kept_without_data() {
        let maps = ConfigMaps::new("settings".to_owned(), BTreeMap::new(), false);
        let map = |namespace: &str, bytes: usize| -> DynamicObject {
            serde_json::from_value(
                json!({ "metadata": { "name": names::ZERO_CAMEL, "namespace": namespace, "uid": "u" },
                "data": { "k": "x".repeat(bytes) } }),
            )
            .unwrap()
        };
        let bytes = |record: Option<ConfigMapRecord>| record.map(|record| record.data.as_ref().map(data_bytes));
        assert_eq!(bytes(maps.local_map(&map("team", MAX_LOCAL_BYTES - 1))), Some(Some(MAX_LOCAL_BYTES)));
        assert_eq!(bytes(maps.local_map(&map("team", MAX_LOCAL_BYTES))), Some(None));
        assert_eq!(bytes(maps.local_map(&map("settings", 1))), None);
        assert_eq!(bytes(maps.own_map(&map("settings", MAX_LOCAL_BYTES))), Some(Some(MAX_LOCAL_BYTES + 1)));

        let place = NamespacedName::new("team", names::ZERO_CAMEL);
        for (name, store) in &maps.local {
            let record = (name == names::ZERO_CAMEL).then(|| maps.local_map(&map("team", MAX_LOCAL_BYTES)).unwrap());
            store.put(place.clone(), record);
        }
        let sources = maps.sources(BTreeSet::from(["team".to_owned()])).unwrap();
        assert_eq!(sources.too_large, [("team".to_owned(), names::ZERO_CAMEL.to_owned())].into());
        let other = maps.sources(BTreeSet::from(["other".to_owned()])).unwrap();
        assert!(other.maps.is_empty() && other.too_large.is_empty(), "namespace `team` must not be read");
    }
}
