//! Compares problems with `status.reported` by their code and object, to send each event once.

use steersman_api::dynamo::v1beta1::ReportedProblem;
use steersman_reconcile::Failure;

use super::snapshot::ObservedObject;

pub fn contains(object: &ObservedObject, problem: &ReportedProblem) -> bool {
    object.status.as_ref().is_some_and(|status| status.reported.contains(problem))
}

/// A failed write. Another generation of the request is another attempt.
pub fn failed_write(reason: &str, failure: &Failure, generation: Option<i64>) -> ReportedProblem {
    ReportedProblem { generation, ..about(reason, &failure.object.kind, &failure.object.name.name) }
}

pub fn about(reason: &str, kind: &str, name: &str) -> ReportedProblem {
    ReportedProblem {
        reason: reason.to_owned(),
        kind: Some(kind.to_owned()),
        name: Some(name.to_owned()),
        ..ReportedProblem::default()
    }
}
