//! The ConfigMaps that hold settings of the fleet, and the namespaces that may have some of their own.
//! Comes in: what lies under their names; goes out: all of it as plain data, and which of it was not to be had.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use kube::api::DynamicObject;
use steersman_plan::variant::config::{ConfigSeen, Data};
use steersman_plan::variant::names;
use steersman_reconcile::NamespacedName;

use steersman_runtime::store::{Record, Store, SyncState};

/// One ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    pub uid: String,
    pub data: Data,
}

impl Record for Map {}

/// What is written on a namespace for us to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Its own maps count even where it has no object.
    pub enabled: bool,
    /// Nothing in it is looked at.
    pub excluded: bool,
}

impl Record for Marks {}

pub struct Maps {
    /// Where the operator's own maps may lie, the first that has one wins.
    pub own: Vec<(String, Store<Map>)>,
    /// Maps of users' namespaces, by their name.
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

    /// A map of the operator's own: only what has one of the names.
    pub fn own_map(&self, object: &DynamicObject) -> Option<Map> {
        let name = object.name_any();
        let fixed = [names::COSTS, names::CLASSES, names::ZERO_CAMEL, names::ZERO_SNAKE].contains(&name.as_str());
        let known = fixed
            || names::main_maps(&self.environment).contains(&name)
            || names::saturation_maps(&self.environment).contains(&name);
        known.then(|| map(object))
    }

    /// A map of a user's namespace. Those of the operator's own are looked at elsewhere.
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

    /// All that is set, for objects of the namespaces that `local` names. Err: where maps are that there is no right to, and
    /// why.
    pub fn seen(&self, local: BTreeSet<String>) -> Result<ConfigSeen, (String, String)> {
        let mut maps = BTreeMap::new();
        for (at, (namespace, store)) in self.own.iter().enumerate() {
            match store.sync_state() {
                // Who was given no right to the Go operator's namespace does not want it read.
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

    /// What the environment says alone.
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

/// Of a namespace. One without marks is no record, so that most namespaces take no room.
pub fn marks(object: &DynamicObject) -> Option<Marks> {
    let is = |value: Option<&String>| value.is_some_and(|value| value == "true");
    let marks = Marks {
        enabled: is(object.labels().get(names::CONFIG_LABEL)),
        excluded: is(object.annotations().get(names::EXCLUDE_ANNOTATION)),
    };
    (marks != Marks::default()).then_some(marks)
}
