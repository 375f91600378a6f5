use kube::api::DynamicObject;
use serde_json::json;

use super::*;

impl Record for i64 {}

fn object(name: &str, value: i64) -> DynamicObject {
    serde_json::from_value(json!({ "metadata": { "namespace": "a", "name": name }, "value": value })).unwrap()
}

/// Records even values only.
fn record(object: &DynamicObject) -> Option<i64> {
    object.data["value"].as_i64().filter(|value| value % 2 == 0)
}

fn changes(store: &Store<i64>, events: Vec<Event<DynamicObject>>) -> Vec<(String, Option<i64>, Option<i64>)> {
    let changes = events.into_iter().flat_map(|event| store.receive(event, &record));
    changes.map(|change| (change.object.name, change.before, change.after)).collect()
}

fn list(objects: &[(&str, i64)]) -> Vec<Event<DynamicObject>> {
    let applied = objects.iter().map(|(name, value)| Event::InitApply(object(name, *value)));
    [Event::Init].into_iter().chain(applied).chain([Event::InitDone]).collect()
}

#[test]
fn later_list_changes_only_what_differs() {
    let store = Store::default();
    assert_eq!(store.sync_state(), SyncState::NotSynced);
    assert_eq!(changes(&store, list(&[("one", 2), ("odd", 3), ("two", 4)])), []);
    assert_eq!(store.sync_state(), SyncState::Synced);
    let expected = [("one".to_owned(), Some(2), None), ("two".to_owned(), Some(4), Some(6))];
    let expected = expected.into_iter().chain([("new".to_owned(), None, Some(8))]).collect::<Vec<_>>();
    assert_eq!(changes(&store, list(&[("two", 6), ("new", 8)])), expected);
    assert_eq!(changes(&store, list(&[("two", 6), ("new", 8)])), []);
}

#[test]
fn unrecorded_change_is_no_change() {
    let store = Store::default();
    changes(&store, list(&[("one", 2)]));
    assert_eq!(changes(&store, vec![Event::Apply(object("one", 2))]), []);
    assert_eq!(changes(&store, vec![Event::Apply(object("odd", 1))]), []);
    assert_eq!(changes(&store, vec![Event::Apply(object("one", 3))]), [("one".to_owned(), Some(2), None)]);
    assert_eq!(changes(&store, vec![Event::Delete(object("one", 3))]), [], "it was removed before");
}

#[test]
fn name_of_record_is_shared_with_key() {
    #[derive(Clone, PartialEq)]
    struct NamedRecord(Arc<str>, i64);
    impl Record for NamedRecord {
        fn name(&self) -> Option<Arc<str>> {
            Some(self.0.clone())
        }
    }
    let (store, place) = (Store::default(), NamespacedName::new("a", "one"));
    for value in [2, 4] {
        let name: Arc<str> = "one".into();
        store.put(place.clone(), Some(NamedRecord(name.clone(), value)));
        assert_eq!(
            Arc::strong_count(&name),
            3,
            "the name is shared by this test, the record and the key, and never copied"
        );
    }
}

#[test]
fn any_reads_one_namespace() {
    let store: Store<i64> = Store::default();
    let place = |namespace: &str, name: &str| NamespacedName::new(namespace, name);
    store.replace(
        vec![(place("a", "z"), 2), (place("b", "a"), 4), (place("b", "z"), 6), (place("ba", "a"), 8)],
        &BTreeSet::new(),
    );
    for (namespace, value, expected) in
        [("b", 4, true), ("b", 6, true), ("b", 2, false), ("b", 8, false), ("c", 8, false)]
    {
        assert_eq!(store.any(namespace, |known| *known == value), expected, "{namespace} {value}");
    }
}

#[test]
fn newly_served_api_relists() {
    let store: Store<i64> = Store::default();
    store.relist();
    assert_eq!(store.sync_state(), SyncState::NotSynced, "no list was tried");
    assert_eq!(store.not_served(), []);
    assert_eq!(store.sync_state(), SyncState::NotServed);
    store.relist();
    assert_eq!(store.sync_state(), SyncState::Relisting);
    store.forbidden("no right".to_owned());
    assert_eq!(store.sync_state(), SyncState::Forbidden("no right".to_owned()), "the API is served now");
    assert_eq!(changes(&store, list(&[("one", 2)])), [("one".to_owned(), None, Some(2))]);
    assert_eq!(store.sync_state(), SyncState::Synced);
    assert_eq!(store.not_served().len(), 1, "a removed API takes its objects with it");
}

