//! Preserves fields that the version of an object does not have in its annotations.

use std::collections::BTreeMap;
use std::mem;

use serde_json::{Map, Value, json};

use super::fields::LlsdVersion;
use super::legacy::{self, LegacyFields};
use super::transfer::{Fields, single_fields};
use crate::convert::tree::overlay;

/// Fields of an object of one version.
#[derive(Clone, Debug, Default)]
pub(super) struct PreservedFields {
    pub spec: Fields,
    pub status: Fields,
    /// An empty or null `metadata.annotations`, to be restored when our annotations are removed.
    pub empty_annotations: Option<Value>,
}

impl PreservedFields {
    pub fn is_empty(&self) -> bool {
        self.spec.is_empty() && self.status.is_empty()
    }

    /// Adds fields of `other`. Fields that are already there win.
    fn merge(&mut self, mut other: Self) {
        overlay(&mut other.spec, mem::take(&mut self.spec));
        overlay(&mut other.status, mem::take(&mut self.status));
        *self = Self { empty_annotations: self.empty_annotations.take().or(other.empty_annotations), ..other };
    }

    /// Parses the value of an annotation. `None` if it was not written by [`PreservedFields::into_annotation`].
    fn parse(annotation: &Value) -> Option<Self> {
        let Value::Object(mut parts) = serde_json::from_str(annotation.as_str()?).ok()? else { return None };
        let mut part = |name: &str| match parts.remove(name) {
            None => Some(Fields::new()),
            Some(Value::Object(fields)) => Some(fields),
            Some(_) => None,
        };
        let (spec, status, mut metadata) = (part("spec")?, part("status")?, part("metadata")?);
        let empty_annotations = metadata.remove("annotations").filter(is_empty_or_null);
        (parts.is_empty() && metadata.is_empty()).then_some(Self { spec, status, empty_annotations })
    }

    /// Bytes of the annotation `name` with these fields.
    fn annotation_bytes(&self, name: &str) -> usize {
        name.len() + self.clone().into_annotation().as_str().map_or(0, str::len)
    }

    fn into_annotation(self) -> Value {
        let mut parts = Map::new();
        let annotations = self.empty_annotations.map(|empty| Map::from_iter([("annotations".to_owned(), empty)]));
        let metadata = annotations.unwrap_or_default();
        for (name, part) in [("metadata", metadata), ("spec", self.spec), ("status", self.status)] {
            if !part.is_empty() {
                parts.insert(name.to_owned(), Value::Object(part));
            }
        }
        Value::String(Value::Object(parts).to_string())
    }
}

fn is_empty_or_null(annotations: &Value) -> bool {
    annotations.is_null() || *annotations == json!({})
}

/// The annotation with fields of `version`, on objects of the other version.
const fn annotation(version: LlsdVersion) -> &'static str {
    match version {
        LlsdVersion::V1alpha1 => "llamastack.io/v1alpha1-fields",
        LlsdVersion::V1alpha2 => "llamastack.io/v1alpha2-fields",
    }
}

/// The annotation with the field at `path` of `version`.
///
/// Server-side apply tracks the owner of an annotation, not of the fields in it: a client that gives up one of two
/// fields in the same annotation gets it back while another client uses the other version. On a stored object the other
/// version is always in use, by the operator that writes the status, so that each field has its own annotation there. A
/// path that cannot be the name of an annotation is that of a field that no schema accepts.
pub(super) fn annotation_for(version: LlsdVersion, path: &str) -> String {
    let common = annotation(version);
    let fits = common.len() - "llamastack.io/".len() + 1 + path.len() <= 63;
    let plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    let ends = path.ends_with(|c: char| c.is_ascii_alphanumeric());
    if version == LlsdVersion::V1alpha1 && fits && plain && ends {
        format!("{common}.{path}")
    } else {
        common.to_owned()
    }
}

/// The API server's limit for the keys and values of all annotations. It refuses a whole list with a longer object in it.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// Marks a v1alpha1 object whose fields of v1alpha2 do not fit into its annotations. Admission refuses to store such an
/// object, because the fields would be lost.
pub const OMITTED: &str = "llamastack.io/v1alpha2-fields-omitted";

/// The path of an annotation in messages.
pub(super) fn annotation_path(name: &str) -> String {
    format!("metadata.annotations[{name}]")
}

/// Removes and returns the fields of `version` by annotation, and the names of annotations that cannot be parsed.
fn take_annotations(annotations: &mut Fields, version: LlsdVersion) -> (Vec<(String, PreservedFields)>, Vec<String>) {
    let common = annotation(version);
    let is_ours = |name: &str| name.strip_prefix(common).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let names: Vec<String> = annotations.keys().filter(|name| is_ours(name)).cloned().collect();
    let (mut parsed, mut unparsed) = (Vec::new(), Vec::new());
    for name in names {
        match annotations.get(&name).and_then(PreservedFields::parse) {
            Some(fields) => {
                annotations.remove(&name);
                parsed.push((name, fields));
            }
            None => unparsed.push(name),
        }
    }
    (parsed, unparsed)
}

