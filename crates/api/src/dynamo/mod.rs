//! The versions of `DynamoGraphDeploymentRequest`; values are written back in the form in which they were read.
//!
//! Doc comments of fields in the version modules are the descriptions that `kubectl explain` shows.

pub mod convert;
pub mod v1alpha1;
pub mod v1beta1;
