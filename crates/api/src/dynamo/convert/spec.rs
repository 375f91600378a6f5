//! Converts the spec of a request.
//!
//! Every field that the other version has is moved; the rest goes to annotations. Fields from annotations pass through the
//! same step, so that a field of both versions never returns from an annotation.

use serde_json::{Value, json};

use super::carry::annotated_spec;
use super::job;
use crate::convert::tree::{Kind, Object, Path, Source, at, int32, overlay, put, remove, text};
use crate::convert::{SharedField, StoredPlace};

/// Fields of the same name and meaning.
const SAME: [&Path; 4] = [&["model"], &["backend"], &["runtimeVersionOverride"], &["autoApply"]];

/// Fields of v1alpha1 with their place in v1beta1.
const MOVED: [(&Path, Kind, &Path); 12] = [
    (&["useMocker"], Kind::True, &["features", "mocker", "enabled"]),
    (&["profilingConfig", "config", "sla", "ttft"], Kind::Number, &["sla", "ttft"]),
    (&["profilingConfig", "config", "sla", "itl"], Kind::Number, &["sla", "itl"]),
    (
        &["profilingConfig", "config", "sla", "optimizationType"],
        Kind::Word(&["latency", "throughput"]),
        &["sla", "optimizationType"],
    ),
    (LENGTHS[0].0, Kind::Int32, LENGTHS[0].1),
    (LENGTHS[1].0, Kind::Int32, LENGTHS[1].1),
    (&["profilingConfig", "config", "deployment", "modelCache", "pvcName"], Kind::Text, &["modelCache", "pvcName"]),
    (
        &["profilingConfig", "config", "deployment", "modelCache", "modelPathInPvc"],
        Kind::Text,
        &["modelCache", "pvcModelPath"],
    ),
    (
        &["profilingConfig", "config", "deployment", "modelCache", "pvcMountPath"],
        Kind::Text,
        &["modelCache", "pvcMountPath"],
    ),
    (&["profilingConfig", "config", "planner"], Kind::Filled, &["features", "planner"]),
    (
        &["profilingConfig", "tolerations"],
        Kind::List,
        &["overrides", "profilingJob", "template", "spec", "tolerations"],
    ),
    (
        &["profilingConfig", "nodeSelector"],
        Kind::Filled,
        &["overrides", "profilingJob", "template", "spec", "nodeSelector"],
    ),
];

/// Lengths in tokens. v1alpha1 allows a fraction, v1beta1 does not.
const LENGTHS: [(&Path, &Path); 2] = [
    (&["profilingConfig", "config", "sla", "isl"], &["workload", "isl"]),
    (&["profilingConfig", "config", "sla", "osl"], &["workload", "osl"]),
];

const CONFIG: &Path = &["profilingConfig", "config"];
const RESOURCES: &Path = &["profilingConfig", "resources"];
const PROFILER_IMAGE: &Path = &["profilingConfig", "profilerImage"];
const WORKERS_IMAGE: &Path = &["deploymentOverrides", "workersImage"];
const IMAGE: &Path = &["image"];
const POD: &Path = &["overrides", "profilingJob", "template", "spec"];

/// The fields of v1alpha1 that v1beta1 has, or keeps in their own annotation.
pub fn shared_fields() -> Vec<SharedField> {
    let field = |stored, written| SharedField { stored, written, with_content: true };
    let same = SAME.map(|path| field(StoredPlace::Spec(path), path));
    let moved = MOVED.map(|(alpha, _, beta)| field(StoredPlace::Spec(beta), alpha));
    let image = field(StoredPlace::Spec(IMAGE), PROFILER_IMAGE);
    let kept = annotated_spec().map(|(annotation, alpha)| field(StoredPlace::Annotation(annotation), alpha));
    same.into_iter().chain(moved).chain([image]).chain(kept).collect()
}

/// A spec or a status, split for the other version.
#[derive(Default)]
pub struct Split {
    /// Fields of the other version.
    pub said: Object,
    /// Fields that the other version does not have.
    pub rest: Source,
    /// Resources of the profiling container, to be merged into the list of containers.
    pub resources: Option<Value>,
    /// Whether `image` of v1beta1 is the workers' image, because v1alpha1 has no other.
    pub workers_image: bool,
}

/// Fields of a spec from annotations.
#[derive(Default)]
pub struct Kept {
    pub spec: Object,
    pub workers_image: bool,
}

/// Why a v1alpha1 spec cannot be converted: an opaque configuration that is not an object has no fields. The text begins like
/// that of the Go operator.
pub fn config_problem(spec: &Object) -> Option<String> {
    let kind = match at(spec, CONFIG)? {
        Value::Object(_) | Value::Null => return None,
        Value::Array(_) => "a list",
        Value::String(_) => "a text",
        Value::Number(_) => "a number",
        Value::Bool(_) => "true or false",
    };
    Some(format!("failed to parse ProfilingConfig.Config: it is {kind}; write an object"))
}

