//! One thing that is wrong with a field, or that its author should know: for admission, the offline commands and conditions.

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
    /// As in `status.details.causes[].reason`.
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
    /// One word in CamelCase, stable, for conditions and scripts.
    pub reason: &'static str,
    pub cause: Cause,
    /// What is wrong. Follows the path and a colon.
    pub message: Message,
    /// What to do about it.
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

    /// In other words in conditions, where scripts search for those that have always been there.
    #[must_use]
    pub fn stated_as(self, statement: impl Into<Message>) -> Self {
        Self { statement: Some(Box::new(statement.into())), ..self }
    }

    /// The CRD has a rule against it, too.
    #[must_use]
    pub fn with_schema_rule(self, rule: &'static str) -> Self {
        Self { schema_rule: Some(rule), ..self }
    }

    /// What is wrong and what to do, without the path: for answers that have a field of their own for it.
    pub fn sentence(&self) -> Message {
        self.message.clone().then(self.remedy.clone())
    }

    /// The path and the sentence.
    pub fn text(&self) -> Message {
        Message::from(&self.path).with(": ").with(self.sentence())
    }

    /// What conditions say, and the remedy.
    pub fn explanation(&self) -> Message {
        self.statement().then(self.remedy.clone())
    }

    fn statement(&self) -> Message {
        let default = || Message::from(&self.path).with(": ").with(self.message.clone());
        self.statement.as_deref().cloned().unwrap_or_else(default)
    }

    /// As conditions state it.
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
