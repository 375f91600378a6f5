//! The fleet simulator: pure and event-driven, time is a number.
//! Comes in: load curves and events; goes out: the same sequence of events on every machine and in every run.

pub mod load;
pub mod queue;

/// Simulated time: milliseconds since the start of the run.
pub type Millis = u64;
