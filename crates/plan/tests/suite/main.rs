//! Situations and the decisions that must follow, as tables; laws where every situation counts.

#[cfg(test)]
mod llamastack;
#[cfg(test)]
mod llamastack_base;
#[cfg(test)]
mod llamastack_config;
#[cfg(test)]
mod preflight;
