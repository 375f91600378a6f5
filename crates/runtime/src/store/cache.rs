//! Caches the children of an API's objects, one [`Store`] per kind, and reports for each change the objects that it concerns.
//! Watches and the responses to our own writes keep it up to date.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use steersman_reconcile::NamespacedName;

use super::partial::RawObject;
use super::records::{Change, Record, Revision, SMALL_PAGE, Store};
use super::scope::Scope;
use crate::apply::{Live, controller};
use crate::client::{CallError, Server};

/// Largest text of a child that is kept. A larger one is read from the API server when a reconcile needs it.
const MAX_TEXT_BYTES: usize = 256 << 10;

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
    kinds: Vec<Children>,
}

/// All children of one kind.
struct Children {
    watched: Watched,
    store: Store<Child>,
}

/// A child: the fields that are read often, and the object as JSON text. A parsed tree takes several times the memory, and
/// reconciles that need the object are rare.
#[derive(Clone, Debug)]
struct Child {
    name: Arc<str>,
    revision: Revision,
    /// The object that controls it.
    controller: Option<Controller>,
    /// The name in the label by which such children name their object.
    named: Option<String>,
    /// Whether it is the response to one of our own writes. The event of the watch that follows is a change: it triggers the
    /// reconcile that sees the result of the write.
    is_response: bool,
    /// `None` if no object needs it, if it is too long, or if the store has no room for it.
    text: Option<Arc<[u8]>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Controller {
    uid: String,
    kind: String,
    name: String,
}

/// The version identifies the content: a list and a watch write the same object in different ways.
impl PartialEq for Child {
    fn eq(&self, other: &Self) -> bool {
        let Self { revision, is_response, .. } = self;
        revision.version.is_some() && *revision == other.revision && *is_response == other.is_response
    }
}

impl Record for Child {
    fn name(&self) -> Option<Arc<str>> {
        Some(self.name.clone())
    }

    fn owner(&self) -> Option<&str> {
        self.controller.as_ref().map(|controller| controller.uid.as_str())
    }

    fn revision(&self) -> Option<&Revision> {
        Some(&self.revision)
    }

    fn bytes(&self) -> usize {
        self.text.as_ref().map_or(0, |text| text.len())
    }

    fn shrink(&mut self) {
        self.text = None;
    }
}

impl Cache {
    pub fn new(kinds: Vec<Watched>) -> Self {
        // The first list is reported, because the objects that it concerns may have been looked at before.
        let children = |watched| Children { watched, store: Store::reporting_first_list() };
        Self { kinds: kinds.into_iter().map(children).collect() }
    }

    /// Returns once every kind was listed completely: before, what seems absent may only be unknown.
    pub async fn synced(&self) {
        for children in &self.kinds {
            children.store.synced().await;
        }
    }

    /// Lists everything once.
    pub async fn fill(&self, server: &Server, scope: &Scope) -> Result<(), CallError> {
        for Children { watched, store } in &self.kinds {
            let list = ListParams::default().labels(watched.labels);
            let api = scope.api(server, &ApiResource::from_gvk(&watched.kind));
            store.fill(server, api, &list, |object| Some(watched.record(object))).await?;
        }
        Ok(())
    }

    /// Watches all kinds for as long as it is polled. A broken watch is logged and restarted.
    pub async fn follow(&self, server: &Server, scope: &Scope, touched: impl Fn(Touched)) {
        let watches = self.kinds.iter().map(|Children { watched, store }| {
            let api = scope.api(server, &ApiResource::from_gvk(&watched.kind));
            let config = watcher::Config::default().labels(watched.labels).page_size(SMALL_PAGE);
            let changed = |change| self.touched(watched, &change).into_iter().for_each(&touched);
            store.follow(api, &watched.kind.kind, config, |object| Some(watched.record(object)), changed)
        });
        future::join_all(watches).await;
    }

    /// The children of one object: those it controls, and whatever has one of the names that they would have.
    pub async fn children(
        &self,
        server: &Server,
        namespace: &str,
        uid: &str,
        names: &[(GroupVersionKind, String)],
    ) -> Result<Live, CallError> {
        let mut live = Live::default();
        for Children { watched, store } in &self.kinds {
            let names = names.iter().filter(|(kind, _)| is_same(kind, &watched.kind)).map(|(_, name)| name.as_str());
            for child in find(store, &NamespacedName::new(namespace, uid), names) {
                if let Some(object) = child.object(server, namespace, &watched.kind).await? {
                    live.insert(&watched.kind, object);
                }
            }
        }
        Ok(live)
    }

