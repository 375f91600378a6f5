//! Converts objects between the versions of an API, even the partial objects that server-side apply sends.

pub(crate) mod tree;

use serde_json::{Map, Value};

use crate::{Family, dynamo, llamastack};

#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    pub object: Value,
    /// Fields of the source version whose value was lost, each with the reason: `spec.x: reason`. A field that an
    /// earlier conversion preserved in an annotation and that could not be restored is listed under that annotation.
    pub lost: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    #[error("the object to convert is not a JSON object with apiVersion and kind")]
    NotAnObject,
    #[error("there is no conversion for {kind} of {api_version}; Steersman converts {}", converted_kinds())]
    UnknownKind { api_version: String, kind: String },
    #[error("{kind} has no version {version:?}; its versions are {}", versions.join(", "))]
    UnknownVersion { kind: &'static str, version: String, versions: &'static [&'static str] },
    /// The value has a type that the schema does not allow, and conversion would lose it.
    #[error("{path}: {problem}")]
    Unreadable { path: String, problem: String },
}

/// A field that the storage version and another version have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedField {
    pub stored: StoredLocation,
    /// Path below `spec` in the other version.
    pub written: &'static [&'static str],
    /// Whether the fields inside have the same names in both versions.
    pub with_content: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredLocation {
    /// Path below `spec`.
    Spec(&'static [&'static str]),
    /// Annotation with a field that the storage version does not have.
    Annotation(&'static str),
}

/// The fields that objects of `version` share with the storage version. Empty for the storage version itself.
pub fn shared_fields(family: Family, version: &str) -> Vec<SharedField> {
    if version == family.storage_version() || !family.served_versions().contains(&version) {
        return Vec::new();
    }
    match family {
        Family::Llsd => llamastack::convert::shared_fields(),
        Family::Dgdr => dynamo::convert::shared_fields(),
        Family::Dgd | Family::Va => Vec::new(),
    }
}

/// Converts one object to `to`, an apiVersion such as `llamastack.io/v1alpha2`.
pub fn convert(object: Value, to: &str) -> Result<Converted, ConvertError> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).map(str::to_owned);
    let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else {
        return Err(ConvertError::NotAnObject);
    };
    let family = Family::ALL.into_iter().find(|family| {
        family.kind() == kind && api_version.split_once('/').is_some_and(|(group, _)| group == family.group())
    });
    let Some(family) = family.filter(|family| family.served_versions().len() > 1) else {
        return Err(ConvertError::UnknownKind { api_version, kind });
    };
    let from = version(family, &api_version)?;
    let to = version(family, to)?;
    if from == to {
        return Ok(Converted { object, lost: Vec::new() });
    }
    match family {
        Family::Llsd => llamastack::convert::convert(object, to),
        Family::Dgdr => dynamo::convert::convert(object, to),
        Family::Dgd | Family::Va => Err(ConvertError::UnknownKind { api_version, kind }),
    }
}

/// Converts one object for a conversion review. The API server rejects a response without metadata, but sends objects
/// without metadata when a client of server-side apply gives up all its fields in another version. It reads only labels
/// and annotations of the response, so that an empty map changes nothing.
pub fn convert_for_review(object: Value, to: &str) -> Result<Converted, ConvertError> {
    let mut converted = convert(object, to)?;
    if let Value::Object(object) = &mut converted.object {
        object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    }
    Ok(converted)
}

fn version(family: Family, api_version: &str) -> Result<&'static str, ConvertError> {
    let versions = family.served_versions();
    let found = api_version
        .split_once('/')
        .filter(|(group, _)| *group == family.group())
        .and_then(|(_, version)| versions.iter().find(|known| **known == version));
    found.copied().ok_or_else(|| ConvertError::UnknownVersion {
        kind: family.kind(),
        version: api_version.to_owned(),
        versions,
    })
}

fn converted_kinds() -> String {
    [Family::Dgdr, Family::Llsd].map(Family::kind).join(" and ")
}
