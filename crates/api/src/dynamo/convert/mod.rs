//! Converts DynamoGraphDeploymentRequests between v1alpha1 and v1beta1, as JSON.
//!
//! Each direction has the same steps: move every field that the other version has, overlay the result on the fields
//! that annotations preserve, and preserve all other fields in annotations. Fields win over annotations of single
//! fields, and these over the annotations for all other fields.

use serde_json::Value;

use crate::Family;
use crate::convert::{ConvertError, Converted};

mod annotations;
mod job;
mod spec;
mod status;

use crate::convert::tree::{JsonObject, SourceFields, leaf_paths, text};
pub use annotations::{
    CONFIG_MAP_REF, DEPLOYMENT_OVERRIDES, DEPLOYMENT_STATUS, ENABLE_GPU_DISCOVERY, OUTPUT_PVC, PROFILING_CONFIG,
    PROFILING_JOB_NAME, PROFILING_RESULTS, SPEC, STATUS, STATUS_BACKEND,
};
use annotations::{ObjectAnnotations, PreservedFields};
pub use spec::shared_fields;

#[derive(Clone, Copy, PartialEq, Eq)]
enum DgdrVersion {
    Alpha,
    Beta,
}

impl DgdrVersion {
    fn name(self) -> &'static str {
        match self {
            Self::Alpha => "v1alpha1",
            Self::Beta => "v1beta1",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Alpha => Self::Beta,
            Self::Beta => Self::Alpha,
        }
    }
}

/// Converts an object of the other version to `to`, one of the served versions.
pub fn convert(object: Value, to: &'static str) -> Result<Converted, ConvertError> {
    let to = if to == DgdrVersion::Alpha.name() { DgdrVersion::Alpha } else { DgdrVersion::Beta };
    let Value::Object(mut object) = object else { return Err(ConvertError::NotAnObject) };
    let complete = is_complete(&object);
    let mut annotations = ObjectAnnotations::take_from(&mut object)?;
    let preserved = annotations.as_mut().map(|annotations| annotations.take_fields(to)).unwrap_or_default();
    let mut problems = Vec::new();
    let (spec, status) = (section(&object, "spec", &mut problems), section(&object, "status", &mut problems));
    if to == DgdrVersion::Beta {
        problems.extend(spec::config_problem(&spec));
    }
    // Without metadata the object is part of a request. A stored object must be converted, whatever it is: otherwise no
    // request of the cluster could be listed.
    if annotations.is_none()
        && let Some(SectionProblem { path, problem }) = problems.first()
    {
        return Err(ConvertError::Unreadable { path: (*path).to_owned(), problem: problem.clone() });
    }
    let converted = match to {
        DgdrVersion::Beta => to_beta(spec, status, preserved, complete),
        DgdrVersion::Alpha => to_alpha(spec, status, preserved, complete, annotations.is_some()),
    };
    replace_section(&mut object, "spec", converted.spec);
    replace_section(&mut object, "status", converted.status);
    object.insert("apiVersion".to_owned(), format!("{}/{}", Family::Dgdr.group(), to.name()).into());
    let (spec, status) = (converted.unmapped_spec, converted.unmapped_status);
    let lost = match annotations {
        Some(mut annotations) => {
            annotations.store_fields(to.other(), spec.remaining, converted.workers_image, status.remaining);
            let unused = annotations.put_back(&mut object);
            problems.iter().map(SectionProblem::loss).chain(unused).collect()
        }
        None => losses_without_metadata(&spec, &status, to)?,
    };
    Ok(Converted { object: Value::Object(object), lost })
}

/// A value that is not an object although the schema requires one: an earlier schema may have accepted it.
struct SectionProblem {
    path: &'static str,
    problem: String,
}

impl SectionProblem {
    fn loss(&self) -> String {
        let Self { path, problem } = self;
        format!("{path}: {problem}; the value is kept and has no effect")
    }
}

/// Both sections in the other version, and the fields that it does not have.
struct ConvertedSections {
    spec: JsonObject,
    unmapped_spec: SourceFields,
    workers_image: bool,
    status: JsonObject,
    unmapped_status: SourceFields,
}

