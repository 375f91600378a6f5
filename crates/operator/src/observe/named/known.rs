//! What is known of the Secrets or ConfigMaps that objects refer to.
//! Comes in: references, contents that were read, and what the watch saw; goes out: contents that still hold, and whom a
//! change concerns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::Content;
use crate::controllers::Place;
use crate::observe::cache::Scope;

/// How far the watch can be relied on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Watch {
    /// There is none, or it has brought no complete list yet, or we may not watch.
    #[default]
    Silent,
    /// After a complete list. A break in between loses nothing: it goes on from where it was, or with a new list.
    Holds,
}

#[derive(Debug, Default)]
pub struct Known {
    implied: &'static [&'static str],
    watch: Watch,
    scope: Scope,
    referred: BTreeMap<Place, Referred>,
    by_object: HashMap<Place, BTreeSet<Place>>,
    /// Those with an implied name that are there.
    there: BTreeSet<Place>,
    /// What a new list has brought so far, with versions.
    incoming: BTreeMap<Place, String>,
}

/// One that at least one object refers to.
#[derive(Debug, Default)]
struct Referred {
    by: BTreeSet<Place>,
    /// Counts what the watch said of it. Who reads it notes the number before: if it is another one afterwards, what was
    /// read may be older than what was told meanwhile.
    turn: u64,
    /// None: it was not read since the last change.
    read: Option<Option<Arc<Content>>>,
}

