//! The contract of `steersman-api`: tables for what is fixed, laws for what holds for every input.

#[cfg(test)]
mod conditions;
#[cfg(test)]
mod families;
#[cfg(test)]
mod server_versions;
#[cfg(test)]
mod upstream;
