//! `VariantAutoscaling`: one variant of one model, sized with the whole fleet in view.
//! Comes in: what users of any generation of the API write; goes out: one type for all of them.

pub mod v1alpha1;
