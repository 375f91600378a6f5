//! The laws of conversion, over objects made of chance.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde_json::{Map, Value};
use steersman_api::convert::convert;

use super::made::{Chance, PAIRS, bytes};
use super::{NEW, NEW_FIELDS, OLD, OLD_FIELDS, is_ours, other, turned};

/// The object without the conversion's own annotations, to compare what is said in fields. No annotations, none at all and
/// null are one.
fn said(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata")
        && let Some(annotations) = metadata.get_mut("annotations")
    {
        if let Value::Object(annotations) = annotations {
            annotations.retain(|name, _| !is_ours(name, NEW_FIELDS) && !is_ours(name, OLD_FIELDS));
        }
        if annotations.is_null() || annotations.as_object().is_some_and(Map::is_empty) {
            metadata.remove("annotations");
        }
    }
    object
}

/// The object without the fields that a conversion names as lost.
fn without(object: &Value, lost: &[String]) -> Value {
    fn remove(fields: &mut Map<String, Value>, path: &[&str]) {
        if let [name] = path {
            fields.remove(*name);
        } else if let Some(Value::Object(below)) = fields.get_mut(path[0]) {
            remove(below, &path[1..]);
        }
    }
    let mut object = object.clone();
    for line in lost {
        let path: Vec<_> = line.split(':').next().unwrap().split('.').collect();
        remove(object.as_object_mut().unwrap(), &path);
    }
    object
}

/// Whether all that `part` says is in `whole`. A section without content says nothing.
fn contains(whole: &Value, part: &Value) -> bool {
    match part {
        Value::Object(fields) if fields.is_empty() => true,
        Value::Object(fields) => {
            fields.iter().all(|(name, part)| contains(whole.get(name).unwrap_or(&Value::Null), part))
        }
        part => whole == part,
    }
}

fn can_keep(object: &Value) -> bool {
    object.get("metadata").is_some_and(|metadata| {
        metadata.is_object() && matches!(metadata["annotations"], Value::Null | Value::Object(_))
    })
}

fn holds_for(version: &str, bytes: &[u8]) -> TestCaseResult {
    let given = Chance(bytes).object(version);

    let same = convert(given.clone(), version).unwrap();
    prop_assert_eq!((&same.object, same.lost.len()), (&given, 0));

    let out = turned(&given);
    prop_assert_eq!(&out.object["apiVersion"], other(version));
    let back = turned(&out.object);
    prop_assert_eq!(&back.lost, &[] as &[String]);
    if out.lost.is_empty() {
        prop_assert_eq!(&back.object, &given, "there: {}", out.object);
    } else {
        // Only where there is nothing to keep it in. Then what is told, and nothing else, is missing, and it stays at that.
        prop_assert!(!can_keep(&given), "{:?}", out.lost);
        prop_assert_eq!(out.object.get("metadata"), given.get("metadata"));
        let rest = without(&given, &out.lost);
        prop_assert!(contains(&back.object, &rest), "{} without {}", back.object, rest);
        let again = turned(&back.object);
        prop_assert_eq!((&again.object, again.lost.len()), (&out.object, 0));
    }

    // Nothing appears that has no source: each field that the other version has now stood here before.
    let now = |object: &Value, old: &str, new: &str| {
        let path = if object["apiVersion"] == OLD { old } else { new };
        object.get("spec").and_then(|spec| spec.pointer(path)).cloned()
    };
    for (old, new) in PAIRS {
        if now(&out.object, old, new).is_some() {
            prop_assert!(now(&given, old, new).is_some(), "{} or {} appeared in {}", old, new, out.object);
        }
    }
    for part in ["metadata", "spec", "status"] {
        prop_assert_eq!(out.object.get(part).is_some(), given.get(part).is_some());
    }
    Ok(())
}

fn a_change_wins(version: &str, bytes: &[u8]) -> TestCaseResult {
    let mut chance = Chance(bytes);
    let stored = chance.object(version);
    let mut read = turned(&stored).object;
    if let Some(spec) = read.get_mut("spec") {
        chance.change(other(version), spec);
    }
    if !can_keep(&read) {
        return Ok(());
    }
    let written = turned(&read);
    let again = turned(&written.object);
    prop_assert_eq!(said(&again.object), said(&read), "stored as {}", written.object);
    prop_assert_eq!(&again.lost, &[] as &[String]);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn the_laws_hold_for_every_object_of_the_older_version(bytes in bytes()) {
        holds_for(OLD, &bytes)?;
    }

    #[test]
    fn the_laws_hold_for_every_object_of_the_newer_version(bytes in bytes()) {
        holds_for(NEW, &bytes)?;
    }

    #[test]
    fn nothing_at_all_makes_it_panic(bytes in bytes()) {
        let mut chance = Chance(&bytes);
        let version = if chance.byte() > 127 { NEW } else { OLD };
        let mut given = chance.anything(0);
        let _ = convert(given.clone(), version);
        if let Value::Object(fields) = &mut given {
            fields.insert("apiVersion".into(), version.into());
            fields.insert("kind".into(), "LlamaStackDistribution".into());
            let out = turned(&given);
            // Whatever annotations say: the fields of the one who writes are what that one reads.
            let again = turned(&turned(&out.object).object);
            prop_assert_eq!(said(&again.object), said(&out.object));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn what_a_client_of_the_older_version_writes_is_what_it_reads(bytes in bytes()) {
        a_change_wins(NEW, &bytes)?;
    }

    #[test]
    fn what_a_client_of_the_newer_version_writes_is_what_it_reads(bytes in bytes()) {
        a_change_wins(OLD, &bytes)?;
    }
}
