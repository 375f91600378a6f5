//! Reads, moves and merges values of JSON objects by their path.

use serde_json::{Map, Value};

pub type Object = Map<String, Value>;
pub type Path = [&'static str];

/// Values that a field of the other version accepts.
#[derive(Clone, Copy)]
pub enum Kind {
    Anything,
    /// A text that is not empty.
    Text,
    Number,
    Int32,
    True,
    Word(&'static [&'static str]),
    Object,
    /// An object that is not empty.
    Filled,
    /// A list that is not empty.
    List,
}

enum Fit {
    Fits,
    /// A value of the right type that the other version does not have: empty, or another word.
    Stays,
    /// A value of another type than the one named here.
    Wrong(&'static str),
}

impl Kind {
    fn fit(self, value: &Value) -> Fit {
        let (fits, right, want) = match (self, value) {
            (Self::Anything, _) => return Fit::Fits,
            (_, Value::Null) => return Fit::Stays,
            (Self::Text, _) => (text(Some(value)).is_some(), value.is_string(), "a text"),
            (Self::Number, _) => (value.is_number(), false, "a number"),
            (Self::Int32, _) => (int32(value).is_some(), false, "a whole number of at most 32 bits"),
            (Self::True, _) => (*value == Value::Bool(true), value.is_boolean(), "true or false"),
            (Self::Word(words), _) => {
                (value.as_str().is_some_and(|word| words.contains(&word)), value.is_string(), "a text")
            }
            (Self::Object, _) => (value.is_object(), false, "an object"),
            (Self::Filled, _) => {
                (value.as_object().is_some_and(|object| !object.is_empty()), value.is_object(), "an object")
            }
            (Self::List, _) => (value.as_array().is_some_and(|list| !list.is_empty()), value.is_array(), "a list"),
        };
        match (fits, right) {
            (true, _) => Fit::Fits,
            (false, true) => Fit::Stays,
            (false, false) => Fit::Wrong(want),
        }
    }
}

/// A section of the object that is being converted.
#[derive(Default)]
pub struct Source {
    /// Fields that were not taken.
    pub rest: Object,
    /// Fields of a wrong type: the path in the section, and the required type.
    pub wrong: Vec<(String, &'static str)>,
}

impl Source {
    pub fn new(rest: Object) -> Self {
        Self { rest, wrong: Vec::new() }
    }

    /// Removes and returns a value of that kind, and removes the objects that become empty.
    pub fn take(&mut self, path: &Path, kind: Kind) -> Option<Value> {
        match take(&mut self.rest, path, kind) {
            Ok(taken) => taken,
            Err((depth, want)) => {
                let path = path.get(..depth).unwrap_or(path).join(".");
                self.wrong.push((path, want));
                None
            }
        }
    }
}

/// The error has the number of steps to the wrong value.
fn take(object: &mut Object, path: &Path, kind: Kind) -> Result<Option<Value>, (usize, &'static str)> {
    let Some((name, below)) = path.split_first() else { return Ok(None) };
    let Some(value) = object.get_mut(*name) else { return Ok(None) };
    if below.is_empty() {
        return match kind.fit(value) {
            Fit::Fits => Ok(object.remove(*name)),
            Fit::Stays => Ok(None),
            Fit::Wrong(want) => Err((1, want)),
        };
    }
    let inner = match value {
        Value::Object(inner) => inner,
        Value::Null => return Ok(None),
        _ => return Err((1, "an object")),
    };
    let taken = take(inner, below, kind).map_err(|(depth, want)| (depth + 1, want))?;
    if taken.is_some() && inner.is_empty() {
        object.remove(*name);
    }
    Ok(taken)
}

/// Removes and returns any value, and removes the objects that become empty.
pub fn remove(object: &mut Object, path: &Path) -> Option<Value> {
    take(object, path, Kind::Anything).ok().flatten()
}

pub fn at<'a>(object: &'a Object, path: &[&str]) -> Option<&'a Value> {
    let (name, below) = path.split_first()?;
    let value = object.get(*name)?;
    if below.is_empty() { Some(value) } else { at(value.as_object()?, below) }
}

/// Sets a value. A value on the path that is not an object is replaced.
pub fn put(object: &mut Object, path: &Path, value: Value) {
    let Some((name, below)) = path.split_first() else { return };
    if below.is_empty() {
        object.insert((*name).to_owned(), value);
        return;
    }
    let inner = object.entry(*name).or_insert_with(|| Value::Object(Object::new()));
    if !inner.is_object() {
        *inner = Value::Object(Object::new());
    }
    if let Value::Object(inner) = inner {
        put(inner, below, value);
    }
}

/// Merges `top` into `base`: objects field by field, otherwise `top` wins.
pub fn overlay(base: &mut Object, top: Object) {
    for (name, value) in top {
        match (base.get_mut(&name), value) {
            (Some(Value::Object(below)), Value::Object(above)) => overlay(below, above),
            (_, value) => {
                base.insert(name, value);
            }
        }
    }
}

/// The paths of all values except null, below `at`.
pub fn leaves(at: &str, object: &Object) -> Vec<String> {
    let leaf = |(name, value): (&String, &Value)| {
        let path = format!("{at}.{name}");
        match value {
            Value::Null => Vec::new(),
            Value::Object(inner) if !inner.is_empty() => leaves(&path, inner),
            _ => vec![path],
        }
    };
    object.iter().flat_map(leaf).collect()
}

/// A text that is not empty.
pub fn text(value: Option<&Value>) -> Option<&str> {
    value?.as_str().filter(|text| !text.is_empty())
}

pub fn int32(value: &Value) -> Option<i32> {
    value.as_i64().and_then(|number| i32::try_from(number).ok())
}
