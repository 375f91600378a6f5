//! Index of references: the objects that refer to each Secret or ConfigMap, and the contents that are still current.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use steersman_reconcile::NamespacedName;

use super::Content;
use crate::store::Scope;

/// Reliability of the watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Watch {
    /// There is none, or it has brought no complete list yet, or we may not watch.
    #[default]
    Silent,
    /// After a complete list. A break in between loses nothing: it goes on from where it was, or with a new list.
    Holds,
}

#[derive(Debug, Default)]
pub struct Index {
    implied: &'static [&'static str],
    watch: Watch,
    scope: Scope,
    referred: BTreeMap<NamespacedName, Referred>,
    by_object: HashMap<NamespacedName, BTreeSet<NamespacedName>>,
    /// Existing objects with an implied name.
    there: BTreeSet<NamespacedName>,
    /// Objects of a list in progress, with their versions.
    incoming: BTreeMap<NamespacedName, String>,
}

/// A Secret or ConfigMap that at least one object refers to.
#[derive(Debug, Default)]
struct Referred {
    by: BTreeSet<NamespacedName>,
    /// Number of changes that the watch has reported. If it differs before and after a read, the content may be older
    /// than the last change.
    turn: u64,
    /// `None` if the content was not read since the last change.
    read: Option<Option<Arc<Content>>>,
}

impl Index {
    pub fn new(implied: &'static [&'static str]) -> Self {
        Self { implied, ..Self::default() }
    }

    /// A watch over `scope` begins.
    pub fn begin(&mut self, scope: &Scope) {
        self.scope = scope.clone();
        self.watch = Watch::Silent;
    }

    pub fn refer(&mut self, object: &NamespacedName, to: BTreeSet<NamespacedName>) {
        let before = self.by_object.remove(object).unwrap_or_default();
        for gone in before.difference(&to) {
            if let Some(referred) = self.referred.get_mut(gone) {
                referred.by.remove(object);
                if referred.by.is_empty() {
                    self.referred.remove(gone);
                }
            }
        }
        for new in to.difference(&before) {
            self.referred.entry(new.clone()).or_default().by.insert(object.clone());
        }
        if !to.is_empty() {
            self.by_object.insert(object.clone(), to);
        }
    }

    /// Whether the watch will report a change.
    pub fn follows(&self, place: &NamespacedName) -> bool {
        let within = match &self.scope {
            Scope::Cluster => true,
            Scope::Namespace(name) => *name == place.namespace,
        };
        self.watch == Watch::Holds && within && self.referred.contains_key(place)
    }

    /// The current content. The outer `None` means that it has to be read.
    pub fn content(&self, place: &NamespacedName) -> Option<Option<Arc<Content>>> {
        if !self.follows(place) {
            return None;
        }
        let read = self.referred.get(place).and_then(|referred| referred.read.clone());
        // For an explicit reference, absence from the watch is not trusted, because the watch may lag: a read decides.
        // An implied name may well not exist; if it appears later, its event triggers the object.
        let absent = self.implied.contains(&place.name.as_str()) && !self.there.contains(place);
        read.or_else(|| absent.then_some(None))
    }

    pub fn turn(&self, place: &NamespacedName) -> u64 {
        self.referred.get(place).map_or(0, |referred| referred.turn)
    }

    /// Stores content that was read, unless the watch reported a change since `turn`. Returns whether the content is
    /// current.
    pub fn keep(&mut self, place: &NamespacedName, turn: u64, content: Option<Arc<Content>>) -> bool {
        let follows = self.follows(place);
        match self.referred.get_mut(place).filter(|referred| referred.turn == turn) {
            Some(referred) => referred.read = Some(content),
            None => return false,
        }
        follows
    }

    pub fn list_begins(&mut self) {
        self.incoming.clear();
    }

    /// Ignores objects without a reference: a cluster has many of them. An object that becomes referenced before the
    /// list ends is read again then.
    pub fn listed(&mut self, (place, version): (NamespacedName, String)) {
        if self.referred.contains_key(&place) || self.implied.contains(&place.name.as_str()) {
            self.incoming.insert(place, version);
        }
    }

    /// Content stays current if the list has the same version. All other content has to be read again.
    pub fn list_ends(&mut self) -> BTreeSet<NamespacedName> {
        self.watch = Watch::Holds;
        let listed = std::mem::take(&mut self.incoming);
        let implied = |place: &&NamespacedName| self.implied.contains(&place.name.as_str());
        self.there = listed.keys().filter(implied).cloned().collect();
        let mut concerned = BTreeSet::new();
        for (place, referred) in &mut self.referred {
            let read = referred.read.as_ref().map(|read| read.as_ref().map(|content| &content.version));
            if read != Some(listed.get(place)) {
                concerned.extend(referred.changed());
            }
        }
        concerned
    }

    pub fn applied(&mut self, (place, version): (NamespacedName, String)) -> BTreeSet<NamespacedName> {
        self.watch = Watch::Holds;
        if self.implied.contains(&place.name.as_str()) {
            self.there.insert(place.clone());
        }
        match self.referred.get_mut(&place) {
            Some(referred) if !referred.knows(&version) => referred.changed(),
            _ => BTreeSet::new(),
        }
    }

    pub fn deleted(&mut self, place: &NamespacedName) -> BTreeSet<NamespacedName> {
        self.watch = Watch::Holds;
        self.there.remove(place);
        self.referred.get_mut(place).map(Referred::changed).unwrap_or_default()
    }

    /// Invalidates everything if we lost the permission to watch. After any other failure, the watch continues without
    /// a gap.
    pub fn broke(&mut self, forbidden: bool) -> BTreeSet<NamespacedName> {
        if !forbidden || self.watch == Watch::Silent {
            return BTreeSet::new();
        }
        self.watch = Watch::Silent;
        self.referred.values_mut().flat_map(Referred::changed).collect()
    }

    /// Every object that refers to anything.
    pub fn objects(&self) -> Vec<NamespacedName> {
        self.by_object.keys().cloned().collect()
    }
}

