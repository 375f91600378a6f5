//! VariantAutoscaling: the controller, and the observation of the fleet that it decides on.

mod controller;
pub mod metrics;
pub mod observe;
pub mod prometheus;
mod turns;

pub use controller::{DebounceConfig, FleetContext, FleetController, FleetOutcome, rules, run};
pub use observe::settings_rules;
