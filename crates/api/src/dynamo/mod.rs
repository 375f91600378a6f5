//! The versions of `DynamoGraphDeploymentRequest`; what was read is written back unchanged.
//!
//! Doc comments in the version modules are the descriptions of `kubectl explain`. The type of a field has no doc comment: it
//! would replace that of the field.

pub mod convert;
pub mod v1alpha1;
pub mod v1beta1;
