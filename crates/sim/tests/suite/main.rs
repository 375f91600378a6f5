//! The laws of the simulator's clock, load and fleet.

#[cfg(test)]
mod fleet;
#[cfg(test)]
mod load;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod said;
