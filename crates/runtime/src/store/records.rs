//! Keeps one kind of objects as small records. A watch keeps them up to date.
//!
//! A record holds what its reader needs of an object and nothing else: a change of anything else is no change, and a store of
//! a hundred thousand pods fits into memory. kube's reflector keeps whole objects, so this store is built on its watcher.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use kube::api::{Api, ListParams};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use steersman_reconcile::NamespacedName;
use tokio::sync::watch::Sender;

use super::watching::Watching;
use crate::client::{self, CallError, Server};

/// Reliability of the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncState {
    /// No answer yet.
    NotSynced,
    /// We may not list or watch the objects; the answer of the API server.
    Forbidden(String),
    /// The list fails for another cause, which may pass.
    Failed(String),
    /// The API of the objects was not served, so there were none. It is served now, and a list is to come.
    Relisting,
    /// A complete list, and every event after it. A broken watch changes nothing about that: it continues where it was, or
    /// with a new list.
    Synced,
}

/// A record that was added, changed or removed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change<R> {
    pub object: NamespacedName,
    pub before: Option<R>,
    pub after: Option<R>,
}

impl<R: Record> Change<R> {
    /// The owners of the record before and after the change.
    pub fn owners(&self) -> BTreeSet<NamespacedName> {
        self.before.iter().chain(&self.after).filter_map(Record::owner).cloned().collect()
    }
}

/// The part of an object that is stored.
pub trait Record: Clone + PartialEq {
    /// The name of the object, if the record holds it anyway.
    fn name(&self) -> Option<Arc<str>> {
        None
    }

    /// The object of the same namespace that this one belongs to, for [`Store::owned_by`].
    fn owner(&self) -> Option<&NamespacedName> {
        None
    }

    /// Keeps from the record before what an update leaves out. By default an update replaces the record.
    fn inherit(&mut self, _before: &Self) {}
}

/// A shared record, for records that reconciles keep for longer than the store does.
impl<R: Record> Record for Arc<R> {
    fn name(&self) -> Option<Arc<str>> {
        R::name(self)
    }

    fn owner(&self) -> Option<&NamespacedName> {
        R::owner(self)
    }

    fn inherit(&mut self, before: &Self) {
        Arc::make_mut(self).inherit(before);
    }
}

pub struct Store<R> {
    records: Mutex<Records<R>>,
    sync: Sender<SyncState>,
    /// Whether the first list counts as a change of every object in it.
    first_list_changes: bool,
}

/// Names are not held twice: there may be a hundred thousand.
struct Records<R> {
    /// By namespace and name.
    by_name: ByName<R>,
    /// The names of the records of each owner, in its namespace.
    by_owner: BTreeMap<NamespacedName, BTreeSet<Arc<str>>>,
    /// The objects of a list that is not complete yet.
    incoming: Vec<(NamespacedName, R)>,
}

type ByName<R> = BTreeMap<Arc<str>, BTreeMap<Arc<str>, R>>;

impl<R> Default for Records<R> {
    fn default() -> Self {
        Self { by_name: BTreeMap::new(), by_owner: BTreeMap::new(), incoming: Vec::new() }
    }
}

impl<R> Default for Store<R> {
    fn default() -> Self {
        Self { records: Mutex::default(), sync: Sender::new(SyncState::NotSynced), first_list_changes: false }
    }
}

impl<R: Record> Store<R> {
    /// A store whose first list counts as a change of every object in it, for readers that look at objects before that.
    pub fn reporting_first_list() -> Self {
        Self { first_list_changes: true, ..Self::default() }
    }

    /// Follows the objects for as long as it is polled. An object without a `record` is ignored.
    pub async fn follow<K>(
        &self,
        api: Api<K>,
        kind: &str,
        config: watcher::Config,
        record: impl Fn(&K) -> Option<R>,
        changed: impl Fn(Change<R>),
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let mut watching = Watching::new(kind);
        let mut events = pin!(watch(api, config).default_backoff());
        while let Some(event) = events.next().await {
            if let Err(error) = event.as_ref() {
                let cause = client::watch_trouble(error);
                if client::is_forbidden(error) { self.forbidden(cause) } else { self.failed(cause) }
            }
            if let Some(event) = watching.receive_event(event) {
                self.receive(event, &record).into_iter().for_each(&changed);
            }
        }
    }

