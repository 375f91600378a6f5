//! A kind of objects as small records, kept up to date by a watch.
//! Comes in: what the watch brings; goes out: the records, and each change between them. What a record does not hold is no
//! change.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use steersman_reconcile::NamespacedName;
use steersman_runtime::client::{self, CallError, Server};
use steersman_runtime::store::watching::Watching;
use tokio::sync::watch::Sender;

/// What the watch has brought so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Nothing,
    /// There is no right to it: why.
    Refused(String),
    /// The list fails for another cause, which may pass.
    Failed(String),
    /// There were none, as their API was not served; it is now, and a list is to come.
    Unlisted,
    /// A complete list, and all that came after it.
    Listed,
}

/// One record that is not what it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Change<R> {
    pub place: NamespacedName,
    pub before: Option<R>,
    pub after: Option<R>,
}

/// What is kept of an object.
pub trait Record: Clone + PartialEq {
    /// Its name, where the record holds it anyway.
    fn name(&self) -> Option<Arc<str>> {
        None
    }
}

/// By namespace and name. Nothing is held twice: of pods there may be a hundred thousand.
type Records<R> = BTreeMap<Arc<str>, BTreeMap<Arc<str>, R>>;

pub struct Mirror<R> {
    known: Mutex<Records<R>>,
    heard: Sender<Heard>,
}

impl<R> Default for Mirror<R> {
    fn default() -> Self {
        Self { known: Mutex::default(), heard: Sender::new(Heard::Nothing) }
    }
}

impl<R: Record> Mirror<R> {
    /// Follows the objects for as long as it is polled. What is no `record` is passed over. `changed` hears of nothing that
    /// the first list brings.
    pub async fn follow(
        &self,
        api: Api<DynamicObject>,
        kind: &str,
        config: watcher::Config,
        record: impl Fn(&DynamicObject) -> Option<R>,
        changed: impl Fn(Change<R>),
    ) {
        let mut watching = Watching::new(kind);
        let mut events = pin!(watch(api, config).default_backoff());
        let mut incoming = Vec::new();
        while let Some(event) = events.next().await {
            if let Err(error) = event.as_ref() {
                let cause = client::watch_trouble(error);
                if client::is_forbidden(error) { self.refused(cause) } else { self.failed(cause) }
            }
            if let Some(event) = watching.receive_event(event) {
                self.take_in(event, &mut incoming, &record).into_iter().for_each(&changed);
            }
        }
    }

    /// Lists everything once.
    pub async fn fill(
        &self,
        server: &Server,
        api: Api<DynamicObject>,
        list: &ListParams,
        record: impl Fn(&DynamicObject) -> Option<R>,
    ) -> Result<(), CallError> {
        let listed = server.call(api.list(list)).await?;
        self.replace(listed.items.iter().filter_map(|object| Some((place(object), record(object)?))).collect());
        Ok(())
    }

    /// There are none, such as where their API is not served.
    pub fn empty(&self) -> Vec<Change<R>> {
        self.replace(Vec::new())
    }

    /// Their API is served from now on: what was not there may be.
    pub fn unlist(&self) {
        self.heard.send_if_modified(|heard| {
            let was_listed = *heard == Heard::Listed;
            if was_listed {
                *heard = Heard::Unlisted;
            }
            was_listed
        });
    }

    /// Returns once there is a complete list: before, what seems absent may only be unknown.
    pub async fn listed(&self) {
        // The sender is ours, so that waiting cannot fail.
        let _ = self.heard.subscribe().wait_for(|heard| *heard == Heard::Listed).await;
    }

    /// Returns once there is an answer, be it that there is no right to one.
    pub async fn answered(&self) {
        let _ = self.heard.subscribe().wait_for(|heard| !matches!(heard, Heard::Nothing | Heard::Failed(_))).await;
    }

    /// Returns once they were asked for, whatever came of it.
    pub async fn tried(&self) {
        let _ = self.heard.subscribe().wait_for(|heard| *heard != Heard::Nothing).await;
    }

    pub fn heard(&self) -> Heard {
        self.heard.borrow().clone()
    }

    pub fn get(&self, place: &NamespacedName) -> Option<R> {
        self.with(place, R::clone)
    }

    /// Looks at one without a copy. None: there is none.
    pub fn with<T>(&self, place: &NamespacedName, look: impl FnOnce(&R) -> T) -> Option<T> {
        find(&self.lock(), place).map(look)
    }

    /// Each in order of namespace and name. Nothing is copied, and nothing may change meanwhile.
    pub fn each(&self, mut look: impl FnMut(&str, &str, &R)) {
        for (namespace, records) in &*self.lock() {
            records.iter().for_each(|(name, record)| look(namespace, name, record));
        }
    }

    pub fn len(&self) -> usize {
        self.lock().values().map(BTreeMap::len).sum()
    }

