//! Stores the ConfigMaps with settings, and the labels and annotations of namespaces.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use kube::api::DynamicObject;
use steersman_plan::variant::config::{ConfigSeen, Data};
use steersman_plan::variant::names;
use steersman_reconcile::NamespacedName;

use steersman_runtime::store::{Record, Store, SyncState};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    pub uid: String,
    pub data: Data,
}

impl Record for Map {}

/// Labels and annotations of a namespace that the operator reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Its ConfigMaps apply even if it has no object.
    pub enabled: bool,
    /// The operator ignores all objects in it.
    pub excluded: bool,
}

impl Record for Marks {}

pub struct Maps {
    /// Namespaces of the operator's own ConfigMaps. The first that has one is used.
    pub own: Vec<(String, Store<Map>)>,
    /// ConfigMaps of users' namespaces, by name.
    pub local: Vec<(String, Store<Map>)>,
    environment: BTreeMap<String, String>,
    allow_http: bool,
}

impl Maps {
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
    pub fn own_map(&self, object: &DynamicObject) -> Option<Map> {
        let name = object.name_any();
        let fixed = [names::COSTS, names::CLASSES, names::ZERO_CAMEL, names::ZERO_SNAKE].contains(&name.as_str());
        let known = fixed
            || names::main_maps(&self.environment).contains(&name)
            || names::saturation_maps(&self.environment).contains(&name);
        known.then(|| map(object))
    }

    /// `None` in the operator's own namespaces, which `own_map` covers.
    pub fn local_map(&self, object: &DynamicObject) -> Option<Map> {
        let namespace = object.namespace().unwrap_or_default();
        (!self.own.iter().any(|(own, _)| *own == namespace)).then(|| map(object))
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
    pub fn seen(&self, local: BTreeSet<String>) -> Result<ConfigSeen, (String, String)> {
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
        Ok(ConfigSeen { maps, local, ..self.alone() })
    }

    /// The settings of the environment alone.
    pub fn alone(&self) -> ConfigSeen {
        ConfigSeen {
            namespaces: self.own.iter().map(|(namespace, _)| namespace.clone()).collect(),
            environment: self.environment.clone(),
            allow_http: self.allow_http,
            ..ConfigSeen::default()
        }
    }

    pub fn uid(&self, place: &NamespacedName) -> Option<String> {
        self.own.iter().chain(&self.local).find_map(|(_, store)| Some(store.get(place)?.uid))
    }
}

fn map(object: &DynamicObject) -> Map {
    Map {
        uid: object.uid().unwrap_or_default(),
        data: serde_json::from_value(object.data["data"].clone()).unwrap_or_default(),
    }
}

/// `None` without labels and annotations of ours, so that most namespaces take no space.
pub fn marks(object: &DynamicObject) -> Option<Marks> {
    let is = |value: Option<&String>| value.is_some_and(|value| value == "true");
    let marks = Marks {
        enabled: is(object.labels().get(names::CONFIG_LABEL)),
        excluded: is(object.annotations().get(names::EXCLUDE_ANNOTATION)),
    };
    (marks != Marks::default()).then_some(marks)
}
