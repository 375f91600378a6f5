//! The versions of `DynamoGraphDeploymentRequest`; values are written back in the form in which they were read.
//!
//! Doc comments in the version modules are the descriptions of `kubectl explain`. The type of a field has no doc comment:
//! it would replace that of the field.

pub mod convert;
pub mod v1alpha1;
pub mod v1beta1;
