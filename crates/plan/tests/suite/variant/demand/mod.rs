//! The default engine in a closed loop with simulated servers.

mod change;
mod constant;
mod rule;
mod world;
