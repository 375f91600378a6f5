//! Reads, moves and merges values of JSON objects by their path.

use serde_json::{Map, Value};

pub type JsonObject = Map<String, Value>;
pub type JsonPath = [&'static str];

/// Values that a field of the other version accepts.
#[derive(Clone, Copy)]
pub enum ValueKind {
    Any,
    NonEmptyString,
    Number,
    Int32,
    True,
    OneOf(&'static [&'static str]),
    Object,
    NonEmptyObject,
    NonEmptyList,
}

enum Fit {
    Fits,
    /// The value has no equivalent in the other version: it is null, false or empty, or a string that the other version
    /// does not define.
    NotConvertible,
    /// The value has a wrong type. Holds the required type.
    WrongType(&'static str),
}

impl ValueKind {
    fn fit(self, value: &Value) -> Fit {
        let (fits, right_type, required) = match (self, value) {
            (Self::Any, _) => return Fit::Fits,
            (_, Value::Null) => return Fit::NotConvertible,
            (Self::NonEmptyString, _) => (text(Some(value)).is_some(), value.is_string(), "a string"),
            (Self::Number, _) => (value.is_number(), false, "a number"),
            (Self::Int32, _) => (int32(value).is_some(), false, "a 32-bit integer"),
            (Self::True, _) => (*value == Value::Bool(true), value.is_boolean(), "a boolean"),
            (Self::OneOf(words), _) => {
                (value.as_str().is_some_and(|word| words.contains(&word)), value.is_string(), "a string")
            }
            (Self::Object, _) => (value.is_object(), false, "an object"),
            (Self::NonEmptyObject, _) => {
                (value.as_object().is_some_and(|object| !object.is_empty()), value.is_object(), "an object")
            }
            (Self::NonEmptyList, _) => {
                (value.as_array().is_some_and(|list| !list.is_empty()), value.is_array(), "a list")
            }
        };
        match (fits, right_type) {
            (true, _) => Fit::Fits,
            (false, true) => Fit::NotConvertible,
            (false, false) => Fit::WrongType(required),
        }
    }
}

/// A section of the object that is being converted.
#[derive(Default)]
pub struct SourceFields {
    /// Fields that were not taken.
    pub remaining: JsonObject,
    /// Fields of a wrong type: the path in the section, and the required type.
    pub wrong_types: Vec<(String, &'static str)>,
}

impl SourceFields {
    pub fn new(fields: JsonObject) -> Self {
        Self { remaining: fields, wrong_types: Vec::new() }
    }

    /// Removes and returns a value of that kind, and removes the objects that become empty.
    pub fn take(&mut self, path: &JsonPath, kind: ValueKind) -> Option<Value> {
        match take(&mut self.remaining, path, kind) {
            Ok(taken) => taken,
            Err((depth, required)) => {
                let path = path.get(..depth).unwrap_or(path).join(".");
                self.wrong_types.push((path, required));
                None
            }
        }
    }
}

/// The error has the number of steps to the wrong value.
fn take(object: &mut JsonObject, path: &JsonPath, kind: ValueKind) -> Result<Option<Value>, (usize, &'static str)> {
    let Some((name, below)) = path.split_first() else { return Ok(None) };
    let Some(value) = object.get_mut(*name) else { return Ok(None) };
    if below.is_empty() {
        return match kind.fit(value) {
            Fit::Fits => Ok(object.remove(*name)),
            Fit::NotConvertible => Ok(None),
            Fit::WrongType(required) => Err((1, required)),
        };
    }
    let inner = match value {
        Value::Object(inner) => inner,
        Value::Null => return Ok(None),
        _ => return Err((1, "an object")),
    };
    let taken = take(inner, below, kind).map_err(|(depth, required)| (depth + 1, required))?;
    if taken.is_some() && inner.is_empty() {
        object.remove(*name);
    }
    Ok(taken)
}

/// Removes and returns any value, and removes the objects that become empty.
pub fn remove(object: &mut JsonObject, path: &JsonPath) -> Option<Value> {
    take(object, path, ValueKind::Any).ok().flatten()
}

pub fn value_at<'a>(object: &'a JsonObject, path: &[&str]) -> Option<&'a Value> {
    let (name, below) = path.split_first()?;
    let value = object.get(*name)?;
    if below.is_empty() { Some(value) } else { value_at(value.as_object()?, below) }
}

/// Sets a value. A value on the path that is not an object is replaced.
pub fn insert_at(object: &mut JsonObject, path: &JsonPath, value: Value) {
    let Some((name, below)) = path.split_first() else { return };
    if below.is_empty() {
        object.insert((*name).to_owned(), value);
        return;
    }
    let inner = object.entry(*name).or_insert_with(|| Value::Object(JsonObject::new()));
    if !inner.is_object() {
        *inner = Value::Object(JsonObject::new());
    }
    if let Value::Object(inner) = inner {
        insert_at(inner, below, value);
    }
}

/// Merges `top` into `base`: objects field by field, otherwise `top` wins.
pub fn overlay(base: &mut JsonObject, top: JsonObject) {
    for (name, value) in top {
        match (base.get_mut(&name), value) {
            (Some(Value::Object(below)), Value::Object(above)) => overlay(below, above),
            (_, value) => {
                base.insert(name, value);
            }
        }
    }
}

/// The paths of all values except null, with `prefix` in front.
pub fn leaf_paths(prefix: &str, object: &JsonObject) -> Vec<String> {
    let leaf = |(name, value): (&String, &Value)| {
        let path = format!("{prefix}.{name}");
        match value {
            Value::Null => Vec::new(),
            Value::Object(inner) if !inner.is_empty() => leaf_paths(&path, inner),
            _ => vec![path],
        }
    };
    object.iter().flat_map(leaf).collect()
}

/// A string that is not empty.
pub fn text(value: Option<&Value>) -> Option<&str> {
    value?.as_str().filter(|text| !text.is_empty())
}

pub fn int32(value: &Value) -> Option<i32> {
    value.as_i64().and_then(|number| i32::try_from(number).ok())
}
