use serde_json::json;

use super::*;

impl Record for i64 {}

fn object(name: &str, value: i64) -> DynamicObject {
    serde_json::from_value(json!({ "metadata": { "namespace": "a", "name": name }, "value": value })).unwrap()
}

/// Of even values only.
fn record(object: &DynamicObject) -> Option<i64> {
    object.data["value"].as_i64().filter(|value| value % 2 == 0)
}

fn changes(mirror: &Mirror<i64>, events: Vec<Event<DynamicObject>>) -> Vec<(String, Option<i64>, Option<i64>)> {
    let mut incoming = Vec::new();
    let changes = events.into_iter().flat_map(|event| mirror.take_in(event, &mut incoming, &record));
    changes.map(|change| (change.place.name, change.before, change.after)).collect()
}

fn list(objects: &[(&str, i64)]) -> Vec<Event<DynamicObject>> {
    let applied = objects.iter().map(|(name, value)| Event::InitApply(object(name, *value)));
    [Event::Init].into_iter().chain(applied).chain([Event::InitDone]).collect()
}

#[test]
fn the_first_list_is_no_change_and_a_later_one_only_where_it_differs() {
    let mirror = Mirror::default();
    assert_eq!(mirror.heard(), Heard::Nothing);
    assert_eq!(changes(&mirror, list(&[("one", 2), ("odd", 3), ("two", 4)])), []);
    assert_eq!(mirror.heard(), Heard::Listed);
    let expected = [("one".to_owned(), Some(2), None), ("two".to_owned(), Some(4), Some(6))];
    let expected = expected.into_iter().chain([("new".to_owned(), None, Some(8))]).collect::<Vec<_>>();
    assert_eq!(changes(&mirror, list(&[("two", 6), ("new", 8)])), expected);
    assert_eq!(changes(&mirror, list(&[("two", 6), ("new", 8)])), []);
}

#[test]
fn a_change_that_no_record_holds_is_none() {
    let mirror = Mirror::default();
    changes(&mirror, list(&[("one", 2)]));
    assert_eq!(changes(&mirror, vec![Event::Apply(object("one", 2))]), []);
    assert_eq!(changes(&mirror, vec![Event::Apply(object("odd", 1))]), []);
    assert_eq!(changes(&mirror, vec![Event::Apply(object("one", 3))]), [("one".to_owned(), Some(2), None)]);
    assert_eq!(changes(&mirror, vec![Event::Delete(object("one", 3))]), [], "it was gone before");
}

#[test]
fn a_name_that_a_record_holds_is_not_held_twice() {
    #[derive(Clone, PartialEq)]
    struct Named(Arc<str>, i64);
    impl Record for Named {
        fn name(&self) -> Option<Arc<str>> {
            Some(self.0.clone())
        }
    }
    let (mirror, place) = (Mirror::default(), NamespacedName::new("a", "one"));
    for value in [2, 4] {
        let name: Arc<str> = "one".into();
        mirror.put(place.clone(), Some(Named(name.clone(), value)));
        assert_eq!(Arc::strong_count(&name), 3, "here, in the record and as its key");
    }
}

#[test]
fn a_namespace_is_looked_at_without_its_neighbours() {
    let mirror: Mirror<i64> = Mirror::default();
    let place = |namespace: &str, name: &str| NamespacedName::new(namespace, name);
    mirror.replace(vec![(place("a", "z"), 2), (place("b", "a"), 4), (place("b", "z"), 6), (place("ba", "a"), 8)]);
    for (namespace, value, expected) in
        [("b", 4, true), ("b", 6, true), ("b", 2, false), ("b", 8, false), ("c", 8, false)]
    {
        assert_eq!(mirror.any(namespace, |known| *known == value), expected, "{namespace} {value}");
    }
}

#[test]
fn of_an_api_that_comes_later_nothing_is_known_before_it_is_listed() {
    let mirror: Mirror<i64> = Mirror::default();
    mirror.unlist();
    assert_eq!(mirror.heard(), Heard::Nothing, "nobody has answered");
    assert_eq!(mirror.empty(), []);
    mirror.unlist();
    assert_eq!(mirror.heard(), Heard::Unlisted);
    mirror.refused("no right".to_owned());
    assert_eq!(mirror.heard(), Heard::Refused("no right".to_owned()), "that there were none says nothing now");
    assert_eq!(changes(&mirror, list(&[("one", 2)])), [("one".to_owned(), None, Some(2))]);
    assert_eq!(mirror.heard(), Heard::Listed);
}

#[test]
fn a_list_that_fails_does_not_hide_that_there_is_no_right_to_it() {
    let mirror: Mirror<i64> = Mirror::default();
    mirror.failed("500".to_owned());
    assert_eq!(mirror.heard(), Heard::Failed("500".to_owned()));
    mirror.refused("no right".to_owned());
    mirror.failed("500".to_owned());
    assert_eq!(mirror.heard(), Heard::Refused("no right".to_owned()));
    changes(&mirror, list(&[("one", 1)]));
    mirror.failed("500".to_owned());
    mirror.refused("no right".to_owned());
    assert_eq!(mirror.heard(), Heard::Listed, "what was listed is the best that is known");
}

#[test]
fn what_may_be_seen_only_later_is_news_then() {
    let mirror: Mirror<i64> = Mirror::default();
    mirror.refused("no right".to_owned());
    assert_eq!(mirror.heard(), Heard::Refused("no right".to_owned()));
    assert_eq!(changes(&mirror, list(&[("one", 2)])), [("one".to_owned(), None, Some(2))]);
    mirror.refused("no right any more".to_owned());
    assert_eq!((mirror.heard(), mirror.get(&NamespacedName::new("a", "one"))), (Heard::Listed, Some(2)));
}
