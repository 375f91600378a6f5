//! Preserves the fields that one version does not have in annotations of the other.
//!
//! A v1beta1 object has annotations for single v1alpha1 fields, which operators and users read, and two annotations for
//! all fields that it lacks: newer Go operators read only these. A v1alpha1 object has the same two, with fields of
//! v1beta1.

use serde_json::Value;

use super::DgdrVersion;
use super::spec::{self, PreservedSpec};
use crate::convert::ConvertError;
use crate::convert::tree::{JsonObject, JsonPath, SourceFields, ValueKind, insert_at, remove, text};

/// All fields of a spec that the object's version lacks: `{"version":1,"spec":{…}}`. `annotated` lists those with an
/// annotation of their own, which counts, so that users can change or remove it.
pub const SPEC: &str = "nvidia.com/dgdr-spec";
/// All fields of a status that the object's version lacks.
pub const STATUS: &str = "nvidia.com/dgdr-status";
/// `spec.profilingConfig.configMapRef` of v1alpha1, as JSON.
pub const CONFIG_MAP_REF: &str = "nvidia.com/dgdr-config-map-ref";
/// `spec.profilingConfig.outputPVC` of v1alpha1: the name of the claim.
pub const OUTPUT_PVC: &str = "nvidia.com/dgdr-output-pvc";
/// `spec.enableGpuDiscovery` of v1alpha1, if true.
pub const ENABLE_GPU_DISCOVERY: &str = "nvidia.com/dgdr-enable-gpu-discovery";
/// Name, namespace, labels and annotations of `spec.deploymentOverrides` of v1alpha1, as JSON.
pub const DEPLOYMENT_OVERRIDES: &str = "nvidia.com/dgdr-deployment-overrides";
/// Fields of `spec.profilingConfig.config` of v1alpha1 that v1beta1 does not have, as JSON.
pub const PROFILING_CONFIG: &str = "nvidia.com/dgdr-profiling-config";
/// `status.backend` of v1alpha1.
pub const STATUS_BACKEND: &str = "nvidia.com/dgdr-status-backend";
/// `status.profilingResults` of v1alpha1.
pub const PROFILING_RESULTS: &str = "nvidia.com/dgdr-profiling-results";
/// `status.deployment` of v1alpha1, as JSON.
pub const DEPLOYMENT_STATUS: &str = "nvidia.com/dgdr-deployment-status";
/// `status.profilingJobName` of v1beta1, on v1alpha1 objects.
pub const PROFILING_JOB_NAME: &str = "nvidia.com/dgdr-profiling-job-name";

#[derive(Clone, Copy)]
enum AnnotationFormat {
    Json,
    String,
    Bool,
}

#[derive(Clone, Copy)]
enum Section {
    Spec,
    Status,
}

/// Largest value of an annotation for a single field. A larger value is in the annotation for all fields only: the API
/// server allows 256 KiB for all annotations of an object.
const MAX_FIELD_BYTES: usize = 32 * 1024;

/// A field of the other version with its own annotation.
type AnnotatedField = (&'static str, Section, &'static JsonPath, AnnotationFormat);

const ALPHA_FIELDS: &[AnnotatedField] = &[
    (CONFIG_MAP_REF, Section::Spec, &["profilingConfig", "configMapRef"], AnnotationFormat::Json),
    (OUTPUT_PVC, Section::Spec, &["profilingConfig", "outputPVC"], AnnotationFormat::String),
    (ENABLE_GPU_DISCOVERY, Section::Spec, &["enableGpuDiscovery"], AnnotationFormat::Bool),
    (PROFILING_CONFIG, Section::Spec, &["profilingConfig", "config"], AnnotationFormat::Json),
    (STATUS_BACKEND, Section::Status, &["backend"], AnnotationFormat::String),
    (PROFILING_RESULTS, Section::Status, &["profilingResults"], AnnotationFormat::String),
    (DEPLOYMENT_STATUS, Section::Status, &["deployment"], AnnotationFormat::Json),
];
const BETA_FIELDS: &[AnnotatedField] =
    &[(PROFILING_JOB_NAME, Section::Status, &["profilingJobName"], AnnotationFormat::String)];

/// The fields of a v1alpha1 spec with their own annotation.
pub fn annotated_spec() -> impl Iterator<Item = (&'static str, &'static JsonPath)> {
    ALPHA_FIELDS.iter().filter_map(|(annotation, section, path, _)| match section {
        Section::Spec => Some((*annotation, *path)),
        Section::Status => None,
    })
}

