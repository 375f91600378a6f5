//! Tests of the decisions: tables of snapshots with the expected plan, and properties that hold for every snapshot.

#[cfg(test)]
mod dynamo;
#[cfg(test)]
mod leaves;
#[cfg(test)]
mod llamastack;
#[cfg(test)]
mod llamastack_base;
#[cfg(test)]
mod llamastack_config;
#[cfg(test)]
mod llamastack_samples;
#[cfg(test)]
mod oci;
#[cfg(test)]
mod preflight;
#[cfg(test)]
mod variant;
