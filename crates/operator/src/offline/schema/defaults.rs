//! Adds the defaults of a schema as the API server does.

use serde_json::Value;

pub(super) fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(default) = inner.get("default").filter(|_| !fields.contains_key(name)) {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, field) in fields {
                let known = &schema["properties"][name];
                fill(if known.is_null() { &schema["additionalProperties"] } else { known }, field);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(&schema["items"], item)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_fill_present_sections_only() {
        let schema = json!({"properties": {
            "port": {"default": 8321},
            "size": {"properties": {"of": {"default": "10Gi"}}},
            "list": {"items": {"properties": {"x": {"default": 1}}}},
            "map": {"additionalProperties": {"properties": {"y": {"default": {"z": 2}}}}},
        }});
        let mut value = json!({"port": 1, "list": [{}, {"x": 5}], "map": {"a": {}}});
        fill(&schema, &mut value);
        assert_eq!(value, json!({"port": 1, "list": [{"x": 1}, {"x": 5}], "map": {"a": {"y": {"z": 2}}}}));
        let mut value = json!({"size": {}});
        fill(&schema, &mut value);
        assert_eq!(value, json!({"port": 8321, "size": {"of": "10Gi"}}));
    }
}
