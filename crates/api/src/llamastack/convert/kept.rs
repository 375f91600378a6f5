//! Keeps fields that the version of an object does not have in annotations: pieces of the object of the other version.

use std::collections::BTreeMap;
use std::mem;

use serde_json::{Map, Value, json};

use super::carry::{Fields, pieces};
use super::fields::Version;
use super::legacy::{self, Legacy};
use crate::convert::tree::overlay;

/// A piece of an object of one version.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub spec: Fields,
    pub status: Fields,
    /// An empty or null `metadata.annotations`, to be restored when our annotations are removed.
    pub bare: Option<Value>,
}

impl Kept {
    pub fn is_empty(&self) -> bool {
        self.spec.is_empty() && self.status.is_empty()
    }

    /// Adds a piece. Fields that are already there win.
    fn join(&mut self, mut piece: Self) {
        overlay(&mut piece.spec, mem::take(&mut self.spec));
        overlay(&mut piece.status, mem::take(&mut self.status));
        *self = Self { bare: self.bare.take().or(piece.bare), ..piece };
    }

    /// Parses an annotation. `None` if the text was not written by [`Kept::write`].
    fn read(text: &Value) -> Option<Self> {
        let Value::Object(mut parts) = serde_json::from_str(text.as_str()?).ok()? else { return None };
        let mut part = |name: &str| match parts.remove(name) {
            None => Some(Fields::new()),
            Some(Value::Object(fields)) => Some(fields),
            Some(_) => None,
        };
        let (spec, status, mut metadata) = (part("spec")?, part("status")?, part("metadata")?);
        let bare = metadata.remove("annotations").filter(is_bare);
        (parts.is_empty() && metadata.is_empty()).then_some(Self { spec, status, bare })
    }

    fn write(self) -> Value {
        let mut parts = Map::new();
        let metadata = self.bare.map(|bare| Map::from_iter([("annotations".to_owned(), bare)])).unwrap_or_default();
        for (name, part) in [("metadata", metadata), ("spec", self.spec), ("status", self.status)] {
            if !part.is_empty() {
                parts.insert(name.to_owned(), Value::Object(part));
            }
        }
        Value::String(Value::Object(parts).to_string())
    }
}

fn is_bare(annotations: &Value) -> bool {
    annotations.is_null() || *annotations == json!({})
}

/// The annotation with fields of `version`, on objects of the other version.
pub(super) const fn annotation(version: Version) -> &'static str {
    match version {
        Version::V1alpha1 => "llamastack.io/v1alpha1-fields",
        Version::V1alpha2 => "llamastack.io/v1alpha2-fields",
    }
}

/// The annotation with the field at `path` of `version`.
///
/// Server-side apply tracks the owner of an annotation, not of the fields in it: a client that gives up one of two fields
/// in the same annotation gets it back while another client uses the other version. On a stored object the other version is
/// always in use, by the operator that writes the status, so that each field has its own annotation there. A path that
/// cannot be the name of an annotation is that of a field that no schema accepts.
pub(super) fn annotation_of(version: Version, path: &str) -> String {
    let common = annotation(version);
    let short = common.len() - "llamastack.io/".len() + 1 + path.len() <= 63;
    let plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    let ends = path.ends_with(|c: char| c.is_ascii_alphanumeric());
    if version == Version::V1alpha1 && short && plain && ends { format!("{common}.{path}") } else { common.to_owned() }
}

/// The annotation as messages name it.
pub(super) fn place(name: &str) -> String {
    format!("metadata.annotations[{name}]")
}

/// Removes and returns the pieces of `version`, and the names of annotations that cannot be read.
fn read_all(annotations: &mut Fields, version: Version) -> (Vec<(String, Kept)>, Vec<String>) {
    let common = annotation(version);
    let ours = |name: &str| name.strip_prefix(common).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let names: Vec<String> = annotations.keys().filter(|name| ours(name)).cloned().collect();
    let (mut read, mut unread) = (Vec::new(), Vec::new());
    for name in names {
        match annotations.get(&name).and_then(Kept::read) {
            Some(piece) => {
                annotations.remove(&name);
                read.push((name, piece));
            }
            None => unread.push(name),
        }
    }
    (read, unread)
}

/// Removes and returns the pieces of `version` from `metadata` of an object of the other version. An annotation that cannot
/// be read stays, to be repaired. A piece of the object's own version is dropped: on the way back it would be taken for a
/// newer one.
pub(super) fn take(metadata: Option<&mut Value>, version: Version, lost: &mut Vec<String>) -> (Kept, Legacy) {
    let mut kept = Kept::default();
    let Some(Value::Object(metadata)) = metadata else { return (kept, Legacy::default()) };
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else { return (kept, Legacy::default()) };
    let many = annotations.len();
    let own = version.other();
    for (name, _) in read_all(annotations, own).0 {
        lost.push(format!("{}: it has no place on an object of {} itself", place(&name), own.name()));
    }
    for name in legacy::take(annotations, own).names() {
        lost.push(format!("{}: it has no place on an object of {} itself", place(name), own.name()));
    }
    let (read, unread) = read_all(annotations, version);
    read.into_iter().for_each(|(_, piece)| kept.join(piece));
    lost.extend(unread.iter().map(|name| {
        let told = "nothing was restored from it, because it is not what the conversion writes; repair or remove it";
        format!("{}: {told}", place(name))
    }));
    let legacy = legacy::take(annotations, version);
    if annotations.is_empty() && many > 0 {
        match kept.bare.take() {
            Some(bare) => metadata.insert("annotations".to_owned(), bare),
            None => metadata.remove("annotations"),
        };
    }
    (kept, legacy)
}

/// Writes `kept`, a piece of `version`, to `metadata` of an object of the other version. Missing metadata is not created,
/// because the client that sent the partial object would own a field that it never set; `kept` is returned then.
pub(super) fn put(
    metadata: Option<&mut Value>,
    version: Version,
    mut kept: Kept,
    lost: &mut Vec<String>,
) -> Result<(), (Kept, &'static str)> {
    let Some(Value::Object(metadata)) = metadata else { return Err((kept, "there is no metadata to keep it in")) };
    kept.bare = metadata.get("annotations").filter(|annotations| is_bare(annotations)).cloned();
    if kept.bare.is_some() {
        metadata.remove("annotations");
    }
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(annotations) = annotations else {
        return Err((kept, "metadata.annotations is not a map that could keep it"));
    };
    for (name, piece) in split(version, kept) {
        let replaced = annotations.insert(name.clone(), piece.write()).is_some();
        if replaced {
            lost.push(format!("{}: replaced, because it was not what the conversion writes", place(&name)));
        }
    }
    Ok(())
}

/// The pieces by annotation.
fn split(version: Version, kept: Kept) -> BTreeMap<String, Kept> {
    let common = annotation(version).to_owned();
    if version == Version::V1alpha2 {
        return BTreeMap::from([(common, kept)]);
    }
    let mut split: BTreeMap<String, Kept> = BTreeMap::new();
    for (path, spec) in pieces(version, kept.spec) {
        split.entry(annotation_of(version, &path)).or_default().join(Kept { spec, ..Kept::default() });
    }
    for (name, value) in kept.status {
        let path = format!("status.{name}");
        let status = Fields::from_iter([(name, value)]);
        split.entry(annotation_of(version, &path)).or_default().join(Kept { status, ..Kept::default() });
    }
    if kept.bare.is_some() {
        split.entry(common).or_default().bare = kept.bare;
    }
    split
}