    /// Whether there is a child of this name.
    pub fn has(&self, kind: &GroupVersionKind, namespace: &str, name: &str) -> bool {
        let object = NamespacedName::new(namespace, name);
        self.of(kind).is_some_and(|children| children.store.with(&object, |_| ()).is_some())
    }

    /// Stores the response to one of our own writes, so that the next reconcile need not wait for the watch.
    pub fn wrote(&self, object: &DynamicObject) {
        let Some(kind) = object.types.as_ref().and_then(|types| GroupVersionKind::try_from(types).ok()) else { return };
        let Some(Children { watched, store }) = self.of(&kind) else { return };
        let Ok(text) = serde_json::to_vec(object) else { return };
        let child = Child { is_response: true, ..watched.child(object, text.into()) };
        store.wrote(&NamespacedName::new(object.namespace().unwrap_or_default(), object.name_any()), child);
    }

    fn of(&self, kind: &GroupVersionKind) -> Option<&Children> {
        self.kinds.iter().find(|children| is_same(&children.watched.kind, kind))
    }

    /// The objects that a change concerns. A previous controller must learn that it lost the child.
    fn touched(&self, watched: &Watched, Change { object, before, after }: &Change<Child>) -> BTreeSet<Touched> {
        let namespace = &object.namespace;
        let touched = |kind: &str, name: &str| Touched {
            namespace: namespace.clone(),
            owner_kind: kind.to_owned(),
            owner: name.to_owned(),
        };
        let mut concerned = BTreeSet::new();
        for child in before.iter().chain(after) {
            concerned.extend(child.controller.iter().map(|controller| touched(&controller.kind, &controller.name)));
            let named = watched.naming.zip(child.named.as_ref());
            concerned.extend(named.map(|(naming, name)| touched(naming.kind, name)));
        }
        let is_lost = |child: &Child| {
            child.is_shared() && after.as_ref().is_none_or(|after| after.revision.uid != child.revision.uid)
        };
        if before.as_ref().is_some_and(is_lost) {
            for children in &self.kinds {
                children.store.each_in(namespace, |child| {
                    concerned.extend(child.controller.iter().map(|of| touched(&of.kind, &of.name)));
                });
            }
        }
        concerned
    }
}

impl Watched {
    fn record(&self, object: &RawObject) -> Child {
        self.child(object, object.text.clone())
    }

    fn child(&self, object: &impl Resource, text: Arc<[u8]>) -> Child {
        let controller = controller(object).map(|reference| Controller {
            uid: reference.uid.clone(),
            kind: reference.kind.clone(),
            name: reference.name.clone(),
        });
        let named = self.naming.and_then(|naming| object.labels().get(naming.label).cloned());
        // Everyone may set the label of the watch. Without an object that it concerns, nobody reads the text.
        let is_needed = controller.is_some() || named.is_some() || self.naming.is_none();
        Child {
            name: object.name_any().into(),
            revision: Revision::of(object),
            controller,
            named,
            is_response: false,
            text: Some(text).filter(|text| is_needed && text.len() <= MAX_TEXT_BYTES),
        }
    }
}

impl Child {
    /// Whether the child belongs to no single object.
    fn is_shared(&self) -> bool {
        self.controller.is_none() && self.named.is_none()
    }

    /// `None` if it no longer exists.
    async fn object(
        &self,
        server: &Server,
        namespace: &str,
        kind: &GroupVersionKind,
    ) -> Result<Option<DynamicObject>, CallError> {
        if let Some(text) = &self.text {
            return Ok(serde_json::from_slice(text).ok());
        }
        let api: Api<DynamicObject> =
            Api::namespaced_with(server.client.clone(), namespace, &ApiResource::from_gvk(kind));
        server.call(api.get_opt(&self.name)).await
    }
}

/// The children that the owner of this UID controls, and those of these names.
fn find<'n>(store: &Store<Child>, owner: &NamespacedName, names: impl Iterator<Item = &'n str>) -> Vec<Child> {
    let named = names.filter_map(|name| store.get(&NamespacedName::new(owner.namespace.as_str(), name)));
    let found: BTreeMap<Arc<str>, Child> =
        named.chain(store.owned_by(owner)).map(|child| (child.name.clone(), child)).collect();
    found.into_values().collect()
}

fn is_same(one: &GroupVersionKind, other: &GroupVersionKind) -> bool {
    one.group == other.group && one.kind == other.kind
}
