//! The operator's parts, as a library so that tests and developer commands can call them.

pub mod admission;
pub mod args;
pub mod certs;
pub mod cli;
pub mod controllers;
pub mod crds;
pub mod dynamo;
pub mod init;
pub mod install;
pub mod installation;
pub mod llamastack;
pub mod manifests;
pub mod metrics;
pub mod network_policy;
pub mod offline;
pub mod overrides;
mod pods;
mod polling;
pub mod preflight;
pub mod rbac;
pub mod relay;
pub mod resource;
pub mod run;
pub mod settings;
pub mod variant;
mod webhook_server;
pub mod webhooks;
