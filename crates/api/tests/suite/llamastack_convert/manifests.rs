//! Conversion of manifests: our fixtures and the samples that upstream publishes.

use serde_json::Value;
use steersman_api::llamastack::{v1alpha1, v1alpha2};

use super::{V1ALPHA1, V1ALPHA2, convert_losslessly, convert_to_other};
use crate::manifests::{Manifest, fixtures, manifests, round_trip_as};
use crate::upstream;

fn round_trip_typed(object: &Value) -> Result<Value, serde_json::Error> {
    match object["apiVersion"].as_str() {
        Some(V1ALPHA1) => round_trip_as::<v1alpha1::LlamaStackDistribution>(object),
        Some(V1ALPHA2) => round_trip_as::<v1alpha2::LlamaStackDistribution>(object),
        other => panic!("unknown version {other:?}"),
    }
}

/// Each file holds an object and the same object in the other version.
#[test]
fn fixture_pairs_convert_both_ways() {
    for Manifest { name, objects, .. } in fixtures("llamastack/convert") {
        let [original, expected] = &objects[..] else { panic!("{name} must hold two objects") };
        assert_eq!(&convert_losslessly(original), expected, "{name}");
        assert_eq!(&convert_losslessly(expected), original, "{name}");
        for object in [original, expected] {
            assert_eq!(&round_trip_typed(object).unwrap_or_else(|error| panic!("{name}: {error}")), object, "{name}");
        }
    }
}

#[test]
fn valid_manifests_round_trip_and_deserialize() {
    for folder in ["llamastack/valid", "llamastack/valid-status"] {
        for manifest in fixtures(folder) {
            let (name, object) = (&manifest.name, manifest.object());
            let out = convert_losslessly(object);
            assert_eq!(round_trip_typed(&out).unwrap_or_else(|error| panic!("{name}: {error}")), out, "{name}");
            assert_eq!(&convert_losslessly(&out), object, "{name}");
        }
    }
}

#[test]
fn invalid_manifests_round_trip() {
    for folder in ["llamastack/invalid", "llamastack/invalid-status"] {
        for manifest in fixtures(folder) {
            let out = convert_to_other(manifest.object());
            assert_eq!(out.lost, [] as [&str; 0], "{}", manifest.name);
            assert_eq!(&convert_losslessly(&out.object), manifest.object(), "{}", manifest.name);
        }
    }
}

#[test]
fn published_samples_round_trip() {
    let Some(folder) = upstream::files() else { return };
    let mut compared = 0;
    for Manifest { name, objects, .. } in manifests(&folder.join("llamastack"), |name| name.starts_with("sample-")) {
        for object in objects.iter().filter(|object| object["kind"] == "LlamaStackDistribution") {
            let out = convert_losslessly(object);
            assert_eq!(out["spec"]["distribution"], object["spec"]["server"]["distribution"], "{name}");
            assert_eq!(round_trip_typed(&out).unwrap_or_else(|error| panic!("{name}: {error}")), out, "{name}");
            assert_eq!(&convert_losslessly(&out), object, "{name}");
            compared += 1;
        }
    }
    assert!(compared >= 6, "only {compared} samples found");
}
