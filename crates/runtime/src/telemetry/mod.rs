//! Logs and metrics of the process.

pub mod logs;
pub mod metrics;
