//! What is wrong with a request by itself: one function for each rule.
//! Comes in: the request and what the operator was told; goes out: problems, in the order in which they are told.

use serde_json::json;
use steersman_api::dynamo::v1beta1::{Backend, DynamoGraphDeploymentRequestSpec, GpuSku, SearchStrategy};

use super::Facts;
use super::problem::{Cause, Problem};
use super::version::has_version;
use crate::dynamo::snapshot::ObservedObject;
use crate::dynamo::{asked, graph, hardware, names, profile_job};

type Spec = DynamoGraphDeploymentRequestSpec;

pub const VERSION: &str = "spec.runtimeVersionOverride";

/// What Linux takes as one argument of a program, in bytes.
const LONGEST_ARGUMENT: usize = 131_071;

/// Everything that refuses a new request.
pub fn wrong(object: &ObservedObject, facts: &Facts<'_>) -> Vec<Problem> {
    let spec = &object.spec;
    let found = [
        no_hardware(spec, facts.discovery),
        thorough_auto(spec),
        no_version(spec, facts.default_image),
        long_name(&object.name),
        no_image(spec, facts.default_image),
        unknown_sku(spec),
        graph_override(spec),
        graph_name(spec),
        long_spec(spec, facts.default_image),
    ];
    found.into_iter().flatten().collect()
}

/// Any of the three fields will do: what else is needed may come from an exporter.
pub fn no_hardware(spec: &Spec, discovery: bool) -> Option<Problem> {
    let given = spec.hardware.as_ref().is_some_and(|hardware| {
        hardware.gpu_sku.is_some() || hardware.vram_mb.is_some() || hardware.num_gpus_per_node.is_some()
    });
    (!discovery && !given).then(|| {
        Problem::new(
            "spec.hardware",
            Cause::Required,
            "GPU hardware configuration is required when GPU discovery is disabled",
            "Set spec.hardware.gpuSku, spec.hardware.vramMb and spec.hardware.numGpusPerNode.",
        )
    })
}

pub fn thorough_auto(spec: &Spec) -> Option<Problem> {
    let auto = spec.backend.unwrap_or(Backend::Auto) == Backend::Auto;
    (auto && spec.search_strategy == Some(SearchStrategy::Thorough)).then(|| {
        Problem::new(
            "spec.searchStrategy",
            Cause::Invalid(Some(json!("thorough"))),
            "is incompatible with spec.backend \"auto\"; set spec.backend to a specific backend (sglang, trtllm, or vllm)",
            "Or set spec.searchStrategy to rapid.",
        )
        .in_conditions(
            "spec.searchStrategy \"thorough\" is incompatible with spec.backend \"auto\": set spec.backend to a specific \
             backend (sglang, trtllm, or vllm)",
        )
    })
}

/// The graph's admission demands it; the version of the profiler's image is what the workers' images get.
pub fn no_version(spec: &Spec, default: Option<&str>) -> Option<Problem> {
    let image = asked::image_or(spec, default)?;
    let known = asked::given(spec.runtime_version_override.as_deref()).is_some() || has_version(image);
    (!known).then(|| {
        Problem::new(
            VERSION,
            Cause::Required,
            "is required when spec.image has no parseable semantic-version tag",
            format!("Set it to the version of Dynamo in {image}, such as {}.", super::DYNAMO_VERSION),
        )
    })
}

pub fn long_name(name: &str) -> Option<Problem> {
    (name.len() > names::NAME_LIMIT).then(|| {
        let what = format!(
            "has {} characters, and the profiling Job {} can have no label of that length",
            name.len(),
            names::profiling_job(name)
        );
        Problem::new(
            "metadata.name",
            Cause::Invalid(Some(json!(name))),
            what.clone(),
            format!("Create the request under a name of at most {} characters.", names::NAME_LIMIT),
        )
        .in_conditions(format!("metadata.name {what}"))
    })
}

pub fn no_image(spec: &Spec, default: Option<&str>) -> Option<Problem> {
    asked::image_or(spec, default).is_none().then(|| {
        Problem::new(
            "spec.image",
            Cause::Required,
            "spec.image is required",
            "Set it, or start the operator with --dgdr-default-image to have one for all requests.",
        )
        .in_conditions(
            "spec.image is required but not set; ensure the defaulting webhook ran or set spec.image explicitly",
        )
    })
}

/// The schema has the same list; an object may have been stored before it did.
pub fn unknown_sku(spec: &Spec) -> Option<Problem> {
    match spec.hardware.as_ref()?.gpu_sku.as_ref()? {
        GpuSku::Other(text) => Some(
            Problem::new(
                "spec.hardware.gpuSku",
                Cause::Invalid(Some(json!(text))),
                "the profiler does not know it",
                format!("Set it to one of {}.", hardware::sku::all()),
            )
            .in_conditions(format!("spec.hardware.gpuSku is {text:?}, which the profiler does not know")),
        ),
        _ => None,
    }
}

/// The profiler would only come to it at the end of its work.
pub fn graph_override(spec: &Spec) -> Option<Problem> {
    let wanted = spec.overrides.as_ref()?.dgd.as_ref()?;
    let problem = graph::merge::problem(wanted)?;
    let remedy = "Change it: profiling begins as soon as it can be merged.";
    Some(Problem::new("spec.overrides.dgd", Cause::Invalid(None), problem, remedy))
}

/// The server would only refuse it when the graph is created, at the end of all work.
pub fn graph_name(spec: &Spec) -> Option<Problem> {
    let wanted = spec.overrides.as_ref()?.dgd.as_ref()?.get("metadata")?.get("name")?;
    let valid = wanted.as_str().is_some_and(|name| name.is_empty() || names::is_valid(name));
    (!valid).then(|| {
        Problem::new(
            "spec.overrides.dgd.metadata.name",
            Cause::Invalid(Some(wanted.clone())),
            "no object can have this name",
            "Use small letters, digits and hyphens, with a letter or digit at both ends.",
        )
        .in_conditions(format!("spec.overrides.dgd.metadata.name is {wanted}, and no object can have this name"))
    })
}

/// No container could be started with it.
pub fn long_spec(spec: &Spec, default: Option<&str>) -> Option<Problem> {
    let length = profile_job::config(spec, asked::image_or(spec, default)?).len();
    (length > LONGEST_ARGUMENT).then(|| {
        Problem::new(
            "spec",
            Cause::Invalid(None),
            format!(
                "it has {length} bytes as JSON, and the profiler is handed it as one argument, of which Linux takes at most \
                 {LONGEST_ARGUMENT}"
            ),
            "Shorten spec.features.planner or spec.overrides.",
        )
    })
}
