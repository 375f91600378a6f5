//! Properties of the conversion that hold for every object.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde_json::{Map, Value};
use steersman_api::convert::convert;

use super::generate::{COMMON_FIELDS, Generator, bytes};
use super::{
    V1ALPHA1, V1ALPHA1_FIELDS, V1ALPHA2, V1ALPHA2_FIELDS, convert_to_other, is_conversion_annotation, other_version,
};

/// The object without the annotations of the conversion, to compare its fields. An empty map of annotations, null and an
/// absent map are equivalent.
fn without_conversion_annotations(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata")
        && let Some(annotations) = metadata.get_mut("annotations")
    {
        if let Value::Object(annotations) = annotations {
            annotations.retain(|name, _| {
                !is_conversion_annotation(name, V1ALPHA2_FIELDS) && !is_conversion_annotation(name, V1ALPHA1_FIELDS)
            });
        }
        if annotations.is_null() || annotations.as_object().is_some_and(Map::is_empty) {
            metadata.remove("annotations");
        }
    }
    object
}

/// The object without the fields that a conversion reported as lost.
fn without_lost(object: &Value, lost: &[String]) -> Value {
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

/// Whether `whole` contains all values of `part`. Empty sections are ignored.
fn contains(whole: &Value, part: &Value) -> bool {
    match part {
        Value::Object(fields) if fields.is_empty() => true,
        Value::Object(fields) => {
            fields.iter().all(|(name, part)| contains(whole.get(name).unwrap_or(&Value::Null), part))
        }
        part => whole == part,
    }
}

fn can_hold_annotations(object: &Value) -> bool {
    object.get("metadata").is_some_and(|metadata| {
        metadata.is_object() && matches!(metadata["annotations"], Value::Null | Value::Object(_))
    })
}

fn check_laws(version: &str, bytes: &[u8]) -> TestCaseResult {
    let original = Generator(bytes).object(version);

    let same = convert(original.clone(), version).unwrap();
    prop_assert_eq!((&same.object, same.lost.len()), (&original, 0));

    let out = convert_to_other(&original);
    prop_assert_eq!(&out.object["apiVersion"], other_version(version));
    let back = convert_to_other(&out.object);
    prop_assert_eq!(&back.lost, &[] as &[String]);
    if out.lost.is_empty() {
        prop_assert_eq!(&back.object, &original, "converted: {}", out.object);
    } else {
        // Fields are only lost if the object cannot hold annotations. Exactly the reported fields are missing, and no
        // further conversion loses more.
        prop_assert!(!can_hold_annotations(&original), "{:?}", out.lost);
        prop_assert_eq!(out.object.get("metadata"), original.get("metadata"));
        let rest = without_lost(&original, &out.lost);
        prop_assert!(contains(&back.object, &rest), "{} without {}", back.object, rest);
        let again = convert_to_other(&back.object);
        prop_assert_eq!((&again.object, again.lost.len()), (&out.object, 0));
    }

    // No field appears without a source in the original.
    let field_at = |object: &Value, old: &str, new: &str| {
        let path = if object["apiVersion"] == V1ALPHA1 { old } else { new };
        object.get("spec").and_then(|spec| spec.pointer(path)).cloned()
    };
    for (old, new) in COMMON_FIELDS {
        if field_at(&out.object, old, new).is_some() {
            prop_assert!(field_at(&original, old, new).is_some(), "{} or {} appeared in {}", old, new, out.object);
        }
    }
    for part in ["metadata", "spec", "status"] {
        prop_assert_eq!(out.object.get(part).is_some(), original.get(part).is_some());
    }
    Ok(())
}

fn check_client_reads_own_write(version: &str, bytes: &[u8]) -> TestCaseResult {
    let mut generator = Generator(bytes);
    let stored = generator.object(version);
    let mut read = convert_to_other(&stored).object;
    if let Some(spec) = read.get_mut("spec") {
        generator.change(other_version(version), spec);
    }
    if !can_hold_annotations(&read) {
        return Ok(());
    }
    let written = convert_to_other(&read);
    let again = convert_to_other(&written.object);
    prop_assert_eq!(
        without_conversion_annotations(&again.object),
        without_conversion_annotations(&read),
        "stored as {}",
        written.object
    );
    prop_assert_eq!(&again.lost, &[] as &[String]);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn conversion_laws_hold_for_v1alpha1(bytes in bytes()) {
        check_laws(V1ALPHA1, &bytes)?;
    }

    #[test]
    fn conversion_laws_hold_for_v1alpha2(bytes in bytes()) {
        check_laws(V1ALPHA2, &bytes)?;
    }

    #[test]
    fn arbitrary_json_never_panics(bytes in bytes()) {
        let mut generator = Generator(&bytes);
        let version = if generator.byte() > 127 { V1ALPHA2 } else { V1ALPHA1 };
        let mut original = generator.arbitrary_tree(0);
        let _ = convert(original.clone(), version);
        if let Value::Object(fields) = &mut original {
            fields.insert("apiVersion".into(), version.into());
            fields.insert("kind".into(), "LlamaStackDistribution".into());
            let out = convert_to_other(&original);
            // A client reads the fields that it wrote, whatever the annotations contain.
            let again = convert_to_other(&convert_to_other(&out.object).object);
            prop_assert_eq!(without_conversion_annotations(&again.object), without_conversion_annotations(&out.object));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn v1alpha1_client_reads_what_it_wrote(bytes in bytes()) {
        check_client_reads_own_write(V1ALPHA2, &bytes)?;
    }

    #[test]
    fn v1alpha2_client_reads_what_it_wrote(bytes in bytes()) {
        check_client_reads_own_write(V1ALPHA1, &bytes)?;
    }
}
