//! How a number came about, stage by stage.
//! Comes in: what each stage said; goes out: one text that a person can follow, and the stage that decided.

use std::fmt;

use serde::Serialize;

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
    pub signal: String,
    /// What that asks for.
    pub need: String,
    /// Which variant shall serve it.
    pub solver: String,
    pub limits: Vec<String>,
    pub hold: Option<String>,
    pub binding: Binding,
    /// What the solver wants where nothing limits it.
    pub wish: i32,
    pub granted: i32,
}

/// With these words begins what is said while an earlier decision keeps a model from another one.
pub const IN_TRANSITION: &str = "an earlier decision is still being carried out";

/// With these words begins what is said of a workload that stays below its number.
pub const UNMOVED: &str = "its workload, which has stayed at";

impl Story {
    /// The number is granted, and the workload stays below it.
    pub fn is_unmoved(&self) -> bool {
        self.limits.iter().any(|limit| limit.starts_with(UNMOVED))
    }

    /// The number waits for what was decided before.
    pub fn in_transition(&self) -> bool {
        self.hold.as_deref().is_some_and(|hold| hold.starts_with(IN_TRANSITION))
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
        let stages = [("signal", &self.signal), ("need", &self.need), ("solver", &self.solver)];
        for (name, said) in stages.iter().filter(|(_, said)| !said.is_empty()) {
            write!(out, "{name}: {said}; ")?;
        }
        if !self.limits.is_empty() {
            write!(out, "limits: {}; ", self.limits.join(", "))?;
        }
        if let Some(hold) = &self.hold {
            write!(out, "hold: {hold}; ")?;
        }
        write!(out, "wanted {}, granted {}, decided by {}", self.wish, self.granted, self.binding.word())
    }
}
