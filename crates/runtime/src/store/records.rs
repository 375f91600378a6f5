//! Keeps one kind of objects as small records. A watch keeps them up to date.
//!
//! A record holds what its reader needs of an object and nothing else: a change of anything else is no change, and a store of
//! a hundred thousand pods fits into memory. kube's reflector keeps whole objects, so this store is built on its watcher.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use kube::api::{Api, ListParams};
use kube::runtime::watcher::{self, Event};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use steersman_reconcile::NamespacedName;
use tokio::sync::watch::Sender;

use super::relist::watch_with_relists;
use super::watching::Watching;
use crate::client::{self, CallError, Server};

/// Objects per page of a list. A page is held in memory as a whole.
pub const PAGE: u32 = 100;

/// The same for objects that users can make as large as the API server allows.
pub const SMALL_PAGE: u32 = 25;

/// Most bytes of the records of one namespace in one store, so that no tenant can fill the memory of the operator.
pub const MAX_NAMESPACE_BYTES: usize = 8 << 20;

/// Most bytes of all records of one store.
pub const MAX_BYTES: usize = 256 << 20;

/// Remembered deletions: more than can happen while one write is in progress.
const MAX_DELETED: usize = 10_000;

/// Reliability of the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncState {
    /// No answer yet.
    NotSynced,
    /// We may not list or watch the objects; the answer of the API server.
    Forbidden(String),
    /// The list fails for another cause, which may pass.
    Failed(String),
    /// The API of the objects is not served, so there are none.
    NotServed,
    /// The API of the objects was not served, so there were none. It is served now, and a list is to come.
    Relisting,
    /// A complete list, and every event after it. A broken watch changes nothing about that: it continues where it was, or
    /// with a new list. Restored versions of etcd arrive with the next periodic list.
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
        let owners = self.before.iter().chain(&self.after).filter_map(Record::owner);
        owners.map(|owner| NamespacedName::new(self.object.namespace.as_str(), owner)).collect()
    }
}

/// Identifies an object and its version, so that the responses to our own writes and the events of a watch can arrive in any
/// order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revision {
    pub uid: Option<String>,
    /// `resourceVersion` as a number, which it is on all API servers of Kubernetes. `None` otherwise; the object then
    /// counts as new.
    pub version: Option<u64>,
}

impl Revision {
    pub fn of(object: &impl Resource) -> Self {
        Self { uid: object.uid(), version: object.resource_version().and_then(|version| version.parse().ok()) }
    }

    fn is_older_than(&self, other: &Self) -> bool {
        matches!((self.version, other.version), (Some(own), Some(other)) if own < other)
    }
}

/// The part of an object that is stored.
pub trait Record: Clone + PartialEq {
    /// The name of the object, if the record holds it anyway.
    fn name(&self) -> Option<Arc<str>> {
        None
    }

    /// The name or UID of the object of the same namespace that this one belongs to, for [`Store::owned_by`].
    fn owner(&self) -> Option<&str> {
        None
    }

    /// For stores that take the responses to our own writes, see [`Store::wrote`].
    fn revision(&self) -> Option<&Revision> {
        None
    }

    /// Size of the part that [`Record::shrink`] drops.
    fn bytes(&self) -> usize {
        0
    }

    /// Drops everything that its reader can read from the API server instead, because the store is full.
    fn shrink(&mut self) {}

    /// Keeps from the record before what an update leaves out. By default an update replaces the record.
    fn inherit(&mut self, _before: &Self) {}
}

/// A shared record, for records that reconciles keep for longer than the store does.
impl<R: Record> Record for Arc<R> {
    fn name(&self) -> Option<Arc<str>> {
        R::name(self)
    }

    fn owner(&self) -> Option<&str> {
        R::owner(self)
    }

    fn revision(&self) -> Option<&Revision> {
        R::revision(self)
    }

    fn bytes(&self) -> usize {
        R::bytes(self)
    }

    fn shrink(&mut self) {
        Arc::make_mut(self).shrink();
    }

    fn inherit(&mut self, before: &Self) {
        Arc::make_mut(self).inherit(before);
    }
}