#[test]
fn failure_keeps_forbidden_state() {
    let store: Store<i64> = Store::default();
    store.failed("500".to_owned());
    assert_eq!(store.sync_state(), SyncState::Failed("500".to_owned()));
    store.forbidden("no right".to_owned());
    store.failed("500".to_owned());
    assert_eq!(store.sync_state(), SyncState::Forbidden("no right".to_owned()));
    changes(&store, list(&[("one", 1)]));
    store.failed("500".to_owned());
    store.forbidden("no right".to_owned());
    assert_eq!(store.sync_state(), SyncState::Synced, "listed records stay valid after an error");
}

#[test]
fn list_after_forbidden_is_a_change() {
    let store: Store<i64> = Store::default();
    store.forbidden("no right".to_owned());
    assert_eq!(store.sync_state(), SyncState::Forbidden("no right".to_owned()));
    assert_eq!(changes(&store, list(&[("one", 2)])), [("one".to_owned(), None, Some(2))]);
    store.forbidden("no right any more".to_owned());
    assert_eq!((store.sync_state(), store.get(&NamespacedName::new("a", "one"))), (SyncState::Synced, Some(2)));
}

#[derive(Clone, Debug, PartialEq)]
struct Owned {
    owner: &'static str,
    value: i64,
}

impl Record for Owned {
    fn owner(&self) -> Option<&str> {
        Some(self.owner)
    }
}

#[test]
fn owner_index_follows_changes_and_lists() {
    let store: Store<Owned> = Store::reporting_first_list();
    let name = |name: &str| NamespacedName::new("a", name);
    let of = |owner, value| Owned { owner, value };
    let values = |owner: &str| store.owned_by(&name(owner)).iter().map(|owned| owned.value).collect::<Vec<_>>();
    let listed = store.replace(
        vec![(name("two"), of("x", 2)), (name("one"), of("x", 1)), (name("three"), of("y", 3))],
        &BTreeSet::new(),
    );
    assert_eq!(listed.len(), 3, "the first list is reported");
    assert_eq!((values("x"), values("y"), values("z")), (vec![1, 2], vec![3], vec![]));
    let moved = store.put(name("two"), Some(of("y", 2))).unwrap();
    assert_eq!(moved.owners(), [name("x"), name("y")].into());
    assert_eq!((values("x"), values("y")), (vec![1], vec![3, 2]));
    store.put(name("one"), None);
    assert_eq!(values("x"), [0; 0]);
    assert_eq!(store.put(name("one"), None), None);
    let owners = |store: &Store<Owned>| -> Vec<String> {
        store.lock().namespaces.values().flat_map(|here| here.by_owner.keys()).map(ToString::to_string).collect()
    };
    assert_eq!(owners(&store), ["y"], "an owner without records has no entry");
    store.replace(vec![], &BTreeSet::new());
    assert!(store.is_empty());
}

#[derive(Clone, Debug, PartialEq)]
struct Large {
    revision: Revision,
    bytes: usize,
}

impl Large {
    fn new(uid: &str, version: u64, bytes: usize) -> Self {
        Self { revision: Revision { uid: Some(uid.to_owned()), version: Some(version) }, bytes }
    }
}

