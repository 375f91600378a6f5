//! The decision for the whole fleet of `VariantAutoscaling`s: how many replicas each variant of each model should have.
//! Comes in: one snapshot of objects, workloads, metrics and settings; goes out: a number for every object, with the story
//! of how it came about, and the object's status.

pub mod config;
mod conflict;
mod excluded;
mod factor;
pub mod faults;
pub mod legacy_texts;
pub mod limits;
pub mod names;
mod notes;
mod plan;
mod report;
pub mod saturation;
mod seen;
pub mod solve;
mod story;
pub mod target;
mod told;

pub use config::ConfigFinding;
pub use conflict::{Conflict, conflicts};
pub use excluded::excluded;
pub use factor::{Explanation, Factor, FactorCode, Reference, Stage};
pub use notes::{About, Hint, hints, note, suppressed};
pub use plan::{Decision, FleetPlan, Metrics, Standing, plan};
pub use report::report;
pub use seen::{ModelSeen, PodSeen, Seen, Settings, Silence, TargetSeen, VariantSeen};
pub use story::{Binding, Story};
pub use target::TargetName;

use serde::Serialize;

/// Which rules hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The laws of this project: bounds in every path, nothing is done on bad data, the same answer in any order.
    #[default]
    Steersman,
    /// What the Go operator does, its defects included; for comparison.
    Upstream,
}
