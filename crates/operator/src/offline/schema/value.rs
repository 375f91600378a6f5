//! Checks type and limits of a single value, without its content.

use regex::Regex;
use serde_json::Value;
use steersman_plan::llamastack::config::kind_of;
use steersman_reconcile::FieldPath;

use super::SchemaError;

pub(super) fn check(schema: &Value, given: &Value, path: &FieldPath, faults: &mut Vec<SchemaError>) {
    let mut wrong = |what: String| faults.push(SchemaError::new(path, what));
    if let Some(wanted) = wrong_kind(schema, given) {
        wrong(format!("Invalid value: expected {wanted}, found {}", kind_of(given)));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array().filter(|allowed| !allowed.contains(given)) {
        let list: Vec<String> =
            allowed.iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned)).collect();
        wrong(format!("Unsupported value: use one of {}", list.join(", ")));
    }
    match given {
        Value::String(text) => self::text(schema, text, &mut wrong),
        Value::Number(number) => self::number(schema, number, &mut wrong),
        Value::Array(items) => length(schema, "Items", items.len(), "entries", &mut wrong),
        Value::Object(fields) => length(schema, "Properties", fields.len(), "fields", &mut wrong),
        _ => {}
    }
}

/// The expected type, if the value has another one.
fn wrong_kind(schema: &Value, given: &Value) -> Option<&'static str> {
    let whole = || given.is_i64() || given.is_u64() || given.as_f64().is_some_and(|number| number.fract() == 0.0);
    if schema["x-kubernetes-int-or-string"] == true {
        return (!given.is_string() && !whole()).then_some("an integer or a string");
    }
    let (fits, wanted) = match schema["type"].as_str()? {
        "object" => (given.is_object(), "an object"),
        "array" => (given.is_array(), "a list"),
        "string" => (given.is_string(), "a string (put it in quotes)"),
        "boolean" => (given.is_boolean(), "true or false"),
        "integer" => (whole(), "an integer"),
        "number" => (given.is_number(), "a number"),
        _ => return None,
    };
    (!fits).then_some(wanted)
}

fn text(schema: &Value, text: &str, wrong: &mut impl FnMut(String)) {
    length(schema, "Length", text.chars().count(), "characters", wrong);
    let Some(pattern) = schema["pattern"].as_str() else { return };
    // A test checks that every pattern compiles.
    if Regex::new(pattern).is_ok_and(|pattern| !pattern.is_match(text)) {
        // The only int-or-string values with a pattern are quantities, whose pattern is unreadable.
        let what = if schema["x-kubernetes-int-or-string"] == true {
            "it must be a quantity such as 500m, 2 or 10Gi".to_owned()
        } else {
            format!("it must match {pattern}")
        };
        wrong(format!("Invalid value: {what}"));
    }
}

fn number(schema: &Value, number: &serde_json::Number, wrong: &mut impl FnMut(String)) {
    let Some(value) = number.as_f64() else { return };
    let limit = |name: &str, exclusive: &str| schema[name].as_f64().map(|limit| (limit, schema[exclusive] == true));
    if let Some((limit, exclusive)) = limit("minimum", "exclusiveMinimum")
        && (value < limit || exclusive && value == limit)
    {
        wrong(format!("Invalid value: it must be {} {limit}", if exclusive { "above" } else { "at least" }));
    }
    if let Some((limit, exclusive)) = limit("maximum", "exclusiveMaximum")
        && (value > limit || exclusive && value == limit)
    {
        wrong(format!("Invalid value: it must be {} {limit}", if exclusive { "below" } else { "at most" }));
    }
    if schema["format"] == "int32" && (value < f64::from(i32::MIN) || value > f64::from(i32::MAX)) {
        wrong(format!("Invalid value: it must be between {} and {}", i32::MIN, i32::MAX));
    }
}

fn length(schema: &Value, of: &str, given: usize, unit: &str, wrong: &mut impl FnMut(String)) {
    let limit = |name: String| schema[name].as_u64().and_then(|limit| usize::try_from(limit).ok());
    if let Some(least) = limit(format!("min{of}")).filter(|least| given < *least) {
        wrong(format!("Invalid value: it has {given} {unit}; the minimum is {least}"));
    }
    if let Some(most) = limit(format!("max{of}")).filter(|most| given > *most) {
        let much = if of == "Length" { "long" } else { "many" };
        wrong(format!("Too {much}: it has {given} {unit}; the maximum is {most}"));
    }
}
