//! What users write: the families of APIs that Steersman serves and the vocabulary that they share.
//! Comes in: what the API server or a user says; goes out: plain values, with no client, clock or environment in sight.

pub mod convert;
pub mod crds;
pub mod dynamo;
mod family;
pub mod llamastack;
pub mod meta;
pub mod variant;

pub use family::{Family, LEGACY_LEASES, LegacyLease, UnknownFamily};
