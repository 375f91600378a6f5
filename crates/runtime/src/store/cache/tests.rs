use kube::runtime::watcher::Event;
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
    Cache::new(vec![Watched { kind: services(), labels: "", naming: None }])
}

fn names(cache: &Cache, uid: &str, named: &[&str]) -> Vec<String> {
    let found = find(&cache.kinds[0].store, &NamespacedName::new("team-a", uid), named.iter().copied());
    found.iter().map(|child| child.name.to_string()).collect()
}

/// The objects that an event of the watch concerns.
fn receive(cache: &Cache, event: Event<DynamicObject>) -> Vec<Touched> {
    let Children { watched, store } = &cache.kinds[0];
    let text = |object: &DynamicObject| serde_json::to_vec(object).unwrap().into();
    let changes = store.receive(event, &|object| Some(watched.child(object, text(object))));
    changes.iter().flat_map(|change| cache.touched(watched, change)).collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn children_are_found_by_owner_and_by_name() {
    let cache = cache();
    receive(&cache, Event::Apply(service("a", "1", Some("owner"), 1)));
    receive(&cache, Event::Apply(service("b", "2", None, 2)));
    receive(&cache, Event::Apply(service("c", "3", Some("other"), 3)));
    assert_eq!(names(&cache, "owner", &[]), ["a"]);
    assert_eq!(names(&cache, "owner", &["b", "missing"]), ["a", "b"]);
    assert_eq!(names(&cache, "other", &["a"]), ["a", "c"]);
}

#[test]
fn change_concerns_controller() {
    let cache = cache();
    let touched = receive(&cache, Event::Apply(service("a", "1", Some("owner"), 1)));
    let expected =
        Touched { namespace: "team-a".into(), owner_kind: "LlamaStackDistribution".into(), owner: "starter".into() };
    assert_eq!(touched, std::slice::from_ref(&expected));
    assert_eq!(receive(&cache, Event::Delete(service("a", "1", Some("owner"), 2))), [expected]);
    assert_eq!(names(&cache, "owner", &["a"]), [""; 0]);
    assert_eq!(receive(&cache, Event::Apply(service("b", "2", None, 3))), []);
}

#[test]
fn older_version_never_replaces_newer() {
    let cache = cache();
    cache.wrote(&service("a", "1", Some("owner"), 7));
    receive(&cache, Event::Apply(service("a", "1", None, 6)));
    assert_eq!(names(&cache, "owner", &[]), ["a"], "the watch is behind our own write");
    receive(&cache, Event::Apply(service("a", "1", None, 8)));
    assert_eq!(names(&cache, "owner", &[]), [""; 0]);
}

#[test]
fn late_deletion_keeps_successor() {
    let cache = cache();
    cache.wrote(&service("a", "2", Some("owner"), 9));
    receive(&cache, Event::Delete(service("a", "1", Some("owner"), 8)));
    assert_eq!(names(&cache, "owner", &[]), ["a"]);
}

#[test]
fn late_write_response_does_not_revive_object() {
    let cache = cache();
    receive(&cache, Event::Delete(service("a", "1", Some("owner"), 8)));
    cache.wrote(&service("a", "1", Some("owner"), 7));
    assert_eq!(names(&cache, "owner", &["a"]), [""; 0]);
    cache.wrote(&service("a", "2", Some("owner"), 9));
    assert_eq!(names(&cache, "owner", &[]), ["a"], "its successor is another object");
    // A list that no longer has it says the same as a deletion.
    receive(&cache, Event::Init);
    receive(&cache, Event::InitDone);
    cache.wrote(&service("a", "2", Some("owner"), 9));
    assert_eq!(names(&cache, "owner", &["a"]), [""; 0]);
}

#[test]
fn lost_child_concerns_previous_controller() {
    let cache = cache();
    receive(&cache, Event::Apply(service("a", "1", Some("owner"), 1)));
    let touched = receive(&cache, Event::Apply(service("a", "1", None, 2)));
    assert_eq!(touched.iter().map(|touched| touched.owner.as_str()).collect::<Vec<_>>(), ["starter"]);
}

#[tokio::test]
async fn incomplete_list_changes_nothing() {
    let cache = cache();
    receive(&cache, Event::Apply(service("gone", "1", Some("owner"), 1)));
    receive(&cache, Event::Init);
    receive(&cache, Event::InitApply(service("a", "2", Some("owner"), 5)));
    assert_eq!(names(&cache, "owner", &[]), ["gone"]);
    assert!(tokio::time::timeout(std::time::Duration::from_millis(1), cache.synced()).await.is_err());
    assert_eq!(receive(&cache, Event::InitDone).len(), 1, "one object is concerned, by both");
    assert_eq!(names(&cache, "owner", &[]), ["a"]);
    cache.synced().await;
}

#[test]
fn uncontrolled_child_concerns_named_object() {
    let naming = Naming { label: "of", kind: "DynamoGraphDeploymentRequest" };
    let cache = Cache::new(vec![Watched { kind: services(), labels: "", naming: Some(naming) }]);
    let mut child = service("a", "1", None, 1);
    child.labels_mut().insert("of".to_owned(), "qwen".to_owned());
    let concerned = |touched: Vec<Touched>| touched.into_iter().map(|of| (of.owner_kind, of.owner)).collect::<Vec<_>>();
    let named = [("DynamoGraphDeploymentRequest".to_owned(), "qwen".to_owned())];
    assert_eq!(concerned(receive(&cache, Event::Apply(child.clone()))), named);
    assert_eq!(concerned(receive(&cache, Event::Delete(child))), named);
}

#[test]
fn lost_shared_object_concerns_whole_namespace() {
    let cache = cache();
    let of = |owner: &str, uid: &str, namespace: &str| {
        let mut child = service(owner, uid, Some(owner), 2);
        child.owner_references_mut()[0].name = owner.to_owned();
        child.metadata.namespace = Some(namespace.to_owned());
        child
    };
    let owned = [of("first", "2", "team-a"), of("second", "3", "team-a"), of("third", "4", "team-b")];
    for child in owned.clone() {
        receive(&cache, Event::Apply(child));
    }
    let concerned = |touched: Vec<Touched>| touched.into_iter().map(|of| of.owner).collect::<Vec<_>>();
    let shared = service("shared", "1", None, 1);
    assert!(concerned(receive(&cache, Event::Apply(shared.clone()))).is_empty());
    assert_eq!(concerned(receive(&cache, Event::Delete(shared))), ["first", "second"]);
    // After a broken watch, the deletion shows only as an absence from the new list, which may contain a new owner.
    receive(&cache, Event::Apply(service("shared", "5", None, 5)));
    receive(&cache, Event::Init);
    receive(&cache, Event::InitApply(of("fourth", "6", "team-a")));
    assert_eq!(concerned(receive(&cache, Event::InitDone)), ["first", "fourth", "second", "third"]);
}

#[test]
fn text_without_reader_is_not_kept() {
    let naming = Some(Naming { label: "example.com/name", kind: "Request" });
    let kind = GroupVersionKind::gvk("", "v1", "ConfigMap");
    let cache = Cache::new(vec![Watched { kind: kind.clone(), labels: "", naming }]);
    let config_map = |name: &str, label: Option<&str>, bytes: usize| -> DynamicObject {
        let labels = label.map(|label| json!({ "example.com/name": label }));
        serde_json::from_value(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name,
            "namespace": "team-a", "uid": name, "resourceVersion": "1", "labels": labels },
            "data": { "text": "x".repeat(bytes) } }))
        .unwrap()
    };
    for (name, label, bytes, is_kept) in [
        ("named", Some("qwen"), 10, true),
        ("unnamed", None, 10, false),
        ("large", Some("qwen"), MAX_TEXT_BYTES, false),
    ] {
        receive(&cache, Event::Apply(config_map(name, label, bytes)));
        let found = cache.kinds[0].store.get(&NamespacedName::new("team-a", name)).unwrap();
        assert_eq!(found.text.is_some(), is_kept, "{name}");
        assert!(cache.has(&kind, "team-a", name), "{name}");
    }
}