/// `whole`: the object is complete. Only then an absent field means its default, which differs between the versions for
/// `autoApply`, and only then required fields must be present.
pub fn from_alpha(spec: Object, whole: bool) -> Split {
    let mut split = Split { rest: Source::new(spec), ..Split::default() };
    let Split { said, rest, .. } = &mut split;
    for path in SAME {
        move_value(rest, path, Kind::Anything, said, path);
    }
    for (alpha, beta) in LENGTHS {
        // The exact number stays in the rest, and returns if v1beta1 does not change the length.
        if let Some(tokens) = at(&rest.rest, alpha).and_then(cut) {
            put(said, beta, tokens.into());
        }
    }
    for (alpha, kind, beta) in MOVED {
        if at(said, beta).is_none() {
            move_value(rest, alpha, kind, said, beta);
        }
    }
    if let Some(image) = rest.take(PROFILER_IMAGE, Kind::Text) {
        put(said, IMAGE, image);
    } else if let Some(image) = text(at(&rest.rest, WORKERS_IMAGE)) {
        put(said, IMAGE, image.into());
        split.workers_image = true;
    }
    split.resources = split.rest.take(RESOURCES, Kind::Filled);
    // The schema allows any value in the opaque configuration.
    split.rest.wrong.retain(|(path, _)| !path.starts_with("profilingConfig.config."));
    if whole {
        split.said.entry("autoApply").or_insert(false.into());
        if at(&split.rest.rest, PROFILER_IMAGE) == Some(&"".into()) {
            remove(&mut split.rest.rest, PROFILER_IMAGE);
        }
    }
    split
}

pub fn from_beta(spec: Object, whole: bool) -> Split {
    let mut split = Split { rest: Source::new(spec), ..Split::default() };
    let Split { said, rest, .. } = &mut split;
    for path in SAME {
        move_value(rest, path, Kind::Anything, said, path);
    }
    for (alpha, kind, beta) in MOVED {
        move_value(rest, beta, kind, said, alpha);
    }
    move_value(rest, IMAGE, Kind::Text, said, PROFILER_IMAGE);
    if let Some(resources) = job::take_resources(rest) {
        put(said, RESOURCES, resources);
    }
    if whole {
        said.entry("autoApply").or_insert(true.into());
        let placed = |name: &str| said.get("profilingConfig").and_then(|config| config.get(name)).is_some();
        if placed("tolerations") || placed("nodeSelector") {
            job::forget_completion(&mut rest.rest);
        }
    }
    split
}

fn move_value(from: &mut Source, path: &Path, kind: Kind, to: &mut Object, place: &Path) {
    if let Some(value) = from.take(path, kind) {
        put(to, place, value);
    }
}

/// The integer part of a number with a fraction.
fn cut(value: &Value) -> Option<i32> {
    let number = value.as_f64().filter(|_| value.as_i64().is_none())?.trunc();
    let fits = f64::from(i32::MIN) <= number && number <= f64::from(i32::MAX);
    #[expect(clippy::cast_possible_truncation, reason = "checked in the line above")]
    fits.then_some(number as i32)
}

/// The v1beta1 spec: the fields of v1alpha1 over those from annotations.
pub fn join_beta(split: &mut Split, kept: Kept, whole: bool) -> Object {
    let mut spec = from_beta(kept.spec, false).rest.rest;
    let said = std::mem::take(&mut split.said);
    let placed = at(&said, POD).is_some();
    overlay(&mut spec, said);
    if let Some(resources) = split.resources.take() {
        job::give_resources(&mut spec, resources);
    }
    if whole && placed {
        job::complete(&mut spec);
    }
    spec
}

/// The v1alpha1 spec: the fields of v1beta1 over those from annotations.
pub fn join_alpha(split: &mut Split, mut kept: Kept, whole: bool) -> Object {
    if config_problem(&kept.spec).is_some() {
        remove(&mut kept.spec, CONFIG);
    }
    let mut spec = from_alpha(kept.spec, false).rest.rest;
    let mut said = std::mem::take(&mut split.said);
    for (alpha, _) in LENGTHS {
        if let Some(tokens) = at(&spec, alpha).and_then(cut) {
            let unchanged = at(&said, alpha).and_then(int32) == Some(tokens);
            remove(if unchanged { &mut said } else { &mut spec }, alpha);
        }
    }
    // The workers' image was used as `image` because v1alpha1 had no other. It must not appear twice, nor return after
    // v1beta1 dropped or changed the image.
    let image = text(at(&said, PROFILER_IMAGE));
    if let Some(workers) = text(at(&spec, WORKERS_IMAGE)) {
        if kept.workers_image && image == Some(workers) {
            remove(&mut said, PROFILER_IMAGE);
        } else if image.is_none() {
            remove(&mut spec, WORKERS_IMAGE);
        }
    }
    overlay(&mut spec, said);
    // The schema requires an image, even an empty one: without it the object could not be written back.
    let room = spec.get("profilingConfig").is_none_or(Value::is_object);
    if whole && room && at(&spec, PROFILER_IMAGE).is_none() {
        put(&mut spec, PROFILER_IMAGE, "".into());
    }
    spec
}

/// Removes the four fields of `deploymentOverrides` that share one annotation.
pub fn take_wishes(rest: &mut Object) -> Option<Object> {
    let wishes = rest.get_mut("deploymentOverrides")?.as_object_mut()?;
    let four = ["name", "namespace", "labels", "annotations"];
    let taken: Object = four.iter().filter_map(|name| wishes.remove_entry(*name)).collect();
    if taken.is_empty() {
        return None;
    }
    if wishes.is_empty() {
        rest.remove("deploymentOverrides");
    }
    Some(taken)
}

pub fn put_wishes(spec: &mut Object, wishes: Object) {
    for (name, value) in wishes {
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