    /// Only those of one namespace are looked at, however many others there are.
    pub fn any(&self, namespace: &str, is: impl Fn(&R) -> bool) -> bool {
        self.lock().get(namespace).is_some_and(|records| records.values().any(is))
    }

    /// Takes in what one of our own writes has made of a record, so that the next pass need not wait for the watch.
    pub fn wrote(&self, NamespacedName { namespace, name }: &NamespacedName, change: impl FnOnce(&mut R)) {
        let mut known = self.lock();
        if let Some(record) = known.get_mut(namespace.as_str()).and_then(|records| records.get_mut(name.as_str())) {
            change(record);
        }
    }

    /// There is no right to them. What was listed before is still the best that is known.
    pub fn refused(&self, cause: String) {
        self.unheard(Heard::Refused(cause), |heard| *heard != Heard::Listed);
    }

    /// They cannot be listed now. That there is no right to them says more, and does not end by it.
    pub fn failed(&self, cause: String) {
        self.unheard(Heard::Failed(cause), |heard| !matches!(heard, Heard::Listed | Heard::Refused(_)));
    }

    fn unheard(&self, why: Heard, is_less: impl Fn(&Heard) -> bool) {
        self.heard.send_if_modified(|heard| {
            let is_news = is_less(heard) && *heard != why;
            if is_news {
                *heard = why;
            }
            is_news
        });
    }

    fn take_in(
        &self,
        event: Event<DynamicObject>,
        incoming: &mut Vec<(NamespacedName, R)>,
        record: &impl Fn(&DynamicObject) -> Option<R>,
    ) -> Vec<Change<R>> {
        match event {
            Event::Init => {
                incoming.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                incoming.extend(record(&object).map(|record| (place(&object), record)));
                Vec::new()
            }
            Event::InitDone => self.replace(std::mem::take(incoming)),
            Event::Apply(object) => self.put(place(&object), record(&object)).into_iter().collect(),
            Event::Delete(object) => self.put(place(&object), None).into_iter().collect(),
        }
    }

    pub(super) fn put(&self, place: NamespacedName, after: Option<R>) -> Option<Change<R>> {
        let (namespace, name) = (place.namespace.as_str(), place.name.as_str());
        let mut known = self.lock();
        let before = match &after {
            Some(record) => {
                let records = known.entry(namespace.into()).or_default();
                // A map keeps the key that it has, and with it the name of the record before.
                let before = records.remove(name);
                records.insert(key(record, name), record.clone());
                before
            }
            None => {
                let records = known.get_mut(namespace);
                let before = records.and_then(|records| records.remove(name));
                if known.get(namespace).is_some_and(BTreeMap::is_empty) {
                    known.remove(namespace);
                }
                before
            }
        };
        (before != after).then_some(Change { place, before, after })
    }

    /// A complete list: what is not in it is gone.
    fn replace(&self, all: Vec<(NamespacedName, R)>) -> Vec<Change<R>> {
        let all = records(all);
        let mut changes = Vec::new();
        let mut known = self.lock();
        if *self.heard.borrow() != Heard::Nothing {
            for (place, before) in places(&known) {
                let after = find(&all, &place);
                if after != Some(before) {
                    changes.push(Change { before: Some(before.clone()), after: after.cloned(), place });
                }
            }
            for (place, after) in places(&all) {
                if find(&known, &place).is_none() {
                    changes.push(Change { place, before: None, after: Some(after.clone()) });
                }
            }
        }
        *known = all;
        drop(known);
        self.heard.send_replace(Heard::Listed);
        changes
    }

    fn lock(&self) -> MutexGuard<'_, Records<R>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(record: &impl Record, name: &str) -> Arc<str> {
    record.name().unwrap_or_else(|| name.into())
}

fn records<R: Record>(all: Vec<(NamespacedName, R)>) -> Records<R> {
    let mut namespaces: BTreeMap<Arc<str>, Vec<(Arc<str>, R)>> = BTreeMap::new();
    for (NamespacedName { namespace, name }, record) in all {
        namespaces.entry(namespace.into()).or_default().push((key(&record, &name), record));
    }
    // Made of all at once, a map's nodes are full; made of one after the other in order, half empty.
    namespaces.into_iter().map(|(namespace, records)| (namespace, records.into_iter().collect())).collect()
}

fn find<'r, R>(records: &'r Records<R>, NamespacedName { namespace, name }: &NamespacedName) -> Option<&'r R> {
    records.get(namespace.as_str())?.get(name.as_str())
}

fn places<R>(records: &Records<R>) -> impl Iterator<Item = (NamespacedName, &R)> {
    let of = |namespace: &str, name: &str| NamespacedName::new(namespace, name);
    let each = records.iter();
    each.flat_map(move |(namespace, records)| records.iter().map(move |(name, record)| (of(namespace, name), record)))
}

fn place(object: &DynamicObject) -> NamespacedName {
    NamespacedName::new(object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests;
