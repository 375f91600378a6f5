//! Two structural schemas, side by side.
//! Comes in: a schema of ours and one that its project publishes; goes out: where they differ, or where ours accepts less,
//! and a failed test for each difference that nobody has named and justified.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::crds::{self, Options};

/// What the two have to be to each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    Equal,
    /// Whatever theirs accepts, ours accepts too, with the same defaults, and keeps every field of it.
    AcceptsAll,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    pub path: String,
    pub key: String,
    pub ours: String,
    pub theirs: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ours {}, theirs {}", self.path, self.key, self.ours, self.theirs)
    }
}

/// A difference that is meant. `*` stands for any text.
pub struct Named {
    pub path: &'static str,
    pub key: &'static str,
    pub why: &'static str,
}

impl Named {
    fn covers(&self, difference: &Difference) -> bool {
        like(self.key, &difference.key) && like(self.path, &difference.path)
    }
}

fn like(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text
            .strip_prefix(start)
            .is_some_and(|text| (0..=text.len()).any(|at| text.is_char_boundary(at) && like(rest, &text[at..]))),
    }
}

/// Fails with every difference that is not named, and with every name that stands for none: a stale excuse hides a new one.
pub fn assert_named(what: &str, differences: &[Difference], named: &[Named]) {
    let unnamed: Vec<_> =
        differences.iter().filter(|it| !named.iter().any(|name| name.covers(it))).map(ToString::to_string).collect();
    let unused: Vec<_> = named
        .iter()
        .filter(|name| !differences.iter().any(|it| name.covers(it)))
        .map(|name| format!("{} {} ({})", name.path, name.key, name.why))
        .collect();
    assert!(unnamed.is_empty(), "{what}: {} unnamed differences:\n{}", unnamed.len(), unnamed.join("\n"));
    assert!(unused.is_empty(), "{what}: named, but no longer there:\n{}", unused.join("\n"));
}

/// Our CRD, as it is printed.
pub fn ours(family: Family) -> Value {
    crds::manifest(&crds::crd(family, &Options::default()).unwrap()).unwrap()
}

/// A published CRD.
#[expect(clippy::disallowed_methods, reason = "a test may read files")]
pub fn theirs(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let options = serde_saphyr::options! { budget: None };
    serde_saphyr::from_str_with_options(&text, options).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// One version of a CRD.
pub fn version<'a>(crd: &'a Value, name: &str) -> &'a Value {
    let mut versions = crd["spec"]["versions"].as_array().unwrap().iter();
    versions.find(|version| version["name"] == name).unwrap_or_else(|| panic!("there is no version {name}"))
}

/// The schemas of two versions.
pub fn schemas(ours: &Value, theirs: &Value, aim: Aim) -> Vec<Difference> {
    let schema = |version: &Value| normal(&version["schema"]["openAPIV3Schema"]);
    let mut walk = Walk { aim, found: Vec::new() };
    walk.schema("", &schema(ours), &schema(theirs));
    walk.found.sort();
    walk.found
}

/// All else that two versions say of themselves.
pub fn presentation(ours: &Value, theirs: &Value) -> Vec<Difference> {
    let mut walk = Walk { aim: Aim::Equal, found: Vec::new() };
    let keys = ["additionalPrinterColumns", "deprecated", "deprecationWarning", "selectableFields", "subresources"];
    for key in keys {
        walk.differ("", key, ours.get(key), theirs.get(key));
    }
    walk.found
}

