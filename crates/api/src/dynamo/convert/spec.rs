//! Converts the spec of a request.
//!
//! Every field that the other version has is moved; the rest goes to annotations. Fields from annotations pass through
//! the same step, so that a field of both versions never returns from an annotation.

use serde_json::{Value, json};

use super::annotations::annotated_spec;
use super::{SectionProblem, job};
use crate::convert::tree::{
    JsonObject, JsonPath, SourceFields, ValueKind, insert_at, int32, overlay, remove, text, value_at,
};
use crate::convert::{SharedField, StoredLocation};

/// Fields with the same name and meaning in both versions.
const SAME: [&JsonPath; 4] = [&["model"], &["backend"], &["runtimeVersionOverride"], &["autoApply"]];

/// Fields of v1alpha1 with their paths in v1beta1.
const MOVED: [(&JsonPath, ValueKind, &JsonPath); 12] = [
    (&["useMocker"], ValueKind::True, &["features", "mocker", "enabled"]),
    (&["profilingConfig", "config", "sla", "ttft"], ValueKind::Number, &["sla", "ttft"]),
    (&["profilingConfig", "config", "sla", "itl"], ValueKind::Number, &["sla", "itl"]),
    (
        &["profilingConfig", "config", "sla", "optimizationType"],
        ValueKind::OneOf(&["latency", "throughput"]),
        &["sla", "optimizationType"],
    ),
    (LENGTHS[0].0, ValueKind::Int32, LENGTHS[0].1),
    (LENGTHS[1].0, ValueKind::Int32, LENGTHS[1].1),
    (
        &["profilingConfig", "config", "deployment", "modelCache", "pvcName"],
        ValueKind::NonEmptyString,
        &["modelCache", "pvcName"],
    ),
    (
        &["profilingConfig", "config", "deployment", "modelCache", "modelPathInPvc"],
        ValueKind::NonEmptyString,
        &["modelCache", "pvcModelPath"],
    ),
    (
        &["profilingConfig", "config", "deployment", "modelCache", "pvcMountPath"],
        ValueKind::NonEmptyString,
        &["modelCache", "pvcMountPath"],
    ),
    (&["profilingConfig", "config", "planner"], ValueKind::NonEmptyObject, &["features", "planner"]),
    (
        &["profilingConfig", "tolerations"],
        ValueKind::NonEmptyList,
        &["overrides", "profilingJob", "template", "spec", "tolerations"],
    ),
    (
        &["profilingConfig", "nodeSelector"],
        ValueKind::NonEmptyObject,
        &["overrides", "profilingJob", "template", "spec", "nodeSelector"],
    ),
];

/// Lengths in tokens. v1alpha1 allows a fraction, v1beta1 does not.
const LENGTHS: [(&JsonPath, &JsonPath); 2] = [
    (&["profilingConfig", "config", "sla", "isl"], &["workload", "isl"]),
    (&["profilingConfig", "config", "sla", "osl"], &["workload", "osl"]),
];

const CONFIG: &JsonPath = &["profilingConfig", "config"];
const RESOURCES: &JsonPath = &["profilingConfig", "resources"];
const PROFILER_IMAGE: &JsonPath = &["profilingConfig", "profilerImage"];
const WORKERS_IMAGE: &JsonPath = &["deploymentOverrides", "workersImage"];
const IMAGE: &JsonPath = &["image"];
const POD: &JsonPath = &["overrides", "profilingJob", "template", "spec"];

/// The fields of v1alpha1 that v1beta1 has, or preserves in their own annotation.
pub fn shared_fields() -> Vec<SharedField> {
    let field = |stored, written| SharedField { stored, written, with_content: true };
    let same = SAME.map(|path| field(StoredLocation::Spec(path), path));
    let moved = MOVED.map(|(alpha, _, beta)| field(StoredLocation::Spec(beta), alpha));
    let image = field(StoredLocation::Spec(IMAGE), PROFILER_IMAGE);
    let preserved = annotated_spec().map(|(annotation, alpha)| field(StoredLocation::Annotation(annotation), alpha));
    same.into_iter().chain(moved).chain([image]).chain(preserved).collect()
}

