//! An AdmissionReview of any shape, validated by the rules of both families with admission. References are not looked up.

use std::collections::BTreeMap;

use serde_json::Value;
use steersman::webhooks::admission::{self, Response, Route};
use steersman::webhooks::case::AdmissionCase;
use steersman_api::Family;
use steersman_plan::llamastack::config::base::{distribution, names, resolve};
use steersman_plan::llamastack::validate::Missing;
use steersman_plan::{Review, dynamo, llamastack};

/// Most bytes of an answer per byte of the review. A text may quote a value, once in the message and once in a cause.
const MAX_GROWTH: usize = 16;

const FAMILIES: [Family; 2] = [Family::Llsd, Family::Dgdr];

pub fn check(data: &[u8]) {
    let request = match admission::read(data, "unknown") {
        Ok(request) => request,
        Err((uid, error)) => {
            let answer = admission::failure(&uid, 400, "BadRequest", &error.to_string());
            return check_answer(&answer, &uid, data.len());
        }
    };
    let uid = request.uid.clone();
    for family in FAMILIES {
        let response = match AdmissionCase::read(family, request.clone()) {
            Ok(Some(case)) => {
                check_exemptions(&case);
                let review = validate(&case, case.old.as_ref());
                case.response(&review.errors, &review.warnings)
            }
            Ok(None) => Response::allow(),
            Err(response) => *response,
        };
        check_answer(&admission::render(&uid, Route::Validate, &response), &uid, data.len());
    }
}

/// A change of metadata alone and an object that is being deleted are always allowed.
fn check_exemptions(case: &AdmissionCase) {
    assert_eq!(validate(case, Some(&case.new)).errors, [], "an unchanged object is refused");
    if !case.new["metadata"]["deletionTimestamp"].is_null() {
        assert_eq!(validate(case, case.old.as_ref()).errors, [], "a deletion is refused");
    }
}

fn validate(case: &AdmissionCase, old: Option<&Value>) -> Review {
    if case.family == Family::Dgdr {
        let facts = dynamo::validate::Facts { default_image: Some("example.com/planner:1.4.0"), discovery: true };
        return dynamo::validate::validate(&case.new, old, &facts);
    }
    let name = case.new["spec"]["distribution"]["name"].as_str();
    let base = resolve(name, Ok(None)).ok().map(|resolved| resolved.base);
    let known: Vec<&str> = names().collect();
    let facts = llamastack::validate::Facts {
        namespace: &case.namespace,
        distributions: &known,
        base: base.as_deref(),
        always_mounted: name.and_then(distribution).is_some_and(|known| known.mounts_always),
        config_namespace: None,
        found: &BTreeMap::new(),
        missing: Missing::Refuse,
    };
    llamastack::validate::validate(&case.new, old, &facts)
}

/// The API server can read the answer, and a refusal names its reason.
fn check_answer(answer: &[u8], uid: &str, review_bytes: usize) {
    assert!(answer.len() <= MAX_GROWTH * review_bytes + crate::MAX_MESSAGE_BYTES, "{} bytes", answer.len());
    let answer: Value = serde_json::from_slice(answer).expect("the answer is JSON");
    let response = &answer["response"];
    assert_eq!(response["uid"], uid);
    match response["allowed"].as_bool() {
        Some(true) => assert!(response["status"].is_null()),
        Some(false) => {
            assert!(response["status"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{answer}");
            assert!(response["status"]["code"].as_u64().is_some_and(|code| (400..600).contains(&code)), "{answer}");
        }
        None => panic!("no verdict: {answer}"),
    }
}
