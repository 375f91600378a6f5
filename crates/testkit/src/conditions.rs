//! Conditions of an object.
//! Comes in: the object as JSON, or its status alone; goes out: what one of its conditions says.

use serde_json::Value;

/// Null: there is none.
pub fn condition<'a>(of: &'a Value, type_: &str) -> &'a Value {
    let status = of.get("status").unwrap_or(of);
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().find(|known| known["type"] == type_).unwrap_or(&Value::Null)
}

/// Its status, reason and message; empty where there is none.
pub fn statement<'a>(of: &'a Value, type_: &str) -> (&'a str, &'a str, &'a str) {
    let found = condition(of, type_);
    let text = |name: &str| found[name].as_str().unwrap_or_default();
    (text("status"), text("reason"), text("message"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_is_found_in_an_object_and_in_its_status() {
        let status = json!({ "conditions": [{ "type": "Ready", "status": "True", "reason": "Up" }] });
        let object = json!({ "status": status });
        for of in [&status, &object] {
            assert_eq!(condition(of, "Ready")["reason"], "Up");
            assert_eq!(statement(of, "Ready"), ("True", "Up", ""));
            assert_eq!((condition(of, "Other"), statement(of, "Other")), (&Value::Null, ("", "", "")));
        }
        assert_eq!(*condition(&json!({}), "Ready"), Value::Null);
    }
}
