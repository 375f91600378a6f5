//! The commands that run in init containers of a LlamaStackDistribution's pods.

mod merge_providers;
mod storage_env;
mod write;

pub use merge_providers::{MergeProvidersArgs, merge_providers};
pub use storage_env::{StorageEnvArgs, storage_env};
