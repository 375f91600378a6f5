//! Tests of `steersman-api`: tables for single cases, property tests ("laws") for every input.

#[cfg(test)]
mod compare;
#[cfg(test)]
mod conditions;
#[cfg(test)]
mod crds;
#[cfg(test)]
mod crds_published;
#[cfg(test)]
mod dynamo;
#[cfg(test)]
mod dynamo_convert;
#[cfg(test)]
mod earlier_texts;
#[cfg(test)]
mod families;
#[cfg(test)]
mod llamastack;
#[cfg(test)]
mod llamastack_convert;
#[cfg(test)]
mod manifests;
#[cfg(test)]
mod server_versions;
#[cfg(test)]
mod shared_fields;
#[cfg(test)]
mod upstream;
#[cfg(test)]
mod variant;
