//! Evaluates the CEL rules of a schema (`x-kubernetes-validations`) on an object whose structure is right.

use cel::{Context, Program};
use serde_json::Value;
use steersman_reconcile::{FieldPath, path};

use super::SchemaError;

pub(super) fn check(schema: &Value, object: &Value) -> Vec<SchemaError> {
    let mut faults = Vec::new();
    if let (Some(spec), Some(given)) = (schema.pointer("/properties/spec"), object.get("spec")) {
        node(spec, given, &path!(spec), &mut faults);
    }
    faults
}

fn node(schema: &Value, given: &Value, path: &FieldPath, faults: &mut Vec<SchemaError>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        // A rule that cannot be evaluated here is left to the API server.
        if rule["rule"].as_str().and_then(|text| holds(text, given)) == Some(false) {
            // The path has the form `.scaleTargetRef`.
            let inner = rule["fieldPath"].as_str().unwrap_or_default().split('.').filter(|name| !name.is_empty());
            let path = inner.fold(path.clone(), |path, name| path.field(name.to_owned()));
            let message = rule["message"].as_str().or(rule["rule"].as_str()).unwrap_or_default();
            let rule = rule["rule"].as_str().map(str::to_owned);
            faults.push(SchemaError { rule, ..SchemaError::new(&path, message) });
        }
    }
    match given {
        Value::Object(fields) => {
            for (name, given) in fields {
                let known = &schema["properties"][name];
                let inner = if known.is_null() { &schema["additionalProperties"] } else { known };
                node(inner, given, &path.field(name.clone()), faults);
            }
        }
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                node(&schema["items"], item, &path.index(place), faults);
            }
        }
        _ => {}
    }
}

/// None if the rule has no value for this object, such as one that reads an absent field or `oldSelf`.
fn holds(rule: &str, given: &Value) -> Option<bool> {
    let mut context = Context::default();
    context.add_variable("self", given).ok()?;
    match Program::compile(rule).ok()?.execute(&context) {
        Ok(cel::Value::Bool(holds)) => Some(holds),
        _ => None,
    }
}

/// Operators of CEL that the CRDs use. A rule that calls anything else, such as a function that only Kubernetes adds to CEL,
/// would be passed over here and evaluated by the API server.
#[cfg(test)]
const OPERATORS: [&str; 8] = ["!_", "_&&_", "_||_", "_?_:_", "_==_", "_!=_", "_>=_", "_>_"];

#[cfg(test)]
pub(super) fn understood(rule: &str) -> bool {
    Program::compile(rule).is_ok_and(|program| {
        let references = program.references();
        references.variables().iter().all(|name| *name == "self")
            && references.functions().iter().all(|name| OPERATORS.contains(name))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_are_evaluated_like_cel() {
        let cases = [
            ("!(has(self.a) && has(self.b))", json!({"a": 1, "b": 1}), Some(false)),
            ("!(has(self.a) && has(self.b))", json!({"a": 1}), Some(true)),
            ("!has(self.t) || self.t != 'redis' || has(self.e)", json!({"t": "redis"}), Some(false)),
            ("!has(self.t) || self.t != 'redis' || has(self.e)", json!({}), Some(true)),
            ("has(self.x.y) ? !has(self.a) : has(self.a)", json!({"x": {"y": 1}, "a": 1}), Some(false)),
            ("has(self.x.y) ? !has(self.a) : has(self.a)", json!({"x": {}, "a": 1}), Some(true)),
            // `has` tests the last field only, as on the API server.
            ("has(self.x.y) ? !has(self.a) : has(self.a)", json!({"a": 1}), None),
            ("self.max >= self.min", json!({"max": 3, "min": 3}), Some(true)),
            ("self.max > self.min", json!({"max": 3, "min": 3}), Some(false)),
            ("self.max > self.min", json!({"max": 3.5, "min": -3}), Some(true)),
            ("self.on || false", json!({"on": true}), Some(true)),
            ("self.gone", json!({}), None),
            ("self.gone && false", json!({}), Some(false)),
            ("1 < 2 && 'a' == \"a\"", json!({}), Some(true)),
        ];
        for (rule, of, wanted) in cases {
            assert_eq!(holds(rule, &of), wanted, "{rule} of {of}");
        }
    }

    #[test]
    fn rule_without_value_is_not_understood() {
        for rule in ["isURL(self.a)", "self.a.matches('a')", "oldSelf.a == self.a", "self.a ==", "has(self)", "(self.a"]
        {
            assert!(!understood(rule), "{rule}");
            assert_eq!(holds(rule, &json!({"a": "a"})), None, "{rule}");
        }
    }
}