    /// Lists everything once.
    pub async fn fill<K>(
        &self,
        server: &Server,
        api: Api<K>,
        list: &ListParams,
        record: impl Fn(&K) -> Option<R>,
    ) -> Result<(), CallError>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        let listed = server.call(api.list(list)).await?;
        self.replace(listed.items.iter().filter_map(|object| Some((name_of(object), record(object)?))).collect());
        Ok(())
    }

    /// Updates the records by one event of a watch.
    pub fn receive<K: Resource>(&self, event: Event<K>, record: &impl Fn(&K) -> Option<R>) -> Vec<Change<R>> {
        match event {
            Event::Init => {
                self.lock().incoming.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                let record = record(&object).map(|record| (name_of(&object), record));
                self.lock().incoming.extend(record);
                Vec::new()
            }
            Event::InitDone => {
                let incoming = std::mem::take(&mut self.lock().incoming);
                self.replace(incoming)
            }
            Event::Apply(object) => self.put(name_of(&object), record(&object)).into_iter().collect(),
            Event::Delete(object) => self.put(name_of(&object), None).into_iter().collect(),
        }
    }

    /// There are no objects, for example because their API is not served.
    pub fn clear(&self) -> Vec<Change<R>> {
        self.replace(Vec::new())
    }

    /// The API of the objects is served from now on.
    pub fn relist(&self) {
        self.sync.send_if_modified(|state| {
            let was_synced = *state == SyncState::Synced;
            if was_synced {
                *state = SyncState::Relisting;
            }
            was_synced
        });
    }

    /// Returns once there is a complete list. Before that, an object that seems absent may only be unknown.
    pub async fn synced(&self) {
        // The sender is ours, so that waiting cannot fail.
        let _ = self.sync.subscribe().wait_for(|state| *state == SyncState::Synced).await;
    }

    /// Returns once there is an answer, even if it is that we may not list the objects.
    pub async fn answered(&self) {
        let unanswered = |state: &SyncState| matches!(state, SyncState::NotSynced | SyncState::Failed(_));
        let _ = self.sync.subscribe().wait_for(|state| !unanswered(state)).await;
    }

    /// Returns once the first list was tried.
    pub async fn tried(&self) {
        let _ = self.sync.subscribe().wait_for(|state| *state != SyncState::NotSynced).await;
    }

    pub fn sync_state(&self) -> SyncState {
        self.sync.borrow().clone()
    }

    pub fn get(&self, object: &NamespacedName) -> Option<R> {
        self.with(object, R::clone)
    }

    /// Reads one record without a copy.
    pub fn with<T>(&self, object: &NamespacedName, read: impl FnOnce(&R) -> T) -> Option<T> {
        find(&self.lock().by_name, object).map(read)
    }

    /// Reads each record in the order of namespace and name, without a copy. The store is locked meanwhile.
    pub fn each(&self, mut read: impl FnMut(&str, &str, &R)) {
        for (namespace, records) in &self.lock().by_name {
            records.iter().for_each(|(name, record)| read(namespace, name, record));
        }
    }

    /// The records of one owner, by name.
    pub fn owned_by(&self, owner: &NamespacedName) -> Vec<R> {
        let records = self.lock();
        let names = records.by_owner.get(owner).into_iter().flatten();
        let here = records.by_name.get(owner.namespace.as_str());
        names.filter_map(|name| here?.get(name).cloned()).collect()
    }

    pub fn len(&self) -> usize {
        self.lock().by_name.values().map(BTreeMap::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.lock().by_name.is_empty()
    }

    /// Reads only records of one namespace, however many others there are.
    pub fn any(&self, namespace: &str, is: impl Fn(&R) -> bool) -> bool {
        self.lock().by_name.get(namespace).is_some_and(|records| records.values().any(is))
    }

    /// Applies the result of one of our own writes to a record, so that the next reconcile need not wait for the watch. The
    /// owner of a record stays the same.
    pub fn wrote(&self, NamespacedName { namespace, name }: &NamespacedName, change: impl FnOnce(&mut R)) {
        let mut records = self.lock();
        let records = records.by_name.get_mut(namespace.as_str());
        if let Some(record) = records.and_then(|records| records.get_mut(name.as_str())) {
            change(record);
        }
    }

    /// We may not list the objects. A list from before stays the best that is known.
    pub fn forbidden(&self, cause: String) {
        self.not_synced(SyncState::Forbidden(cause), |state| *state != SyncState::Synced);
    }

    /// The objects cannot be listed now. `Forbidden` is more specific, and stays.
    pub fn failed(&self, cause: String) {
        self.not_synced(SyncState::Failed(cause), |state| {
            !matches!(state, SyncState::Synced | SyncState::Forbidden(_))
        });
    }

    fn not_synced(&self, now: SyncState, is_replaced: impl Fn(&SyncState) -> bool) {
        self.sync.send_if_modified(|state| {
            let changes = is_replaced(state) && *state != now;
            if changes {
                *state = now;
            }
            changes
        });
    }

    /// Adds, changes or removes one record.
    pub fn put(&self, object: NamespacedName, mut after: Option<R>) -> Option<Change<R>> {
        let mut records = self.lock();
        if let (Some(after), Some(before)) = (&mut after, find(&records.by_name, &object)) {
            after.inherit(before);
        }
        let before = records.put(&object, after.clone());
        (before != after).then_some(Change { object, before, after })
    }

    /// A complete list: an object that is not in it is gone.
    fn replace(&self, mut all: Vec<(NamespacedName, R)>) -> Vec<Change<R>> {
        self.inherit(&mut all);
        let all = Records::new(all);
        let mut changes = Vec::new();
        let mut records = self.lock();
        if self.first_list_changes || *self.sync.borrow() != SyncState::NotSynced {
            for (object, before) in named(&records.by_name) {
                let after = find(&all.by_name, &object);
                if after != Some(before) {
                    changes.push(Change { before: Some(before.clone()), after: after.cloned(), object });
                }
            }
            for (object, after) in named(&all.by_name) {
                if find(&records.by_name, &object).is_none() {
                    changes.push(Change { object, before: None, after: Some(after.clone()) });
                }
            }
        }
        *records = all;
        drop(records);
        self.sync.send_replace(SyncState::Synced);
        changes
    }

    fn inherit(&self, all: &mut [(NamespacedName, R)]) {
        let records = self.lock();
        for (object, after) in all {
            if let Some(before) = find(&records.by_name, object) {
                after.inherit(before);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Records<R>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Record> Records<R> {
    fn new(all: Vec<(NamespacedName, R)>) -> Self {
        let mut namespaces: BTreeMap<Arc<str>, Vec<(Arc<str>, R)>> = BTreeMap::new();
        let mut by_owner: BTreeMap<NamespacedName, BTreeSet<Arc<str>>> = BTreeMap::new();
        for (NamespacedName { namespace, name }, record) in all {
            let key = key(&record, &name);
            if let Some(owner) = record.owner() {
                by_owner.entry(owner.clone()).or_default().insert(key.clone());
            }
            namespaces.entry(namespace.into()).or_default().push((key, record));
        }
        // A map that is built from all its entries at once has full nodes; one that grows in order has half-empty ones.
        let by_name = namespaces.into_iter().map(|(namespace, records)| (namespace, records.into_iter().collect()));
        Self { by_name: by_name.collect(), by_owner, incoming: Vec::new() }
    }

    /// The record before.
    fn put(&mut self, object: &NamespacedName, after: Option<R>) -> Option<R> {
        let (namespace, name) = (object.namespace.as_str(), object.name.as_str());
        // Removed first, because a map keeps the key that it has, and with it the name of the record before.
        let before = self.by_name.get_mut(namespace).and_then(|records| records.remove(name));
        if let Some(owner) = before.as_ref().and_then(Record::owner)
            && let Some(names) = self.by_owner.get_mut(owner)
        {
            names.remove(name);
            if names.is_empty() {
                self.by_owner.remove(owner);
            }
        }
        match after {
            Some(record) => {
                let key = key(&record, name);
                if let Some(owner) = record.owner() {
                    self.by_owner.entry(owner.clone()).or_default().insert(key.clone());
                }
                self.by_name.entry(namespace.into()).or_default().insert(key, record);
            }
            None if self.by_name.get(namespace).is_some_and(BTreeMap::is_empty) => {
                self.by_name.remove(namespace);
            }
            None => {}
        }
        before
    }
}

fn key(record: &impl Record, name: &str) -> Arc<str> {
    record.name().unwrap_or_else(|| name.into())
}

fn find<'r, R>(records: &'r ByName<R>, NamespacedName { namespace, name }: &NamespacedName) -> Option<&'r R> {
    records.get(namespace.as_str())?.get(name.as_str())
}

fn named<R>(records: &ByName<R>) -> impl Iterator<Item = (NamespacedName, &R)> {
    let of = |namespace: &str, name: &str| NamespacedName::new(namespace, name);
    let each = records.iter();
    each.flat_map(move |(namespace, records)| records.iter().map(move |(name, record)| (of(namespace, name), record)))
}

fn name_of(object: &impl Resource) -> NamespacedName {
    NamespacedName::new(object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests;