/// A spec or a status, split for the other version.
#[derive(Default)]
pub struct SectionSplit {
    /// Fields of the other version.
    pub mapped: JsonObject,
    /// Fields that the other version does not have.
    pub unmapped: SourceFields,
    /// Resources of the profiling container, to be merged into the list of containers.
    pub resources: Option<Value>,
    /// Whether `image` of v1beta1 is the workers' image, because v1alpha1 has no other.
    pub workers_image: bool,
}

/// Fields of a spec that were preserved in annotations.
#[derive(Default)]
pub struct PreservedSpec {
    pub spec: JsonObject,
    pub workers_image: bool,
}

/// The opaque configuration of a v1alpha1 spec, if it is not an object. The text begins like that of the Go operator.
pub fn config_problem(spec: &JsonObject) -> Option<SectionProblem> {
    let kind = match value_at(spec, CONFIG)? {
        Value::Object(_) | Value::Null => return None,
        Value::Array(_) => "a list",
        Value::String(_) => "a string",
        Value::Number(_) => "a number",
        Value::Bool(_) => "a boolean",
    };
    let problem = format!("failed to parse ProfilingConfig.Config: expected an object, found {kind}");
    Some(SectionProblem { path: "spec.profilingConfig.config", problem })
}

/// In a `complete` object, an absent field means its default, which differs between the versions for `autoApply`, and
/// required fields must be present.
pub fn from_alpha(spec: JsonObject, complete: bool) -> SectionSplit {
    let mut split = SectionSplit { unmapped: SourceFields::new(spec), ..SectionSplit::default() };
    let SectionSplit { mapped, unmapped, .. } = &mut split;
    for path in SAME {
        move_value(unmapped, path, ValueKind::Any, mapped, path);
    }
    for (alpha, beta) in LENGTHS {
        // The exact number stays unmapped, and is restored if v1beta1 does not change the length.
        if let Some(tokens) = value_at(&unmapped.remaining, alpha).and_then(truncate) {
            insert_at(mapped, beta, tokens.into());
        }
    }
    for (alpha, kind, beta) in MOVED {
        if value_at(mapped, beta).is_none() {
            move_value(unmapped, alpha, kind, mapped, beta);
        }
    }
    if let Some(image) = unmapped.take(PROFILER_IMAGE, ValueKind::NonEmptyString) {
        insert_at(mapped, IMAGE, image);
    } else if let Some(image) = text(value_at(&unmapped.remaining, WORKERS_IMAGE)) {
        insert_at(mapped, IMAGE, image.into());
        split.workers_image = true;
    }
    split.resources = split.unmapped.take(RESOURCES, ValueKind::NonEmptyObject);
    // The schema allows any value in the opaque configuration.
    split.unmapped.wrong_types.retain(|(path, _)| !path.starts_with("profilingConfig.config."));
    if complete {
        split.mapped.entry("autoApply").or_insert(false.into());
        if value_at(&split.unmapped.remaining, PROFILER_IMAGE) == Some(&"".into()) {
            remove(&mut split.unmapped.remaining, PROFILER_IMAGE);
        }
    }
    split
}

pub fn from_beta(spec: JsonObject, complete: bool) -> SectionSplit {
    let mut split = SectionSplit { unmapped: SourceFields::new(spec), ..SectionSplit::default() };
    let SectionSplit { mapped, unmapped, .. } = &mut split;
    for path in SAME {
        move_value(unmapped, path, ValueKind::Any, mapped, path);
    }
    for (alpha, kind, beta) in MOVED {
        move_value(unmapped, beta, kind, mapped, alpha);
    }
    move_value(unmapped, IMAGE, ValueKind::NonEmptyString, mapped, PROFILER_IMAGE);
    if let Some(resources) = job::take_resources(unmapped) {
        insert_at(mapped, RESOURCES, resources);
    }
    if complete {
        mapped.entry("autoApply").or_insert(true.into());
        let placed = |name: &str| mapped.get("profilingConfig").and_then(|config| config.get(name)).is_some();
        if placed("tolerations") || placed("nodeSelector") {
            job::remove_empty_container_list(&mut unmapped.remaining);
        }
    }
    split
}

