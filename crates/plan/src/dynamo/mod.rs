//! The decisions for one `DynamoGraphDeploymentRequest`: profile, generate the graph, deploy it and watch it.
//!
//! `snapshot`, `validate`, `plan`, `build`, `status` and `names` are as in the other families. `phase` is the state
//! machine from Pending to Deployed, `checks` decides whether it can begin, and `needs` what a reconcile must read.
//! `hardware` completes the GPUs, `request` interprets the spec, and `reported` compares problems with `status.reported`.

pub mod build;
pub mod checks;
pub mod hardware;
pub mod legacy_texts;
pub mod names;
mod needs;
pub mod phase;
mod plan;
mod reported;
pub mod request;
mod snapshot;
mod status;
pub mod validate;

pub use build::{graph, profile_job};
pub use needs::{Needs, confirms_job, confirms_output, needs};
pub use plan::{Plan, plan};
pub use snapshot::{
    JobState, ObservedAccount, ObservedBinding, ObservedConfigMap, ObservedGraph, ObservedJob, ObservedObject,
    ObservedOutput, ObservedOwners, ObservedReferences, Settings, Snapshot,
};
pub use status::{events, status};
