//! Attacks of one tenant, each in its own namespace with the rights of a namespace's administrator, against one operator with
//! the roles that are shipped. While an attack lasts, another tenant's new objects of every kind are served in time, and
//! the operator keeps its Lease.
//!
//! A new attack is a new file in `attacks`: open a [`tenants::HostileCase`], let the attacker act, call
//! `expect_victim_served`, then check what the attacker must not have achieved.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a test prints what it measured")]

mod attacks;
mod env;
#[path = "../suite/registry/fake.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod fake_registry;
#[path = "../suite/servers/fake.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod fake_servers;
mod lease;
mod network;
mod tenants;
mod webhook_port;
