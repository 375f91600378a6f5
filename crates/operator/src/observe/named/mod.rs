//! Secrets or ConfigMaps that objects name, wherever they come from.
//! Comes in: which object refers to which of them, and a watch on the metadata of all; goes out: the content of those that
//! are referred to, read once for each change, and for each change the objects that it concerns.
//!
//! Where the watch does not hold, everything is read anew each time, and the answer says so.

mod known;
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
use tokio::sync::watch;

use self::known::Known;
use self::stub::Stub;
use super::cache::Scope;
use super::watching::Watching;
use crate::client::{self, CallError, Server};
use crate::controllers::Place;

pub use read::{Content, is_name};

/// How long a look waits for the first list. It comes within moments, or not at all.
const FIRST_LIST: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of which the keys are kept and never a value.
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
pub struct Named {
    kind: Kind,
    known: Mutex<Known>,
    /// Whether the watch has said anything; also true where there is none.
    heard: watch::Sender<bool>,
}

/// The answer to a look.
#[derive(Clone, Debug)]
pub struct Looked {
    /// None: it is not there.
    pub content: Option<Arc<Content>>,
    /// Whether a change of it will be told. False: only looking again shows it.
    pub followed: bool,
}

impl Named {
    /// `implied`: names that objects refer to without naming them. Where the watch knows of none, none is asked for.
    pub fn new(kind: Kind, implied: &'static [&'static str]) -> Self {
        Self { kind, known: Mutex::new(Known::new(implied)), heard: watch::Sender::new(true) }
    }

    /// From now on changes of these concern the object, and of no others.
    pub fn refer(&self, object: &Place, to: BTreeSet<Place>) {
        self.lock().refer(object, to);
    }

    pub fn forget(&self, object: &Place) {
        self.lock().refer(object, BTreeSet::new());
    }

    /// What there is under a name that some object refers to.
    pub async fn look(&self, server: &Server, place: &Place) -> Result<Looked, CallError> {
        // The sender is ours, so that waiting cannot fail.
        let _ = tokio::time::timeout(FIRST_LIST, self.heard.subscribe().wait_for(|heard| *heard)).await;
        let (followed, turn) = {
            let known = self.lock();
            if let Some(content) = known.content(place) {
                return Ok(Looked { content, followed: true });
            }
            (known.follows(place), known.turn(place))
        };
        let content = read::read(server, self.kind, place).await?.map(Arc::new);
        let kept = self.lock().keep(place, turn, content.clone());
        // One that changed while it was read has woken the object already.
        Ok(Looked { content, followed: followed && kept })
    }

    /// Follows the kind for as long as it is polled, and gives the objects that changes concern. A watch that breaks is
    /// told of and begun again.
    pub fn follow(self: &Arc<Self>, server: &Server, scope: &Scope) -> impl Stream<Item = Place> + Send + use<> {
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
                // That a list begins is no sign yet that the watch works.
                Ok(Event::Init) => named.take_in(Event::Init),
                event => match watching.hear(event) {
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
    pub fn objects(&self) -> Vec<Place> {
        self.lock().objects()
    }

    fn take_in(&self, event: Event<Stub>) -> BTreeSet<Place> {
        let mut known = self.lock();
        match event {
            Event::Init => known.list_begins(),
            Event::InitApply(stub) => known.listed(stub.into_parts()),
            Event::InitDone => {
                let concerned = known.list_ends();
                drop(known);
                self.heard.send_replace(true);
                return concerned;
            }
            Event::Apply(stub) => return known.applied(stub.into_parts()),
            Event::Delete(stub) => return known.deleted(&stub.into_parts().0),
        }
        BTreeSet::new()
    }

    fn broke(&self, forbidden: bool) -> BTreeSet<Place> {
        let concerned = self.lock().broke(forbidden);
        self.heard.send_replace(true);
        concerned
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