/// Says the same in the same words, where the API server reads two forms alike.
fn normal(schema: &Value) -> Value {
    let Some(fields) = schema.as_object() else { return schema.clone() };
    let mut out = BTreeMap::new();
    for (key, value) in fields {
        let value = match key.as_str() {
            "description" => continue,
            // Every integer in JSON that Kubernetes reads is an int64; only int32 is a limit.
            "format" if value == "int64" => continue,
            "properties" => {
                value.as_object().unwrap().iter().map(|(name, schema)| (name.clone(), normal(schema))).collect()
            }
            "items" | "additionalProperties" => normal(value),
            "required" | "enum" => {
                let mut values = value.as_array().unwrap().clone();
                values.sort_by_key(Value::to_string);
                values.into()
            }
            // controller-gen writes an enum twice where both the type and the field have the marker.
            "allOf" if value.as_array().unwrap().iter().all(|part| part == &value[0] && part.get("enum").is_some()) => {
                out.extend(normal(&value[0]).as_object().unwrap().clone());
                continue;
            }
            _ => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    json!(out)
}

struct Walk {
    aim: Aim,
    found: Vec<Difference>,
}

impl Walk {
    fn report(&mut self, path: &str, key: &str, ours: impl fmt::Display, theirs: impl fmt::Display) {
        let (path, key) = (path.to_owned(), key.to_owned());
        self.found.push(Difference { path, key, ours: ours.to_string(), theirs: theirs.to_string() });
    }

    fn differ(&mut self, path: &str, key: &str, ours: Option<&Value>, theirs: Option<&Value>) {
        let shown = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
        if ours != theirs {
            self.report(path, key, shown(ours), shown(theirs));
        }
    }

    fn schema(&mut self, path: &str, ours: &Value, theirs: &Value) {
        let none = serde_json::Map::new();
        let fields = |schema: &Value| schema.as_object().unwrap_or(&none).keys().cloned().collect::<BTreeSet<_>>();
        for key in fields(ours).union(&fields(theirs)) {
            match key.as_str() {
                _ if self.aim == Aim::AcceptsAll && speaks_of_another_type(key, theirs) => {}
                "properties" => self.properties(path, ours, theirs),
                "items" => self.below(&format!("{path}[]"), key, ours, theirs),
                "additionalProperties" => self.below(&format!("{path}{{}}"), key, ours, theirs),
                "required" => self.required(path, ours, theirs),
                "x-kubernetes-validations" => self.rules(path, ours, theirs),
                _ if self.aim == Aim::AcceptsAll && is_wider(key, ours, theirs) => {}
                _ => self.differ(path, key, ours.get(key), theirs.get(key)),
            }
        }
    }

    fn below(&mut self, path: &str, key: &str, ours: &Value, theirs: &Value) {
        match (ours.get(key), theirs.get(key)) {
            (Some(ours), Some(theirs)) => self.schema(path, ours, theirs),
            (None, Some(_)) if self.aim == Aim::AcceptsAll && keeps_all(ours) => {}
            (ours, theirs) => self.differ(path, key, ours, theirs),
        }
    }

    fn properties(&mut self, path: &str, ours: &Value, theirs: &Value) {
        let none = serde_json::Map::new();
        let fields = |schema: &'_ Value| schema["properties"].as_object().unwrap_or(&none).clone();
        let (our_fields, their_fields) = (fields(ours), fields(theirs));
        for (name, field) in &their_fields {
            let path = format!("{path}.{name}");
            match our_fields.get(name) {
                Some(our_field) => self.schema(&path, our_field, field),
                None if self.aim == Aim::AcceptsAll && keeps_all(ours) => {}
                None => self.report(&path, "field", "has it not", "has it"),
            }
        }
        for (name, field) in our_fields.iter().filter(|(name, _)| !their_fields.contains_key(*name)) {
            let path = format!("{path}.{name}");
            if self.aim == Aim::Equal {
                self.report(&path, "field", "has it", "has it not");
            } else if let Some(default) = field.get("default") {
                self.report(&path, "default", default, "no such field");
            }
        }
    }

    fn required(&mut self, path: &str, ours: &Value, theirs: &Value) {
        let names = |schema: &Value| -> BTreeSet<String> {
            let names = schema["required"].as_array().into_iter().flatten();
            names.map(|name| name.as_str().unwrap().to_owned()).collect()
        };
        let (ours, theirs) = (names(ours), names(theirs));
        for name in ours.difference(&theirs) {
            self.report(&format!("{path}.{name}"), "required", "yes", "no");
        }
        let aim = self.aim;
        for name in theirs.difference(&ours).filter(|_| aim == Aim::Equal) {
            self.report(&format!("{path}.{name}"), "required", "no", "yes");
        }
    }

    /// A rule is its own key, by its text; that two rules of different texts mean the same is for people to say.
    fn rules(&mut self, path: &str, ours: &Value, theirs: &Value) {
        let rules = |schema: &Value| schema["x-kubernetes-validations"].as_array().cloned().unwrap_or_default();
        let (ours, theirs) = (rules(ours), rules(theirs));
        for rule in ours.iter().filter(|rule| !theirs.contains(rule)) {
            self.report(path, rule["rule"].as_str().unwrap(), rule, "no such rule");
        }
        let aim = self.aim;
        for rule in theirs.iter().filter(|rule| !ours.contains(rule) && aim == Aim::Equal) {
            self.report(path, rule["rule"].as_str().unwrap(), "no such rule", rule);
        }
    }
}

/// Ours may accept several types where theirs is of one; what it says of the others limits nothing.
fn speaks_of_another_type(key: &str, theirs: &Value) -> bool {
    let types: &[&str] = match key {
        "properties" | "required" | "additionalProperties" | "minProperties" | "maxProperties" => &["object"],
        "items" | "minItems" | "maxItems" => &["array"],
        "minLength" | "maxLength" | "pattern" => &["string"],
        "minimum" | "maximum" => &["integer", "number"],
        _ => return false,
    };
    theirs["type"].as_str().is_some_and(|type_| !types.contains(&type_))
}

fn keeps_all(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

/// Whether, by `key` alone, ours accepts at least what theirs does.
fn is_wider(key: &str, ours: &Value, theirs: &Value) -> bool {
    let (Some(ours), theirs) = (ours.get(key), &theirs[key]) else {
        // What theirs keeps, ours must keep; what theirs fills in, ours must fill in; merging must not change.
        return !matches!(key, "default" | "nullable") && !key.starts_with("x-kubernetes-");
    };
    let numbers = ours.as_f64().zip(theirs.as_f64());
    match key {
        "minimum" | "minLength" | "minItems" | "minProperties" => numbers.is_some_and(|(ours, theirs)| ours <= theirs),
        "maximum" | "maxLength" | "maxItems" | "maxProperties" => numbers.is_some_and(|(ours, theirs)| ours >= theirs),
        "enum" => theirs.as_array().is_some_and(|all| all.iter().all(|it| ours.as_array().unwrap().contains(it))),
        "x-kubernetes-preserve-unknown-fields" => ours == true,
        _ => false,
    }
}

/// A comparison that finds nothing proves nothing, unless it is known to find.
#[test]
fn each_way_of_accepting_less_is_found() {
    let text = json!({ "type": "string" });
    let of = |key: &str, value: Value| {
        let mut schema = text.clone();
        schema[key] = value;
        schema
    };
    let (a, b) = (json!({ "type": "object", "properties": { "a": text } }), json!({ "type": "object" }));
    let required = json!({ "type": "object", "properties": { "a": text }, "required": ["a"] });
    let kept = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let rule = json!({ "type": "object", "x-kubernetes-validations": [{ "rule": "has(self.a)" }] });
    // ours, theirs, how many differences if ours must accept all, and how many if both must be equal
    let cases = [
        ("the same", text.clone(), text.clone(), 0, 0),
        ("another type", text.clone(), json!({ "type": "integer" }), 1, 1),
        (
            "an integer of another size",
            json!({ "type": "integer", "format": "int32" }),
            json!({ "type": "integer" }),
            1,
            1,
        ),
        (
            "an integer of the usual size",
            json!({ "type": "integer", "format": "int64" }),
            json!({ "type": "integer" }),
            0,
            0,
        ),
        ("other words", of("description", json!("ours")), of("description", json!("theirs")), 0, 0),
        ("a field is lost", b.clone(), a.clone(), 1, 1),
        ("a field is kept unseen", kept.clone(), a.clone(), 0, 2),
        ("unknown fields are lost", b.clone(), kept, 1, 1),
        ("a field more", a.clone(), b.clone(), 0, 1),
        ("more is required", required.clone(), a.clone(), 1, 1),
        ("less is required", a, required, 0, 1),
        ("a rule more", rule.clone(), b.clone(), 1, 1),
        ("a rule less", b, rule, 0, 1),
        ("a higher minimum", of("minLength", json!(2)), of("minLength", json!(1)), 1, 1),
        ("a lower minimum", of("minLength", json!(0)), of("minLength", json!(1)), 0, 1),
        ("a new minimum", of("minLength", json!(1)), text.clone(), 1, 1),
        ("a lower maximum", of("maxLength", json!(8)), of("maxLength", json!(9)), 1, 1),
        ("fewer choices", of("enum", json!(["a"])), of("enum", json!(["b", "a"])), 1, 1),
        ("more choices", of("enum", json!(["a", "b"])), of("enum", json!(["b"])), 0, 1),
        (
            "the same choices twice",
            of("enum", json!(["a"])),
            of("allOf", json!([{ "enum": ["a"] }, { "enum": ["a"] }])),
            0,
            0,
        ),
        ("another default", of("default", json!("a")), of("default", json!("b")), 1, 1),
        ("a lost default", text.clone(), of("default", json!("b")), 1, 1),
        ("a pattern more", of("pattern", json!("a")), text.clone(), 1, 1),
        ("a pattern less", text.clone(), of("pattern", json!("a")), 0, 1),
        ("merged otherwise", text.clone(), of("x-kubernetes-list-type", json!("map")), 1, 1),
    ];
    for (name, ours, theirs, narrower, unequal) in cases {
        let wrap = |schema: Value| json!({ "schema": { "openAPIV3Schema": { "type": "array", "items": schema } } });
        let found = |aim| schemas(&wrap(ours.clone()), &wrap(theirs.clone()), aim);
        assert_eq!(found(Aim::AcceptsAll).len(), narrower, "{name}: {:?}", found(Aim::AcceptsAll));
        assert_eq!(found(Aim::Equal).len(), unequal, "{name}: {:?}", found(Aim::Equal));
    }
}
