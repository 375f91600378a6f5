//! Whole manifests: those of the project, those that the API server is shown, and those that upstream publishes.

use serde_json::Value;
use steersman_api::llamastack::{v1alpha1, v1alpha2};

use super::{NEW, OLD, turned, whole};
use crate::manifests::{Manifest, fixtures, manifests, through};
use crate::upstream;

fn readable(object: &Value) -> Result<Value, serde_json::Error> {
    match object["apiVersion"].as_str() {
        Some(OLD) => through::<v1alpha1::LlamaStackDistribution>(object),
        Some(NEW) => through::<v1alpha2::LlamaStackDistribution>(object),
        other => panic!("unknown version {other:?}"),
    }
}

/// Each file holds an object, and the same object in the other version.
#[test]
fn the_examples_convert_as_written_both_ways() {
    for Manifest { name, objects, .. } in fixtures("llamastack/convert") {
        let [given, expected] = &objects[..] else { panic!("{name}: two objects a file") };
        assert_eq!(&whole(given), expected, "{name}");
        assert_eq!(&whole(expected), given, "{name}");
        for object in [given, expected] {
            assert_eq!(&readable(object).unwrap_or_else(|error| panic!("{name}: {error}")), object, "{name}");
        }
    }
}

#[test]
fn every_valid_manifest_is_readable_in_the_other_version_and_comes_back() {
    for folder in ["llamastack/valid", "llamastack/valid-status"] {
        for manifest in fixtures(folder) {
            let (name, object) = (&manifest.name, manifest.object());
            let out = whole(object);
            assert_eq!(readable(&out).unwrap_or_else(|error| panic!("{name}: {error}")), out, "{name}");
            assert_eq!(&whole(&out), object, "{name}");
        }
    }
}

#[test]
fn an_invalid_manifest_is_not_the_conversions_to_judge() {
    for folder in ["llamastack/invalid", "llamastack/invalid-status"] {
        for manifest in fixtures(folder) {
            let out = turned(manifest.object());
            assert_eq!(out.lost, [] as [&str; 0], "{}", manifest.name);
            assert_eq!(&whole(&out.object), manifest.object(), "{}", manifest.name);
        }
    }
}

#[test]
fn the_published_samples_convert_and_come_back() {
    let Some(folder) = upstream::files() else { return };
    let mut compared = 0;
    for Manifest { name, objects, .. } in manifests(&folder.join("llamastack"), |name| name.starts_with("sample-")) {
        for object in objects.iter().filter(|object| object["kind"] == "LlamaStackDistribution") {
            let out = whole(object);
            assert_eq!(out["spec"]["distribution"], object["spec"]["server"]["distribution"], "{name}");
            assert_eq!(readable(&out).unwrap_or_else(|error| panic!("{name}: {error}")), out, "{name}");
            assert_eq!(&whole(&out), object, "{name}");
            compared += 1;
        }
    }
    assert!(compared >= 6, "only {compared} samples found");
}
