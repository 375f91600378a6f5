//! Checks the values of an override against the types of a graph's fields. An override is a part of a graph: a field that the
//! generated graph may have is not required.

use serde_json::Value;
use steersman_reconcile::quantity::billionths;

use super::fields;
use super::kubernetes::{self, Search};
use super::{APPEND, JsonObject, is_alpha, misplaced_patch};
use crate::dynamo::build::graph::lists;

#[derive(Clone, Copy)]
pub enum FieldType {
    Text,
    Matching(&'static Pattern),
    Flag,
    /// An integer with its minimum and maximum.
    Integer(i64, i64),
    /// A number with its minimum and maximum.
    Number(f64, f64),
    /// A number or a string, as in `8Gi`.
    Quantity,
    /// A field without a type, which may be null.
    Any,
    /// An object whose fields have no types.
    AnyObject,
    Object(Structure),
    /// An object with any keys.
    MapOf(&'static FieldType),
    ListOf(&'static FieldType),
    OneOf(&'static [&'static str]),
    /// One of Kubernetes' own types, by its name.
    Kubernetes(&'static str),
    /// The spec of a pod, with fields that Kubernetes does not have.
    Pod(Schema),
}

/// A string of a certain form.
pub struct Pattern {
    pub fits: fn(&str) -> bool,
    /// The form, as in `must be ...`.
    pub words: &'static str,
}

/// The fields of an object.
#[derive(Clone, Copy)]
pub struct Structure {
    pub fields: Schema,
    /// Fields that an override must set, since profilers do not generate this object.
    pub required: &'static [&'static str],
    /// Fields besides these are allowed.
    pub open: bool,
    /// A rule about several fields. It returns the rest of the text behind the path of the object.
    pub rule: Option<fn(&JsonObject) -> Option<String>>,
}

type Schema = &'static [(&'static str, FieldType)];

use FieldType::{
    Any, AnyObject, Flag, Integer, Kubernetes, ListOf, MapOf, Matching, Number, Object, OneOf, Pod, Quantity, Text,
};

/// A search through the values of an override.
#[derive(Clone, Copy)]
pub struct Checker {
    pub search: Search,
    /// The value replaces that of the generated graph as a whole, so that it must be complete.
    pub whole: bool,
}

/// The first value of an override that no graph can have.
pub fn mismatch(wanted: &JsonObject) -> Option<String> {
    let (alpha, spec) = (is_alpha(wanted), &wanted["spec"]);
    let mut path = vec!["spec".to_owned()];
    structured(wanted, Search::WrongTypes, &mut path)
        .or_else(|| keys(spec, &mut path))
        .or_else(|| modifier(spec, alpha, &mut path))
        .map(|problem| format!("override {problem}"))
}

/// The first problem of the metadata of an override, of which labels and annotations are merged.
pub fn metadata_mismatch(metadata: &Value) -> Option<String> {
    let checker = Checker { search: Search::WrongTypes, whole: false };
    checker.fields(metadata, &fields::METADATA, &mut vec!["metadata".to_owned()])
}

/// The path of the first field of an override that graphs do not have.
pub fn unknown_field(wanted: &JsonObject) -> Option<String> {
    structured(wanted, Search::UnknownFields, &mut vec!["spec".to_owned()])
}

fn structured(wanted: &JsonObject, search: Search, path: &mut Vec<String>) -> Option<String> {
    let structure = if is_alpha(wanted) { fields::ALPHA } else { fields::BETA };
    Checker { search, whole: false }.fields(&wanted["spec"], &structure, path)
}