pub struct Store<R> {
    records: Mutex<Records<R>>,
    sync: Sender<SyncState>,
    permission: Sender<Permission>,
    /// Whether the first list counts as a change of every object in it.
    first_list_changes: bool,
}

/// Whether we may watch the objects, as far as we know.
#[derive(Clone, Copy, Debug, Default)]
struct Permission {
    denied: bool,
    /// Number of times that we lost it, or found that we never had it.
    losses: u64,
}

struct Records<R> {
    namespaces: BTreeMap<Arc<str>, Namespace<R>>,
    /// Size of all records.
    bytes: usize,
    /// Set while a list is in progress.
    incoming: Option<Incoming<R>>,
    deleted: Deleted,
}

/// A list in progress. The size limits of the store apply to it, too.
struct Incoming<R> {
    objects: Vec<(NamespacedName, R)>,
    bytes: usize,
    bytes_by_namespace: BTreeMap<String, usize>,
    /// Objects that we wrote since the list began. The list may have older versions of them, which must not replace the
    /// records.
    written: BTreeSet<NamespacedName>,
}

/// The records of one namespace. The indexes share the names, because there may be a hundred thousand.
struct Namespace<R> {
    by_name: BTreeMap<Arc<str>, R>,
    /// The names of the records of each owner.
    by_owner: BTreeMap<Box<str>, BTreeSet<Arc<str>>>,
    bytes: usize,
}

/// UIDs of objects that were deleted a short time ago. The response to one of our own writes may arrive after the deletion
/// event of its object, and must not bring the object back: an object that seems to exist is never created again.
#[derive(Default)]
struct Deleted {
    uids: HashSet<String>,
    order: VecDeque<String>,
}

impl<R> Default for Records<R> {
    fn default() -> Self {
        Self { namespaces: BTreeMap::new(), bytes: 0, incoming: None, deleted: Deleted::default() }
    }
}

impl<R> Default for Incoming<R> {
    fn default() -> Self {
        Self { objects: Vec::new(), bytes: 0, bytes_by_namespace: BTreeMap::new(), written: BTreeSet::new() }
    }
}

impl<R> Default for Namespace<R> {
    fn default() -> Self {
        Self { by_name: BTreeMap::new(), by_owner: BTreeMap::new(), bytes: 0 }
    }
}

impl<R> Default for Store<R> {
    fn default() -> Self {
        Self {
            records: Mutex::default(),
            sync: Sender::new(SyncState::NotSynced),
            permission: Sender::default(),
            first_list_changes: false,
        }
    }
}

impl<R: Record> Store<R> {
    /// A store whose first list counts as a change of every object in it, for readers that look at objects before that.
    pub fn reporting_first_list() -> Self {
        Self { first_list_changes: true, ..Self::default() }
    }

