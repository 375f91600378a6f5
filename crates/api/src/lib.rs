//! The API types: schemas, versions and conversion, without a client, a clock or the environment.

pub mod convert;
pub mod crds;
pub mod dynamo;
mod family;
pub mod llamastack;
pub mod meta;
pub mod variant;

pub use family::{Family, LEGACY_LEASES, LegacyLease, UnknownFamily};
