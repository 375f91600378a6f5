//! `LlamaStackDistribution`: a Llama Stack server, its providers, its configuration and how it runs.
//! Comes in: objects as users write them, in any of the accepted forms; goes out: typed values that are written back in
//! the form in which they came.

pub mod convert;
mod schema;
pub mod status;
pub mod v1alpha1;
pub mod v1alpha2;
