//! Decides how many replicas each variant of each model has, for the whole fleet at once, and builds the status of each
//! object. `plan.rs` calls the stages in their order.

pub mod analyze;
pub mod bounds;
pub mod config;
mod decision_status;
pub mod eligibility;
mod events;
pub mod fallback;
pub mod gpu_limit;
pub mod legacy_texts;
pub mod memory;
pub mod names;
pub mod optimize {
    //! Distributes the capacity that a model needs over its variants.

    pub mod cost_aware;
    pub mod split;
}
mod plan;
pub mod progress;
pub mod scale_to_zero;
mod snapshot;
mod stabilize;
mod status;
pub mod target;
mod trace;

pub use analyze::MetricsState;
pub use config::ConfigFinding;
pub use eligibility::{Conflict, conflicts, has_model};
pub use events::{Hint, HintKind, event, hints, is_suppressed};
pub use plan::{Decision, DecisionKind, FleetPlan, plan};
pub use snapshot::{
    FleetSnapshot, MetricsError, ModelMetrics, ObservedTarget, ObservedVariant, PodMetrics, ReadyPod, SchedulerQueue,
    Settings,
};
pub use status::{excluded_status, status};
pub use target::TargetName;
pub use trace::{DecidedBy, DecisionTrace, Explanation, Factor, FactorCode, FactorSubject, Stage};
