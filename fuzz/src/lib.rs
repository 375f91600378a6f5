//! The fuzz targets. Each module of a target has a function `check` that takes one input and panics if a law is broken.
//! `cargo xtask fuzz` runs the targets with libFuzzer, by the programs in `fuzz_targets`. The tests of this crate run each target
//! for seconds, without libFuzzer and its instrumentation, so that they need no other build than all tests.

pub mod admission_reviews;
mod byte_mutator;
pub mod conversion;
pub mod image_references;
pub mod inputs;
pub mod json_mutator;
pub mod pod_metrics;
pub mod prometheus_answers;
mod random;
pub mod registry_answers;
pub mod relay_files;
pub mod seeds;
pub mod tenant_yaml;

#[derive(Clone, Copy)]
pub struct Target {
    /// Name of the target, of its program and of its folder of seeds.
    pub name: &'static str,
    /// Panics if the input breaks a law.
    pub check: fn(&[u8]),
    /// Whether the input is a JSON document.
    pub is_json: bool,
}

impl Target {
    const fn bytes(name: &'static str, check: fn(&[u8])) -> Self {
        Self { name, check, is_json: false }
    }

    const fn json(name: &'static str, check: fn(&[u8])) -> Self {
        Self { name, check, is_json: true }
    }
}

pub const TARGETS: [Target; 8] = [
    Target::json("conversion", conversion::check),
    Target::json("admission_reviews", admission_reviews::check),
    Target::bytes("tenant_yaml", tenant_yaml::check),
    Target::bytes("image_references", image_references::check),
    Target::bytes("relay_files", relay_files::check),
    Target::bytes("prometheus_answers", prometheus_answers::check),
    Target::bytes("registry_answers", registry_answers::check),
    Target::bytes("pod_metrics", pod_metrics::check),
];

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// Largest input in bytes. Larger ones are slower and reach no other code.
pub const MAX_INPUT_BYTES: usize = 16 * 1024;

/// Longest message about an input, in bytes. Conditions and events hold several of them.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024;

/// Splits the input at the first line `===`, for targets that read two files.
fn two_parts(text: &str) -> (&str, &str) {
    text.split_once("\n===\n").unwrap_or((text, ""))
}
