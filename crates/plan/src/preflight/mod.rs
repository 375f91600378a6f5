//! Decides for `steersman preflight` whether a cluster can run Steersman, and reports what is already there.

mod plan;
mod report;
mod snapshot;

pub use plan::plan;
pub use report::{Report, report};
pub use snapshot::{
    ClusterSnapshot, Conversion, ObservedCrd, ObservedFamily, ObservedLease, ObservedLegacyLease, ObservedRight, Reach,
    Right,
};
