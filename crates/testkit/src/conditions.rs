//! Reads the conditions of an object, or of its status, as JSON.

use serde_json::Value;

/// The condition of this type, or null if there is none.
pub fn condition<'a>(object: &'a Value, type_: &str) -> &'a Value {
    let status = object.get("status").unwrap_or(object);
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == type_).unwrap_or(&Value::Null)
}

/// Status, reason and message of the condition of this type. All are empty if there is none.
pub fn condition_parts<'a>(object: &'a Value, type_: &str) -> (&'a str, &'a str, &'a str) {
    let found = condition(object, type_);
    let text = |name: &str| found[name].as_str().unwrap_or_default();
    (text("status"), text("reason"), text("message"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn condition_is_found_in_object_and_status() {
        let status = json!({ "conditions": [{ "type": "Ready", "status": "True", "reason": "Up" }] });
        let whole = json!({ "status": status });
        for object in [&status, &whole] {
            assert_eq!(condition(object, "Ready")["reason"], "Up");
            assert_eq!(condition_parts(object, "Ready"), ("True", "Up", ""));
            assert_eq!((condition(object, "Other"), condition_parts(object, "Other")), (&Value::Null, ("", "", "")));
        }
        assert_eq!(*condition(&json!({}), "Ready"), Value::Null);
    }
}
