//! The fuzz targets. Each module has a function `check` that takes one input and panics if a law is broken; the files in
//! `fuzz_targets` call it.

pub mod admission_reviews;
pub mod conversion;
pub mod image_references;
pub mod json_mutator;
pub mod pod_metrics;
pub mod prometheus_answers;
pub mod registry_answers;
pub mod relay_files;
pub mod tenant_yaml;

/// Longest message about an input, in bytes. Conditions and events hold several of them.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024;

/// Splits the input at the first line `===`, for targets that read two files.
fn two_parts(text: &str) -> (&str, &str) {
    text.split_once("\n===\n").unwrap_or((text, ""))
}
