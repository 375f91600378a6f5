//! Index of references: the objects that refer to each Secret or ConfigMap, and the contents that were read since the last
//! change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use steersman_reconcile::NamespacedName;

use super::Content;

#[derive(Debug, Default)]
pub struct Index {
    referred: BTreeMap<NamespacedName, Referred>,
    by_object: HashMap<NamespacedName, BTreeSet<NamespacedName>>,
}

/// A Secret or ConfigMap that at least one object refers to.
#[derive(Debug, Default)]
struct Referred {
    by: BTreeSet<NamespacedName>,
    /// Number of changes that the watch has reported. If it differs before and after a read, the content may be older
    /// than the last change.
    changes: u64,
    /// `None` if the content was not read since the last change.
    read: Option<Option<Arc<Content>>>,
}

impl Index {
    /// Sets the references of an object. Returns those that no object has any more.
    pub fn refer(&mut self, object: &NamespacedName, to: BTreeSet<NamespacedName>) -> Vec<NamespacedName> {
        let before = self.by_object.remove(object).unwrap_or_default();
        let mut unreferred = Vec::new();
        for gone in before.difference(&to) {
            if let Some(referred) = self.referred.get_mut(gone) {
                referred.by.remove(object);
                if referred.by.is_empty() {
                    self.referred.remove(gone);
                    unreferred.push(gone.clone());
                }
            }
        }
        for new in to.difference(&before) {
            self.referred.entry(new.clone()).or_default().by.insert(object.clone());
        }
        if !to.is_empty() {
            self.by_object.insert(object.clone(), to);
        }
        unreferred
    }

    pub fn is_referred(&self, name: &NamespacedName) -> bool {
        self.referred.contains_key(name)
    }

    /// The content since the last change. The outer `None` means that it was not read.
    pub fn content(&self, name: &NamespacedName) -> Option<Option<Arc<Content>>> {
        self.referred.get(name).and_then(|referred| referred.read.clone())
    }

    /// Number of changes that the watch has reported.
    pub fn changes(&self, name: &NamespacedName) -> u64 {
        self.referred.get(name).map_or(0, |referred| referred.changes)
    }

    /// Stores content that was read, unless the watch has reported more than `changes`. Returns whether it was stored.
    pub fn keep(&mut self, name: &NamespacedName, changes: u64, content: Option<Arc<Content>>) -> bool {
        let referred = self.referred.get_mut(name).filter(|referred| referred.changes == changes);
        let is_current = referred.is_some();
        referred.into_iter().for_each(|referred| referred.read = Some(content.clone()));
        is_current
    }

    /// Invalidates the content and returns the referring objects. Content of the version that the watch reports stays.
    pub fn changed(&mut self, name: &NamespacedName, version: Option<&str>) -> BTreeSet<NamespacedName> {
        let Some(referred) = self.referred.get_mut(name) else { return BTreeSet::new() };
        let read = referred.read.as_ref().map(|read| read.as_ref().map(|content| content.version.as_str()));
        if read == Some(version) { BTreeSet::new() } else { referred.changed() }
    }

    /// Invalidates everything and returns all objects that refer to anything.
    pub fn all_changed(&mut self) -> BTreeSet<NamespacedName> {
        self.referred.values_mut().flat_map(Referred::changed).collect()
    }

    /// Every object that refers to anything.
    pub fn objects(&self) -> Vec<NamespacedName> {
        self.by_object.keys().cloned().collect()
    }
}

impl Referred {
    fn changed(&mut self) -> BTreeSet<NamespacedName> {
        self.changes += 1;
        self.read = None;
        self.by.clone()
    }
}
