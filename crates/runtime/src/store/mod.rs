//! Objects of the API server that watches keep up to date.

pub mod cache;
mod optional;
mod partial;
mod records;
pub mod references;
pub mod relist;
mod scope;
pub mod served;
pub mod watching;

pub use optional::while_served;
pub use partial::RawObject;
pub use records::{Change, MAX_BYTES, MAX_NAMESPACE_BYTES, PAGE, Record, Revision, SMALL_PAGE, Store, SyncState};
pub use scope::Scope;
