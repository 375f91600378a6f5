//! May this DynamoGraphDeploymentRequest be written, and what is filled into it?
//! Comes in: an admission request; goes out: the verdict of the plan's own rules, or the image that a new request lacks.
//!
//! Nothing is looked up: what a request names may come later, and is waited for.

mod versions;

use kube::core::admission::Operation;
use serde_json::json;
use steersman_api::Family;
use steersman_plan::dynamo::validate::{Facts, Problem, image, validate};

use crate::webhooks::admission::{Answer, Judge, judge};
use crate::webhooks::case::{Case, Wrong};

pub use versions::words;

const FAMILY: Family = Family::Dgdr;

/// What the operator was told, as far as it counts at admission.
#[derive(Clone, Debug)]
pub struct Told {
    pub default_image: Option<String>,
    pub discovery: bool,
}

/// Says yes or no.
pub fn judge_of(told: Told) -> Judge {
    judge(move |request| match Case::read(FAMILY, request) {
        Ok(Some(case)) => decide(&case, &told),
        Ok(None) => Answer::allow(),
        Err(answer) => *answer,
    })
}

fn decide(case: &Case, told: &Told) -> Answer {
    let facts = Facts { default_image: told.default_image.as_deref(), discovery: told.discovery };
    let verdict = validate(&case.new, case.old.as_ref(), &facts);
    let words = |text: &str| versions::words(text, &case.version);
    let wrong = |problem: &Problem| Wrong {
        path: words(&problem.path),
        cause: problem.cause.reason(),
        sentence: words(&problem.sentence()),
    };
    case.answer(verdict.errors.iter().map(wrong).collect(), verdict.warnings.iter().map(|warning| words(warning)))
}

/// Fills in what new requests lack. The configuration asks about those alone; another may ask about more.
pub fn defaults(told: Told) -> Judge {
    judge(move |request| {
        let new = request.operation == Operation::Create;
        // A patch is for the object as it was sent, and in another version this place means nothing.
        let sent = request.kind.version == FAMILY.storage_version();
        let case = match Case::read(FAMILY, request) {
            Ok(Some(case)) if new => case,
            Ok(_) => return Answer::allow(),
            Err(answer) => return *answer,
        };
        match image(&case.new, told.default_image.as_deref()).filter(|_| sent) {
            Some(image) => Answer::patch(vec![json!({ "op": "add", "path": "/spec/image", "value": image })]),
            None => Answer::allow(),
        }
    })
}
