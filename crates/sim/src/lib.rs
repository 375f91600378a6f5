//! Simulates fleets of model servers. Pure and event-driven: every run gives the same sequence of events on every
//! machine.

pub mod expose;
pub mod fleet;
pub mod load;
pub mod queue;
pub mod server;

/// Simulated time: milliseconds since the start of the run.
pub type Millis = u64;