fn move_value(from: &mut SourceFields, path: &JsonPath, kind: ValueKind, to: &mut JsonObject, place: &JsonPath) {
    if let Some(value) = from.take(path, kind) {
        insert_at(to, place, value);
    }
}

/// The integer part of a number with a fraction.
fn truncate(value: &Value) -> Option<i32> {
    let number = value.as_f64().filter(|_| value.as_i64().is_none())?.trunc();
    let fits = f64::from(i32::MIN) <= number && number <= f64::from(i32::MAX);
    #[expect(clippy::cast_possible_truncation, reason = "checked in the line above")]
    fits.then_some(number as i32)
}

/// The v1beta1 spec: the fields of v1alpha1 over those from annotations.
pub fn assemble_beta(split: &mut SectionSplit, preserved: PreservedSpec, complete: bool) -> JsonObject {
    let mut spec = from_beta(preserved.spec, false).unmapped.remaining;
    let mapped = std::mem::take(&mut split.mapped);
    let placed = value_at(&mapped, POD).is_some();
    overlay(&mut spec, mapped);
    if let Some(resources) = split.resources.take() {
        job::put_resources(&mut spec, resources);
    }
    if complete && placed {
        job::add_container_list(&mut spec);
    }
    spec
}

/// The v1alpha1 spec: the fields of v1beta1 over those from annotations.
pub fn assemble_alpha(split: &mut SectionSplit, mut preserved: PreservedSpec, complete: bool) -> JsonObject {
    let mut mapped = std::mem::take(&mut split.mapped);
    // An unusable configuration returns only if no field of v1beta1 has to be written into it.
    if config_problem(&preserved.spec).is_some() && value_at(&mapped, CONFIG).is_some() {
        remove(&mut preserved.spec, CONFIG);
    }
    let mut spec = from_alpha(preserved.spec, false).unmapped.remaining;
    for (alpha, _) in LENGTHS {
        if let Some(tokens) = value_at(&spec, alpha).and_then(truncate) {
            let unchanged = value_at(&mapped, alpha).and_then(int32) == Some(tokens);
            remove(if unchanged { &mut mapped } else { &mut spec }, alpha);
        }
    }
    // The workers' image was used as `image` because v1alpha1 had no other. It must not appear twice, and must not be restored
    // after v1beta1 removed or changed the image.
    let image = text(value_at(&mapped, PROFILER_IMAGE));
    if let Some(workers) = text(value_at(&spec, WORKERS_IMAGE)) {
        if preserved.workers_image && image == Some(workers) {
            remove(&mut mapped, PROFILER_IMAGE);
        } else if image.is_none() {
            remove(&mut spec, WORKERS_IMAGE);
        }
    }
    overlay(&mut spec, mapped);
    // The schema requires an image, even an empty one: without it the object could not be written back.
    let is_possible = spec.get("profilingConfig").is_none_or(Value::is_object);
    if complete && is_possible && value_at(&spec, PROFILER_IMAGE).is_none() {
        insert_at(&mut spec, PROFILER_IMAGE, "".into());
    }
    spec
}

/// Removes the four fields of `deploymentOverrides` that share one annotation.
pub fn take_metadata_overrides(spec: &mut JsonObject) -> Option<JsonObject> {
    let overrides = spec.get_mut("deploymentOverrides")?.as_object_mut()?;
    let names = ["name", "namespace", "labels", "annotations"];
    let taken: JsonObject = names.iter().filter_map(|name| overrides.remove_entry(*name)).collect();
    if taken.is_empty() {
        return None;
    }
    if overrides.is_empty() {
        spec.remove("deploymentOverrides");
    }
    Some(taken)
}

pub fn put_metadata_overrides(spec: &mut JsonObject, overrides: JsonObject) {
    for (name, value) in overrides {
        match spec.get_mut("deploymentOverrides") {
            Some(Value::Object(known)) => {
                known.insert(name, value);
            }
            _ => {
                spec.insert("deploymentOverrides".to_owned(), json!({ name: value }));
            }
        }
    }
}
