//! Decides how many replicas each variant of each model has, for the whole fleet at once, and builds the status of each
//! object.

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

/// The rules by which a fleet is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Bounds hold on every path, bad data changes nothing, and the order of the input does not matter.
    #[default]
    Steersman,
    /// The Go operator's behaviour including its defects. Only recorded cases use it (ADR 0011).
    Upstream,
}
