//! A fact about the user's object or the cluster that a person should know.

use std::fmt;

use serde::Serialize;

use crate::{FieldNames, Message};

/// Severity of a finding. The variants are in reporting order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The object cannot work until this is changed.
    Blocker,
    /// The object works, but not as its author may expect.
    Warning,
    /// Good to know.
    Info,
}

/// A finding is reported and awaited, never retried: asking again does not change it. With texts of type `Message`, the
/// version of the reader is still open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding<T = String> {
    pub severity: Severity,
    /// CamelCase. Scripts rely on it, so it stays stable.
    pub reason: &'static str,
    /// The fact, and the object or field that it concerns.
    pub message: T,
    /// The fix, as a sentence.
    pub remedy: T,
}

impl<T> Finding<T> {
    pub fn blocker(reason: &'static str, message: impl Into<T>, remedy: impl Into<T>) -> Self {
        Self { severity: Severity::Blocker, reason, message: message.into(), remedy: remedy.into() }
    }

    pub fn warning(reason: &'static str, message: impl Into<T>, remedy: impl Into<T>) -> Self {
        Self { severity: Severity::Warning, ..Self::blocker(reason, message, remedy) }
    }

    pub fn info(reason: &'static str, message: impl Into<T>, remedy: impl Into<T>) -> Self {
        Self { severity: Severity::Info, ..Self::blocker(reason, message, remedy) }
    }
}

impl Finding<Message> {
    /// Renders the texts for a reader who knows the fields by these names.
    pub fn render(&self, names: &FieldNames) -> Finding {
        let (message, remedy) = (self.message.render(names), self.remedy.render(names));
        Finding { severity: self.severity, reason: self.reason, message, remedy }
    }
}

/// A finding that refers to no field.
impl From<Finding> for Finding<Message> {
    fn from(Finding { severity, reason, message, remedy }: Finding) -> Self {
        Self { severity, reason, message: message.into(), remedy: remedy.into() }
    }
}

/// All findings as running text, each message before its remedy.
pub fn sentences(findings: &[Finding]) -> String {
    let texts = findings.iter().map(ToString::to_string);
    texts.reduce(|text, next| join_sentences(&text, &next)).unwrap_or_default()
}

/// Two sentences as one text. A message that ends in a list or a clause has no full stop of its own.
pub fn join_sentences(first: &str, second: &str) -> String {
    let stop = if first.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{stop} {second}")
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&join_sentences(&self.message, &self.remedy))
    }
}
