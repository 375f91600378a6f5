//! The operator's parts, as a library so that tests and developer commands can call them.
//! Comes in: a cluster, named by flags, or manifests; goes out: objects, statuses and reviews, and the rights that they need.

pub mod admission;
pub mod apply;
pub mod certs;
pub mod cli;
pub mod client;
pub mod controllers;
pub mod crds;
pub mod health;
pub mod init;
pub mod leader;
pub mod manifests;
pub mod observe;
pub mod offline;
pub mod overrides;
pub mod preflight;
mod proxy;
pub mod rbac;
pub mod reach;
pub mod relay;
pub mod run;
mod serve;
pub mod settings;
mod signals;
pub mod telemetry;
pub mod webhooks;