impl Referred {
    /// Invalidates the content and returns the referring objects.
    fn changed(&mut self) -> BTreeSet<NamespacedName> {
        self.turn += 1;
        self.read = None;
        self.by.clone()
    }

    /// Whether what was read is of this version or a newer one: then the watch is behind. Versions are numbers that grow;
    /// one that is no number is taken to be new.
    fn knows(&self, version: &str) -> bool {
        let Some(Some(content)) = &self.read else { return false };
        match (content.version.parse::<u64>(), version.parse::<u64>()) {
            (Ok(read), Ok(told)) => told <= read,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUNDLE: &str = "bundle";

    fn place(name: &str) -> NamespacedName {
        NamespacedName::new("team-a", name)
    }

    fn content(version: u64) -> Option<Arc<Content>> {
        Some(Arc::new(Content { version: version.to_string(), labels: BTreeMap::new(), data: BTreeMap::new() }))
    }

    fn at(name: &str, version: u64) -> (NamespacedName, String) {
        (place(name), version.to_string())
    }

    /// `object` refers to `key`, the watch holds, and nothing was read.
    fn followed() -> Index {
        let mut index = Index::new(&[BUNDLE]);
        index.refer(&place("object"), [place("key"), place(BUNDLE)].into());
        index.list_ends();
        index
    }

    fn read(index: &mut Index, version: Option<u64>) -> bool {
        let turn = index.turn(&place("key"));
        index.keep(&place("key"), turn, version.and_then(content))
    }

    fn names(places: BTreeSet<NamespacedName>) -> Vec<String> {
        places.into_iter().map(|place| place.name).collect()
    }

    #[test]
    fn content_is_current_until_next_change() {
        for version in [Some(5), None] {
            let mut index = followed();
            assert!(index.content(&place("key")).is_none(), "it has to be read first");
            assert!(read(&mut index, version));
            assert_eq!(index.content(&place("key")).unwrap().is_some(), version.is_some());
            assert_eq!(names(index.applied(at("key", 6))), ["object"]);
            assert!(index.content(&place("key")).is_none());
        }
        let mut index = followed();
        read(&mut index, Some(5));
        assert_eq!(names(index.deleted(&place("key"))), ["object"]);
        assert!(index.content(&place("key")).is_none());
    }

    #[test]
    fn lagging_watch_event_triggers_nothing() {
        let mut index = followed();
        read(&mut index, Some(7));
        assert_eq!(names(index.applied(at("key", 6))), [""; 0]);
        assert_eq!(names(index.applied(at("key", 7))), [""; 0]);
        assert_eq!(names(index.applied(at("key", 8))), ["object"]);
    }

    #[test]
    fn change_during_read_is_not_lost() {
        type Event = fn(&mut Index) -> BTreeSet<NamespacedName>;
        let events: [(&str, Event); 3] = [
            ("changed", |index| index.applied(at("key", 6))),
            ("deleted", |index| index.deleted(&place("key"))),
            ("listed", |index| {
                index.listed(at("key", 6));
                index.list_ends()
            }),
        ];
        for (name, event) in events {
            let mut index = followed();
            let turn = index.turn(&place("key"));
            assert_eq!(names(event(&mut index)), ["object"], "{name}");
            assert!(!index.keep(&place("key"), turn, content(5)), "{name}");
            assert!(index.content(&place("key")).is_none(), "{name}");
        }
    }

    #[test]
    fn list_triggers_only_changed_references() {
        for (listed, concerned) in [(Some(5), 0), (Some(6), 1), (None, 1)] {
            let mut index = followed();
            read(&mut index, Some(5));
            index.keep(&place(BUNDLE), index.turn(&place(BUNDLE)), None);
            index.list_begins();
            if let Some(version) = listed {
                index.listed(at("key", version));
            }
            index.listed(at("other", 9));
            assert_eq!(index.list_ends().len(), concerned, "{listed:?}");
        }
    }

    #[test]
    fn change_triggers_only_referring_objects() {
        let mut index = followed();
        index.refer(&place("second"), [place("key")].into());
        assert_eq!(names(index.applied(at("other", 1))), [""; 0]);
        assert_eq!(names(index.applied(at("key", 1))), ["object", "second"]);
        index.refer(&place("object"), [place("other")].into());
        assert_eq!(names(index.applied(at("key", 2))), ["second"]);
        assert_eq!(names(index.applied(at("other", 2))), ["object"]);
        index.refer(&place("second"), BTreeSet::new());
        assert_eq!(names(index.applied(at("key", 3))), [""; 0]);
        assert!(!index.referred.contains_key(&place("key")), "what nobody refers to is not kept");
        assert_eq!(index.objects(), [place("object")]);
    }

    #[test]
    fn implied_name_is_absent_until_watched() {
        let mut index = followed();
        assert!(index.content(&place(BUNDLE)).unwrap().is_none(), "nobody need ask");
        assert_eq!(names(index.applied(at(BUNDLE, 3))), ["object"]);
        assert!(index.content(&place(BUNDLE)).is_none(), "it has to be read");
        assert_eq!(names(index.deleted(&place(BUNDLE))), ["object"]);
        assert!(index.content(&place(BUNDLE)).unwrap().is_none());
    }

    #[test]
    fn content_needs_working_watch() {
        let mut index = Index::new(&[BUNDLE]);
        index.refer(&place("object"), [place("key"), place(BUNDLE)].into());
        assert!(!read(&mut index, Some(5)));
        assert!(index.content(&place("key")).is_none() && index.content(&place(BUNDLE)).is_none());
        index.listed(at("key", 5));
        index.list_ends();
        assert!(index.content(&place("key")).is_some(), "the list has the very same");

        assert_eq!(names(index.broke(false)), [""; 0], "a break loses nothing");
        assert!(index.content(&place("key")).is_some());
        assert_eq!(names(index.broke(true)), ["object"], "who may not watch has to look again");
        assert!(index.content(&place("key")).is_none());
        index.list_ends();
        assert!(index.follows(&place("key")), "and is told again once the right is back");
    }

    #[test]
    fn unwatched_namespace_is_not_followed() {
        let mut index = followed();
        let elsewhere = NamespacedName::new("elsewhere", "key");
        index.refer(&place("object"), [place("key"), elsewhere.clone()].into());
        index.begin(&Scope::Namespace("team-a".to_owned()));
        index.list_ends();
        assert!(index.follows(&place("key")) && !index.follows(&elsewhere));
    }
}
