//! Checks that no field of a spec is ignored silently: setting, changing and removing each leaf changes a written
//! object, or a condition names the field. The effects must match the table of the family.

pub mod row;
mod schema;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use row::{Copied, Row};
pub use schema::{Leaf, leaves};

/// Result of reconciling a spec.
#[derive(Debug, PartialEq)]
pub enum Output {
    /// Rejected by admission or by the plan, with all messages.
    Rejected(String),
    Written {
        /// Written objects by their name on the generated page, such as the kind.
        parts: BTreeMap<String, Value>,
        /// Fields that a condition names.
        reported_fields: Vec<String>,
    },
}

/// `spec` with a value at a leaf; missing lists get one entry, missing maps one key.
pub fn with_value(spec: &Value, field: &str, value: &Value) -> Value {
    let mut spec = spec.clone();
    let mut place = &mut spec;
    for step in field.split('.') {
        let name = step.trim_end_matches("[]").trim_end_matches("{}");
        place = &mut place[name];
        if step.ends_with("[]") {
            if place.as_array().is_none_or(Vec::is_empty) {
                *place = json!([null]);
            }
            place = &mut place[0];
        } else if step.ends_with("{}") {
            let key = place.as_object().and_then(|map| map.keys().next().cloned()).unwrap_or_else(|| "token".into());
            place = &mut place[key.as_str()];
        }
    }
    *place = value.clone();
    spec
}

/// Parts that differ between two outputs. `None` if there is neither a difference nor a condition about the field.
fn difference(one: &Output, other: &Output, field: &str) -> Option<BTreeSet<String>> {
    match (one, other) {
        (Output::Rejected(_), _) | (_, Output::Rejected(_)) if one != other => Some(["refused without".into()].into()),
        (
            Output::Written { parts: one, reported_fields: before },
            Output::Written { parts: other, reported_fields: after },
        ) => {
            let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            let differ: BTreeSet<String> =
                names.into_iter().filter(|name| one.get(*name) != other.get(*name)).cloned().collect();
            let ignored = names_field(before, field) || names_field(after, field);
            if differ.is_empty() { ignored.then(|| ["condition".into()].into()) } else { Some(differ) }
        }
        _ => None,
    }
}

/// Whether a condition names the field or one of its parents.
fn names_field(reported_fields: &[String], field: &str) -> bool {
    let place = format!("spec.{}", field.replace("[]", "[0]"));
    reported_fields.iter().any(|path| path != "spec" && within(&place, path))
}

/// Whether a field is `whole` or a part of it.
fn within(field: &str, whole: &str) -> bool {
    field.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '{']))
}

/// The copied type that contains a field; the longest match, if there are several.
fn copied_type<'a>(all: &'a [Copied], field: &str) -> Option<&'a Copied> {
    all.iter().filter(|(whole, ..)| within(field, whole)).max_by_key(|(whole, ..)| whole.len())
}

/// Effects of setting, changing and removing a leaf, in the notation of the table.
fn effects_of(
    leaf: &Leaf,
    spec: &Value,
    [set, changed]: [&Value; 2],
    output: impl Fn(&Value) -> Output,
) -> Result<String, String> {
    let field = leaf.field.as_str();
    let [set, changed] = [set, changed].map(|value| output(&with_value(spec, field, value)));
    for (what, out) in [("set", &set), ("changed", &changed)] {
        if let Output::Rejected(why) = out {
            return Err(format!("{field}: rejected when {what}: {why}"));
        }
    }
    let mut parts =
        difference(&set, &changed, field).ok_or_else(|| format!("{field}: a changed value has no effect"))?;
    // The API server rejects an object without a required field.
    let removal = if leaf.required {
        ["refused without".into()].into()
    } else {
        difference(&output(spec), &set, field).ok_or_else(|| format!("{field}: removing it has no effect"))?
    };
    let required = removal.contains("refused without");
    parts.extend(removal.into_iter().filter(|part| part != "refused without"));
    let parts = parts.into_iter().collect::<Vec<_>>().join(", ");
    Ok(if required { format!("{parts}; refused without") } else { parts })
}

/// Expects a row or a copied type for each leaf, and a leaf for each row and copied type.
pub fn assert_table_is_complete(leaves: &[Leaf], rows: &[Row], fields: &[String], copied_types: &[Copied]) {
    let known: BTreeSet<&String> = fields.iter().collect();
    assert_eq!(fields.len(), known.len(), "a field has two rows");
    assert!(rows.iter().all(|row| !row.effect.is_empty()), "a row has no effect");
    let without: Vec<&String> = leaves
        .iter()
        .map(|leaf| &leaf.field)
        .filter(|field| !known.contains(field) && copied_type(copied_types, field).is_none())
        .collect();
    assert_eq!(without, [""; 0], "leaves without a row");
    let schema_fields: BTreeSet<&String> = leaves.iter().map(|leaf| &leaf.field).collect();
    let orphan_rows: Vec<&str> = known.difference(&schema_fields).map(|field| field.as_str()).collect();
    assert_eq!(orphan_rows, [""; 0], "rows without a leaf");
    for (whole, ..) in copied_types {
        assert!(leaves.iter().any(|leaf| within(&leaf.field, whole)), "{whole}: no leaf");
    }
}

/// A field of the table, with the rest of the spec and its row.
pub struct Case<'a> {
    pub field: String,
    pub around: Value,
    pub row: &'a Row,
}

/// Expects each field to have the effects that its row states.
pub fn assert_rows_hold(leaves: &[Leaf], cases: Vec<Case<'_>>, output: impl Fn(&Value) -> Output) {
    let mut mismatches = Vec::new();
    for Case { field, around, row } in cases {
        let leaf = leaves.iter().find(|leaf| leaf.field == field).unwrap_or_else(|| panic!("{field}: no leaf"));
        match effects_of(leaf, &around, [&yaml(row.set), &yaml(row.changed)], &output) {
            Ok(found) if found == row.shown => {}
            Ok(found) => {
                mismatches.push(format!("{field}: the table states {:?}, but the effect is {found:?}", row.shown))
            }
            Err(why) => mismatches.push(why),
        }
    }
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
}

/// Expects each leaf of a copied type to have the effects of the type. Fields in `newer` are ones that the operator
/// does not know: a condition names them.
pub fn assert_copied_holds(
    leaves: &[Leaf],
    copied_types: &[Copied],
    spec: &Value,
    newer: &[&str],
    known: &[String],
    output: impl Fn(&Value) -> Output,
) -> usize {
    let mut mismatches = Vec::new();
    let mut checked = 0;
    for leaf in leaves.iter().filter(|leaf| !known.contains(&leaf.field)) {
        let Some((.., expected)) = copied_type(copied_types, &leaf.field) else { continue };
        let newer = newer.iter().any(|newer| leaf.field.contains(newer));
        let expected = if newer { "condition" } else { expected };
        let [one, other] = &leaf.samples;
        // Required siblings are set as well, so that the entry stays valid without the leaf.
        let spec = leaf.with_required_fields(spec.clone());
        // The first sample may equal the default, so that only the second shows an effect.
        let found =
            effects_of(leaf, &spec, [one, other], &output).or_else(|_| effects_of(leaf, &spec, [other, one], &output));
        match found {
            Ok(found) if found.trim_end_matches("; refused without") == expected => checked += 1,
            Ok(found) => mismatches.push(format!("{}: the effect is {found:?} instead of {expected:?}", leaf.field)),
            Err(why) => mismatches.push(why),
        }
    }
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
    checked
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}
