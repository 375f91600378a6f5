//! The machinery of an operator, independent of any API: each `Reconciler` brings its types, its decisions and its
//! names.

pub mod apply;
pub mod backoff;
pub mod client;
pub mod controller;
pub mod cpu_bound;
pub mod http;
pub mod leader;
pub mod open_files;
mod proxy;
pub mod rbac;
pub mod resource;
pub mod serve;
pub mod signals;
pub mod store;
pub mod telemetry;
