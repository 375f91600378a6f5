//! Every leaf of a v1alpha2 spec, set, changed and taken away again: something that the operator writes is another, or
//! somebody says why not. No field is dropped in silence.

mod schema;
mod table;
mod world;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::yaml;
use schema::{Leaf, leaves};
use table::{APIS, COPIED, EXTERNAL, ROWS, Row};
use world::{Output, output};

/// A row with the names that its field stands for put in: each field, with the spec around it.
fn expanded(row: &Row) -> Vec<(String, Value)> {
    let entry = || yaml(&format!("{{{}}}", row.around));
    if row.field.contains(APIS.0) {
        let both = |api: &&str| {
            let mut entry = entry();
            entry["provider"] = json!("custom");
            let one = (row.field.replace(APIS.0, api), json!({ "providers": { *api: entry } }));
            let many = (row.field.replace(APIS.0, &format!("{api}[]")), json!({ "providers": { *api: [entry] } }));
            [one, many]
        };
        return APIS.1.iter().flat_map(both).collect();
    }
    if row.field.contains(EXTERNAL.0) {
        let listed =
            |api: &&str| (row.field.replace(EXTERNAL.0, api), json!({ "externalProviders": { *api: [entry()] } }));
        return EXTERNAL.1.iter().map(listed).collect();
    }
    vec![(row.field.to_owned(), yaml(row.around))]
}

/// `spec` with a value at the place of a leaf; lists get one entry, maps one name.
fn with(spec: &Value, field: &str, value: &Value) -> Value {
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

/// Which children differ. None: none, and nobody says why.
fn difference(one: &Output, other: &Output, field: &str) -> Option<BTreeSet<String>> {
    match (one, other) {
        (Output::Refused(_), _) | (_, Output::Refused(_)) if one != other => Some(["refused without".into()].into()),
        (Output::Written { children: one, .. }, Output::Written { children: other, told, .. }) => {
            let kinds: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            let differ: BTreeSet<String> =
                kinds.into_iter().filter(|kind| one.get(*kind) != other.get(*kind)).cloned().collect();
            let ignored = says(told, field);
            if differ.is_empty() { ignored.then(|| ["condition".into()].into()) } else { Some(differ) }
        }
        _ => None,
    }
}

/// Whether a finding is about the field, or about something that it is a part of.
fn says(told: &[String], field: &str) -> bool {
    let place = format!("spec.{}", field.replace("[]", "[0]"));
    let about = |said: &String| said.split(": ").next().is_some_and(|path| path != "spec" && place.starts_with(path));
    told.iter().any(about)
}

/// The children that setting, changing and taking away makes another, as the table tells it.
fn shown(leaf: &Leaf, spec: &Value, set: &Value, changed: &Value) -> Result<String, String> {
    let field = leaf.field.as_str();
    let [set, changed] = [set, changed].map(|value| output(&with(spec, field, value)));
    for (what, out) in [("set", &set), ("changed", &changed)] {
        if let Output::Refused(why) = out {
            return Err(format!("{field}: {what}, it is refused: {why}"));
        }
    }
    let mut kinds = difference(&set, &changed, field).ok_or_else(|| format!("{field}: a change is not seen"))?;
    // What the schema demands, the API server itself refuses.
    let taken = if leaf.required {
        ["refused without".into()].into()
    } else {
        difference(&output(spec), &set, field).ok_or_else(|| format!("{field}: that it is gone is not seen"))?
    };
    let refused = taken.contains("refused without");
    kinds.extend(taken.into_iter().filter(|kind| kind != "refused without"));
    let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
    Ok(if refused { format!("{kinds}; refused without") } else { kinds })
}

fn base(around: &Value, field: &str) -> Value {
    let mut spec = around.clone();
    if spec.get("distribution").is_none() {
        // Newer servers have no such APIs; an image with an older one still may.
        let gone = ["providers.telemetry", "externalProviders.agents", "externalProviders.postTraining"];
        let old = gone.iter().any(|gone| field.starts_with(gone));
        spec["distribution"] = if old { json!({ "image": world::OLD_IMAGE }) } else { json!({ "name": "starter" }) };
    }
    spec
}

#[test]
fn every_leaf_has_a_row_and_every_row_a_leaf() {
    let copied = |field: &str| COPIED.iter().any(|(whole, ..)| field.starts_with(whole));
    let there: BTreeSet<String> = leaves().into_iter().map(|leaf| leaf.field).filter(|field| !copied(field)).collect();
    let rows: Vec<String> = ROWS.iter().flat_map(expanded).map(|(field, _)| field).collect();
    let known: BTreeSet<String> = rows.iter().cloned().collect();
    assert_eq!(rows.len(), known.len(), "a field has two rows");
    assert!(ROWS.iter().all(|row| !row.effect.is_empty()), "each says what it is for");
    assert_eq!(there.difference(&known).collect::<Vec<_>>(), [""; 0], "leaves without a row");
    assert_eq!(known.difference(&there).collect::<Vec<_>>(), [""; 0], "rows without a leaf");
    for (whole, ..) in COPIED {
        assert!(leaves().iter().any(|leaf| leaf.field.starts_with(whole)), "{whole}");
    }
}

#[test]
fn every_leaf_changes_what_its_row_says() {
    let leaves = leaves();
    let mut wrong = Vec::new();
    let mut checked = 0;
    for row in ROWS {
        for (field, around) in expanded(row) {
            let Some(leaf) = leaves.iter().find(|leaf| leaf.field == field) else { continue };
            match shown(leaf, &base(&around, &field), &yaml(row.set), &yaml(row.changed)) {
                Ok(found) if found == row.shown => checked += 1,
                Ok(found) => wrong.push(format!("{field}: the table says {:?}, but it is {found:?}", row.shown)),
                Err(why) => wrong.push(why),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{checked} leaves");
}

/// Parts of Kubernetes' types that are newer than those which we are built with: a condition says that they are left out.
const NEWER: [&str; 2] = [".fileKeyRef", ".podCertificate"];

#[test]
fn every_leaf_of_kubernetes_own_types_reaches_the_pod() {
    let mut wrong = Vec::new();
    let mut checked = 0;
    for leaf in leaves() {
        let Some((.., expected)) = COPIED.iter().find(|(whole, ..)| leaf.field.starts_with(whole)) else { continue };
        let [set, changed] = leaf.samples();
        // What the entry needs besides comes with the leaf, so that taking the leaf away leaves a whole entry behind.
        let spec = leaf.completed(json!({ "distribution": { "name": "starter" } }));
        let newer = NEWER.iter().any(|newer| leaf.field.contains(newer));
        match shown(&leaf, &spec, &set, &changed) {
            Ok(found) if found.trim_end_matches("; refused without") == *expected && !newer => checked += 1,
            Ok(found) if found.contains("condition") && newer => checked += 1,
            Ok(found) => wrong.push(format!("{}: {found:?}", leaf.field)),
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 200, "{checked}");
}
