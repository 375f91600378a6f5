//! The decision behind `steersman preflight`: can this cluster run Steersman, and what is already there?
//! Comes in: what was read from the API server; goes out: findings, most serious first, and a report for people and scripts.

mod plan;
mod report;
mod seen;

pub use plan::plan;
pub use report::{Report, report};
pub use seen::{Conversion, CrdSeen, FamilySeen, LeaseSeen, LegacySeen, Reach, Right, RightSeen, Seen};
