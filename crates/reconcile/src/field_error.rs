//! A problem with one field of the user's object, reported by admission, the offline commands and conditions alike.

use crate::{FieldPath, Finding, Message, Severity};

/// Kubernetes' words for the cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    Required,
    Invalid,
    Forbidden,
    /// The field names an object that does not exist.
    NotFound,
}

impl Cause {
    /// The value for `status.details.causes[].reason`.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::Forbidden => "FieldValueForbidden",
            Self::NotFound => "FieldValueNotFound",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldError {
    pub path: FieldPath,
    /// CamelCase. Scripts and conditions rely on it, so it stays stable.
    pub reason: &'static str,
    pub cause: Cause,
    /// The problem, worded to follow the path and a colon.
    pub message: Message,
    /// The fix, as a sentence.
    pub remedy: Message,
    /// The whole statement in conditions, if it is not the path, a colon and the message.
    statement: Option<Box<Message>>,
    /// The CEL rule of the CRD that refuses the same, so that it is not reported twice.
    pub schema_rule: Option<&'static str>,
}

impl FieldError {
    pub fn new(path: FieldPath, reason: &'static str, message: impl Into<Message>, remedy: impl Into<Message>) -> Self {
        let (message, remedy) = (message.into(), remedy.into());
        Self { path, reason, cause: Cause::Invalid, message, remedy, statement: None, schema_rule: None }
    }

    #[must_use]
    pub fn with_cause(self, cause: Cause) -> Self {
        Self { cause, ..self }
    }

    /// Replaces the wording used in conditions, where scripts search for an established text.
    #[must_use]
    pub fn stated_as(self, statement: impl Into<Message>) -> Self {
        Self { statement: Some(Box::new(statement.into())), ..self }
    }

    /// Names the CRD's CEL rule that rejects the same object.
    #[must_use]
    pub fn with_schema_rule(self, rule: &'static str) -> Self {
        Self { schema_rule: Some(rule), ..self }
    }

    /// Message and remedy without the path, for responses that carry the path in a separate field.
    pub fn sentence(&self) -> Message {
        self.message.clone().then(self.remedy.clone())
    }

    pub fn text(&self) -> Message {
        Message::from(&self.path).with(": ").with(self.sentence())
    }

    /// The text of a condition: the statement and the remedy.
    pub fn explanation(&self) -> Message {
        self.statement().then(self.remedy.clone())
    }

    fn statement(&self) -> Message {
        let default = || Message::from(&self.path).with(": ").with(self.message.clone());
        self.statement.as_deref().cloned().unwrap_or_else(default)
    }

    /// The finding, worded as in conditions.
    pub fn finding(&self, severity: Severity) -> Finding<Message> {
        Finding { severity, reason: self.reason, message: self.statement(), remedy: self.remedy.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FieldNames, message, path};

    #[test]
    fn error_reads_as_text_and_as_finding() {
        let error = FieldError::new(path!(spec.port), "PortInvalid", "0 is not a port", "Use another.");
        assert_eq!(error.text().to_string(), "spec.port: 0 is not a port. Use another.");
        let finding = error.finding(Severity::Blocker).render(&FieldNames::default());
        assert_eq!((finding.message.as_str(), finding.remedy.as_str()), ("spec.port: 0 is not a port", "Use another."));
        let stated = error.stated_as(message![path!(spec.port), " is 0"]);
        assert_eq!(stated.text().to_string(), "spec.port: 0 is not a port. Use another.");
        assert_eq!(stated.explanation().to_string(), "spec.port is 0. Use another.");
    }
}
