//! Reads the texts of a stored status, where the Go operator and earlier versions of Steersman stored no codes. No
//! other module of the family matches a text.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use steersman_api::llamastack::v1alpha2::PodProblem;
use steersman_api::meta::conditions;
use steersman_reconcile::{Finding, sentences};

/// Whether the condition `SpecAccepted` has the text of these findings.
pub fn reports_findings(stored: &Condition, findings: &[Finding]) -> bool {
    stored.message == conditions::as_stored(&sentences(findings))
}

/// The ConfigMap that the condition `DeploymentUpdated` names.
pub fn deployed_config_map(stored: &Condition) -> Option<&str> {
    stored.message.strip_prefix("Deployment updated with config ")
}

/// The cause after the progress in a False condition `DeploymentReady` or `Available`, as in `Deployment is pending:
/// ImagePullBackOff: …`.
pub fn pod_problem(stored: &Condition) -> Option<PodProblem> {
    const COUNTED: [&str; 4] = [
        "Deployment is scaling: ",
        "Deployment is scaling down: ",
        "Deployment is rolling out: ",
        "Rolling update in progress: ",
    ];
    const UNITS: [&str; 4] = [" replicas ready: ", " replicas updated: ", " replicas available: ", " updated: "];
    let text = stored.message.as_str();
    let counts = COUNTED.iter().find_map(|start| text.strip_prefix(start)).unwrap_or(text);
    let after_count = || {
        let mut parts = UNITS.iter().filter_map(|unit| counts.split_once(unit));
        parts.find(|(count, _)| is_count(count)).map(|(_, cause)| cause)
    };
    let cause = text.strip_prefix("Deployment is pending: ").or_else(after_count)?;
    Some(PodProblem { reason: "Unknown".to_owned(), container: None, exit_code: None, message: cause.to_owned() })
}

/// Whether the text has the form `1/2`.
fn is_count(text: &str) -> bool {
    text.split_once('/').is_some_and(|(some, all)| [some, all].iter().all(|part| part.parse::<i32>().is_ok()))
}