impl Checker {
    /// The first problem of a value of this type.
    pub fn value(self, value: &Value, type_: &FieldType, path: &mut Vec<String>) -> Option<String> {
        let must_be = |fits: bool, words: &str| self.must_be(fits, words, path);
        match type_ {
            Text => must_be(value.is_string(), "a string"),
            Matching(pattern) => must_be(value.as_str().is_some_and(|text| (pattern.fits)(text)), pattern.words),
            Flag => must_be(value.is_boolean(), "true or false"),
            Quantity => must_be(is_quantity(value), "a quantity, such as 8Gi"),
            Any => None,
            AnyObject => must_be(value.is_object(), "an object"),
            OneOf(values) => must_be(
                value.as_str().is_some_and(|word| values.contains(&word)),
                &format!("one of {}", values.join(", ")),
            ),
            Integer(minimum, maximum) => {
                let fits = value.as_i64().is_some_and(|number| (*minimum..=*maximum).contains(&number));
                must_be(fits, &integer(value, *minimum, *maximum))
            }
            Number(minimum, maximum) => {
                let fits = value.as_f64().is_some_and(|number| (*minimum..=*maximum).contains(&number));
                let limits = if *minimum > f64::MIN { format!(" from {minimum} to {maximum}") } else { String::new() };
                must_be(fits, &format!("a number{limits}"))
            }
            Object(structure) => self.fields(value, structure, path),
            Kubernetes(name) => kubernetes::problem(value, name, self, path),
            Pod(more) => {
                let structure = Structure { fields: more, required: &[], open: true, rule: None };
                self.fields(value, &structure, path)
                    .or_else(|| kubernetes::problem(&pod_fields(value, more), kubernetes::POD, self, path))
            }
            MapOf(inner) => match value.as_object() {
                Some(entries) => {
                    entries.iter().find_map(|(name, value)| below(path, name, |path| self.value(value, inner, path)))
                }
                None => must_be(false, "an object"),
            },
            ListOf(inner) => match value.as_array() {
                Some(items) => {
                    self.of_list(path).items(items, path, |checker, item, path| checker.value(item, inner, path))
                }
                None => must_be(false, "a list"),
            },
        }
    }

    pub fn fields(self, value: &Value, structure: &Structure, path: &mut Vec<String>) -> Option<String> {
        let Some(object) = value.as_object() else { return self.must_be(false, "an object", path) };
        let known = structure.fields.iter().filter_map(|(name, type_)| Some((name, type_, object.get(*name)?)));
        if self.search == Search::UnknownFields && !structure.open {
            let is_known = |name: &String| structure.fields.iter().any(|(known, _)| known == name);
            if let Some(unknown) = object.keys().find(|name| *name != APPEND && !is_known(name)) {
                return Some(below(path, unknown, |path| unknown_place(path)));
            }
        }
        known
            .into_iter()
            .find_map(|(name, type_, value)| below(path, name, |path| self.value(value, type_, path)))
            .or_else(|| self.missing(object, structure.required.iter().copied(), path))
            .or_else(|| {
                let rule = structure.rule.filter(|_| self.search == Search::WrongTypes)?;
                Some(format!("{}{}", path.join("."), rule(object)?))
            })
    }

    pub fn items(
        self,
        items: &[Value],
        path: &mut Vec<String>,
        check: impl Fn(Self, &Value, &mut Vec<String>) -> Option<String>,
    ) -> Option<String> {
        let mut items = items.iter().enumerate();
        items.find_map(|(place, item)| below(path, &step(item, place), |path| check(self, item, path)))
    }

    /// Lists without keys replace that of the generated graph.
    pub fn of_list(self, path: &[String]) -> Self {
        Self { whole: self.whole || lists::keys(path).is_none(), ..self }
    }

    pub fn missing<'a>(
        self,
        object: &JsonObject,
        mut required: impl Iterator<Item = &'a str>,
        path: &[String],
    ) -> Option<String> {
        let absent = required.find(|name| !object.contains_key(*name))?;
        (self.search == Search::WrongTypes).then(|| format!("{} has no {absent}", path.join(".")))
    }

    pub fn must_be(self, fits: bool, words: &str, path: &[String]) -> Option<String> {
        (self.search == Search::WrongTypes && !fits).then(|| format!("{} must be {words}", path.join(".")))
    }
}

/// The words for an integer in these limits. The maximum is stated if the value exceeds it.
fn integer(value: &Value, minimum: i64, maximum: i64) -> String {
    let too_large = value.as_i64().map_or(value.is_u64(), |number| number > maximum);
    let limits = match (minimum > i64::from(i32::MIN), too_large) {
        (true, true) => format!(" of at least {minimum}, and at most {maximum}"),
        (true, false) => format!(" of at least {minimum}"),
        (false, true) => format!(" of at most {maximum}"),
        (false, false) => String::new(),
    };
    format!("an integer{limits}")
}