/// The fields of `version` that have their own annotation on objects of the other version.
fn annotated_fields(version: DgdrVersion) -> &'static [AnnotatedField] {
    match version {
        DgdrVersion::Alpha => ALPHA_FIELDS,
        DgdrVersion::Beta => BETA_FIELDS,
    }
}

impl AnnotationFormat {
    fn value_kind(self) -> ValueKind {
        match self {
            Self::Json => ValueKind::Object,
            Self::String => ValueKind::NonEmptyString,
            Self::Bool => ValueKind::True,
        }
    }

    fn format(self, value: &Value) -> String {
        match (self, value) {
            (Self::String, Value::String(text)) => text.clone(),
            _ => value.to_string(),
        }
    }

    fn parse(self, annotation: &str) -> Option<Value> {
        match self {
            Self::Json => json_object(annotation).map(Value::Object),
            Self::String => Some(annotation.into()).filter(|_| !annotation.is_empty()),
            Self::Bool => annotation.parse::<bool>().ok().map(Value::from),
        }
    }
}

fn json_object(annotation: &str) -> Option<JsonObject> {
    serde_json::from_str(annotation).ok()
}

/// The annotations of an object that is being converted: preserved fields are taken out of them, and fields that the
/// new version does not have are stored in them.
pub struct ObjectAnnotations {
    annotations: JsonObject,
    original: Option<Value>,
    /// Annotations with one of our keys that could not be used.
    unused: Vec<(&'static str, Value)>,
}

#[derive(Default)]
pub struct PreservedFields {
    pub spec: PreservedSpec,
    pub status: JsonObject,
}

impl ObjectAnnotations {
    /// Takes the annotations out of the object. None if the object has no metadata, as server-side apply may send it:
    /// an annotation would be a field that no client set.
    pub fn take_from(object: &mut JsonObject) -> Result<Option<Self>, ConvertError> {
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
        let Some(metadata) = metadata.filter(|metadata| !metadata.is_empty()) else { return Ok(None) };
        let annotations = match metadata.get("annotations") {
            None | Some(Value::Null) => JsonObject::new(),
            Some(Value::Object(annotations)) => annotations.clone(),
            Some(_) => {
                return Err(ConvertError::Unreadable {
                    path: "metadata.annotations".to_owned(),
                    problem: "must be an object with strings, in which conversion stores fields of the other version"
                        .to_owned(),
                });
            }
        };
        Ok(Some(Self { annotations, original: metadata.remove("annotations"), unused: Vec::new() }))
    }

    /// Removes the fields of `version` from the annotations of an object of the other version.
    pub fn take_fields(&mut self, version: DgdrVersion) -> PreservedFields {
        let mut preserved = PreservedFields::default();
        if let Some((spec, annotated)) = self.take(SPEC, |text| json_object(text).and_then(open_envelope)) {
            preserved.spec = spec;
            drop_annotated(&mut preserved.spec.spec, version, &annotated);
        }
        if let Some(status) = self.take(STATUS, json_object) {
            preserved.status = status;
        }
        for (key, section, path, format) in annotated_fields(version) {
            if let Some(value) = self.take(key, |text| format.parse(text)) {
                match section {
                    Section::Spec => insert_at(&mut preserved.spec.spec, path, value),
                    Section::Status => insert_at(&mut preserved.status, path, value),
                }
            }
        }
        if version == DgdrVersion::Alpha
            && let Some(overrides) = self.take(DEPLOYMENT_OVERRIDES, json_object)
        {
            spec::put_metadata_overrides(&mut preserved.spec.spec, overrides);
        }
        // Annotations of the object's own version are stale: its fields count, even if they are absent.
        let own = annotated_fields(version.other()).iter().map(|(key, ..)| *key);
        let own_overrides = (version == DgdrVersion::Beta).then_some(DEPLOYMENT_OVERRIDES);
        for key in own.chain(own_overrides) {
            if let Some(stale) = self.annotations.remove(key) {
                self.unused.push((key, stale));
            }
        }
        preserved
    }

    fn take<T>(&mut self, key: &'static str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let value = self.annotations.get(key)?;
        let Some(parsed) = value.as_str().and_then(parse) else {
            self.unused.push((key, value.clone()));
            return None;
        };
        self.annotations.remove(key);
        Some(parsed)
    }

