//! Compares every leaf of a v1alpha2 spec with the table of its effects.

mod output;
mod table;

use serde_json::{Value, json};
use steersman_api::Family;

use super::yaml;
use crate::leaves::{Case, Leaf, assert_copied_holds, assert_rows_hold, assert_table_is_complete, leaves, row};
use output::reconcile_spec;
use row::Row;
use table::{APIS, COPIED, EXTERNAL, ROWS};

fn all_leaves() -> Vec<Leaf> {
    let found = leaves(Family::Llsd, "v1alpha2");
    assert!(found.len() > 400, "{}", found.len());
    found
}

/// Fields that a row covers after its placeholder is expanded, each with the rest of the spec.
fn expand_row(row: &Row) -> Vec<(String, Value)> {
    let entry = || yaml(&format!("{{{}}}", row.around));
    if row.field.contains(APIS.0) {
        let single_and_list = |api: &&str| {
            let mut entry = entry();
            entry["provider"] = json!("custom");
            let one = (row.field.replace(APIS.0, api), json!({ "providers": { *api: entry } }));
            let many = (row.field.replace(APIS.0, &format!("{api}[]")), json!({ "providers": { *api: [entry] } }));
            [one, many]
        };
        return APIS.1.iter().flat_map(single_and_list).collect();
    }
    if row.field.contains(EXTERNAL.0) {
        let with_api =
            |api: &&str| (row.field.replace(EXTERNAL.0, api), json!({ "externalProviders": { *api: [entry()] } }));
        return EXTERNAL.1.iter().map(with_api).collect();
    }
    vec![(row.field.to_owned(), yaml(row.around))]
}

fn complete_spec(around: Value, field: &str) -> Value {
    let mut spec = around;
    if spec.get("distribution").is_none() {
        // Newer servers lack these APIs, so that an image with an older server is used.
        let removed = ["providers.telemetry", "externalProviders.agents", "externalProviders.postTraining"];
        let needs_old_server = removed.iter().any(|removed| field.starts_with(removed));
        spec["distribution"] =
            if needs_old_server { json!({ "image": output::OLD_IMAGE }) } else { json!({ "name": "starter" }) };
    }
    spec
}

#[test]
fn leaves_and_rows_match_one_to_one() {
    let fields: Vec<String> = ROWS.iter().flat_map(expand_row).map(|(field, _)| field).collect();
    assert_table_is_complete(&all_leaves(), ROWS, &fields, &COPIED);
}

#[test]
fn fields_change_what_rows_state() {
    let cases = ROWS.iter().flat_map(|row| {
        expand_row(row).into_iter().map(move |(field, around)| Case {
            around: complete_spec(around, &field),
            field,
            row,
        })
    });
    assert_rows_hold(&all_leaves(), cases.collect(), reconcile_spec);
}

/// Fields that are newer than our Kubernetes types: a condition reports them as ignored.
const NEWER: [&str; 2] = [".fileKeyRef", ".podCertificate"];

#[test]
fn kubernetes_type_fields_reach_the_pod() {
    let spec = json!({ "distribution": { "name": "starter" } });
    let checked = assert_copied_holds(&all_leaves(), &COPIED, &spec, &NEWER, &[], reconcile_spec);
    assert!(checked > 200, "{checked}");
}
