//! Keeps the fields that one version does not have in annotations of the other.
//!
//! A v1beta1 object has annotations for single v1alpha1 fields, which operators and users read, and two annotations for all
//! other fields; a v1alpha1 object has the same two, with fields of v1beta1.

use serde_json::{Value, json};

use super::Version;
use super::spec::{self, Kept};
use crate::convert::ConvertError;
use crate::convert::tree::{Kind, Object, Path, Source, put, text};

/// All fields of a spec without their own annotation: `{"version":1,"spec":{…}}`.
pub const SPEC: &str = "nvidia.com/dgdr-spec";
/// All fields of a status without their own annotation.
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

/// Format of an annotation's value.
#[derive(Clone, Copy)]
enum Form {
    Json,
    Text,
    Truth,
}

#[derive(Clone, Copy)]
enum Section {
    Spec,
    Status,
}

/// A field of the other version with its own annotation.
type Field = (&'static str, Section, &'static Path, Form);

const ALPHA_FIELDS: &[Field] = &[
    (CONFIG_MAP_REF, Section::Spec, &["profilingConfig", "configMapRef"], Form::Json),
    (OUTPUT_PVC, Section::Spec, &["profilingConfig", "outputPVC"], Form::Text),
    (ENABLE_GPU_DISCOVERY, Section::Spec, &["enableGpuDiscovery"], Form::Truth),
    (PROFILING_CONFIG, Section::Spec, &["profilingConfig", "config"], Form::Json),
    (STATUS_BACKEND, Section::Status, &["backend"], Form::Text),
    (PROFILING_RESULTS, Section::Status, &["profilingResults"], Form::Text),
    (DEPLOYMENT_STATUS, Section::Status, &["deployment"], Form::Json),
];
const BETA_FIELDS: &[Field] = &[(PROFILING_JOB_NAME, Section::Status, &["profilingJobName"], Form::Text)];

/// The fields of a v1alpha1 spec with their own annotation.
pub fn annotated_spec() -> impl Iterator<Item = (&'static str, &'static Path)> {
    ALPHA_FIELDS.iter().filter_map(|(annotation, section, path, _)| match section {
        Section::Spec => Some((*annotation, *path)),
        Section::Status => None,
    })
}

/// The fields that an object of the other version keeps for `version`.
fn fields(version: Version) -> &'static [Field] {
    match version {
        Version::Alpha => ALPHA_FIELDS,
        Version::Beta => BETA_FIELDS,
    }
}

impl Form {
    fn kind(self) -> Kind {
        match self {
            Self::Json => Kind::Object,
            Self::Text => Kind::Text,
            Self::Truth => Kind::True,
        }
    }

    fn spell(self, value: &Value) -> String {
        match (self, value) {
            (Self::Text, Value::String(text)) => text.clone(),
            _ => value.to_string(),
        }
    }

    fn read(self, annotation: &str) -> Option<Value> {
        match self {
            Self::Json => json_object(annotation).map(Value::Object),
            Self::Text => Some(annotation.into()).filter(|_| !annotation.is_empty()),
            Self::Truth => annotation.parse::<bool>().ok().map(Value::from),
        }
    }
}

fn json_object(annotation: &str) -> Option<Object> {
    serde_json::from_str(annotation).ok()
}

/// The annotations of one object, while it is converted.
pub struct Carrier {
    annotations: Object,
    before: Option<Value>,
    /// Annotations with one of our keys that could not be read.
    unread: Vec<(&'static str, Value)>,
}

#[derive(Default)]
pub struct Carried {
    pub spec: Kept,
    pub status: Object,
}

impl Carrier {
    /// None if the object has no metadata, as server-side apply may send it: an annotation would be a field that no client set.
    pub fn open(object: &mut Object) -> Result<Option<Self>, ConvertError> {
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
        let Some(metadata) = metadata.filter(|metadata| !metadata.is_empty()) else { return Ok(None) };
        let annotations = match metadata.get("annotations") {
            None | Some(Value::Null) => Object::new(),
            Some(Value::Object(annotations)) => annotations.clone(),
            Some(_) => {
                return Err(ConvertError::Unreadable {
                    path: "metadata.annotations".to_owned(),
                    problem: "must be an object of texts; conversion keeps there what the other version has no field \
                              for"
                    .to_owned(),
                });
            }
        };
        Ok(Some(Self { annotations, before: metadata.remove("annotations"), unread: Vec::new() }))
    }