    /// Adds the unmapped fields of `version`.
    pub fn store_fields(&mut self, version: DgdrVersion, spec: JsonObject, workers_image: bool, status: JsonObject) {
        let mut annotated = Vec::new();
        let (mut spec_fields, mut status_fields) = (SourceFields::new(spec.clone()), SourceFields::new(status.clone()));
        for (key, section, path, format) in annotated_fields(version) {
            let source = match section {
                Section::Spec => &mut spec_fields,
                Section::Status => &mut status_fields,
            };
            let Some(text) = source.take(path, format.value_kind()).map(|value| format.format(&value)) else {
                continue;
            };
            if text.len() <= MAX_FIELD_BYTES {
                self.set(key, text);
                annotated.extend(matches!(section, Section::Spec).then_some(*key));
            }
        }
        if version == DgdrVersion::Alpha
            && let Some(overrides) = spec::take_metadata_overrides(&mut spec_fields.remaining)
        {
            self.set(DEPLOYMENT_OVERRIDES, Value::Object(overrides).to_string());
            annotated.push(DEPLOYMENT_OVERRIDES);
        }
        if !spec.is_empty() {
            let mut envelope =
                JsonObject::from_iter([("version".to_owned(), 1.into()), ("spec".to_owned(), spec.into())]);
            if workers_image {
                envelope.insert(IMAGE.to_owned(), WORKERS_IMAGE.into());
            }
            if !annotated.is_empty() {
                envelope.insert(ANNOTATED.to_owned(), annotated.into());
            }
            self.set(SPEC, Value::Object(envelope).to_string());
        }
        if !status.is_empty() {
            self.set(STATUS, Value::Object(status).to_string());
        }
    }

    fn set(&mut self, key: &str, value: String) {
        self.annotations.insert(key.to_owned(), value.into());
    }

    /// Puts the annotations back into the object. Returns the losses: annotations that were removed or replaced without
    /// being used.
    pub fn put_back(self, object: &mut JsonObject) -> Vec<String> {
        let is_gone = |(key, value): &(&'static str, Value)| self.annotations.get(*key) != Some(value);
        let lost = self.unused.iter().filter(|unused| is_gone(unused)).map(|(key, _)| {
            format!(
                "metadata.annotations[{key}]: the value was removed, because conversion reserves this key and could not use \
                 the value; use another key for your own annotations"
            )
        });
        let lost = lost.collect();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            let annotations = match self.original {
                original if self.annotations.is_empty() => match original {
                    Some(Value::Object(original)) if original.is_empty() => Some(Value::Object(original)),
                    Some(Value::Null) => Some(Value::Null),
                    // Empty metadata could not have an annotation on the way back.
                    Some(_) if metadata.is_empty() => Some(Value::Object(JsonObject::new())),
                    _ => None,
                },
                _ => Some(Value::Object(self.annotations)),
            };
            if let Some(annotations) = annotations {
                metadata.insert("annotations".to_owned(), annotations);
            }
        }
        lost
    }
}

/// Member of the envelope with the source of `image` of v1beta1.
const IMAGE: &str = "image";
const WORKERS_IMAGE: &str = "deploymentOverrides.workersImage";
/// Member of the envelope with the keys of annotations that have some of its fields.
const ANNOTATED: &str = "annotated";

/// The spec in an envelope, and the keys of annotations with some of its fields. An envelope without `spec` is a spec
/// itself, as written by earlier versions.
fn open_envelope(mut envelope: JsonObject) -> Option<(PreservedSpec, Vec<String>)> {
    let workers_image = text(envelope.get(IMAGE)) == Some(WORKERS_IMAGE);
    let annotated = envelope.get(ANNOTATED).and_then(Value::as_array).into_iter().flatten();
    let annotated = annotated.filter_map(|key| key.as_str().map(str::to_owned)).collect();
    match envelope.remove("spec") {
        Some(Value::Object(spec)) => Some((PreservedSpec { spec, workers_image }, annotated)),
        Some(_) => None,
        None => Some((PreservedSpec { spec: envelope, workers_image: false }, Vec::new())),
    }
}

/// Removes the fields with an annotation of their own: an annotation that is gone was removed by a user.
fn drop_annotated(spec: &mut JsonObject, version: DgdrVersion, annotated: &[String]) {
    let fields = annotated_fields(version).iter().filter(|(key, ..)| annotated.iter().any(|known| known == key));
    for (_, _, path, _) in fields {
        remove(spec, path);
    }
    if annotated.iter().any(|key| key == DEPLOYMENT_OVERRIDES) {
        spec::take_metadata_overrides(spec);
    }
}
