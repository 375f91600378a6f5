//! The controller of DynamoGraphDeploymentRequests.

mod controller;
pub mod metrics;
pub mod observe;

pub use controller::{Dynamo, RequestOptions, account_rules, rules, secret_rules};
