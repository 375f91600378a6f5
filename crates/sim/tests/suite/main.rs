//! Tests of the simulator: event queue, load curves, fleet and metrics.

#[cfg(test)]
mod fleet;
#[cfg(test)]
mod load;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod queue;
