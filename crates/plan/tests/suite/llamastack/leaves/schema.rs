//! The leaves of the schema that users write against.
//! Comes in: the CRD; goes out: each field that holds a value, with what its surroundings demand.

use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::crds::{Options, crd};

pub struct Leaf {
    /// As in the table.
    pub field: String,
    /// The schema does not let it be left out of what it belongs to.
    pub required: bool,
    schema: Value,
    /// The nodes on the way, each with the field that leads to it.
    way: Vec<(String, Value)>,
}

pub fn leaves() -> Vec<Leaf> {
    let crd = crd(Family::Llsd, &Options::default()).unwrap();
    let version = crd.spec.versions.iter().find(|version| version.name == "v1alpha2").unwrap();
    let schema = json!(version.schema.as_ref().unwrap().open_api_v3_schema);
    let mut found = Vec::new();
    walk(&schema["properties"]["spec"], "", false, &mut Vec::new(), &mut found);
    assert!(found.len() > 400, "{}", found.len());
    found
}

/// A node with several forms is walked in each of them.
fn walk(node: &Value, field: &str, required: bool, way: &mut Vec<(String, Value)>, found: &mut Vec<Leaf>) {
    way.push((field.to_owned(), node.clone()));
    let before = found.len();
    let demanded = |name: &str| node["required"].as_array().is_some_and(|names| names.contains(&json!(name)));
    for (name, child) in node["properties"].as_object().into_iter().flatten() {
        let field = if field.is_empty() { name.clone() } else { format!("{field}.{name}") };
        walk(child, &field, demanded(name), way, found);
    }
    for (items, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if node[items].is_object() {
            walk(&node[items], &format!("{field}{mark}"), false, way, found);
        }
    }
    way.pop();
    if found.len() == before {
        found.push(Leaf { field: field.to_owned(), required, schema: node.clone(), way: way.clone() });
    }
}

impl Leaf {
    /// Two values that the schema takes.
    pub fn samples(&self) -> [Value; 2] {
        samples(&self.schema)
    }

    /// `spec` with all that the entries on the way to the leaf cannot be without, but not the leaf.
    pub fn completed(&self, spec: Value) -> Value {
        let mut spec = spec;
        for (field, node) in &self.way {
            for name in node["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                let child = format!("{field}.{name}");
                let on_the_way = self.field == child || self.field.starts_with(&format!("{child}."));
                if !field.is_empty() && !on_the_way && !self.field.starts_with(&format!("{child}[")) {
                    spec = super::with(&spec, &child, &samples(&node["properties"][name])[0]);
                }
            }
        }
        spec
    }
}

fn samples(schema: &Value) -> [Value; 2] {
    if let Some(words) = schema["enum"].as_array() {
        return [words[0].clone(), words[1].clone()];
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return [json!("1"), json!("2")];
    }
    match schema["type"].as_str() {
        Some("integer") => [json!(1), json!(2)],
        Some("boolean") => [json!(true), json!(false)],
        Some("array") => [json!([]), json!([])],
        Some("object") => [json!({}), json!({ "a": "b" })],
        _ => [json!("one"), json!("other")],
    }
}
