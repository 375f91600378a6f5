//! The laws of the simulator's clock and load.

#[cfg(test)]
mod load;
#[cfg(test)]
mod queue;
