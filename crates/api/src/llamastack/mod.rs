//! The versions of `LlamaStackDistribution`; values are written back in the form in which they were read.

pub mod convert;
pub mod status;
pub mod v1alpha1;
pub mod v1alpha2;
