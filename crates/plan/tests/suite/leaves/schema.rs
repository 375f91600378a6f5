//! Lists the leaves of a CRD's schema, with sample values and the fields that their parents require.

use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::crds::{Options, crd};

pub struct Leaf {
    /// Path in the notation of the table.
    pub field: String,
    /// The parent's schema requires the field.
    pub required: bool,
    /// Two values that the schema accepts.
    pub samples: [Value; 2],
    /// Fields that the nodes on the path require, each with a value.
    required_fields: Vec<(String, Value)>,
}

/// Leaves of the spec in one version.
pub fn leaves(family: Family, version: &str) -> Vec<Leaf> {
    let crd = crd(family, &Options::default()).unwrap();
    let version = crd.spec.versions.iter().find(|known| known.name == version).unwrap();
    let schema = json!(version.schema.as_ref().unwrap().open_api_v3_schema);
    let mut found = Vec::new();
    walk(&schema["properties"]["spec"], "", false, &mut Vec::new(), &mut found);
    found
}

/// Adds the leaves below a node. A node may have properties, items and additional properties at once; all are walked.
fn walk(node: &Value, field: &str, required: bool, required_on_path: &mut Vec<(String, Value)>, found: &mut Vec<Leaf>) {
    let before = (found.len(), required_on_path.len());
    let names: Vec<&str> = node["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !field.is_empty() {
        required_on_path.extend(
            names.iter().map(|name| (format!("{field}.{name}"), samples(&node["properties"][name])[0].clone())),
        );
    }
    for (name, child) in node["properties"].as_object().into_iter().flatten() {
        let field = if field.is_empty() { name.clone() } else { format!("{field}.{name}") };
        walk(child, &field, names.contains(&name.as_str()), required_on_path, found);
    }
    for (items, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if node[items].is_object() {
            walk(&node[items], &format!("{field}{mark}"), false, required_on_path, found);
        }
    }
    required_on_path.truncate(before.1);
    if found.len() == before.0 {
        found.push(Leaf {
            field: field.to_owned(),
            required,
            samples: samples(node),
            required_fields: required_on_path.clone(),
        });
    }
}

impl Leaf {
    /// `spec` with all required fields on the path to the leaf, but without the leaf.
    pub fn with_required_fields(&self, spec: Value) -> Value {
        let others = self.required_fields.iter().filter(|(field, _)| !super::within(&self.field, field));
        others.fold(spec, |spec, (field, value)| super::with_value(&spec, field, value))
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
