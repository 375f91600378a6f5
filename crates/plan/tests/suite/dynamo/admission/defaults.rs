//! The default image of new requests, and versions in image tags.

use serde_json::{Value, json};
use steersman_plan::dynamo::validate::{DYNAMO_VERSION, default_image, has_version, image};

use super::request;

const PLANNER: &str = "nvcr.io/nvidia/ai-dynamo/dynamo-planner";

#[track_caller]
fn assert_default_image(version: &str, tag: Option<&str>) {
    assert_eq!(default_image(None, version), tag.map(|tag| format!("{PLANNER}:{tag}")));
}

#[test]
fn def_1_version_becomes_tag_of_default_image() {
    assert_default_image("1.1.0", Some("1.1.0"));
    assert_default_image(DYNAMO_VERSION, Some("1.4.0"));
}

#[test]
fn def_2_release_candidate_keeps_its_suffix() {
    assert_default_image("1.1.0-rc1", Some("1.1.0-rc1"));
    assert_default_image("1.1.0-rc1+build.7", Some("1.1.0-rc1+build.7"));
}

#[test]
fn def_3_leading_v_is_removed() {
    assert_default_image("v1.2.3", Some("1.2.3"));
}

#[test]
fn def_4_short_version_is_completed() {
    assert_default_image("1.2", Some("1.2.0"));
    assert_default_image("v1", Some("1.0.0"));
}

#[test]
fn def_5_invalid_version_yields_no_image() {
    assert_default_image("unknown", None);
    assert_default_image("1.2.3.4", None);
}

#[test]
fn def_6_empty_version_yields_no_image() {
    assert_default_image("", None);
}

#[test]
fn def_7_configured_image_wins_over_version() {
    for version in ["1.1.0", "unknown"] {
        assert_eq!(default_image(Some("mirror/planner:7"), version).as_deref(), Some("mirror/planner:7"));
    }
    assert_eq!(default_image(Some(""), "unknown"), None, "an empty flag is no image");
}

#[test]
fn default_image_fills_only_missing_image() {
    let filled = |given: Value| image(&request(json!({ "image": given })), Some("planner:1.4.0")).map(str::to_owned);
    assert_eq!(filled(json!("")).as_deref(), Some("planner:1.4.0"));
    assert_eq!(filled(Value::Null).as_deref(), Some("planner:1.4.0"));
    assert_eq!(filled(json!("my-registry/my-image:custom")), None);
    assert_eq!(filled(json!(7)), None, "the schema rejects other types");
    assert_eq!(image(&request(json!({ "image": "" })), None), None);
    assert_eq!(image(&json!({ "metadata": {} }), Some("planner:1.4.0")), None);
}

#[test]
fn tag_1_prefixed_or_suffixed_version_is_recognized() {
    for image in [
        "nvcr.io/nvidia/ai-dynamo/vllm-runtime:v1.2.3-cuda13",
        "a:1.4.0",
        "a:V1.4.0",
        "r:5000/a/b:v1.2.3-cuda13",
        "a:1.0.0+b.1",
        "a:1.0.0-rc1+b.1",
        "a:1.2.3@sha256:00",
        "a:0.0.0",
    ] {
        assert!(has_version(image), "{image}");
    }
}

#[test]
fn tag_2_other_tags_are_no_version() {
    for image in [
        "registry.example/runtime:sha-123",
        "",
        "a",
        "a:latest",
        "a:custom",
        "a:1",
        "a:1.2",
        "a:01.2.3",
        "a:1.02.3",
        "r:5000/a",
        "r:1.2.3/a",
        "a@sha256:00",
        "a:1.2.3-",
        "a:1.2.3+",
        "a:1.2.3-a..b",
        "a:1.2.3.4",
        "a:1.2.x",
        "a:18446744073709551616.0.0",
    ] {
        assert!(!has_version(image), "{image}");
    }
}
