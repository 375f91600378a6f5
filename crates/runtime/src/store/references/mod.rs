//! Secrets or ConfigMaps that objects refer to. A watch on the metadata of all objects of the kind triggers one read
//! for each change of a referenced one. Without a working watch, each lookup reads again and reports `followed: false`.

mod index;
mod read;
mod stub;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::{self, Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ApiResource};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use steersman_reconcile::NamespacedName;
use tokio::sync::watch;

use self::index::Index;
use self::stub::Stub;
use super::scope::Scope;
use super::watching::Watching;
use crate::client::{self, CallError, Server};

pub use read::{Content, is_name};

/// Longest wait of a lookup for the first list, which arrives quickly or not at all.
const FIRST_LIST: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only the keys are stored, never a value.
    Secret,
    ConfigMap,
}

impl Kind {
    fn resource(self) -> ApiResource {
        match self {
            Self::Secret => ApiResource::erase::<Secret>(&()),
            Self::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
        }
    }
}

/// All of one kind.
pub struct ReferenceStore {
    kind: Kind,
    index: Mutex<Index>,
    /// Whether the watch has reported a result. True if there is no watch.
    heard: watch::Sender<bool>,
}

/// A Secret or ConfigMap that an object refers to.
#[derive(Clone, Debug)]
pub struct ReferencedContent {
    /// `None` if it does not exist.
    pub content: Option<Arc<Content>>,
    /// Whether the watch will report a change. If false, only another lookup shows it.
    pub followed: bool,
}

impl ReferenceStore {
    /// `implied`: names that objects refer to without naming them. Where the watch knows of none, none is asked for.
    pub fn new(kind: Kind, implied: &'static [&'static str]) -> Self {
        Self { kind, index: Mutex::new(Index::new(implied)), heard: watch::Sender::new(true) }
    }

    /// From now on changes of these concern the object, and of no others.
    pub fn refer(&self, object: &NamespacedName, to: BTreeSet<NamespacedName>) {
        self.lock().refer(object, to);
    }

    pub fn forget(&self, object: &NamespacedName) {
        self.lock().refer(object, BTreeSet::new());
    }

    /// Looks up a Secret or ConfigMap that some object refers to.
    pub async fn get(&self, server: &Server, place: &NamespacedName) -> Result<ReferencedContent, CallError> {
        // The sender is ours, so that waiting cannot fail.
        let _ = tokio::time::timeout(FIRST_LIST, self.heard.subscribe().wait_for(|heard| *heard)).await;
        let (followed, turn) = {
            let index = self.lock();
            if let Some(content) = index.content(place) {
                return Ok(ReferencedContent { content, followed: true });
            }
            (index.follows(place), index.turn(place))
        };
        let content = read::read(server, self.kind, place).await?.map(Arc::new);
        let kept = self.lock().keep(place, turn, content.clone());
        // A change during the read has triggered the object already.
        Ok(ReferencedContent { content, followed: followed && kept })
    }

    /// Watches the kind for as long as the stream is polled, and emits the objects that changes concern. A broken watch
    /// is logged and restarted.
    pub fn follow(
        self: &Arc<Self>,
        server: &Server,
        scope: &Scope,
    ) -> impl Stream<Item = NamespacedName> + Send + use<> {
        let resource = self.kind.resource();
        let api: Api<Stub> = scope.api(server, &resource);
        self.lock().begin(scope);
        self.heard.send_replace(false);
        let (named, mut watching) = (self.clone(), Watching::new(&resource.kind));
        let changes = watcher(api, watcher::Config::default()).default_backoff();
        let mut may = true;
        changes.flat_map(move |event| {
            let forbidden = event.as_ref().err().is_some_and(client::is_forbidden);
            let concerned = match event {
                // The start of a list does not yet show that the watch works.
                Ok(Event::Init) => named.take_in(Event::Init),
                event => match watching.receive(event) {
                    Some(event) => {
                        may = true;
                        named.take_in(event)
                    }
                    None => named.broke(forbidden),
                },
            };
            if forbidden && std::mem::replace(&mut may, false) {
                tracing::warn!(
                    kind = resource.kind,
                    "without the right to list and watch them, those that objects refer to are looked at from time to time"
                );
            }
            stream::iter(concerned)
        })
    }

    /// Every object that refers to anything.
    pub fn objects(&self) -> Vec<NamespacedName> {
        self.lock().objects()
    }

    fn take_in(&self, event: Event<Stub>) -> BTreeSet<NamespacedName> {
        let mut index = self.lock();
        match event {
            Event::Init => index.list_begins(),
            Event::InitApply(stub) => index.listed(stub.into_parts()),
            Event::InitDone => {
                let concerned = index.list_ends();
                drop(index);
                self.heard.send_replace(true);
                return concerned;
            }
            Event::Apply(stub) => return index.applied(stub.into_parts()),
            Event::Delete(stub) => return index.deleted(&stub.into_parts().0),
        }
        BTreeSet::new()
    }

    fn broke(&self, forbidden: bool) -> BTreeSet<NamespacedName> {
        let concerned = self.lock().broke(forbidden);
        self.heard.send_replace(true);
        concerned
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