/// The place of an unknown field, with the name of its component in brackets.
pub fn unknown_place(path: &[String]) -> String {
    match path {
        [spec, list, name, rest @ ..] if list == "components" || list == "services" => {
            let component = format!("{spec}.{list}[{name}]");
            std::iter::once(&component).chain(rest).map(String::as_str).collect::<Vec<_>>().join(".")
        }
        path => path.join("."),
    }
}

/// The fields of a pod that Kubernetes has.
fn pod_fields(value: &Value, more: Schema) -> Value {
    let fields = value.as_object().into_iter().flatten();
    let pod: JsonObject = fields
        .filter(|(name, _)| more.iter().all(|(known, _)| known != name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    pod.into()
}

/// An integer, or a string that is a quantity. The CRD accepts no other number.
pub(super) fn is_quantity(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_str().is_some_and(|text| billionths(text).is_some())
}

/// An entry of a list by its name, or by its number if it has none.
pub(super) fn step(item: &Value, place: usize) -> String {
    item["name"].as_str().filter(|name| !name.is_empty()).map_or_else(|| place.to_string(), str::to_owned)
}

pub(super) fn below<T>(path: &mut Vec<String>, name: &str, look: impl FnOnce(&mut Vec<String>) -> T) -> T {
    path.push(name.to_owned());
    let found = look(path);
    path.pop();
    found
}

/// The first entry of a list with keys that lacks its key, or has that of another entry.
fn keys(value: &Value, path: &mut Vec<String>) -> Option<String> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| !lists::is_opaque(name))
            .find_map(|(name, value)| below(path, name, |path| keys(value, path))),
        Value::Array(items) => {
            let own = lists::keys(path).and_then(|keys| wrong_key(items, keys, path));
            own.or_else(|| {
                let mut entries = items.iter().enumerate();
                entries.find_map(|(place, item)| below(path, &step(item, place), |path| keys(item, path)))
            })
        }
        _ => None,
    }
}

fn wrong_key(items: &[Value], keys: &[&str], path: &[String]) -> Option<String> {
    let key = |item: &Value| -> Vec<Value> { keys.iter().map(|key| lists::key(item, key)).collect() };
    let mut known: Vec<Vec<Value>> = Vec::new();
    for (place, item) in items.iter().enumerate() {
        let path = path.join(".");
        let own = key(item);
        if let Some((_, absent)) = own.iter().zip(keys).find(|(value, _)| value.is_null() || **value == "") {
            return Some(format!("{path}[{place}] has no {absent}"));
        }
        let first = &item[keys[0]];
        if known.contains(&own) {
            let value = first.as_str().map_or_else(|| first.to_string(), str::to_owned);
            return Some(format!("{path} has two entries with {} {value}", keys[0]));
        }
        known.push(own);
    }
    None
}

/// The first modifier that cannot be carried out.
fn modifier(value: &Value, alpha: bool, path: &mut Vec<String>) -> Option<String> {
    match value {
        Value::Object(fields) => {
            if let Some(modifier) = fields.get(APPEND) {
                let container = path.len() >= 2 && path[path.len() - 2] == "containers";
                if alpha || !container || *modifier != serde_json::json!({ "args": "append" }) {
                    return Some(misplaced_patch(&path.join(".")));
                }
                let arguments = fields.get("args").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                if arguments.is_empty() {
                    return Some(format!("{}.args must be a non-empty list of strings to append", path.join(".")));
                }
                if let Some(place) = arguments.iter().position(|argument| argument == "") {
                    return Some(format!("{}.args.{place} must be non-empty", path.join(".")));
                }
            }
            let others = fields.iter().filter(|(name, _)| *name != APPEND && !lists::is_opaque(name));
            others.into_iter().find_map(|(name, value)| below(path, name, |path| modifier(value, alpha, path)))
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(place, item)| below(path, &step(item, place), |path| modifier(item, alpha, path))),
        _ => None,
    }
}
