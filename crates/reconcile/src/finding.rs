//! A fact about the user's object or the cluster that a person should know.

use std::fmt;

use serde::Serialize;

use crate::{FieldNames, Message};

/// How much a finding matters. The order is the order in which findings are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It cannot work until this is changed.
    Blocker,
    /// It works, but something will surprise.
    Warning,
    /// Good to know.
    Info,
}

/// A finding is reported and awaited, never retried: asking again does not change it. With texts of type `Message`, the
/// version of the reader is still open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding<T = String> {
    pub severity: Severity,
    /// One word in CamelCase, stable, for scripts.
    pub reason: &'static str,
    /// What is the case, and where.
    pub message: T,
    /// What to do about it.
    pub remedy: T,
}

impl Finding<Message> {
    /// For a reader who knows the fields by these names.
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
    let texts = findings.iter().map(|Finding { message, remedy, .. }| join_sentences(message, remedy));
    texts.collect::<Vec<_>>().join(" ")
}

/// Two sentences as one text. A message that ends in a list or a clause has no full stop of its own.
pub fn join_sentences(first: &str, second: &str) -> String {
    let stop = if first.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{stop} {second}")
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.message, self.remedy)
    }
}