    /// Removes the fields of `version` from the annotations of an object of the other version.
    pub fn read(&mut self, version: Version) -> Carried {
        let mut carried = Carried::default();
        if let Some(envelope) = self.take(SPEC, |text| json_object(text).and_then(open_envelope)) {
            carried.spec = envelope;
        }
        if let Some(status) = self.take(STATUS, json_object) {
            carried.status = status;
        }
        for (key, section, path, form) in fields(version) {
            if let Some(value) = self.take(key, |text| form.read(text)) {
                match section {
                    Section::Spec => put(&mut carried.spec.spec, path, value),
                    Section::Status => put(&mut carried.status, path, value),
                }
            }
        }
        if version == Version::Alpha
            && let Some(wishes) = self.take(DEPLOYMENT_OVERRIDES, json_object)
        {
            spec::put_wishes(&mut carried.spec.spec, wishes);
        }
        // The object has fields for the annotations of its own version, and these count, even if they are absent.
        let own = fields(version.other()).iter().map(|(key, ..)| *key);
        let wishes = (version == Version::Beta).then_some(DEPLOYMENT_OVERRIDES);
        for key in own.chain(wishes) {
            if let Some(stale) = self.annotations.remove(key) {
                self.unread.push((key, stale));
            }
        }
        carried
    }

    fn take<T>(&mut self, key: &'static str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let value = self.annotations.get(key)?;
        let Some(read) = value.as_str().and_then(read) else {
            self.unread.push((key, value.clone()));
            return None;
        };
        self.annotations.remove(key);
        Some(read)
    }

    /// Adds the remaining fields of `version`.
    pub fn write(&mut self, version: Version, spec: Object, workers_image: bool, status: Object) {
        let (mut spec, mut status) = (Source::new(spec), Source::new(status));
        for (key, section, path, form) in fields(version) {
            let rest = match section {
                Section::Spec => &mut spec,
                Section::Status => &mut status,
            };
            if let Some(value) = rest.take(path, form.kind()) {
                self.set(key, form.spell(&value));
            }
        }
        if version == Version::Alpha
            && let Some(wishes) = spec::take_wishes(&mut spec.rest)
        {
            self.set(DEPLOYMENT_OVERRIDES, Value::Object(wishes).to_string());
        }
        if !spec.rest.is_empty() {
            let mut envelope = json!({ "version": 1, "spec": spec.rest });
            if workers_image && let Some(envelope) = envelope.as_object_mut() {
                envelope.insert(IMAGE.to_owned(), WORKERS_IMAGE.into());
            }
            self.set(SPEC, envelope.to_string());
        }
        if !status.rest.is_empty() {
            self.set(STATUS, Value::Object(status.rest).to_string());
        }
    }

    fn set(&mut self, key: &str, value: String) {
        self.annotations.insert(key.to_owned(), value.into());
    }

    /// Writes the annotations to the object, and returns the losses: annotations that were replaced without being read.
    pub fn close(self, object: &mut Object) -> Vec<String> {
        let gone = |(key, value): &(&'static str, Value)| self.annotations.get(*key) != Some(value);
        let lost = self.unread.iter().filter(|unread| gone(unread)).map(|(key, _)| {
            format!(
                "metadata.annotations[{key}]: the key belongs to conversion, which could not use this value; give \
                 a value of your own another key"
            )
        });
        let lost = lost.collect();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            let annotations = match self.before {
                before if self.annotations.is_empty() => match before {
                    Some(Value::Object(before)) if before.is_empty() => Some(Value::Object(before)),
                    Some(Value::Null) => Some(Value::Null),
                    // Empty metadata could not have an annotation on the way back.
                    Some(_) if metadata.is_empty() => Some(Value::Object(Object::new())),
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

/// An envelope without `spec` is a spec itself, as written by earlier versions.
fn open_envelope(mut envelope: Object) -> Option<Kept> {
    let workers_image = text(envelope.get(IMAGE)) == Some(WORKERS_IMAGE);
    match envelope.remove("spec") {
        Some(Value::Object(spec)) => Some(Kept { spec, workers_image }),
        Some(_) => None,
        None => Some(Kept { spec: envelope, workers_image: false }),
    }
}
