//! The versions of `VariantAutoscaling`.

pub mod v1alpha1;
