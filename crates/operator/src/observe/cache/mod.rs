//! The children of a family's objects, kept up to date by watches.
//! Comes in: what the watches say and what our own writes were answered with; goes out: the children of one object as they
//! are, and for each change the object that it concerns.

mod kept;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::watch;

use kept::Kept;

use super::watching::Watching;
use crate::apply::Live;
use crate::client::{CallError, Server};

/// A kind of children, and by which labels they are known.
#[derive(Clone, Debug)]
pub struct Watched {
    pub kind: GroupVersionKind,
    pub labels: &'static str,
}

/// The object that a change concerns: the controller of the child that changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Touched {
    pub namespace: String,
    pub owner_kind: String,
    pub owner: String,
}

/// Where objects are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    #[default]
    Cluster,
    Namespace(String),
}

impl Scope {
    pub fn api(&self, server: &Server, resource: &ApiResource) -> Api<DynamicObject> {
        match self {
            Self::Cluster => Api::all_with(server.client.clone(), resource),
            Self::Namespace(name) => Api::namespaced_with(server.client.clone(), name, resource),
        }
    }
}

pub struct Cache {
    kinds: Vec<Watched>,
    children: Mutex<Vec<Children>>,
    /// How many kinds have had no complete list yet.
    missing: watch::Sender<usize>,
}

/// All children of one kind.
#[derive(Default)]
struct Children {
    by_name: HashMap<Place, Kept>,
    /// By the uid of their controller.
    by_owner: HashMap<String, BTreeSet<Place>>,
    /// What a new list has brought so far.
    incoming: Option<Vec<(Place, Kept)>>,
    listed: bool,
    gone: Gone,
}

/// The uids of what was deleted lately. The answer to one of our own writes may reach us after the news that its object
/// is gone, and must not bring it back: what seems to be there is never made again.
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

