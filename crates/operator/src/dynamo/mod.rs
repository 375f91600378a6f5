//! DynamoGraphDeploymentRequest: what its controller reads and measures, and its part of a reconcile.

mod controller;
pub mod metrics;
pub mod observe;

pub use controller::{Dynamo, RequestOptions, rules};
