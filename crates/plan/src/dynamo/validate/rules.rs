//! Rules that a request must satisfy: one function for each.

use serde_json::json;
use steersman_api::dynamo::v1beta1::{Backend, DynamoGraphDeploymentRequestSpec, GpuSku};
use steersman_reconcile::{FieldError, message, path};

use super::Facts;
use super::problem::{invalid, required};
use super::version::{has_version, merges_with_our_program};
use crate::dynamo::snapshot::ObservedObject;
use crate::dynamo::{graph, hardware, names, profile_job, request};

type RequestSpec = DynamoGraphDeploymentRequestSpec;

/// Linux limit of one argument of a program, in bytes.
const MAX_ARGUMENT_BYTES: usize = 131_071;

pub fn errors(object: &ObservedObject, facts: &Facts<'_>) -> Vec<FieldError> {
    let spec = &object.spec;
    let found = [
        no_hardware(object, facts.discovery),
        thorough_auto(spec),
        no_version(spec, facts.default_image),
        long_name(&object.name),
        no_image(spec, facts.default_image),
        unknown_sku(spec),
        graph_override(spec, facts.default_image),
        graph_name(spec),
        long_spec(spec, facts.default_image),
    ];
    found.into_iter().flatten().collect()
}

/// Any of the three fields is enough: an exporter may provide the others.
fn no_hardware(object: &ObservedObject, discovery: bool) -> Option<FieldError> {
    let described = request::hardware(object).is_some_and(|hardware| {
        hardware.gpu_sku.is_some() || hardware.vram_mb.is_some() || hardware.num_gpus_per_node.is_some()
    });
    (!discovery && !described).then(|| {
        let (sku, count) = (path!(spec.hardware.gpuSku), path!(spec.hardware.numGpusPerNode));
        required(
            path!(spec.hardware),
            "GPU hardware configuration is required when GPU discovery is disabled",
            message!["Set ", sku, ", ", path!(spec.hardware.vramMb), " and ", count, "."],
        )
    })
}

pub fn thorough_auto(spec: &RequestSpec) -> Option<FieldError> {
    let auto = spec.backend.unwrap_or(Backend::Auto) == Backend::Auto;
    (auto && request::is_thorough(spec)).then(|| {
        let (strategy, backend) = (path!(spec.searchStrategy), path!(spec.backend));
        let specific = " to a specific backend (sglang, trtllm, or vllm)";
        invalid(
            strategy.clone(),
            Some(&json!("thorough")),
            message!["is incompatible with ", &backend, " \"auto\"; set ", &backend, specific],
            message!["Or set ", &strategy, " to rapid."],
        )
        .stated_as(message![
            strategy,
            " \"thorough\" is incompatible with ",
            &backend,
            " \"auto\": set ",
            &backend,
            specific
        ])
    })
}

/// The admission of graphs requires the version; workers get the version of the profiler's image.
pub fn no_version(spec: &RequestSpec, default: Option<&str>) -> Option<FieldError> {
    let image = request::image_or(spec, default)?;
    let known = request::non_empty(spec.runtime_version_override.as_deref()).is_some() || has_version(image);
    (!known).then(|| {
        let mut error = required(
            path!(spec.runtimeVersionOverride),
            message!["is required when ", path!(spec.image), " has no parseable semantic-version tag"],
            format!("Set the field to the version of Dynamo in {image}, such as {}.", super::DYNAMO_VERSION),
        );
        error.reason = "RuntimeVersionUnknown";
        error
    })
}

pub fn long_name(name: &str) -> Option<FieldError> {
    (name.len() > names::NAME_LIMIT).then(|| {
        let what = format!(
            "has {} characters, too many for a label with the name of the profiling Job {}",
            name.len(),
            names::profiling_job(name)
        );
        invalid(
            path!(metadata.name),
            Some(&json!(name)),
            what.clone(),
            format!("Create the request under a name of at most {} characters.", names::NAME_LIMIT),
        )
        .stated_as(message![path!(metadata.name), " ", what])
    })
}

pub fn no_image(spec: &RequestSpec, default: Option<&str>) -> Option<FieldError> {
    request::image_or(spec, default).is_none().then(|| {
        let image = path!(spec.image);
        required(
            image.clone(),
            message![&image, " is required"],
            "Set the image, or start the operator with --dgdr-default-image to have one for all requests.",
        )
        .stated_as(message![
            &image,
            " is required but not set; ensure the defaulting webhook ran or set ",
            &image,
            " explicitly"
        ])
    })
}

/// Checks the type of GPU again: an object may have been stored before the schema had this list.
pub fn unknown_sku(spec: &RequestSpec) -> Option<FieldError> {
    let GpuSku::Other(text) = spec.hardware.as_ref()?.gpu_sku.as_ref()? else { return None };
    let path = path!(spec.hardware.gpuSku);
    let remedy = format!("Set it to one of {}.", hardware::sku::all());
    let error = invalid(path.clone(), Some(&json!(text)), "the profiler does not support it", remedy);
    Some(error.stated_as(message![path, format!(" is {text:?}, which the profiler does not support")]))
}

/// Checks `overrides.dgd` before profiling. Otherwise the profiler would fail on an invalid override at the end of its
/// work.
pub fn graph_override(spec: &RequestSpec, default: Option<&str>) -> Option<FieldError> {
    let wanted = request::graph_override(spec)?;
    if let Some(problem) = graph::merge::problem(wanted) {
        return Some(invalid(path!(spec.overrides.dgd), None, problem, "Correct the override; profiling then starts."));
    }
    let unknown = graph::merge::unknown(wanted).filter(|_| merges_with_our_program(spec, default))?;
    Some(invalid(path!(spec.overrides.dgd), None, unknown, MISPLACED_FIELD))
}

/// The next step for a field of an override that graphs do not have.
pub const MISPLACED_FIELD: &str = "Correct the name of the field, or move the field: fields of pods belong in podTemplate.spec \
                                   of a component (v1beta1) or in extraPodSpec of a service (v1alpha1).";

/// Checks the name in `overrides.dgd` before profiling. Otherwise the API server would reject the graph after hours of
/// profiling.
pub fn graph_name(spec: &RequestSpec) -> Option<FieldError> {
    let wanted = request::graph_override(spec)?.get("metadata")?.get("name")?;
    let valid = wanted.as_str().is_some_and(|name| name.is_empty() || names::is_valid(name));
    (!valid).then(|| {
        let name = path!(spec.overrides.dgd.metadata.name);
        invalid(
            name.clone(),
            Some(wanted),
            "is not a valid object name",
            "Use lower-case letters, digits, hyphens and dots, with a letter or digit at both ends.",
        )
        .stated_as(message![name, format!(" is {wanted}, which is not a valid object name")])
    })
}

/// Checks the length of the spec as JSON: the profiler gets it as one argument, and Linux starts no process with a longer
/// one.
pub fn long_spec(spec: &RequestSpec, default: Option<&str>) -> Option<FieldError> {
    let length = profile_job::config(spec, request::image_or(spec, default)?).len();
    (length > MAX_ARGUMENT_BYTES).then(|| {
        invalid(
            path!(spec),
            None,
            format!(
                "the spec has {length} bytes as JSON, but Linux allows at most {MAX_ARGUMENT_BYTES} bytes in the \
                 argument that passes it to the profiler"
            ),
            message!["Shorten ", path!(spec.features.planner), " or ", path!(spec.overrides), "."],
        )
    })
}