/// Removes and returns the fields of `version` from `metadata` of an object of the other version. An annotation that
/// cannot be parsed stays, so that users can correct it. Annotations with fields of the object's own version are
/// removed: on the way back they would be taken for newer ones.
pub(super) fn take(
    metadata: Option<&mut Value>,
    version: LlsdVersion,
    lost: &mut Vec<String>,
) -> (PreservedFields, LegacyFields) {
    let mut preserved = PreservedFields::default();
    let Some(Value::Object(metadata)) = metadata else { return (preserved, LegacyFields::default()) };
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else {
        return (preserved, LegacyFields::default());
    };
    let had_annotations = !annotations.is_empty();
    let own = version.other();
    let own_fields = take_annotations(annotations, own).0;
    let own_legacy = legacy::take(annotations, own);
    let removed = own_fields.iter().map(|(name, _)| name.as_str()).chain(own_legacy.annotations());
    lost.extend(removed.map(|name| {
        let version = own.name();
        format!("{}: removed, because objects of {version} have fields for its content", annotation_path(name))
    }));
    let (parsed, unparsed) = take_annotations(annotations, version);
    parsed.into_iter().for_each(|(_, fields)| preserved.merge(fields));
    lost.extend(unparsed.iter().map(|name| {
        let problem = "cannot be parsed, so that no field was restored from it; correct or remove the annotation";
        format!("{}: {problem}", annotation_path(name))
    }));
    let legacy = legacy::take(annotations, version);
    if annotations.is_empty() && had_annotations {
        match preserved.empty_annotations.take() {
            Some(empty) => metadata.insert("annotations".to_owned(), empty),
            None => metadata.remove("annotations"),
        };
    }
    (preserved, legacy)
}

/// Writes `preserved`, fields of `version`, to `metadata` of an object of the other version. Missing metadata is not
/// created, because the client that sent the partial object would own a field that it never set; the fields are
/// returned then, with the reason.
pub(super) fn store(
    metadata: Option<&mut Value>,
    version: LlsdVersion,
    mut preserved: PreservedFields,
    lost: &mut Vec<String>,
) -> Result<(), (PreservedFields, &'static str)> {
    let Some(Value::Object(metadata)) = metadata else {
        return Err((preserved, "the object has no metadata to store it in an annotation"));
    };
    preserved.empty_annotations = metadata.get("annotations").filter(|it| is_empty_or_null(it)).cloned();
    if preserved.empty_annotations.is_some() {
        metadata.remove("annotations");
    }
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(annotations) = annotations else {
        return Err((preserved, "metadata.annotations is not a map that can store it"));
    };
    if version == LlsdVersion::V1alpha2
        && let Some(problem) = make_fit(annotations, &mut preserved, lost)
    {
        return Err((preserved, problem));
    }
    for (name, fields) in split_by_annotation(version, preserved) {
        let replaced = annotations.insert(name.clone(), fields.into_annotation()).is_some();
        if replaced {
            lost.push(format!("{}: replaced, because its value could not be parsed", annotation_path(&name)));
        }
    }
    Ok(())
}

/// Leaves out the status, which the operator writes again, if the fields of v1alpha2 do not fit otherwise. If the spec
/// alone does not fit, the object is marked instead, and the reason is returned.
fn make_fit(annotations: &mut Fields, preserved: &mut PreservedFields, lost: &mut Vec<String>) -> Option<&'static str> {
    let name = annotation(LlsdVersion::V1alpha2);
    let size = |name: &str, value: &Value| name.len() + value.as_str().map_or(0, str::len);
    let others = annotations.iter().filter(|(other, _)| *other != name).map(|(name, value)| size(name, value)).sum();
    let room = MAX_ANNOTATION_BYTES.saturating_sub(others);
    if preserved.annotation_bytes(name) <= room {
        return None;
    }
    let spec_only = PreservedFields { status: Fields::new(), ..preserved.clone() };
    if spec_only.annotation_bytes(name) <= room {
        let problem = "left out, because the annotations of an object have at most 256 KiB";
        lost.extend(preserved.status.keys().map(|name| format!("status.{name}: {problem}")));
        *preserved = spec_only;
        return None;
    }
    annotations.remove(name);
    let mark = Value::from("true");
    // A user may have filled the annotations to the last byte.
    if size(OMITTED, &mark) <= room {
        annotations.insert(OMITTED.to_owned(), mark);
    }
    Some("the annotations of an object have at most 256 KiB; read and write it as v1alpha2")
}

fn split_by_annotation(version: LlsdVersion, preserved: PreservedFields) -> BTreeMap<String, PreservedFields> {
    let common = annotation(version).to_owned();
    if version == LlsdVersion::V1alpha2 {
        return BTreeMap::from([(common, preserved)]);
    }
    let mut split: BTreeMap<String, PreservedFields> = BTreeMap::new();
    for (path, spec) in single_fields(version, preserved.spec) {
        let field = PreservedFields { spec, ..PreservedFields::default() };
        split.entry(annotation_for(version, &path)).or_default().merge(field);
    }
    for (name, value) in preserved.status {
        let path = format!("status.{name}");
        let field = PreservedFields { status: Fields::from_iter([(name, value)]), ..PreservedFields::default() };
        split.entry(annotation_for(version, &path)).or_default().merge(field);
    }
    if preserved.empty_annotations.is_some() {
        split.entry(common).or_default().empty_annotations = preserved.empty_annotations;
    }
    split
}
