//! Validates DynamoGraphDeploymentRequests by the rules of the plan, and sets the default image of new ones.
//!
//! Referenced objects are not looked up: they may be created later, and the controller waits for them.

use kube::core::admission::Operation;
use serde_json::json;
use steersman_api::Family;
use steersman_plan::dynamo::validate::{Facts, image, validate};

use crate::webhooks::admission::{Handler, Response, handler};
use crate::webhooks::case::AdmissionCase;

const FAMILY: Family = Family::Dgdr;

/// Flags of the operator that count at admission.
#[derive(Clone, Debug)]
pub struct AdmissionSettings {
    pub default_image: Option<String>,
    pub discovery: bool,
}

pub fn validator(settings: AdmissionSettings) -> Handler {
    handler(move |request| match AdmissionCase::read(FAMILY, request) {
        Ok(Some(case)) => decide(&case, &settings),
        Ok(None) => Response::allow(),
        Err(response) => *response,
    })
}

fn decide(case: &AdmissionCase, settings: &AdmissionSettings) -> Response {
    let facts = Facts { default_image: settings.default_image.as_deref(), discovery: settings.discovery };
    let review = validate(&case.new, case.old.as_ref(), &facts);
    case.response(&review.errors, &review.warnings)
}

/// Sets the defaults of new requests. Our webhook configuration matches creation alone; another one may match more.
pub fn defaulter(settings: AdmissionSettings) -> Handler {
    handler(move |request| {
        let new = request.operation == Operation::Create;
        // The patch applies to the object as it was sent, and other versions have no such field.
        let sent = request.kind.version == FAMILY.storage_version();
        let case = match AdmissionCase::read(FAMILY, request) {
            Ok(Some(case)) if new => case,
            Ok(_) => return Response::allow(),
            Err(response) => return *response,
        };
        match image(&case.new, settings.default_image.as_deref()).filter(|_| sent) {
            Some(image) => Response::patch(vec![json!({ "op": "add", "path": "/spec/image", "value": image })]),
            None => Response::allow(),
        }
    })
}
