//! Between the versions of a family.
//! Comes in: an object as JSON, whole or a part of one as server-side apply sends it, and the apiVersion wanted; goes out:
//! the same object in that version, and what that version cannot say.

use serde_json::{Map, Value};

use crate::{Family, dynamo, llamastack};

/// An object in the version that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    pub object: Value,
    /// Fields of the version that came in, each with why its value could not be kept: `spec.x: reason`. A field that an
    /// earlier conversion kept in an annotation, and that this one could not restore, stands under that annotation.
    pub lost: Vec<String>,
}

/// Why an object cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    #[error("the object to convert is not a JSON object with apiVersion and kind")]
    NotAnObject,
    #[error("there is no conversion for {kind} of {api_version}; Steersman converts {}", known())]
    UnknownKind { api_version: String, kind: String },
    #[error("{kind} has no version {version:?}; its versions are {}", versions.join(", "))]
    UnknownVersion { kind: &'static str, version: String, versions: &'static [&'static str] },
    /// A value of a kind that the schema would not have let in, where guessing would lose it.
    #[error("{path}: {problem}")]
    Unreadable { path: String, problem: String },
}

/// A field that the stored version and another one have both, from the tables by which objects are converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedField {
    pub stored: StoredPlace,
    /// Below `spec` of the other version.
    pub written: &'static [&'static str],
    /// Whatever is inside the field has the same names in both versions.
    pub with_content: bool,
}

/// Where the stored version has a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredPlace {
    /// Below `spec`.
    Spec(&'static [&'static str]),
    /// The stored version has no field for it, and keeps it in this annotation.
    Annotation(&'static str),
}

/// The fields that objects of `version` share with the stored version. Empty for the stored version itself.
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

/// Brings one object into `to`, an apiVersion such as `llamastack.io/v1alpha2`. Same version: unchanged.
pub fn convert(object: Value, to: &str) -> Result<Converted, ConvertError> {
    let word = |name: &str| object.get(name).and_then(Value::as_str).map(str::to_owned);
    let (Some(api_version), Some(kind)) = (word("apiVersion"), word("kind")) else {
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

/// The same, as the API server wants it answered. It refuses an object without metadata, yet asks with such when a client of
/// server-side apply gives up all that it owned in another version. Of what is answered there it takes labels and
/// annotations only, so an empty map changes nothing.
pub fn answer(object: Value, to: &str) -> Result<Converted, ConvertError> {
    let mut converted = convert(object, to)?;
    if let Value::Object(object) = &mut converted.object {
        object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    }
    Ok(converted)
}

fn version(family: Family, api_version: &str) -> Result<&'static str, ConvertError> {
    let known = family.served_versions();
    let found = api_version
        .split_once('/')
        .filter(|(group, _)| *group == family.group())
        .and_then(|(_, version)| known.iter().find(|known| **known == version));
    found.copied().ok_or_else(|| ConvertError::UnknownVersion {
        kind: family.kind(),
        version: api_version.to_owned(),
        versions: known,
    })
}

fn known() -> String {
    [Family::Dgdr, Family::Llsd].map(Family::kind).join(" and ")
}
