//! Manifests in both versions, as a user would see them. A file holds one object and what it becomes; those in `pairs`
//! go both ways.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use steersman_api::dynamo::v1alpha1::DynamoGraphDeploymentRequestSpec as Earlier;
use steersman_api::dynamo::v1beta1::DynamoGraphDeploymentRequestSpec as Stored;

use super::laws::normal;
use super::{converted, there_and_back};
use crate::manifests::{self, Manifest, manifests, through};
use crate::upstream;

fn fixtures(folder: &str) -> Vec<Manifest> {
    manifests::fixtures(&format!("dynamo/{folder}"))
}

fn both(manifest: &Manifest) -> [&Value; 2] {
    let [from, to] = &manifest.objects[..] else { panic!("{} holds two objects", manifest.name) };
    assert_ne!(from["apiVersion"], to["apiVersion"], "{}", manifest.name);
    [from, to]
}

#[test]
fn pairs_become_each_other() {
    for manifest in fixtures("convert/pairs") {
        let [from, to] = both(&manifest);
        assert_eq!(converted(from), *to, "{}", manifest.name);
        assert_eq!(converted(to), *from, "{} back", manifest.name);
    }
}

#[test]
fn what_other_operators_stored_is_read() {
    for manifest in fixtures("convert/stored-by-others") {
        let [from, to] = both(&manifest);
        assert_eq!(converted(from), *to, "{}", manifest.name);
        // Spelled our own way now, it reads the same.
        assert_eq!(there_and_back(to), *to, "{}", manifest.name);
    }
}

#[test]
fn every_valid_manifest_comes_back() {
    for manifest in ["valid", "valid-status"].into_iter().flat_map(fixtures) {
        let object = manifest.object();
        assert_eq!(there_and_back(object), normal(object), "{}", manifest.name);
    }
}

#[test]
fn the_published_examples_come_back() {
    let Some(folder) = upstream::files() else { return };
    let wanted = |name: &str| name.starts_with("example-") || name.starts_with("sample-dgdr-");
    for manifest in manifests(&folder.join("dynamo"), wanted) {
        for object in manifest.objects.iter().filter(|object| object["kind"] == super::KIND) {
            assert_eq!(there_and_back(object), normal(object), "{}", manifest.name);
        }
    }
}

/// Also read by type in its own version: what a user may copy must be right in every field.
#[test]
fn the_examples_come_back_and_have_no_unknown_field() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dynamo");
    let mut versions = BTreeSet::new();
    for manifest in manifests(&folder, |name| name.ends_with(".yaml")) {
        for object in manifest.objects.iter().filter(|object| object["kind"] == super::KIND) {
            assert_eq!(there_and_back(object), normal(object), "{}", manifest.name);
            let alpha = object["apiVersion"] == super::ALPHA;
            let typed = if alpha { through::<Earlier>(&object["spec"]) } else { through::<Stored>(&object["spec"]) };
            assert_eq!(typed.unwrap(), object["spec"], "{}", manifest.name);
            versions.insert(alpha);
        }
    }
    assert_eq!(versions.len(), 2, "both versions have an example");
}
