//! Compares our structural schemas with those that upstream projects publish. A test fails for each difference that is not
//! listed with a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::crds::{self, Options};

/// The required relation between our schema and the published one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Compatibility {
    Equal,
    /// Our schema accepts every object that theirs accepts, applies the same defaults and keeps every field.
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

/// An intended difference. `*` in the path or key matches any text.
pub struct ExpectedDifference {
    pub path: &'static str,
    pub key: &'static str,
    pub why: &'static str,
}

impl ExpectedDifference {
    fn covers(&self, difference: &Difference) -> bool {
        matches_wildcard(self.key, &difference.key) && matches_wildcard(self.path, &difference.path)
    }
}

fn matches_wildcard(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            (0..=text.len()).any(|at| text.is_char_boundary(at) && matches_wildcard(rest, &text[at..]))
        }),
    }
}

/// Fails for every difference that is not expected, and for every expectation that matches no difference: an outdated one
/// could hide a new difference.
pub fn assert_only_expected(subject: &str, differences: &[Difference], expected: &[ExpectedDifference]) {
    let unexpected: Vec<_> =
        differences.iter().filter(|it| !expected.iter().any(|name| name.covers(it))).map(ToString::to_string).collect();
    let unused: Vec<_> = expected
        .iter()
        .filter(|name| !differences.iter().any(|it| name.covers(it)))
        .map(|name| format!("{} {} ({})", name.path, name.key, name.why))
        .collect();
    assert!(
        unexpected.is_empty(),
        "{subject}: {} unexpected differences:\n{}",
        unexpected.len(),
        unexpected.join("\n")
    );
    assert!(unused.is_empty(), "{subject}: expected differences that no longer exist:\n{}", unused.join("\n"));
}

/// Our CRD as a JSON manifest.
pub fn our_crd(family: Family) -> Value {
    crds::manifest(&crds::crd(family, &Options::default()).unwrap()).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "a test may read files")]
pub fn published_crd(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let options = serde_saphyr::options! { budget: None };
    serde_saphyr::from_str_with_options(&text, options).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn version<'a>(crd: &'a Value, name: &str) -> &'a Value {
    let mut versions = crd["spec"]["versions"].as_array().unwrap().iter();
    versions.find(|version| version["name"] == name).unwrap_or_else(|| panic!("there is no version {name}"))
}

/// Differences between the schemas of two versions.
pub fn schemas(ours: &Value, theirs: &Value, compatibility: Compatibility) -> Vec<Difference> {
    let schema = |version: &Value| normalize(&version["schema"]["openAPIV3Schema"]);
    let mut comparison = Comparison { compatibility, found: Vec::new() };
    comparison.compare_schemas("", &schema(ours), &schema(theirs));
    comparison.found.sort();
    comparison.found
}

/// Differences in the other properties of two versions, such as columns and subresources.
pub fn presentation(ours: &Value, theirs: &Value) -> Vec<Difference> {
    let mut comparison = Comparison { compatibility: Compatibility::Equal, found: Vec::new() };
    let keys = ["additionalPrinterColumns", "deprecated", "deprecationWarning", "selectableFields", "subresources"];
    for key in keys {
        comparison.compare_values("", key, ours.get(key), theirs.get(key));
    }
    comparison.found
}

