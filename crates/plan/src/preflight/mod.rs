//! Decides for `steersman preflight` whether a cluster can run Steersman, and reports what is already there.

mod plan;
mod report;
mod seen;

pub use plan::plan;
pub use report::{Report, report};
pub use seen::{Conversion, CrdSeen, FamilySeen, LeaseSeen, LegacySeen, Reach, Right, RightSeen, Seen};
