//! Integration tests of the binary and its library, without a cluster and on the local one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod admission;
mod apply;
mod certs;
mod chart;
mod child_cache;
mod cli;
mod client;
mod command;
mod core_schema;
mod crds;
mod docs;
mod dynamo;
mod earlier_texts;
mod init;
mod install;
mod installation;
mod invalid_objects;
mod isolation;
mod kustomize;
mod leader;
mod llamastack;
mod network_policy;
mod offline;
mod overrides;
mod pages;
mod preflight;
mod private_cluster;
mod process;
mod prometheus;
mod rbac;
mod references;
mod registry;
mod relay;
mod rollout;
mod schemas;
mod scrapes;
mod server;
mod servers;
mod shell;
mod single_namespace;
mod upstream_migration;
mod variant;
mod webhooks;