type Place = (String, String);

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
            self.replace(index, listed.items.iter().filter_map(with_place).collect());
        }
        Ok(())
    }

    /// Follows all kinds for as long as it is polled. A watch that breaks is told of and begun again.
    pub fn follow(self: &Arc<Self>, server: &Server, scope: &Scope) -> impl Stream<Item = Touched> + use<> {
        let streams = self.kinds.iter().enumerate().map(|(index, watched)| {
            let api = scope.api(server, &ApiResource::from_gvk(&watched.kind));
            let config = watcher::Config::default().labels(watched.labels);
            let (cache, mut watching) = (self.clone(), Watching::new(&watched.kind.kind));
            let changes = watcher(api, config).default_backoff().filter_map(move |event| {
                // That a list begins is no sign yet that the watch works.
                let event = if matches!(event, Ok(Event::Init)) { event.ok() } else { watching.hear(event) };
                std::future::ready(event.map(|event| cache.take_in(index, event)))
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
            let places = named.map(|(_, name)| (namespace.to_owned(), name.clone()));
            let owned = children.by_owner.get(uid).into_iter().flatten().cloned();
            let places: BTreeSet<Place> = places.chain(owned).collect();
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

    /// Takes in what one of our own writes was answered with, so that the next pass need not wait for the watch.
    pub fn wrote(&self, object: &DynamicObject) {
        let Some(kind) = object.types.as_ref().and_then(|types| GroupVersionKind::try_from(types).ok()) else { return };
        let index = self.kinds.iter().position(|watched| is_same(&watched.kind, &kind));
        if let Some((index, (place, kept))) = index.zip(with_place(object)) {
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
                let kept = with_place(&object);
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
                let Some((place, kept)) = with_place(&object) else { return Vec::new() };
                let now = touched(&place, &kept);
                // Whoever controlled it before wants to know that it does no more.
                let before = self.lock()[index].insert(place.clone(), kept);
                let before = before.and_then(|before| touched(&place, &before));
                let before = before.filter(|before| Some(before) != now.as_ref());
                now.into_iter().chain(before).collect()
            }
            Event::Delete(object) => {
                let Some((place, kept)) = with_place(&object) else { return Vec::new() };
                self.lock()[index].remove(&place, &kept);
                touched(&place, &kept).into_iter().collect()
            }
        }
    }

    /// A complete list: what is not in it is gone.
    fn replace(&self, index: usize, objects: Vec<(Place, Kept)>) -> Vec<Touched> {
        let mut all = self.lock();
        let first = !all[index].listed;
        let gone = std::mem::take(&mut all[index].gone);
        let before = std::mem::replace(&mut all[index], Children { listed: true, gone, ..Children::default() });
        let mut concerned: BTreeSet<Touched> =
            before.by_name.iter().filter_map(|(place, kept)| touched(place, kept)).collect();
        for (place, kept) in objects {
            concerned.extend(touched(&place, &kept));
            all[index].insert(place, kept);
        }
        for (place, lost) in &before.by_name {
            if all[index].by_name.get(place).is_none_or(|there| there.uid != lost.uid) {
                all[index].gone.add(lost.uid.as_ref());
            }
        }
        drop(all);
        if first {
            self.missing.send_modify(|missing| *missing = missing.saturating_sub(1));
        }
        concerned.into_iter().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Children>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Children {
    /// Unless something newer is there, or it is known to be gone: the answer to a write and the watch overtake each
    /// other. Returns what was there before.
    fn insert(&mut self, place: Place, object: Kept) -> Option<Kept> {
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

    /// Unless another object has the name by now.
    fn remove(&mut self, place: &Place, object: &Kept) {
        self.gone.add(object.uid.as_ref());
        if self.by_name.get(place).is_some_and(|known| known.uid == object.uid)
            && let Some(known) = self.by_name.remove(place)
        {
            self.forget_owner(place, &known);
        }
    }

    fn forget_owner(&mut self, place: &Place, object: &Kept) {
        let Some(owner) = &object.owner else { return };
        if let Some(places) = self.by_owner.get_mut(&owner.uid) {
            places.remove(place);
            if places.is_empty() {
                self.by_owner.remove(&owner.uid);
            }
        }
    }
}

fn with_place(object: &DynamicObject) -> Option<(Place, Kept)> {
    Some(((object.namespace().unwrap_or_default(), object.name_any()), Kept::of(object)?))
}

fn touched((namespace, _): &Place, object: &Kept) -> Option<Touched> {
    let owner = object.owner.clone()?;
    Some(Touched { namespace: namespace.clone(), owner_kind: owner.kind, owner: owner.name })
}

fn is_same(one: &GroupVersionKind, other: &GroupVersionKind) -> bool {
    one.group == other.group && one.kind == other.kind
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn services() -> GroupVersionKind {
        GroupVersionKind::gvk("", "v1", "Service")
    }

    fn service(name: &str, uid: &str, owner: Option<&str>, version: u64) -> DynamicObject {
        let references = owner.map(|uid| {
            json!([{ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution", "name": "starter",
                "uid": uid, "controller": true }])
        });
        serde_json::from_value(json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name,
            "namespace": "team-a", "uid": uid, "resourceVersion": version.to_string(), "ownerReferences": references } }))
        .unwrap()
    }

    fn cache() -> Cache {
        Cache::new(vec![Watched { kind: services(), labels: "" }])
    }

    fn names(cache: &Cache, uid: &str, named: &[&str]) -> Vec<String> {
        let named: Vec<_> = named.iter().map(|name| (services(), (*name).to_owned())).collect();
        cache.children("team-a", uid, &named).of(&services()).map(ResourceExt::name_any).collect()
    }

    #[test]
    fn children_are_found_by_owner_and_by_name() {
        let cache = cache();
        cache.take_in(0, Event::Apply(service("a", "1", Some("owner"), 1)));
        cache.take_in(0, Event::Apply(service("b", "2", None, 2)));
        cache.take_in(0, Event::Apply(service("c", "3", Some("other"), 3)));
        assert_eq!(names(&cache, "owner", &[]), ["a"]);
        assert_eq!(names(&cache, "owner", &["b", "missing"]), ["a", "b"]);
        assert_eq!(names(&cache, "other", &["a"]), ["a", "c"]);
    }

    #[test]
    fn a_change_concerns_the_controller() {
        let cache = cache();
        let touched = cache.take_in(0, Event::Apply(service("a", "1", Some("owner"), 1)));
        let expected = Touched {
            namespace: "team-a".into(),
            owner_kind: "LlamaStackDistribution".into(),
            owner: "starter".into(),
        };
        assert_eq!(touched, std::slice::from_ref(&expected));
        assert_eq!(cache.take_in(0, Event::Delete(service("a", "1", Some("owner"), 2))), [expected]);
        assert_eq!(names(&cache, "owner", &["a"]), [""; 0]);
        assert_eq!(cache.take_in(0, Event::Apply(service("b", "2", None, 3))), []);
    }

    #[test]
    fn what_is_older_never_replaces_what_is_newer() {
        let cache = cache();
        cache.wrote(&service("a", "1", Some("owner"), 7));
        cache.take_in(0, Event::Apply(service("a", "1", None, 6)));
        assert_eq!(names(&cache, "owner", &[]), ["a"], "the watch is behind our own write");
        cache.take_in(0, Event::Apply(service("a", "1", None, 8)));
        assert_eq!(names(&cache, "owner", &[]), [""; 0]);
    }

    #[test]
    fn a_late_deletion_does_not_remove_a_successor() {
        let cache = cache();
        cache.wrote(&service("a", "2", Some("owner"), 9));
        cache.take_in(0, Event::Delete(service("a", "1", Some("owner"), 8)));
        assert_eq!(names(&cache, "owner", &[]), ["a"]);
    }

    #[test]
    fn what_is_gone_is_not_brought_back_by_the_answer_to_a_write() {
        let cache = cache();
        cache.take_in(0, Event::Delete(service("a", "1", Some("owner"), 8)));
        cache.wrote(&service("a", "1", Some("owner"), 7));
        assert_eq!(names(&cache, "owner", &["a"]), [""; 0]);
        cache.wrote(&service("a", "2", Some("owner"), 9));
        assert_eq!(names(&cache, "owner", &[]), ["a"], "its successor is another object");
        // A list that no longer has it says the same as a deletion.
        cache.replace(0, vec![]);
        cache.wrote(&service("a", "2", Some("owner"), 9));
        assert_eq!(names(&cache, "owner", &["a"]), [""; 0]);
    }

    #[test]
    fn a_child_that_loses_its_controller_concerns_who_controlled_it() {
        let cache = cache();
        cache.take_in(0, Event::Apply(service("a", "1", Some("owner"), 1)));
        let touched = cache.take_in(0, Event::Apply(service("a", "1", None, 2)));
        assert_eq!(touched.iter().map(|touched| touched.owner.as_str()).collect::<Vec<_>>(), ["starter"]);
    }

    #[tokio::test]
    async fn a_list_counts_only_when_it_is_complete() {
        let cache = cache();
        cache.take_in(0, Event::Apply(service("gone", "1", Some("owner"), 1)));
        cache.take_in(0, Event::Init);
        cache.take_in(0, Event::InitApply(service("a", "2", Some("owner"), 5)));
        assert_eq!(names(&cache, "owner", &[]), ["gone"]);
        assert!(tokio::time::timeout(std::time::Duration::from_millis(1), cache.synced()).await.is_err());
        assert_eq!(cache.take_in(0, Event::InitDone).len(), 1, "one object is concerned, by both");
        assert_eq!(names(&cache, "owner", &[]), ["a"]);
        cache.synced().await;
    }
}