fn to_beta(spec: JsonObject, status: JsonObject, preserved: PreservedFields, complete: bool) -> ConvertedSections {
    let mut split = spec::from_alpha(spec, complete);
    let spec = spec::assemble_beta(&mut split, preserved.spec, complete);
    let state = status.get("state").cloned();
    let mut status_split = status::from_alpha(status);
    let status = status::assemble_beta(&mut status_split, preserved.status, state.as_ref());
    ConvertedSections {
        spec,
        unmapped_spec: split.unmapped,
        workers_image: split.workers_image,
        status,
        unmapped_status: status_split.unmapped,
    }
}

fn to_alpha(
    spec: JsonObject,
    status: JsonObject,
    preserved: PreservedFields,
    complete: bool,
    has_annotations: bool,
) -> ConvertedSections {
    let mut split = spec::from_beta(spec, complete);
    let spec = spec::assemble_alpha(&mut split, preserved.spec, complete);
    let phase_and_graph =
        ["phase", "dgdName"].map(|name| status.get_key_value(name).map(|(k, v)| (k.clone(), v.clone())));
    let mut status_split = status::from_beta(status);
    let status = status::assemble_alpha(&mut status_split, preserved.status);
    // These fields are valid in one phase or for one graph only. On the way back, phase and graph show whether they are
    // stale.
    let phase_fields = ["profilingPhase", "profilingJobName", "deploymentInfo"];
    if has_annotations && phase_fields.iter().any(|name| status_split.unmapped.remaining.contains_key(*name)) {
        status_split.unmapped.remaining.extend(phase_and_graph.into_iter().flatten());
    }
    ConvertedSections {
        spec,
        unmapped_spec: split.unmapped,
        workers_image: false,
        status,
        unmapped_status: status_split.unmapped,
    }
}

/// Whether the object is complete. The partial objects of server-side apply never have a name.
fn is_complete(object: &JsonObject) -> bool {
    let metadata = object.get("metadata");
    let has_name = ["name", "generateName"].iter().any(|name| text(metadata.and_then(|all| all.get(*name))).is_some());
    has_name && object.get("spec").and_then(|spec| spec.get("model")).is_some()
}

/// A copy of the section: `replace_section` needs the original.
fn section(object: &JsonObject, name: &'static str, problems: &mut Vec<SectionProblem>) -> JsonObject {
    match object.get(name) {
        None | Some(Value::Null) => JsonObject::new(),
        Some(Value::Object(section)) => section.clone(),
        Some(_) => {
            problems.push(SectionProblem { path: name, problem: "must be an object".to_owned() });
            JsonObject::new()
        }
    }
}

/// Writes a section. An empty one is omitted, unless it was present and empty before. A value that is no section stays.
fn replace_section(object: &mut JsonObject, name: &str, section: JsonObject) {
    let was_empty = match object.get(name) {
        Some(Value::Object(before)) => before.is_empty(),
        Some(Value::Null) => true,
        Some(_) => return,
        None => false,
    };
    if !section.is_empty() {
        object.insert(name.to_owned(), Value::Object(section));
    } else if !was_empty {
        object.remove(name);
    }
}

/// The losses of an object without metadata, where no annotation can preserve the unmapped fields. A field that the
/// other version does not have is dropped, as server-side apply requires; a value of a wrong type is refused.
fn losses_without_metadata(
    spec: &SourceFields,
    status: &SourceFields,
    to: DgdrVersion,
) -> Result<Vec<String>, ConvertError> {
    for (section, source) in [("spec", spec), ("status", status)] {
        if let Some((path, required)) = source.wrong_types.first() {
            let problem = format!("must be {required}");
            return Err(ConvertError::Unreadable { path: format!("{section}.{path}"), problem });
        }
    }
    let paths = leaf_paths("spec", &spec.remaining).into_iter().chain(leaf_paths("status", &status.remaining));
    let version = to.name();
    let reason =
        format!("{version} has no field for this value, and the object has no metadata to store it in an annotation");
    Ok(paths.map(|path| format!("{path}: {reason}")).collect())
}
