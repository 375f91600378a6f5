//! The decision for one `DynamoGraphDeploymentRequest`: profile, generate the graph, deploy it and keep watch over it.

pub mod asked;
pub mod checks;
pub mod graph;
pub mod hardware;
pub mod legacy_texts;
pub mod names;
mod needs;
pub mod phase;
mod plan;
pub mod profile_job;
mod report;
mod reported;
mod seen;
pub mod validate;

pub use needs::{Needs, confirms_job, confirms_output, needs};
pub use plan::{Plan, plan};
pub use report::{notes, report};
pub use seen::{
    AdditionalSeen, BindingSeen, GraphSeen, JobSeen, JobState, NamedSeen, ObjectSeen, OutputSeen, Seen, Settings,
};
