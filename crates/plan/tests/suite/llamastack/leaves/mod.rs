//! Every leaf of a v1alpha2 spec against the table of what it changes.

mod table;
mod world;

use serde_json::{Value, json};
use steersman_api::Family;

use super::yaml;
use crate::leaves::{Case, Leaf, assert_copied_holds, assert_rows_hold, assert_table_is_whole, leaves, row};
use row::Row;
use table::{APIS, COPIED, EXTERNAL, ROWS};
use world::output;

fn all() -> Vec<Leaf> {
    let found = leaves(Family::Llsd, "v1alpha2");
    assert!(found.len() > 400, "{}", found.len());
    found
}

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

fn base(around: Value, field: &str) -> Value {
    let mut spec = around;
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
    let fields: Vec<String> = ROWS.iter().flat_map(expanded).map(|(field, _)| field).collect();
    assert_table_is_whole(&all(), ROWS, &fields, &COPIED);
}

#[test]
fn every_leaf_changes_what_its_row_says() {
    let cases = ROWS.iter().flat_map(|row| {
        expanded(row).into_iter().map(move |(field, around)| Case { around: base(around, &field), field, row })
    });
    assert_rows_hold(&all(), cases.collect(), output);
}

/// Parts of Kubernetes' types that are newer than those which we are built with: a condition says that they are left out.
const NEWER: [&str; 2] = [".fileKeyRef", ".podCertificate"];

#[test]
fn every_leaf_of_kubernetes_own_types_reaches_the_pod() {
    let spec = json!({ "distribution": { "name": "starter" } });
    let checked = assert_copied_holds(&all(), &COPIED, &spec, &NEWER, &[], output);
    assert!(checked > 200, "{checked}");
}
