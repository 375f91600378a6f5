//! `DynamoGraphDeploymentRequest`: serve this model, on this hardware, within this SLA.
//! Comes in: a request in one of its two versions; goes out: typed fields that write back exactly what was read, and
//! the schema that the API server enforces.
//!
//! Doc comments in the version modules are the descriptions that `kubectl explain` shows, so they speak to the author
//! of a manifest. Types carry none of their own where a field holds them: the field's words would be lost.

pub mod convert;
mod schema;
pub mod v1alpha1;
pub mod v1beta1;
