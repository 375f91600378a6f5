//! Caches the children of an API's objects and emits, for each change, the object that it concerns. Watches and the
//! responses to our own writes keep it up to date.

mod kept;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use steersman_reconcile::NamespacedName;
use tokio::sync::watch;

use kept::{Kept, Owner};

use super::scope::Scope;
use super::watching::Watching;
use crate::apply::Live;
use crate::client::{CallError, Server};

/// A kind of children, and the label selector of its watch.
#[derive(Clone, Debug)]
pub struct Watched {
    pub kind: GroupVersionKind,
    pub labels: &'static str,
    /// Set for kinds whose children may have no controller, or another controller than the object that they concern.
    pub naming: Option<Naming>,
}

/// The label by which children name the object that they concern, and the kind of that object.
#[derive(Clone, Copy, Debug)]
pub struct Naming {
    pub label: &'static str,
    pub kind: &'static str,
}

/// The object that a change concerns: the controller of the changed child, or the object that the child names. A child
/// with neither is shared: its loss concerns every object in the namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Touched {
    pub namespace: String,
    pub owner_kind: String,
    pub owner: String,
}

pub struct Cache {
    kinds: Vec<Watched>,
    children: Mutex<Vec<Children>>,
    /// Number of kinds without a complete list so far.
    missing: watch::Sender<usize>,
}

/// All children of one kind.
#[derive(Default)]
struct Children {
    by_name: HashMap<NamespacedName, Kept>,
    /// Names of the children, by the UID of their controller.
    by_owner: HashMap<String, BTreeSet<NamespacedName>>,
    /// Objects of a list in progress.
    incoming: Option<Vec<(NamespacedName, Kept)>>,
    listed: bool,
    gone: Gone,
}

/// UIDs of recently deleted objects. The response to one of our own writes may arrive after the deletion event of its
/// object. It must not bring the object back: an object that seems to exist is never created again.
#[derive(Default)]
struct Gone {
    uids: HashSet<String>,
    order: VecDeque<String>,
}

/// More than can be deleted while one write is under way.
const REMEMBERED: usize = 10_000;

impl Gone {
    fn add(&mut self, uid: Option<&String>) {
        let Some(uid) = uid.filter(|uid| self.uids.insert((*uid).clone())) else { return };
        self.order.push_back(uid.clone());
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }

    fn has(&self, object: &Kept) -> bool {
        object.uid.as_ref().is_some_and(|uid| self.uids.contains(uid))
    }
}

impl Cache {
    pub fn new(kinds: Vec<Watched>) -> Self {
        let children = kinds.iter().map(|_| Children::default()).collect();
        let missing = watch::Sender::new(kinds.len());
        Self { kinds, children: Mutex::new(children), missing }
    }

    /// Returns once every kind was listed completely: before, what seems absent may only be unknown.
    pub async fn synced(&self) {
        // The sender is ours, so that waiting cannot fail.
        let _ = self.missing.subscribe().wait_for(|missing| *missing == 0).await;
    }

    /// Lists everything once.
    pub async fn fill(&self, server: &Server, scope: &Scope) -> Result<(), CallError> {
        for (index, watched) in self.kinds.iter().enumerate() {
            let api = scope.api(server, &ApiResource::from_gvk(&watched.kind));
            let listed = server.call(api.list(&ListParams::default().labels(watched.labels))).await?;
            self.replace(index, listed.items.iter().filter_map(|object| with_place(object, watched)).collect());
        }
        Ok(())
    }