/// Brings forms that are equivalent to the API server into one form.
fn normalize(schema: &Value) -> Value {
    let Some(fields) = schema.as_object() else { return schema.clone() };
    let mut out = BTreeMap::new();
    for (key, value) in fields {
        let value = match key.as_str() {
            "description" => continue,
            // Every integer in JSON that Kubernetes reads is an int64; only int32 is a limit.
            "format" if value == "int64" => continue,
            "properties" => {
                value.as_object().unwrap().iter().map(|(name, schema)| (name.clone(), normalize(schema))).collect()
            }
            "items" | "additionalProperties" => normalize(value),
            "required" | "enum" => {
                let mut values = value.as_array().unwrap().clone();
                values.sort_by_key(Value::to_string);
                values.into()
            }
            // controller-gen writes an enum twice where both the type and the field have the marker.
            "allOf" if value.as_array().unwrap().iter().all(|part| part == &value[0] && part.get("enum").is_some()) => {
                out.extend(normalize(&value[0]).as_object().unwrap().clone());
                continue;
            }
            _ => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    json!(out)
}

struct Comparison {
    compatibility: Compatibility,
    found: Vec<Difference>,
}

impl Comparison {
    fn report(&mut self, path: &str, key: &str, ours: impl fmt::Display, theirs: impl fmt::Display) {
        let (path, key) = (path.to_owned(), key.to_owned());
        self.found.push(Difference { path, key, ours: ours.to_string(), theirs: theirs.to_string() });
    }

    fn compare_values(&mut self, path: &str, key: &str, ours: Option<&Value>, theirs: Option<&Value>) {
        let render = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
        if ours != theirs {
            self.report(path, key, render(ours), render(theirs));
        }
    }

    fn compare_schemas(&mut self, path: &str, ours: &Value, theirs: &Value) {
        let none = serde_json::Map::new();
        let fields = |schema: &Value| schema.as_object().unwrap_or(&none).keys().cloned().collect::<BTreeSet<_>>();
        for key in fields(ours).union(&fields(theirs)) {
            match key.as_str() {
                _ if self.compatibility == Compatibility::AcceptsAll && constrains_other_type(key, theirs) => {}
                "properties" => self.compare_properties(path, ours, theirs),
                "items" => self.compare_nested(&format!("{path}[]"), key, ours, theirs),
                "additionalProperties" => self.compare_nested(&format!("{path}{{}}"), key, ours, theirs),
                "required" => self.compare_required(path, ours, theirs),
                "x-kubernetes-validations" => self.compare_rules(path, ours, theirs),
                _ if self.compatibility == Compatibility::AcceptsAll && is_wider(key, ours, theirs) => {}
                _ => self.compare_values(path, key, ours.get(key), theirs.get(key)),
            }
        }
    }

    fn compare_nested(&mut self, path: &str, key: &str, ours: &Value, theirs: &Value) {
        match (ours.get(key), theirs.get(key)) {
            (Some(ours), Some(theirs)) => self.compare_schemas(path, ours, theirs),
            (None, Some(_)) if self.compatibility == Compatibility::AcceptsAll && keeps_unknown_fields(ours) => {}
            (ours, theirs) => self.compare_values(path, key, ours, theirs),
        }
    }

    fn compare_properties(&mut self, path: &str, ours: &Value, theirs: &Value) {
        let none = serde_json::Map::new();
        let fields = |schema: &'_ Value| schema["properties"].as_object().unwrap_or(&none).clone();
        let (our_fields, their_fields) = (fields(ours), fields(theirs));
        for (name, field) in &their_fields {
            let path = format!("{path}.{name}");
            match our_fields.get(name) {
                Some(our_field) => self.compare_schemas(&path, our_field, field),
                None if self.compatibility == Compatibility::AcceptsAll && keeps_unknown_fields(ours) => {}
                None => self.report(&path, "field", "has it not", "has it"),
            }
        }
        for (name, field) in our_fields.iter().filter(|(name, _)| !their_fields.contains_key(*name)) {
            let path = format!("{path}.{name}");
            if self.compatibility == Compatibility::Equal {
                self.report(&path, "field", "has it", "has it not");
            } else if let Some(default) = field.get("default") {
                self.report(&path, "default", default, "no such field");
            }
        }
    }

    fn compare_required(&mut self, path: &str, ours: &Value, theirs: &Value) {
        let names = |schema: &Value| -> BTreeSet<String> {
            let names = schema["required"].as_array().into_iter().flatten();
            names.map(|name| name.as_str().unwrap().to_owned()).collect()
        };
        let (ours, theirs) = (names(ours), names(theirs));
        for name in ours.difference(&theirs) {
            self.report(&format!("{path}.{name}"), "required", "yes", "no");
        }
        let compatibility = self.compatibility;
        for name in theirs.difference(&ours).filter(|_| compatibility == Compatibility::Equal) {
            self.report(&format!("{path}.{name}"), "required", "no", "yes");
        }
    }

    /// Rules are compared by their text. Rules that mean the same in different words have to be listed as expected.
    fn compare_rules(&mut self, path: &str, ours: &Value, theirs: &Value) {
        let rules = |schema: &Value| schema["x-kubernetes-validations"].as_array().cloned().unwrap_or_default();
        let (ours, theirs) = (rules(ours), rules(theirs));
        for rule in ours.iter().filter(|rule| !theirs.contains(rule)) {
            self.report(path, rule["rule"].as_str().unwrap(), rule, "no such rule");
        }
        let compatibility = self.compatibility;
        for rule in theirs.iter().filter(|rule| !ours.contains(rule) && compatibility == Compatibility::Equal) {
            self.report(path, rule["rule"].as_str().unwrap(), "no such rule", rule);
        }
    }
}

/// Whether `key` constrains a type that theirs does not accept. Our schema may accept several types; a constraint on the
/// other ones rejects nothing that theirs accepts.
fn constrains_other_type(key: &str, theirs: &Value) -> bool {
    let types: &[&str] = match key {
        "properties" | "required" | "additionalProperties" | "minProperties" | "maxProperties" => &["object"],
        "items" | "minItems" | "maxItems" => &["array"],
        "minLength" | "maxLength" | "pattern" => &["string"],
        "minimum" | "maximum" => &["integer", "number"],
        _ => return false,
    };
    theirs["type"].as_str().is_some_and(|type_| !types.contains(&type_))
}

fn keeps_unknown_fields(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

/// Whether, by `key` alone, ours accepts at least what theirs does.
fn is_wider(key: &str, ours: &Value, theirs: &Value) -> bool {
    let (Some(ours), theirs) = (ours.get(key), &theirs[key]) else {
        // Defaults, preserved fields and merge strategies of theirs must be in ours; other keys only constrain.
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

/// Tests the comparison itself: without this, a comparison without findings would prove nothing.
#[test]
fn comparison_finds_each_narrower_schema() {
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
        let found = |compatibility| schemas(&wrap(ours.clone()), &wrap(theirs.clone()), compatibility);
        assert_eq!(found(Compatibility::AcceptsAll).len(), narrower, "{name}: {:?}", found(Compatibility::AcceptsAll));
        assert_eq!(found(Compatibility::Equal).len(), unequal, "{name}: {:?}", found(Compatibility::Equal));
    }
}
