//! What should be: pure decisions, from what was seen to what shall be done and said.
//! Comes in: a `Seen` of plain data that carries its own time; goes out: findings and reports, the same for the same input.

pub mod dynamo;
pub mod llamastack;
pub mod oci;
mod pods;
pub mod preflight;
pub mod readable;
pub mod variant;
mod words;

pub use words::{ADOPTED, Failure, Next, Note, NoteKind, Outcome, Plan, Verdict, Write};

use std::fmt;

use serde::Serialize;

/// How much a finding matters. The order is the order in which findings are told.
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

/// One thing that somebody should know. It is told and awaited, never retried: asking again does not change it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// One word in CamelCase, stable, for scripts.
    pub reason: &'static str,
    /// What is the case, and where.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

/// All findings as running text, what is wrong before what to do about it.
pub fn sentences(findings: &[Finding]) -> String {
    let told = findings.iter().map(|Finding { message, remedy, .. }| followed(message, remedy));
    told.collect::<Vec<_>>().join(" ")
}

/// One sentence and the next; messages that go on in a list or a clause have no full stop of their own.
pub(crate) fn followed(message: &str, next: &str) -> String {
    let stop = if message.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{message}{stop} {next}")
}

/// What is the case, and what to do about it.
impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.message, self.remedy)
    }
}
