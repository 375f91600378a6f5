//! VariantAutoscaling: what its controller reads and measures, and the reconcile of the whole fleet.

mod controller;
pub mod metrics;
pub mod observe;
pub mod prometheus;

pub use controller::{FleetContext, Passed, Rhythm, Variants, rules, run};
