//! How a number came about, stage by stage.

use std::fmt;

use serde::Serialize;

use super::factor::{Explanation, FactorCode};

/// The stage that fixed the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Binding {
    /// Nothing is missing and nothing to spare.
    #[default]
    Signal,
    /// The solver's answer stands.
    Solver,
    /// A bound, the enforcer or the accelerators.
    Limits,
    /// What is not known, or not yet done, keeps the number.
    Hold,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Story {
    /// What the metrics say.
    pub signal: Explanation,
    /// What that asks for.
    pub need: String,
    /// Which variant shall serve it.
    pub solver: String,
    pub limits: Vec<Explanation>,
    pub hold: Option<Explanation>,
    pub binding: Binding,
    /// What the solver wants where nothing limits it.
    pub wish: i32,
    pub granted: i32,
}

impl Story {
    /// The number is granted, and the workload stays below it.
    pub fn is_unmoved(&self) -> bool {
        self.limits.iter().any(|limit| limit.has(FactorCode::WorkloadUnmoved))
    }

    /// The number waits for what was decided before.
    pub fn in_transition(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.has(FactorCode::InTransition))
    }

    pub fn limit_texts(&self) -> Vec<&str> {
        self.limits.iter().map(|limit| limit.text.as_str()).collect()
    }

    pub fn hold_text(&self) -> Option<&str> {
        self.hold.as_ref().map(|hold| hold.text.as_str())
    }
}

impl Binding {
    /// As objects and series name it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Solver => "solver",
            Self::Limits => "limits",
            Self::Hold => "hold",
        }
    }
}

impl fmt::Display for Story {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stages = [("signal", &self.signal.text), ("need", &self.need), ("solver", &self.solver)];
        for (name, text) in stages.iter().filter(|(_, text)| !text.is_empty()) {
            write!(out, "{name}: {text}; ")?;
        }
        if !self.limits.is_empty() {
            write!(out, "limits: {}; ", self.limit_texts().join(", "))?;
        }
        if let Some(hold) = &self.hold {
            write!(out, "hold: {hold}; ")?;
        }
        write!(out, "wanted {}, granted {}, decided by {}", self.wish, self.granted, self.binding.word())
    }
}
