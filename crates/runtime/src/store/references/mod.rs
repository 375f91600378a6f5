//! Secrets or ConfigMaps that objects refer to. A watch on the metadata of all objects of the kind triggers one read
//! for each change of a referenced one. Without a working watch, each lookup reads again and reports `followed: false`.

mod index;
mod read;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ApiResource;
use kube::runtime::watcher;
use steersman_reconcile::NamespacedName;

use self::index::Index;
use super::partial::Stub;
use super::records::{Change, Record, Revision, SMALL_PAGE, Store};
use super::scope::Scope;
use crate::client::{CallError, Server};

pub use read::{Content, is_name};

/// Longest wait of a lookup for the first list, which arrives quickly or not at all.
const FIRST_LIST: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceKind {
    /// Only the keys are stored, never a value.
    Secret,
    ConfigMap,
}

impl ReferenceKind {
    fn resource(self) -> ApiResource {
        match self {
            Self::Secret => ApiResource::erase::<Secret>(&()),
            Self::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
        }
    }
}

/// The referenced Secrets, or the referenced ConfigMaps.
pub struct ReferenceStore {
    kind: ReferenceKind,
    /// Names that objects refer to without naming them.
    implied: &'static [&'static str],
    /// Versions of the objects that are referred to or have an implied name. A cluster has many others.
    versions: Store<ReferencedVersion>,
    index: Mutex<Index>,
    /// The scope of the watch. Unset if there is none.
    scope: OnceLock<Scope>,
}

#[derive(Clone, Debug, PartialEq)]
struct ReferencedVersion {
    text: String,
    revision: Revision,
}

impl ReferencedVersion {
    fn new(text: String) -> Self {
        let revision = Revision { uid: None, version: text.parse().ok() };
        Self { text, revision }
    }
}

impl Record for ReferencedVersion {
    fn revision(&self) -> Option<&Revision> {
        Some(&self.revision)
    }
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
    /// `implied`: names that objects refer to without naming them. If the watch has no object of such a name, it counts as
    /// absent without a read.
    pub fn new(kind: ReferenceKind, implied: &'static [&'static str]) -> Self {
        Self {
            kind,
            implied,
            // Objects may have been looked up before the first list.
            versions: Store::reporting_first_list(),
            index: Mutex::default(),
            scope: OnceLock::new(),
        }
    }

    /// Sets the references of an object. From now on, changes of these concern it.
    pub fn refer(&self, object: &NamespacedName, to: BTreeSet<NamespacedName>) {
        // Under one lock: another object may refer to the same name in the next moment.
        let mut index = self.lock();
        let unreferred = index.refer(object, to);
        unreferred.iter().filter(|name| !self.is_implied(name)).for_each(|name| self.versions.forget(name));
    }

    pub fn forget(&self, object: &NamespacedName) {
        self.refer(object, BTreeSet::new());
    }

    /// Looks up a Secret or ConfigMap that some object refers to.
    pub async fn get(&self, server: &Server, name: &NamespacedName) -> Result<ReferencedContent, CallError> {
        if self.scope.get().is_some() {
            let _ = tokio::time::timeout(FIRST_LIST, self.versions.tried()).await;
        }
        if let Some(content) = self.content(name) {
            return Ok(ReferencedContent { content, followed: true });
        }
        let (followed, changes) = (self.follows(name), self.expect(name));
        let content = read::read(server, self.kind, name).await?.map(Arc::new);
        Ok(ReferencedContent { followed: self.keep(name, changes, content.clone()) && followed, content })
    }

    /// Watches the kind for as long as it is polled, and reports the objects that changes concern. A broken watch is logged
    /// and restarted.
    pub async fn follow(&self, server: &Server, scope: &Scope, concerned: impl Fn(NamespacedName)) {
        // A store serves one term of leadership, so that the scope never changes.
        let _ = self.scope.set(scope.clone());
        let resource = self.kind.resource();
        let config = watcher::Config::default().page_size(SMALL_PAGE);
        let changed = |change| self.changed(&change).into_iter().for_each(&concerned);
        let api = scope.api(server, &resource);
        let follow = self.versions.follow(api, &resource.kind, config, |stub| self.version(stub), changed);
        let unfollowed = async {
            let mut losses = 0;
            loop {
                losses = self.versions.unfollowed(losses).await;
                tracing::warn!(
                    kind = resource.kind,
                    "no permission to list and watch this kind; referenced objects are polled instead"
                );
                self.lock().all_changed().into_iter().for_each(&concerned);
            }
        };
        tokio::join!(follow, unfollowed);
    }

    /// Every object that refers to anything.
    pub fn objects(&self) -> Vec<NamespacedName> {
        self.lock().objects()
    }

    /// The current content. The outer `None` means that it has to be read.
    fn content(&self, name: &NamespacedName) -> Option<Option<Arc<Content>>> {
        if !self.follows(name) {
            return None;
        }
        // For an explicit reference, absence from the watch is not trusted, because the watch may lag: a read decides.
        // An implied name may well not exist; if it appears later, its event triggers the object.
        let absent = self.is_implied(name) && self.versions.with(name, |_| ()).is_none();
        self.lock().content(name).or_else(|| absent.then_some(None))
    }

    /// Whether the watch will report a change.
    fn follows(&self, name: &NamespacedName) -> bool {
        let within = match self.scope.get() {
            None => false,
            Some(Scope::Cluster) => true,
            Some(Scope::Namespace(namespace)) => *namespace == name.namespace,
        };
        within && self.versions.is_followed() && self.lock().is_referred(name)
    }

    /// Stores content that was read, unless the watch has reported more than `changes`. A change during the read has triggered
    /// the object already. Returns whether the content is current.
    fn keep(&self, name: &NamespacedName, changes: u64, content: Option<Arc<Content>>) -> bool {
        let mut index = self.lock();
        let version = content.as_ref().map(|content| ReferencedVersion::new(content.version.clone()));
        let is_kept = index.keep(name, changes, content);
        if let Some(version) = version.filter(|_| is_kept) {
            self.versions.wrote(name, version);
        }
        is_kept
    }

    /// Makes every later event of the watch about the name a change, even a deletion: the watch may have passed over the
    /// object before anything referred to it. Returns the number of changes so far.
    fn expect(&self, name: &NamespacedName) -> u64 {
        let index = self.lock();
        if index.is_referred(name) && !self.is_implied(name) {
            self.versions.wrote(name, ReferencedVersion::new("0".to_owned()));
        }
        index.changes(name)
    }

    fn changed(&self, Change { object, after, .. }: &Change<ReferencedVersion>) -> BTreeSet<NamespacedName> {
        self.lock().changed(object, after.as_ref().map(|version| version.text.as_str()))
    }

    fn version(&self, stub: &Stub) -> Option<ReferencedVersion> {
        let (name, version) = stub.parts();
        (self.is_implied(&name) || self.lock().is_referred(&name)).then(|| ReferencedVersion::new(version))
    }

    fn is_implied(&self, name: &NamespacedName) -> bool {
        self.implied.contains(&name.name.as_str())
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
