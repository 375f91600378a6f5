//! The fleet simulator: pure and event-driven, time is a number.
//! Comes in: load curves, pods and events; goes out: the same sequence of events on every machine and in every run.

pub mod expose;
pub mod fleet;
pub mod load;
pub mod queue;
pub mod server;

/// Simulated time: milliseconds since the start of the run.
pub type Millis = u64;
