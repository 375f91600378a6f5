//! An object of any shape, converted by itself and in a ConversionReview.

use serde_json::{Value, json};
use steersman::webhooks::conversion;
use steersman_api::Family;
use steersman_api::convert::{convert, convert_for_review};

/// Most bytes that a conversion may add per byte of the object: preserved fields are JSON inside a JSON string.
const MAX_GROWTH: usize = 8;

/// Bytes that a conversion may add to any object, for the names of its annotations.
const MAX_ADDED_BYTES: usize = 16 * 1024;

pub fn check(data: &[u8]) {
    let Ok(object) = serde_json::from_slice::<Value>(data) else { return };
    for family in [Family::Llsd, Family::Dgdr] {
        for version in family.served_versions() {
            let to = format!("{}/{version}", family.group());
            check_object(&object, &to);
            check_review(&object, &to);
        }
    }
}

fn check_object(object: &Value, to: &str) {
    let Ok(first) = convert(object.clone(), to) else { return };
    let from = object["apiVersion"].as_str().unwrap_or_default();
    assert_eq!(first.object["apiVersion"], to);
    for field in ["kind", "metadata"] {
        assert_eq!(object.get(field).is_some(), first.object.get(field).is_some(), "{field} appears or vanishes");
    }
    for field in ["name", "namespace", "uid", "resourceVersion", "ownerReferences", "finalizers", "labels"] {
        assert_eq!(first.object["metadata"][field], object["metadata"][field], "metadata.{field} changes");
    }
    let size = |value: &Value| value.to_string().len();
    assert!(size(&first.object) <= MAX_GROWTH * size(object) + MAX_ADDED_BYTES, "the object grows too much");
    check_round_trips(&first.object, from, to);
}

/// A conversion may normalise an object that the schema would refuse. After the first round trip, nothing changes any more.
fn check_round_trips(converted: &Value, from: &str, to: &str) {
    let round_trip = |object: &Value| {
        let back = convert(object.clone(), from).expect("a converted object can be converted back");
        let out = convert(back.object.clone(), to).expect("an object can be converted twice");
        let lost = back.lost.len() + out.lost.len();
        (lost == 0).then_some(out.object)
    };
    if let Some(second) = round_trip(converted) {
        assert_eq!(round_trip(&second).as_ref(), Some(&second), "a second round trip changes the object");
    }
}

fn check_review(object: &Value, to: &str) {
    let review = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": { "uid": "u", "desiredAPIVersion": to, "objects": [object] } });
    let answer = conversion::answer(review.to_string().as_bytes(), "", convert_for_review, &Default::default());
    match (answer, convert_for_review(object.clone(), to)) {
        (Ok(text), Ok(converted)) => {
            let answer: Value = serde_json::from_slice(&text).expect("the answer is JSON");
            assert_eq!(answer["response"]["uid"], "u");
            assert_eq!(answer["response"]["convertedObjects"], json!([converted.object]));
        }
        (Err((uid, _)), Err(_)) => assert_eq!(uid, "u"),
        (answer, alone) => panic!("the review has another result: {} instead of {}", answer.is_ok(), alone.is_ok()),
    }
}