    /// Watches all kinds for as long as the stream is polled. A broken watch is logged and restarted.
    pub fn follow(self: &Arc<Self>, server: &Server, scope: &Scope) -> impl Stream<Item = Touched> + use<> {
        let streams = self.kinds.iter().enumerate().map(|(index, watched)| {
            let api = scope.api(server, &ApiResource::from_gvk(&watched.kind));
            let config = watcher::Config::default().labels(watched.labels);
            let (cache, mut watching) = (self.clone(), Watching::new(&watched.kind.kind));
            let changes = watcher(api, config).default_backoff().filter_map(move |event| {
                std::future::ready(watching.receive_event(event).map(|event| cache.take_in(index, event)))
            });
            changes.flat_map(stream::iter).boxed()
        });
        stream::select_all(streams.collect::<Vec<BoxStream<'static, Touched>>>())
    }

    /// The children of one object: those it controls, and whatever has one of the names that they would have.
    pub fn children(&self, namespace: &str, uid: &str, names: &[(GroupVersionKind, String)]) -> Live {
        let mut found = Vec::new();
        for (watched, children) in self.kinds.iter().zip(self.lock().iter()) {
            let named = names.iter().filter(|(kind, _)| is_same(kind, &watched.kind));
            let places = named.map(|(_, name)| NamespacedName::new(namespace, name));
            let owned = children.by_owner.get(uid).into_iter().flatten().cloned();
            let places: BTreeSet<NamespacedName> = places.chain(owned).collect();
            let kept = places.iter().filter_map(|place| children.by_name.get(place));
            found.extend(kept.map(|kept| (&watched.kind, kept.clone())));
        }
        // Read only now: others need not wait for that.
        let mut live = Live::default();
        for (kind, kept) in found {
            if let Some(object) = kept.object() {
                live.insert(kind, object);
            }
        }
        live
    }

    /// Whether there is a child of this name.
    pub fn has(&self, kind: &GroupVersionKind, namespace: &str, name: &str) -> bool {
        let index = self.kinds.iter().position(|watched| is_same(&watched.kind, kind));
        let place = NamespacedName::new(namespace, name);
        index.is_some_and(|index| self.lock()[index].by_name.contains_key(&place))
    }

    /// Stores the response to one of our own writes, so that the next reconcile need not wait for the watch.
    pub fn wrote(&self, object: &DynamicObject) {
        let Some(kind) = object.types.as_ref().and_then(|types| GroupVersionKind::try_from(types).ok()) else { return };
        let index = self.kinds.iter().position(|watched| is_same(&watched.kind, &kind));
        if let Some((index, (place, kept))) =
            index.and_then(|index| Some((index, with_place(object, &self.kinds[index])?)))
        {
            self.lock()[index].insert(place, kept);
        }
    }

    fn take_in(&self, index: usize, event: Event<DynamicObject>) -> Vec<Touched> {
        match event {
            Event::Init => {
                self.lock()[index].incoming = Some(Vec::new());
                Vec::new()
            }
            Event::InitApply(object) => {
                let kept = with_place(&object, &self.kinds[index]);
                if let Some(incoming) = &mut self.lock()[index].incoming {
                    incoming.extend(kept);
                }
                Vec::new()
            }
            Event::InitDone => {
                let incoming = self.lock()[index].incoming.take().unwrap_or_default();
                self.replace(index, incoming)
            }
            Event::Apply(object) => {
                let Some((place, kept)) = with_place(&object, &self.kinds[index]) else { return Vec::new() };
                let mut concerned = self.touched(index, &place, &kept);
                // The previous controller must learn that it lost the child.
                let before = self.lock()[index].insert(place.clone(), kept);
                concerned.extend(before.map(|before| self.touched(index, &place, &before)).unwrap_or_default());
                concerned.into_iter().collect()
            }
            Event::Delete(object) => {
                let Some((place, kept)) = with_place(&object, &self.kinds[index]) else { return Vec::new() };
                let mut all = self.lock();
                all[index].remove(&place, &kept);
                let mut concerned = self.touched(index, &place, &kept);
                if kept.is_shared() {
                    concerned.extend(everyone(&all, &BTreeSet::from([place.namespace])));
                }
                concerned.into_iter().collect()
            }
        }
    }

    /// A complete list: what is not in it is gone.
    fn replace(&self, index: usize, objects: Vec<(NamespacedName, Kept)>) -> Vec<Touched> {
        let mut all = self.lock();
        let first = !all[index].listed;
        let gone = std::mem::take(&mut all[index].gone);
        let before = std::mem::replace(&mut all[index], Children { listed: true, gone, ..Children::default() });
        let mut concerned: BTreeSet<Touched> =
            before.by_name.iter().flat_map(|(place, kept)| self.touched(index, place, kept)).collect();
        for (place, kept) in objects {
            concerned.extend(self.touched(index, &place, &kept));
            all[index].insert(place, kept);
        }
        let mut unshared = BTreeSet::new();
        for (place, lost) in &before.by_name {
            if all[index].by_name.get(place).is_none_or(|there| there.uid != lost.uid) {
                all[index].gone.add(lost.uid.as_ref());
                unshared.extend(lost.is_shared().then(|| place.namespace.clone()));
            }
        }
        concerned.extend(everyone(&all, &unshared));
        drop(all);
        if first {
            self.missing.send_modify(|missing| *missing = missing.saturating_sub(1));
        }
        concerned.into_iter().collect()
    }

    /// The objects that a change of the child concerns.
    fn touched(
        &self,
        index: usize,
        NamespacedName { namespace, .. }: &NamespacedName,
        child: &Kept,
    ) -> BTreeSet<Touched> {
        let touched = |owner_kind: String, owner: String| Touched { namespace: namespace.clone(), owner_kind, owner };
        let named = self.kinds[index].naming.zip(child.named.clone());
        let owner = child.owner.clone().map(|owner| touched(owner.kind, owner.name));
        owner.into_iter().chain(named.map(|(naming, name)| touched(naming.kind.to_owned(), name))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Children>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Children {
    /// Inserts the object, unless a newer version is stored or the object is known to be deleted: write responses and
    /// watch events arrive in any order. Returns the previous version.
    fn insert(&mut self, place: NamespacedName, object: Kept) -> Option<Kept> {
        if self.gone.has(&object) {
            return None;
        }
        if self.by_name.get(&place).is_some_and(|known| object.is_older_than(known)) {
            return None;
        }
        let before = self.by_name.remove(&place);
        if let Some(known) = &before {
            self.forget_owner(&place, known);
        }
        if let Some(owner) = &object.owner {
            self.by_owner.entry(owner.uid.clone()).or_default().insert(place.clone());
        }
        self.by_name.insert(place, object);
        before
    }

    /// Removes the object, unless another object has taken its name.
    fn remove(&mut self, place: &NamespacedName, object: &Kept) {
        self.gone.add(object.uid.as_ref());
        if self.by_name.get(place).is_some_and(|known| known.uid == object.uid)
            && let Some(known) = self.by_name.remove(place)
        {
            self.forget_owner(place, &known);
        }
    }

    fn forget_owner(&mut self, place: &NamespacedName, object: &Kept) {
        let Some(owner) = &object.owner else { return };
        if let Some(places) = self.by_owner.get_mut(&owner.uid) {
            places.remove(place);
            if places.is_empty() {
                self.by_owner.remove(&owner.uid);
            }
        }
    }
}

/// All controllers of children in these namespaces, for when a shared object is lost.
fn everyone(all: &[Children], namespaces: &BTreeSet<String>) -> BTreeSet<Touched> {
    if namespaces.is_empty() {
        return BTreeSet::new();
    }
    let children = all.iter().flat_map(|children| &children.by_name);
    let near = children.filter(|(name, _)| namespaces.contains(&name.namespace));
    near.filter_map(|(NamespacedName { namespace, .. }, kept)| {
        let Owner { kind, name, .. } = kept.owner.clone()?;
        Some(Touched { namespace: namespace.clone(), owner_kind: kind, owner: name })
    })
    .collect()
}

fn with_place(object: &DynamicObject, watched: &Watched) -> Option<(NamespacedName, Kept)> {
    let name = NamespacedName::new(object.namespace().unwrap_or_default(), object.name_any());
    Some((name, Kept::of(object, watched)?))
}

fn is_same(one: &GroupVersionKind, other: &GroupVersionKind) -> bool {
    one.group == other.group && one.kind == other.kind
}
