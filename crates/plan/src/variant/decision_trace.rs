//! Records how a replica target came about, stage by stage.

use std::fmt;

use serde::Serialize;

use super::factor::{Explanation, Factor, FactorCode};

/// The stage that determined the replica target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DecidedBy {
    /// The metrics ask for no change.
    #[default]
    Signal,
    /// The solver's target.
    Solver,
    /// Bounds, scale to zero, GPUs or another limit.
    Limits,
    /// Unknown data or an unfinished decision keeps the number.
    Hold,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DecisionTrace {
    /// The load that the metrics show.
    pub signal: Explanation,
    /// The capacity that is missing or spare.
    pub need: String,
    /// The solver's result for this variant.
    pub solver: String,
    pub limits: Vec<Explanation>,
    pub hold: Option<Explanation>,
    pub decided_by: DecidedBy,
    /// The solver's target without any limit.
    pub wanted: i32,
    pub granted: i32,
}

impl DecisionTrace {
    /// The target is granted, but the scale target stays below it.
    pub fn is_unmoved(&self) -> bool {
        self.limits.iter().any(|limit| limit.has(FactorCode::WorkloadUnmoved))
    }

    /// The variant waits for an earlier decision to be carried out.
    pub fn in_transition(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.has(FactorCode::InTransition))
    }

    /// The factors of all stages.
    pub fn factors(&self) -> impl Iterator<Item = &Factor> {
        let explanations = [&self.signal].into_iter().chain(&self.limits).chain(&self.hold);
        explanations.flat_map(|explanation| &explanation.factors)
    }

    pub fn limit_texts(&self) -> Vec<&str> {
        self.limits.iter().map(|limit| limit.text.as_str()).collect()
    }

    pub fn hold_text(&self) -> Option<&str> {
        self.hold.as_ref().map(|hold| hold.text.as_str())
    }
}

impl DecidedBy {
    /// The value in `status.decision.decidedBy` and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Solver => "solver",
            Self::Limits => "limits",
            Self::Hold => "hold",
        }
    }
}

impl fmt::Display for DecisionTrace {
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
        write!(out, "wanted {}, granted {}, decided by {}", self.wanted, self.granted, self.decided_by.as_str())
    }
}