    /// Watches the objects, for as long as the future is polled. `record` extracts the record of an object; objects for
    /// which it returns None are not stored. `changed` is called after each change of a record.
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
        let mut events = pin!(watch_with_relists(api, config));
        while let Some(event) = events.next().await {
            if let Err(error) = event.as_ref() {
                let cause = client::watch_error_cause(error);
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
        let objects = listed.items.iter().filter_map(|object| Some((name_of(object), record(object)?)));
        self.replace(objects.collect(), &BTreeSet::new());
        Ok(())
    }

    /// Updates the records by one event of a watch.
    pub fn receive<K: Resource>(&self, event: Event<K>, record: &impl Fn(&K) -> Option<R>) -> Vec<Change<R>> {
        // A list in progress does not yet show that we may watch.
        if !matches!(event, Event::Init | Event::InitApply(_)) {
            self.permission.send_if_modified(|permission| std::mem::replace(&mut permission.denied, false));
        }
        match event {
            Event::Init => {
                self.lock().incoming = Some(Incoming::default());
                Vec::new()
            }
            Event::InitApply(object) => {
                if let Some(record) = record(&object) {
                    self.lock().incoming.get_or_insert_default().add(name_of(&object), record);
                }
                Vec::new()
            }
            Event::InitDone => {
                let Incoming { objects, written, .. } = self.lock().incoming.take().unwrap_or_default();
                self.replace(objects, &written)
            }
            Event::Apply(object) => self.put(name_of(&object), record(&object)).into_iter().collect(),
            Event::Delete(object) => self.deleted(&object).into_iter().collect(),
        }
    }

    /// There are no objects.
    pub fn clear(&self) -> Vec<Change<R>> {
        self.replace(Vec::new(), &BTreeSet::new())
    }

    /// The API of the objects is not served, so there are none.
    pub fn not_served(&self) -> Vec<Change<R>> {
        let changes = self.clear();
        self.sync.send_replace(SyncState::NotServed);
        changes
    }

    /// The API of the objects is served from now on.
    pub fn relist(&self) {
        self.not_synced(SyncState::Relisting, |state| matches!(state, SyncState::Synced | SyncState::NotServed));
    }

    /// Returns once all objects are known. Before that, an object that seems absent may only be unknown.
    pub async fn synced(&self) {
        let is_complete = |state: &SyncState| matches!(state, SyncState::Synced | SyncState::NotServed);
        // The sender is ours, so that waiting cannot fail.
        let _ = self.sync.subscribe().wait_for(is_complete).await;
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

    /// Whether every change will be reported.
    pub fn is_followed(&self) -> bool {
        *self.sync.borrow() == SyncState::Synced && !self.permission.borrow().denied
    }

    /// Returns once we have lost the permission to watch more than `known` times: changes in between were not reported.
    /// The result is the number of losses.
    pub async fn unfollowed(&self, known: u64) -> u64 {
        let mut permission = self.permission.subscribe();
        permission.wait_for(|permission| permission.losses > known).await.map_or(known, |permission| permission.losses)
    }

    pub fn get(&self, object: &NamespacedName) -> Option<R> {
        self.with(object, R::clone)
    }

    /// Reads one record without a copy.
    pub fn with<T>(&self, object: &NamespacedName, read: impl FnOnce(&R) -> T) -> Option<T> {
        self.lock().get(object).map(read)
    }

    /// Reads each record in the order of namespace and name, without a copy. The store is locked meanwhile.
    pub fn each(&self, mut read: impl FnMut(&str, &str, &R)) {
        for (namespace, records) in &self.lock().namespaces {
            records.by_name.iter().for_each(|(name, record)| read(namespace, name, record));
        }
    }

    /// The records of one owner, by name.
    pub fn owned_by(&self, owner: &NamespacedName) -> Vec<R> {
        let records = self.lock();
        let Some(here) = records.namespaces.get(owner.namespace.as_str()) else { return Vec::new() };
        let names = here.by_owner.get(owner.name.as_str()).into_iter().flatten();
        names.filter_map(|name| here.by_name.get(name).cloned()).collect()
    }

    pub fn len(&self) -> usize {
        self.lock().namespaces.values().map(|here| here.by_name.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.lock().namespaces.is_empty()
    }

    /// Reads only records of one namespace, however many others there are.
    pub fn any(&self, namespace: &str, is: impl Fn(&R) -> bool) -> bool {
        self.lock().namespaces.get(namespace).is_some_and(|here| here.by_name.values().any(is))
    }

    /// Reads each record of one namespace.
    pub fn each_in(&self, namespace: &str, read: impl FnMut(&R)) {
        self.lock().namespaces.get(namespace).into_iter().flat_map(|here| here.by_name.values()).for_each(read);
    }

    /// Stores the response to one of our own writes, so that the next reconcile need not wait for the watch. Ignores it if
    /// the watch has already reported a newer version or the deletion of the object.
    pub fn wrote(&self, object: &NamespacedName, record: R) {
        let mut records = self.lock();
        // A response that is older than the record, as after a restore of etcd, must not keep that record from a list either.
        if !records.deleted.contains(record.revision()) && records.put(object, Some(record)).is_some() {
            records.incoming.iter_mut().for_each(|incoming| _ = incoming.written.insert(object.clone()));
        }
    }

    /// Applies the result of one of our own writes to a record. The owner and the size of a record stay the same.
    pub fn update(&self, NamespacedName { namespace, name }: &NamespacedName, change: impl FnOnce(&mut R)) {
        let mut records = self.lock();
        let here = records.namespaces.get_mut(namespace.as_str());
        if let Some(record) = here.and_then(|here| here.by_name.get_mut(name.as_str())) {
            change(record);
        }
    }

    /// Drops a record that has no reader any more.
    pub fn forget(&self, object: &NamespacedName) {
        self.lock().put(object, None);
    }

    /// We may not list the objects. A list from before stays the best that is known.
    pub fn forbidden(&self, cause: String) {
        self.permission.send_if_modified(|permission| {
            let is_loss = !std::mem::replace(&mut permission.denied, true);
            permission.losses += u64::from(is_loss);
            is_loss
        });
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

    /// Adds, changes or removes one record. A version older than the stored one is ignored.
    pub fn put(&self, object: NamespacedName, after: Option<R>) -> Option<Change<R>> {
        let mut records = self.lock();
        records.deleted.forget(after.as_ref().and_then(R::revision));
        records.change(object, after)
    }

    /// Removes the record of a deleted object, unless another object has taken its name.
    fn deleted(&self, object: &impl Resource) -> Option<Change<R>> {
        let (name, revision) = (name_of(object), Revision::of(object));
        let mut records = self.lock();
        let is_successor = |record: &R| record.revision().is_some_and(|known| known.uid != revision.uid);
        let keep = records.get(&name).is_some_and(is_successor);
        records.deleted.add(revision.uid);
        if keep { None } else { records.change(name, None) }
    }

    /// A complete list: an object that is not in it is gone. The list may have older versions of the `written` objects.
    fn replace(&self, mut all: Vec<(NamespacedName, R)>, written: &BTreeSet<NamespacedName>) -> Vec<Change<R>> {
        let mut records = self.lock();
        for (object, record) in &mut all {
            records.get(object).into_iter().for_each(|before| record.inherit(before));
        }
        let mut listed = Records::new(all);
        let mut changes = Vec::new();
        let is_first = *self.sync.borrow() == SyncState::NotSynced;
        listed.deleted = std::mem::take(&mut records.deleted);
        for (object, known) in records.iter() {
            let Some(revision) = known.revision() else { continue };
            let listed_revision = listed.get(&object).and_then(R::revision);
            if listed_revision.is_some_and(|now| now.is_older_than(revision)) && written.contains(&object) {
                listed.put(&object, Some(known.clone()));
            } else if listed_revision.is_none_or(|now| now.uid != revision.uid) {
                listed.deleted.add(revision.uid.clone());
            }
        }
        let mut deleted = std::mem::take(&mut listed.deleted);
        listed.iter().for_each(|(_, record)| deleted.forget(record.revision()));
        listed.deleted = deleted;
        if !is_first || self.first_list_changes {
            for (object, before) in records.iter() {
                let after = listed.get(&object);
                if after != Some(before) {
                    changes.push(Change { before: Some(before.clone()), after: after.cloned(), object });
                }
            }
            for (object, after) in listed.iter() {
                if records.get(&object).is_none() {
                    changes.push(Change { object, before: None, after: Some(after.clone()) });
                }
            }
        }
        *records = listed;
        drop(records);
        self.sync.send_replace(SyncState::Synced);
        changes
    }

    fn lock(&self) -> MutexGuard<'_, Records<R>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Record> Records<R> {
    fn new(all: Vec<(NamespacedName, R)>) -> Self {
        let mut by_namespace: BTreeMap<Arc<str>, Vec<(Arc<str>, R)>> = BTreeMap::new();
        for (NamespacedName { namespace, name }, record) in all {
            let key = key(&record, &name);
            by_namespace.entry(namespace.into()).or_default().push((key, record));
        }
        let mut new = Self::default();
        for (namespace, mut records) in by_namespace {
            let mut here = Namespace::default();
            for (name, record) in &mut records {
                new.bytes += here.add(name, record, MAX_BYTES - new.bytes);
            }
            // A map that is built from all its entries at once has full nodes; one that grows in order has half-empty ones.
            here.by_name = records.into_iter().collect();
            new.namespaces.insert(namespace, here);
        }
        new
    }

    fn get(&self, NamespacedName { namespace, name }: &NamespacedName) -> Option<&R> {
        self.namespaces.get(namespace.as_str())?.by_name.get(name.as_str())
    }

    fn iter(&self) -> impl Iterator<Item = (NamespacedName, &R)> {
        self.namespaces.iter().flat_map(|(namespace, here)| {
            here.by_name.iter().map(|(name, record)| (NamespacedName::new(&**namespace, &**name), record))
        })
    }

    fn change(&mut self, object: NamespacedName, after: Option<R>) -> Option<Change<R>> {
        let before = self.put(&object, after)?;
        let after = self.get(&object).cloned();
        (before != after).then_some(Change { object, before, after })
    }

    /// The record before. The outer `None` means that the stored version is newer, and stays.
    fn put(&mut self, object: &NamespacedName, after: Option<R>) -> Option<Option<R>> {
        let (namespace, name) = (object.namespace.as_str(), object.name.as_str());
        let revisions = (after.as_ref().and_then(R::revision), self.get(object).and_then(R::revision));
        if let (Some(after), Some(before)) = revisions
            && after.is_older_than(before)
        {
            return None;
        }
        if after.is_none() && !self.namespaces.contains_key(namespace) {
            return Some(None);
        }
        let here = self.namespaces.entry(namespace.into()).or_default();
        // Removed first, because a map keeps the key that it has, and with it the name of the record before.
        let before = here.remove(name);
        self.bytes -= before.as_ref().map_or(0, R::bytes);
        if let Some(mut record) = after {
            before.iter().for_each(|before| record.inherit(before));
            let key = key(&record, name);
            self.bytes += here.add(&key, &mut record, MAX_BYTES.saturating_sub(self.bytes));
            here.by_name.insert(key, record);
        } else if here.by_name.is_empty() {
            self.namespaces.remove(namespace);
        }
        Some(before)
    }
}

impl<R: Record> Namespace<R> {
    /// Indexes a record that is about to be inserted, and shrinks it if there is no room for it. Returns its size.
    fn add(&mut self, name: &Arc<str>, record: &mut R, free: usize) -> usize {
        if record.bytes() > free.min(MAX_NAMESPACE_BYTES - self.bytes) {
            record.shrink();
        }
        if let Some(owner) = record.owner() {
            self.by_owner.entry(owner.into()).or_default().insert(name.clone());
        }
        self.bytes += record.bytes();
        record.bytes()
    }

    fn remove(&mut self, name: &str) -> Option<R> {
        let record = self.by_name.remove(name)?;
        self.bytes -= record.bytes();
        if let Some(owner) = record.owner()
            && let Some(names) = self.by_owner.get_mut(owner)
        {
            names.remove(name);
            if names.is_empty() {
                self.by_owner.remove(owner);
            }
        }
        Some(record)
    }
}

impl<R: Record> Incoming<R> {
    fn add(&mut self, object: NamespacedName, mut record: R) {
        if record.bytes() > 0 {
            let here = self.bytes_by_namespace.entry(object.namespace.clone()).or_default();
            if record.bytes() > (MAX_NAMESPACE_BYTES - *here).min(MAX_BYTES - self.bytes) {
                record.shrink();
            }
            *here += record.bytes();
            self.bytes += record.bytes();
        }
        self.objects.push((object, record));
    }
}

impl Deleted {
    fn add(&mut self, uid: Option<String>) {
        let Some(uid) = uid.filter(|uid| self.uids.insert(uid.clone())) else { return };
        self.order.push_back(uid);
        if self.order.len() > MAX_DELETED
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }

    /// The object exists.
    fn forget(&mut self, revision: Option<&Revision>) {
        if let Some(uid) = revision.and_then(|revision| revision.uid.as_ref()) {
            self.uids.remove(uid);
        }
    }

    fn contains(&self, revision: Option<&Revision>) -> bool {
        let uid = revision.and_then(|revision| revision.uid.as_ref());
        uid.is_some_and(|uid| self.uids.contains(uid))
    }
}

fn key(record: &impl Record, name: &str) -> Arc<str> {
    record.name().unwrap_or_else(|| name.into())
}

fn name_of(object: &impl Resource) -> NamespacedName {
    NamespacedName::new(object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests;
