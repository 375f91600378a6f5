//! Decides how many replicas each variant of each model has, for the whole fleet at once, and builds the status of each
//! object.

pub mod config;
mod conflict;
mod decision_status;
mod decision_trace;
mod events;
mod excluded;
mod factor;
pub mod faults;
pub mod legacy_texts;
pub mod limits;
pub mod names;
mod plan;
pub mod saturation;
mod snapshot;
pub mod solve;
mod status;
pub mod target;

pub use config::ConfigFinding;
pub use conflict::{Conflict, conflicts};
pub use decision_trace::{DecidedBy, DecisionTrace};
pub use events::{Hint, HintKind, event, hints, is_suppressed};
pub use excluded::excluded_status;
pub use factor::{Explanation, Factor, FactorCode, FactorSubject, Stage};
pub use plan::{Decision, DecisionKind, FleetPlan, MetricsState, has_model, plan};
pub use snapshot::{FleetSnapshot, MetricsError, ModelMetrics, ObservedTarget, ObservedVariant, PodMetrics, Settings};
pub use status::status;
pub use target::TargetName;
