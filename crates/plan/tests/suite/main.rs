//! Situations and the decisions that must follow, as tables; laws where every situation counts.

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
