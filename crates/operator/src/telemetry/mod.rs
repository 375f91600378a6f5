//! What the process says about itself.
//! Comes in: events and measurements of the other parts; goes out: log lines on standard output and the text of `/metrics`.

pub mod admitted;
pub mod dynamo;
pub mod logs;
pub mod metrics;
pub mod requests;
pub mod scrape;
pub mod variant;
