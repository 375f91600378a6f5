//! One thing that stands against a request.
//! Comes in: where it is, what is wrong and what to do; goes out: the same as API servers speak of fields, or as a finding.

use serde_json::Value;
use steersman_reconcile::{Finding, Severity};

/// Kubernetes' own words for what is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    Required,
    /// With the value, where it may be told to everybody.
    Invalid(Option<Value>),
    Forbidden,
}

impl Cause {
    /// As in the causes of a refusal.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid(_) => "FieldValueInvalid",
            Self::Forbidden => "FieldValueForbidden",
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Required => "Required value".to_owned(),
            Self::Invalid(Some(value)) => format!("Invalid value: {value}"),
            Self::Invalid(None) => "Invalid value".to_owned(),
            Self::Forbidden => "Forbidden".to_owned(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// As in `spec.hardware.gpuSku`.
    pub path: String,
    pub cause: Cause,
    /// What follows the place and the cause.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
    /// How conditions tell it, with the place.
    condition: String,
}

impl Problem {
    pub fn new(path: &str, cause: Cause, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        let message = message.into();
        let condition = format!("{path}: {message}");
        Self { path: path.to_owned(), cause, message, remedy: remedy.into(), condition }
    }

    /// In other words in conditions, where scripts look for those that have always been there.
    pub fn in_conditions(self, condition: impl Into<String>) -> Self {
        Self { condition: condition.into(), ..self }
    }

    /// What is wrong and what to do, without the place: for whoever shows the place apart.
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.cause.words(), steersman_reconcile::join_sentences(&self.message, &self.remedy))
    }

    /// The place and the sentence.
    pub fn text(&self) -> String {
        format!("{}: {}", self.path, self.sentence())
    }

    pub fn finding(&self, severity: Severity, reason: &'static str) -> Finding {
        Finding { severity, reason, message: self.condition.clone(), remedy: self.remedy.clone() }
    }
}
