use std::collections::BTreeMap;

use kube::runtime::watcher::Event;

use super::*;

const BUNDLE: &str = "bundle";

fn name(name: &str) -> NamespacedName {
    NamespacedName::new("team-a", name)
}

fn content(version: u64) -> Option<Arc<Content>> {
    Some(Arc::new(Content {
        version: version.to_string(),
        changed: None,
        labels: BTreeMap::new(),
        data: BTreeMap::new(),
    }))
}

fn stub(name: &str, version: u64) -> Stub {
    let metadata = serde_json::json!({ "namespace": "team-a", "name": name, "resourceVersion": version.to_string() });
    serde_json::from_value(serde_json::json!({ "metadata": metadata })).unwrap()
}

/// The names of the objects that an event concerns.
fn receive(store: &ReferenceStore, event: Event<Stub>) -> Vec<String> {
    let changes = store.versions.receive(event, &|stub| store.version(stub));
    names(changes.iter().flat_map(|change| store.changed(change)).collect())
}

fn names(objects: BTreeSet<NamespacedName>) -> Vec<String> {
    objects.into_iter().map(|object| object.name).collect()
}

fn list(store: &ReferenceStore, stubs: &[(&str, u64)]) -> Vec<String> {
    receive(store, Event::Init);
    stubs.iter().for_each(|(name, version)| drop(receive(store, Event::InitApply(stub(name, *version)))));
    receive(store, Event::InitDone)
}

/// `object` refers to `key`, and nothing is watched or read.
fn unwatched() -> ReferenceStore {
    let store = ReferenceStore::new(ReferenceKind::Secret, &[BUNDLE]);
    store.refer(&name("object"), [name("key"), name(BUNDLE)].into());
    store
}

/// The same with a watch that brought an empty list.
fn followed() -> ReferenceStore {
    let store = unwatched();
    store.scope.set(Scope::Cluster).unwrap();
    list(&store, &[]);
    store
}

/// Stores a read of `key`.
fn read(store: &ReferenceStore, version: Option<u64>) -> bool {
    let changes = store.expect(&name("key"));
    store.keep(&name("key"), changes, version.and_then(content))
}

#[test]
fn content_is_current_until_next_change() {
    for version in [Some(5), None] {
        let store = followed();
        assert!(store.content(&name("key")).is_none(), "it has to be read first");
        assert!(read(&store, version));
        assert_eq!(store.content(&name("key")).unwrap().is_some(), version.is_some());
        assert_eq!(receive(&store, Event::Apply(stub("key", 6))), ["object"]);
        assert!(store.content(&name("key")).is_none());
    }
    let store = followed();
    read(&store, Some(5));
    assert_eq!(receive(&store, Event::Delete(stub("key", 6))), ["object"], "even if the watch had passed over it");
    assert!(store.content(&name("key")).is_none());
}

#[test]
fn lagging_watch_event_triggers_nothing() {
    let store = followed();
    read(&store, Some(7));
    assert_eq!(receive(&store, Event::Apply(stub("key", 6))), [""; 0]);
    assert_eq!(receive(&store, Event::Apply(stub("key", 7))), [""; 0]);
    assert_eq!(receive(&store, Event::Apply(stub("key", 8))), ["object"]);
}

#[test]
fn change_during_read_is_not_lost() {
    type Happens = fn(&ReferenceStore) -> Vec<String>;
    let changes: [(&str, Happens); 3] = [
        ("changed", |store| receive(store, Event::Apply(stub("key", 6)))),
        ("deleted", |store| receive(store, Event::Delete(stub("key", 6)))),
        ("listed", |store| list(store, &[("key", 6)])),
    ];
    for (case, happens) in changes {
        let store = followed();
        let before = store.expect(&name("key"));
        assert_eq!(happens(&store), ["object"], "{case}");
        assert!(!store.keep(&name("key"), before, content(5)), "{case}");
        assert!(store.content(&name("key")).is_none(), "{case}");
    }
}

#[test]
fn list_triggers_only_changed_references() {
    for (listed, concerned) in [(Some(5), 0), (Some(6), 1), (None, 1)] {
        let store = followed();
        read(&store, Some(5));
        let key = listed.map(|version| ("key", version));
        let stubs: Vec<_> = key.into_iter().chain([("other", 9)]).collect();
        assert_eq!(list(&store, &stubs).len(), concerned, "{listed:?}");
    }
}

#[test]
fn change_triggers_only_referring_objects() {
    let store = followed();
    store.refer(&name("second"), [name("key")].into());
    assert_eq!(receive(&store, Event::Apply(stub("other", 1))), [""; 0]);
    assert_eq!(receive(&store, Event::Apply(stub("key", 1))), ["object", "second"]);
    store.refer(&name("object"), [name("other")].into());
    assert_eq!(receive(&store, Event::Apply(stub("key", 2))), ["second"]);
    assert_eq!(receive(&store, Event::Apply(stub("other", 2))), ["object"]);
    store.refer(&name("second"), BTreeSet::new());
    assert_eq!(receive(&store, Event::Apply(stub("key", 3))), [""; 0]);
    assert_eq!(store.versions.len(), 1, "only what objects refer to is stored");
    assert_eq!(store.objects(), [name("object")]);
}

#[test]
fn implied_name_is_absent_until_watched() {
    let store = followed();
    assert!(store.content(&name(BUNDLE)).unwrap().is_none(), "no read is needed");
    assert_eq!(receive(&store, Event::Apply(stub(BUNDLE, 3))), ["object"]);
    assert!(store.content(&name(BUNDLE)).is_none(), "it has to be read");
    assert_eq!(receive(&store, Event::Delete(stub(BUNDLE, 4))), ["object"]);
    assert!(store.content(&name(BUNDLE)).unwrap().is_none());
}

#[test]
fn content_needs_working_watch() {
    let store = unwatched();
    assert!(read(&store, Some(5)));
    assert!(store.content(&name("key")).is_none() && store.content(&name(BUNDLE)).is_none());
    store.scope.set(Scope::Cluster).unwrap();
    assert_eq!(list(&store, &[("key", 5)]), [""; 0], "the list has the version that was read");
    assert!(store.content(&name("key")).is_some());

    store.versions.failed("500".to_owned());
    assert!(store.content(&name("key")).is_some(), "a break loses nothing");
    store.versions.forbidden("no right".to_owned());
    assert!(store.content(&name("key")).is_none());
    assert_eq!(names(store.lock().all_changed()), ["object"]);
    list(&store, &[("key", 5)]);
    assert!(store.follows(&name("key")), "changes are reported again once the right is back");
}

#[tokio::test]
async fn each_lost_permission_is_reported() {
    let store = followed();
    store.versions.forbidden("no right".to_owned());
    assert_eq!(store.versions.unfollowed(0).await, 1);
    store.versions.forbidden("still none".to_owned());
    list(&store, &[]);
    store.versions.forbidden("no right".to_owned());
    assert_eq!(store.versions.unfollowed(1).await, 2);
}

#[test]
fn unwatched_namespace_is_not_followed() {
    let store = unwatched();
    let elsewhere = NamespacedName::new("elsewhere", "key");
    store.refer(&name("object"), [name("key"), elsewhere.clone()].into());
    store.scope.set(Scope::Namespace("team-a".to_owned())).unwrap();
    list(&store, &[]);
    assert!(store.follows(&name("key")) && !store.follows(&elsewhere));
}