impl Known {
    pub fn new(implied: &'static [&'static str]) -> Self {
        Self { implied, ..Self::default() }
    }

    /// A watch over `scope` begins.
    pub fn begin(&mut self, scope: &Scope) {
        self.scope = scope.clone();
        self.watch = Watch::Silent;
    }

    pub fn refer(&mut self, object: &Place, to: BTreeSet<Place>) {
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

    /// Whether a change of it will be told.
    pub fn follows(&self, place: &Place) -> bool {
        let within = match &self.scope {
            Scope::Cluster => true,
            Scope::Namespace(name) => *name == place.0,
        };
        self.watch == Watch::Holds && within && self.referred.contains_key(place)
    }

    /// None: it has to be read.
    pub fn content(&self, place: &Place) -> Option<Option<Arc<Content>>> {
        if !self.follows(place) {
            return None;
        }
        let read = self.referred.get(place).and_then(|referred| referred.read.clone());
        // Of those that somebody names, a watch that lags behind is not believed that they are absent: reading decides.
        // Of these nobody says that they are there, and news of one wakes the object like any other.
        let absent = self.implied.contains(&place.1.as_str()) && !self.there.contains(place);
        read.or_else(|| absent.then_some(None))
    }

    pub fn turn(&self, place: &Place) -> u64 {
        self.referred.get(place).map_or(0, |referred| referred.turn)
    }

    /// Keeps what was read, unless something was told of it since `turn`. Whether it holds.
    pub fn keep(&mut self, place: &Place, turn: u64, content: Option<Arc<Content>>) -> bool {
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

    /// A cluster has many more than are referred to. One that becomes so before the list ends is read anew then.
    pub fn listed(&mut self, (place, version): (Place, String)) {
        if self.referred.contains_key(&place) || self.implied.contains(&place.1.as_str()) {
            self.incoming.insert(place, version);
        }
    }

    /// What was read holds where the list has the same version. All others are read anew.
    pub fn list_ends(&mut self) -> BTreeSet<Place> {
        self.watch = Watch::Holds;
        let listed = std::mem::take(&mut self.incoming);
        let implied = |place: &&Place| self.implied.contains(&place.1.as_str());
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

    pub fn applied(&mut self, (place, version): (Place, String)) -> BTreeSet<Place> {
        self.watch = Watch::Holds;
        if self.implied.contains(&place.1.as_str()) {
            self.there.insert(place.clone());
        }
        match self.referred.get_mut(&place) {
            Some(referred) if !referred.knows(&version) => referred.changed(),
            _ => BTreeSet::new(),
        }
    }

    pub fn deleted(&mut self, place: &Place) -> BTreeSet<Place> {
        self.watch = Watch::Holds;
        self.there.remove(place);
        self.referred.get_mut(place).map(Referred::changed).unwrap_or_default()
    }

    /// Only who may not watch any more cannot rely on what was told so far.
    pub fn broke(&mut self, forbidden: bool) -> BTreeSet<Place> {
        if !forbidden || self.watch == Watch::Silent {
            return BTreeSet::new();
        }
        self.watch = Watch::Silent;
        self.referred.values_mut().flat_map(Referred::changed).collect()
    }

    /// Every object that refers to anything.
    pub fn objects(&self) -> Vec<Place> {
        self.by_object.keys().cloned().collect()
    }
}

impl Referred {
    /// Whom it concerns.
    fn changed(&mut self) -> BTreeSet<Place> {
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

    fn place(name: &str) -> Place {
        ("team-a".to_owned(), name.to_owned())
    }

    fn content(version: u64) -> Option<Arc<Content>> {
        Some(Arc::new(Content { version: version.to_string(), shared: false, data: BTreeMap::new() }))
    }

    fn at(name: &str, version: u64) -> (Place, String) {
        (place(name), version.to_string())
    }

    /// `object` refers to `key`, the watch holds, and nothing was read.
    fn followed() -> Known {
        let mut known = Known::new(&[BUNDLE]);
        known.refer(&place("object"), [place("key"), place(BUNDLE)].into());
        known.list_ends();
        known
    }

    fn read(known: &mut Known, version: Option<u64>) -> bool {
        let turn = known.turn(&place("key"));
        known.keep(&place("key"), turn, version.and_then(content))
    }

    fn names(places: BTreeSet<Place>) -> Vec<String> {
        places.into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn what_was_read_holds_until_the_watch_tells_of_a_change() {
        for version in [Some(5), None] {
            let mut known = followed();
            assert!(known.content(&place("key")).is_none(), "it has to be read first");
            assert!(read(&mut known, version));
            assert_eq!(known.content(&place("key")).unwrap().is_some(), version.is_some());
            assert_eq!(names(known.applied(at("key", 6))), ["object"]);
            assert!(known.content(&place("key")).is_none());
        }
        let mut known = followed();
        read(&mut known, Some(5));
        assert_eq!(names(known.deleted(&place("key"))), ["object"]);
        assert!(known.content(&place("key")).is_none());
    }

    #[test]
    fn a_watch_that_lags_behind_what_was_read_concerns_nobody() {
        let mut known = followed();
        read(&mut known, Some(7));
        assert_eq!(names(known.applied(at("key", 6))), [""; 0]);
        assert_eq!(names(known.applied(at("key", 7))), [""; 0]);
        assert_eq!(names(known.applied(at("key", 8))), ["object"]);
    }

    #[test]
    fn what_is_told_while_it_is_read_is_not_lost() {
        type Event = fn(&mut Known) -> BTreeSet<Place>;
        let events: [(&str, Event); 3] = [
            ("changed", |known| known.applied(at("key", 6))),
            ("deleted", |known| known.deleted(&place("key"))),
            ("listed", |known| {
                known.listed(at("key", 6));
                known.list_ends()
            }),
        ];
        for (name, event) in events {
            let mut known = followed();
            let turn = known.turn(&place("key"));
            assert_eq!(names(event(&mut known)), ["object"], "{name}");
            assert!(!known.keep(&place("key"), turn, content(5)), "{name}");
            assert!(known.content(&place("key")).is_none(), "{name}");
        }
    }

    #[test]
    fn a_new_list_concerns_whom_it_has_something_new_for() {
        for (listed, concerned) in [(Some(5), 0), (Some(6), 1), (None, 1)] {
            let mut known = followed();
            read(&mut known, Some(5));
            known.keep(&place(BUNDLE), known.turn(&place(BUNDLE)), None);
            known.list_begins();
            if let Some(version) = listed {
                known.listed(at("key", version));
            }
            known.listed(at("other", 9));
            assert_eq!(known.list_ends().len(), concerned, "{listed:?}");
        }
    }

    #[test]
    fn a_change_concerns_exactly_those_who_refer_to_it() {
        let mut known = followed();
        known.refer(&place("second"), [place("key")].into());
        assert_eq!(names(known.applied(at("other", 1))), [""; 0]);
        assert_eq!(names(known.applied(at("key", 1))), ["object", "second"]);
        known.refer(&place("object"), [place("other")].into());
        assert_eq!(names(known.applied(at("key", 2))), ["second"]);
        assert_eq!(names(known.applied(at("other", 2))), ["object"]);
        known.refer(&place("second"), BTreeSet::new());
        assert_eq!(names(known.applied(at("key", 3))), [""; 0]);
        assert!(!known.referred.contains_key(&place("key")), "what nobody refers to is not kept");
        assert_eq!(known.objects(), [place("object")]);
    }

    #[test]
    fn an_implied_name_is_absent_until_the_watch_has_seen_it() {
        let mut known = followed();
        assert!(known.content(&place(BUNDLE)).unwrap().is_none(), "nobody need ask");
        assert_eq!(names(known.applied(at(BUNDLE, 3))), ["object"]);
        assert!(known.content(&place(BUNDLE)).is_none(), "it has to be read");
        assert_eq!(names(known.deleted(&place(BUNDLE))), ["object"]);
        assert!(known.content(&place(BUNDLE)).unwrap().is_none());
    }

    #[test]
    fn without_a_watch_nothing_that_was_read_counts() {
        let mut known = Known::new(&[BUNDLE]);
        known.refer(&place("object"), [place("key"), place(BUNDLE)].into());
        assert!(!read(&mut known, Some(5)));
        assert!(known.content(&place("key")).is_none() && known.content(&place(BUNDLE)).is_none());
        known.listed(at("key", 5));
        known.list_ends();
        assert!(known.content(&place("key")).is_some(), "the list has the very same");

        assert_eq!(names(known.broke(false)), [""; 0], "a break loses nothing");
        assert!(known.content(&place("key")).is_some());
        assert_eq!(names(known.broke(true)), ["object"], "who may not watch has to look again");
        assert!(known.content(&place("key")).is_none());
        known.list_ends();
        assert!(known.follows(&place("key")), "and is told again once the right is back");
    }

    #[test]
    fn other_namespaces_than_the_watched_one_are_not_followed() {
        let mut known = followed();
        let elsewhere = ("elsewhere".to_owned(), "key".to_owned());
        known.refer(&place("object"), [place("key"), elsewhere.clone()].into());
        known.begin(&Scope::Namespace("team-a".to_owned()));
        known.list_ends();
        assert!(known.follows(&place("key")) && !known.follows(&elsewhere));
    }
}
