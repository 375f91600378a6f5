//! Stores the ConfigMaps with settings, and the labels and annotations of namespaces.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use kube::api::DynamicObject;
use steersman_plan::variant::config::{ConfigData, ConfigSources};
use steersman_plan::variant::names;
use steersman_reconcile::NamespacedName;

use steersman_runtime::store::{Record, Store, SyncState};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapRecord {
    pub uid: String,
    pub data: ConfigData,
}

impl Record for ConfigMapRecord {}

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
    /// Namespaces of the operator's own ConfigMaps. The first that has one is used.
    pub own: Vec<(String, Store<ConfigMapRecord>)>,
    /// ConfigMaps of users' namespaces, by name.
    pub local: Vec<(String, Store<ConfigMapRecord>)>,
    environment: BTreeMap<String, String>,
    allow_http: bool,
}

impl ConfigMaps {
    pub fn new(namespaces: Vec<String>, environment: BTreeMap<String, String>, allow_http: bool) -> Self {
        let mut local = names::saturation_maps(&environment);
        local.extend([names::ZERO_CAMEL, names::ZERO_SNAKE].map(ToOwned::to_owned));
        local.sort();
        local.dedup();
        Self {
            own: namespaces.into_iter().map(|namespace| (namespace, Store::default())).collect(),
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

    /// `None` in the operator's own namespaces, which `own_map` covers.
    pub fn local_map(&self, object: &DynamicObject) -> Option<ConfigMapRecord> {
        let namespace = object.namespace().unwrap_or_default();
        (!self.own.iter().any(|(own, _)| *own == namespace)).then(|| record(object))
    }

    pub async fn answered(&self) {
        for (_, store) in &self.own {
            store.answered().await;
        }
        for (_, store) in &self.local {
            store.synced().await;
        }
    }

    /// All settings. `local`: namespaces whose own ConfigMaps apply. The error names a namespace that may not be read,
    /// and the cause.
    pub fn sources(&self, local: BTreeSet<String>) -> Result<ConfigSources, (String, String)> {
        let mut maps = BTreeMap::new();
        for (at, (namespace, store)) in self.own.iter().enumerate() {
            match store.sync_state() {
                // A missing permission for the Go operator's namespace means that it is not to be read.
                SyncState::Forbidden(cause) if at == 0 => return Err((namespace.clone(), cause)),
                _ => store.each(|namespace, name, map| {
                    maps.insert((namespace.to_owned(), name.to_owned()), map.data.clone());
                }),
            }
        }
        for (_, store) in &self.local {
            store.each(|namespace, name, map| {
                if local.contains(namespace) {
                    maps.insert((namespace.to_owned(), name.to_owned()), map.data.clone());
                }
            });
        }
        Ok(ConfigSources { maps, local, ..self.environment_only() })
    }

    /// The settings of the environment alone.
    pub fn environment_only(&self) -> ConfigSources {
        ConfigSources {
            namespaces: self.own.iter().map(|(namespace, _)| namespace.clone()).collect(),
            environment: self.environment.clone(),
            allow_http: self.allow_http,
            ..ConfigSources::default()
        }
    }

    pub fn uid(&self, key: &NamespacedName) -> Option<String> {
        self.own.iter().chain(&self.local).find_map(|(_, store)| Some(store.get(key)?.uid))
    }
}

fn record(object: &DynamicObject) -> ConfigMapRecord {
    ConfigMapRecord {
        uid: object.uid().unwrap_or_default(),
        data: serde_json::from_value(object.data["data"].clone()).unwrap_or_default(),
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
