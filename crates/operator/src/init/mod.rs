//! What runs inside the pods of a LlamaStackDistribution before its server does.
//! Comes in: variables and files of the pod; goes out: one file for the server.

mod merge_providers;
mod storage_env;
mod write;

pub use merge_providers::{MergeProvidersArgs, merge_providers};
pub use storage_env::{StorageEnvArgs, storage_env};
