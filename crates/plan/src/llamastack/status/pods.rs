//! Selects the problem that the status reports about pods that do not become ready.

use steersman_api::llamastack::v1alpha2::PodProblem;

use crate::llamastack::snapshot::Snapshot;
use crate::llamastack::{pod_problem, stored_status};

/// The stored problem stays until the operator has observed the pods after its start.
pub fn problem(snapshot: &Snapshot) -> Option<PodProblem> {
    match &snapshot.pods {
        Some(pods) => pod_problem::find(pods).map(|problem| pod_problem::stored(&problem, &snapshot.object)),
        None => stored_status::pod_problem(snapshot),
    }
}

/// The pod's own problem precedes that of its Deployment, which has no details.
pub fn explained(snapshot: &Snapshot, problem: Option<&PodProblem>, progress: String) -> String {
    let of_deployment = || snapshot.deployment.as_ref().and_then(|live| live.trouble.as_ref());
    match problem.map(|problem| &problem.message).or_else(of_deployment) {
        Some(cause) => format!("{progress}: {cause}"),
        None => progress,
    }
}
