//! Every leaf of a spec, set, changed and taken away again: something that the operator writes is another, or somebody says
//! why not. No field is dropped in silence.
//! Comes in: the table of a family and what is written for a spec of its; goes out: where table and code differ.

pub mod row;
mod schema;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use row::{Copied, Row};
pub use schema::{Leaf, leaves};

/// What comes of a spec.
#[derive(Debug, PartialEq)]
pub enum Output {
    /// By admission or by the plan, with all that they say.
    Refused(String),
    Written {
        /// By what readers of the page call it, such as the kind.
        parts: BTreeMap<String, Value>,
        /// The fields that a condition speaks of.
        told: Vec<String>,
    },
}

/// `spec` with a value at the place of a leaf; lists get one entry, maps one name.
pub fn with(spec: &Value, field: &str, value: &Value) -> Value {
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

/// Which parts differ. None: none, and nobody says why.
fn difference(one: &Output, other: &Output, field: &str) -> Option<BTreeSet<String>> {
    match (one, other) {
        (Output::Refused(_), _) | (_, Output::Refused(_)) if one != other => Some(["refused without".into()].into()),
        (Output::Written { parts: one, told: before }, Output::Written { parts: other, told: after }) => {
            let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            let differ: BTreeSet<String> =
                names.into_iter().filter(|name| one.get(*name) != other.get(*name)).cloned().collect();
            let ignored = says(before, field) || says(after, field);
            if differ.is_empty() { ignored.then(|| ["condition".into()].into()) } else { Some(differ) }
        }
        _ => None,
    }
}

/// Whether a field is spoken of, or something that it is a part of.
fn says(told: &[String], field: &str) -> bool {
    let place = format!("spec.{}", field.replace("[]", "[0]"));
    told.iter().any(|path| path != "spec" && within(&place, path))
}

/// Whether a field is another, or a part of it.
fn within(field: &str, whole: &str) -> bool {
    field.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '{']))
}

/// Which of the wholes a field is a part of; the longest, where several fit.
fn copied<'a>(all: &'a [Copied], field: &str) -> Option<&'a Copied> {
    all.iter().filter(|(whole, ..)| within(field, whole)).max_by_key(|(whole, ..)| whole.len())
}

/// What setting, changing and taking away makes another, as the table tells it.
fn shown(
    leaf: &Leaf,
    spec: &Value,
    [set, changed]: [&Value; 2],
    output: impl Fn(&Value) -> Output,
) -> Result<String, String> {
    let field = leaf.field.as_str();
    let [set, changed] = [set, changed].map(|value| output(&with(spec, field, value)));
    for (what, out) in [("set", &set), ("changed", &changed)] {
        if let Output::Refused(why) = out {
            return Err(format!("{field}: {what}, it is refused: {why}"));
        }
    }
    let mut parts = difference(&set, &changed, field).ok_or_else(|| format!("{field}: a change is not seen"))?;
    // What the schema demands, the API server itself refuses.
    let taken = if leaf.required {
        ["refused without".into()].into()
    } else {
        difference(&output(spec), &set, field).ok_or_else(|| format!("{field}: that it is gone is not seen"))?
    };
    let refused = taken.contains("refused without");
    parts.extend(taken.into_iter().filter(|part| part != "refused without"));
    let parts = parts.into_iter().collect::<Vec<_>>().join(", ");
    Ok(if refused { format!("{parts}; refused without") } else { parts })
}

/// Each leaf has a row or is a part of something that is copied, and each of these has a leaf.
pub fn assert_table_is_whole(leaves: &[Leaf], rows: &[Row], fields: &[String], copied_types: &[Copied]) {
    let known: BTreeSet<&String> = fields.iter().collect();
    assert_eq!(fields.len(), known.len(), "a field has two rows");
    assert!(rows.iter().all(|row| !row.effect.is_empty()), "each says what it is for");
    let without: Vec<&String> = leaves
        .iter()
        .map(|leaf| &leaf.field)
        .filter(|field| !known.contains(field) && copied(copied_types, field).is_none())
        .collect();
    assert_eq!(without, [""; 0], "leaves without a row");
    let there: BTreeSet<&String> = leaves.iter().map(|leaf| &leaf.field).collect();
    let rows_alone: Vec<&str> = known.difference(&there).map(|field| field.as_str()).collect();
    assert_eq!(rows_alone, [""; 0], "rows without a leaf");
    for (whole, ..) in copied_types {
        assert!(leaves.iter().any(|leaf| within(&leaf.field, whole)), "{whole}: no leaf");
    }
}

/// A field of the table, with the spec around it and the row that tells of it.
pub struct Case<'a> {
    pub field: String,
    pub around: Value,
    pub row: &'a Row,
}

/// Each row says what its field changes.
pub fn assert_rows_hold(leaves: &[Leaf], cases: Vec<Case<'_>>, output: impl Fn(&Value) -> Output) {
    let mut wrong = Vec::new();
    for Case { field, around, row } in cases {
        let leaf = leaves.iter().find(|leaf| leaf.field == field).unwrap_or_else(|| panic!("{field}: no leaf"));
        match shown(leaf, &around, [&yaml(row.set), &yaml(row.changed)], &output) {
            Ok(found) if found == row.shown => {}
            Ok(found) => wrong.push(format!("{field}: the table says {:?}, but it is {found:?}", row.shown)),
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Each leaf of a copied type changes what the table says of the type; the fields of `newer` are told as left out.
pub fn assert_copied_holds(
    leaves: &[Leaf],
    copied_types: &[Copied],
    spec: &Value,
    newer: &[&str],
    known: &[String],
    output: impl Fn(&Value) -> Output,
) -> usize {
    let mut wrong = Vec::new();
    let mut checked = 0;
    for leaf in leaves.iter().filter(|leaf| !known.contains(&leaf.field)) {
        let Some((.., expected)) = copied(copied_types, &leaf.field) else { continue };
        let newer = newer.iter().any(|newer| leaf.field.contains(newer));
        let expected = if newer { "condition" } else { expected };
        let [one, other] = &leaf.samples;
        // What the entry needs besides comes with the leaf, so that taking the leaf away leaves a whole entry behind.
        let spec = leaf.completed(spec.clone());
        // The first of the two may be what counts where nothing is said.
        let found = shown(leaf, &spec, [one, other], &output).or_else(|_| shown(leaf, &spec, [other, one], &output));
        match found {
            Ok(found) if found.trim_end_matches("; refused without") == expected => checked += 1,
            Ok(found) => wrong.push(format!("{}: {found:?} and not {expected:?}", leaf.field)),
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    checked
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}
