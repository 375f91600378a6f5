//! Manifests in both versions. A file holds an object and its converted form; files in `pairs` convert in both directions.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use steersman_api::dynamo::v1alpha1::DynamoGraphDeploymentRequestSpec as Earlier;
use steersman_api::dynamo::v1beta1::DynamoGraphDeploymentRequestSpec as Stored;

use super::laws::normalize;
use super::{convert_losslessly, round_trip};
use crate::manifests::{self, Manifest, manifests, round_trip_as};
use crate::upstream;

fn fixtures(folder: &str) -> Vec<Manifest> {
    manifests::fixtures(&format!("dynamo/{folder}"))
}

fn fixture_pair(manifest: &Manifest) -> [&Value; 2] {
    let [from, to] = &manifest.objects[..] else { panic!("{} must hold two objects", manifest.name) };
    assert_ne!(from["apiVersion"], to["apiVersion"], "{}", manifest.name);
    [from, to]
}

#[test]
fn fixture_pairs_convert_both_ways() {
    for manifest in fixtures("convert/pairs") {
        let [from, to] = fixture_pair(&manifest);
        assert_eq!(convert_losslessly(from), *to, "{}", manifest.name);
        assert_eq!(convert_losslessly(to), *from, "{} back", manifest.name);
    }
}

#[test]
fn objects_of_other_operators_are_read() {
    for manifest in fixtures("convert/stored-by-others") {
        let [from, to] = fixture_pair(&manifest);
        assert_eq!(convert_losslessly(from), *to, "{}", manifest.name);
        // The object reads the same with our own annotations.
        assert_eq!(round_trip(to), *to, "{}", manifest.name);
    }
}

#[test]
fn valid_manifests_round_trip() {
    for manifest in ["valid", "valid-status"].into_iter().flat_map(fixtures) {
        let object = manifest.object();
        assert_eq!(round_trip(object), normalize(object), "{}", manifest.name);
    }
}

#[test]
fn published_examples_round_trip() {
    let Some(folder) = upstream::files() else { return };
    let is_example = |name: &str| name.starts_with("example-") || name.starts_with("sample-dgdr-");
    for manifest in manifests(&folder.join("dynamo"), is_example) {
        for object in manifest.objects.iter().filter(|object| object["kind"] == super::KIND) {
            assert_eq!(round_trip(object), normalize(object), "{}", manifest.name);
        }
    }
}

/// Users copy the examples, so each must also deserialize without unknown fields.
#[test]
fn examples_round_trip_without_unknown_fields() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dynamo");
    let mut versions = BTreeSet::new();
    for manifest in manifests(&folder, |name| name.ends_with(".yaml")) {
        for object in manifest.objects.iter().filter(|object| object["kind"] == super::KIND) {
            assert_eq!(round_trip(object), normalize(object), "{}", manifest.name);
            let alpha = object["apiVersion"] == super::ALPHA;
            let typed = if alpha {
                round_trip_as::<Earlier>(&object["spec"])
            } else {
                round_trip_as::<Stored>(&object["spec"])
            };
            assert_eq!(typed.unwrap(), object["spec"], "{}", manifest.name);
            versions.insert(alpha);
        }
    }
    assert_eq!(versions.len(), 2, "both versions have an example");
}
