//! The leaves of a schema that users write against.
//! Comes in: a CRD; goes out: each field that holds a value, with what its surroundings demand.

use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::crds::{Options, crd};

pub struct Leaf {
    /// As in the table.
    pub field: String,
    /// The schema does not let it be left out of what it belongs to.
    pub required: bool,
    /// Two values that the schema takes.
    pub samples: [Value; 2],
    /// What the nodes on the way demand, each field with a value.
    demanded: Vec<(String, Value)>,
}

/// Of the spec.
pub fn leaves(family: Family, version: &str) -> Vec<Leaf> {
    let crd = crd(family, &Options::default()).unwrap();
    let version = crd.spec.versions.iter().find(|known| known.name == version).unwrap();
    let schema = json!(version.schema.as_ref().unwrap().open_api_v3_schema);
    let mut found = Vec::new();
    walk(&schema["properties"]["spec"], "", false, &mut Vec::new(), &mut found);
    found
}

/// A node with several forms is walked in each of them.
fn walk(node: &Value, field: &str, required: bool, way: &mut Vec<(String, Value)>, found: &mut Vec<Leaf>) {
    let before = (found.len(), way.len());
    let names: Vec<&str> = node["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !field.is_empty() {
        way.extend(names.iter().map(|name| (format!("{field}.{name}"), samples(&node["properties"][name])[0].clone())));
    }
    for (name, child) in node["properties"].as_object().into_iter().flatten() {
        let field = if field.is_empty() { name.clone() } else { format!("{field}.{name}") };
        walk(child, &field, names.contains(&name.as_str()), way, found);
    }
    for (items, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if node[items].is_object() {
            walk(&node[items], &format!("{field}{mark}"), false, way, found);
        }
    }
    way.truncate(before.1);
    if found.len() == before.0 {
        found.push(Leaf { field: field.to_owned(), required, samples: samples(node), demanded: way.clone() });
    }
}

impl Leaf {
    /// `spec` with all that the entries on the way to the leaf cannot be without, but not the leaf.
    pub fn completed(&self, spec: Value) -> Value {
        let others = self.demanded.iter().filter(|(field, _)| !super::within(&self.field, field));
        others.fold(spec, |spec, (field, value)| super::with(&spec, field, value))
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
