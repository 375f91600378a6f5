//! Values in JSON objects by their path.
//! Comes in: an object and the path of a field; goes out: the value, moved out of or into its place, and nothing that
//! was not there before.

use serde_json::{Map, Value};

pub type Object = Map<String, Value>;
pub type Path = [&'static str];

/// What a value must be for the other version to have a field for it.
#[derive(Clone, Copy)]
pub enum Kind {
    Anything,
    /// A text that is not empty.
    Text,
    Number,
    /// A number without a fraction, as large as the schema allows.
    Int32,
    True,
    Word(&'static [&'static str]),
    Object,
    /// An object that is not empty.
    Filled,
    /// A list that is not empty.
    List,
}

/// How a value stands to a kind.
enum Fit {
    Fits,
    /// Of the right kind, but nothing that the other version could say: empty, or another word.
    Stays,
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

/// A section of the object that is being converted, from which everything is taken that the other version can say.
#[derive(Default)]
pub struct Source {
    /// What has not been taken.
    pub rest: Object,
    /// Fields that are left because they hold a wrong kind of value: the path in the section, and what it must be.
    pub wrong: Vec<(String, &'static str)>,
}

impl Source {
    pub fn new(rest: Object) -> Self {
        Self { rest, wrong: Vec::new() }
    }

    /// Takes a value of that kind away, and with it the objects that it leaves empty. All others stay.
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

/// The error says how many steps of the path lead to the wrong value.
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

/// Removes whatever is there, and the objects that it leaves empty.
pub fn remove(object: &mut Object, path: &Path) -> Option<Value> {
    take(object, path, Kind::Anything).ok().flatten()
}

pub fn at<'a>(object: &'a Object, path: &Path) -> Option<&'a Value> {
    let (name, below) = path.split_first()?;
    let value = object.get(*name)?;
    if below.is_empty() { Some(value) } else { at(value.as_object()?, below) }
}

/// Puts a value in its place; what is in the way and is no object makes room.
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

/// Lays `top` over `base`: objects are joined field by field, and of all else `top` wins.
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

/// The paths of all values under `at`. Null says nothing, so it has none.
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