impl Record for Large {
    fn revision(&self) -> Option<&Revision> {
        Some(&self.revision)
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn shrink(&mut self) {
        self.bytes = 0;
    }
}

#[test]
fn full_namespace_shrinks_only_its_records() {
    let store: Store<Large> = Store::default();
    let bytes = |namespace: &str, name: &str| store.get(&NamespacedName::new(namespace, name)).unwrap().bytes;
    let put = |namespace: &str, name: &str, bytes: usize| {
        store.put(NamespacedName::new(namespace, name), Some(Large::new(name, 1, bytes)));
    };
    put("a", "first", MAX_NAMESPACE_BYTES - 1);
    put("a", "second", 2);
    put("b", "third", 2);
    assert_eq!((bytes("a", "first"), bytes("a", "second")), (MAX_NAMESPACE_BYTES - 1, 0));
    assert_eq!(bytes("b", "third"), 2);
    store.put(NamespacedName::new("a", "first"), None);
    put("a", "second", 2);
    assert_eq!(bytes("a", "second"), 2, "there is room again");
    assert_eq!(store.lock().bytes, 4);
    // A list is bounded in the same way.
    let name = |name: &str| NamespacedName::new("a", name);
    let large = |name: &str| Large::new(name, 2, MAX_NAMESPACE_BYTES - 1);
    store.replace(vec![(name("first"), large("first")), (name("second"), large("second"))], &BTreeSet::new());
    assert_eq!((bytes("a", "first"), bytes("a", "second")), (MAX_NAMESPACE_BYTES - 1, 0));
}

#[test]
fn full_store_shrinks_records_of_every_namespace() {
    let store: Store<Large> = Store::default();
    let namespaces = MAX_BYTES / MAX_NAMESPACE_BYTES;
    for index in 0..=namespaces {
        let name = NamespacedName::new(format!("team-{index}"), "large");
        store.put(name.clone(), Some(Large::new("u", 1, MAX_NAMESPACE_BYTES)));
        let expected = if index == namespaces { 0 } else { MAX_NAMESPACE_BYTES };
        assert_eq!(store.get(&name).unwrap().bytes, expected, "{index}");
    }
}

/// Objects of this size in the namespace `a`, as events.
fn large(name: &str, version: u64, bytes: usize) -> DynamicObject {
    let metadata = json!({ "namespace": "a", "name": name, "uid": name, "resourceVersion": version.to_string() });
    serde_json::from_value(json!({ "metadata": metadata, "bytes": bytes })).unwrap()
}

fn receive(store: &Store<Large>, event: Event<DynamicObject>) {
    let bytes = |object: &DynamicObject| usize::try_from(object.data["bytes"].as_u64().unwrap()).unwrap();
    store.receive(event, &|object| Some(Large { revision: Revision::of(object), bytes: bytes(object) }));
}

#[test]
fn list_in_progress_is_bounded() {
    let store: Store<Large> = Store::default();
    receive(&store, Event::Init);
    for index in 0..3 {
        receive(&store, Event::InitApply(large(&index.to_string(), 1, MAX_NAMESPACE_BYTES - 1)));
    }
    let bytes: usize = store.lock().incoming.as_ref().unwrap().objects.iter().map(|(_, record)| record.bytes).sum();
    assert_eq!(bytes, MAX_NAMESPACE_BYTES - 1);
}

#[test]
fn list_replaces_newer_versions() {
    let store: Store<Large> = Store::default();
    let name = NamespacedName::new("a", "child");
    receive(&store, Event::Apply(large("child", 9, 1)));
    receive(&store, Event::Init);
    receive(&store, Event::InitApply(large("child", 4, 2)));
    receive(&store, Event::InitDone);
    assert_eq!(store.get(&name).unwrap().bytes, 2, "a restored etcd has lower versions");
}

#[test]
fn revived_object_takes_write_responses_again() {
    let store: Store<Large> = Store::default();
    let name = NamespacedName::new("a", "child");
    receive(&store, Event::Apply(large("child", 1, 1)));
    // Its label is removed and restored: the watch reports a deletion, and then the same object.
    receive(&store, Event::Delete(large("child", 2, 1)));
    receive(&store, Event::Apply(large("child", 3, 1)));
    store.wrote(&name, Large::new("child", 4, 4));
    assert_eq!(store.get(&name).unwrap().bytes, 4);
}

#[test]
fn object_written_during_list_is_not_lost() {
    let store: Store<Large> = Store::default();
    let (old, new) = (NamespacedName::new("a", "old"), NamespacedName::new("a", "new"));
    store.replace(vec![(old.clone(), Large::new("1", 3, 0))], &BTreeSet::new());
    receive(&store, Event::Init);
    store.wrote(&old, Large::new("1", 6, 0));
    store.wrote(&new, Large::new("2", 7, 0));
    // The list was made at version 5.
    let written = store.lock().incoming.take().unwrap().written;
    store.replace(vec![(old.clone(), Large::new("1", 3, 0))], &written);
    assert_eq!(store.get(&old), Some(Large::new("1", 6, 0)), "the newer version stays");
    assert_eq!(store.get(&new), None, "an object missing from the list may have been deleted after the write");
    store.put(new.clone(), Some(Large::new("2", 7, 0)));
    assert_eq!(store.get(&new), Some(Large::new("2", 7, 0)), "an event of the watch adds it again");
}

/// A value with the largest one so far.
#[derive(Clone, Debug, PartialEq)]
struct Peak(i64, i64);

impl Record for Peak {
    fn inherit(&mut self, before: &Self) {
        self.1 = self.1.max(before.1);
    }
}

#[test]
fn record_inherits_across_updates_and_lists() {
    let store: Store<Arc<Peak>> = Store::default();
    let name = NamespacedName::new("a", "one");
    let put = |value| store.put(name.clone(), Some(Arc::new(Peak(value, value))));
    put(4);
    assert_eq!(put(2).and_then(|change| change.after), Some(Arc::new(Peak(2, 4))));
    assert_eq!(put(2), None, "an update without a change is compared after it has inherited");
    store.replace(vec![(name.clone(), Arc::new(Peak(3, 3)))], &BTreeSet::new());
    assert_eq!(store.get(&name), Some(Arc::new(Peak(3, 4))));
    store.put(name.clone(), None);
    put(1);
    assert_eq!(store.get(&name), Some(Arc::new(Peak(1, 1))), "a removed record leaves nothing behind");
}
