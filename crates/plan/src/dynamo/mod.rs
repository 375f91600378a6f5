//! The decision for one `DynamoGraphDeploymentRequest`: profile, generate the graph, deploy it and keep watch over it.
//! Comes in: the request and what the cluster has of it, as plain data; goes out: what shall be written and told, and the
//! request's status.

pub mod asked;
pub mod checks;
pub mod graph;
pub mod hardware;
pub mod names;
pub mod phase;
mod plan;
pub mod profile_job;
mod report;
mod seen;
pub mod validate;

pub use plan::{Plan, plan};
pub use report::{notes, report};
pub use seen::{
    AdditionalSeen, BindingSeen, ContainerSeen, GraphSeen, JobSeen, JobState, NamedSeen, ObjectSeen, OutputSeen,
    PodSeen, Seen, Settings,
};
