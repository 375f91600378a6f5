//! Decisions that only the text of a stored status can answer: the Go operator, and Steersman before it stored codes, left
//! nothing else. No other module of the family matches a text.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use steersman_api::meta::conditions::{self, Statement, Truth};
use steersman_reconcile::{Finding, sentences};

/// The condition `SpecAccepted` has the text of these findings.
pub fn reports_findings(stored: &Condition, findings: &[Finding]) -> bool {
    // Rendered as when it was stored: a long message was cut then.
    let statement = Statement {
        type_: stored.type_.clone(),
        truth: Truth::True,
        reason: String::new(),
        message: sentences(findings),
    };
    let rendered = conditions::merge(&[], &[statement], None, Timestamp::UNIX_EPOCH);
    rendered.iter().any(|rendered| rendered.message == stored.message)
}

/// The ConfigMap that the condition `DeploymentUpdated` names.
pub fn deployed_config_map(stored: &Condition) -> Option<&str> {
    stored.message.strip_prefix("Deployment updated with config ")
}
