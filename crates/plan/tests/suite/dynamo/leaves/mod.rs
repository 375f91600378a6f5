//! Compares every leaf of a spec, in both versions, with the table of its effects.

mod alpha;
mod output;
mod table;

use serde_json::{Value, json};
use steersman_api::Family;

use super::yaml;
use crate::leaves::row::Row;
use crate::leaves::{Case, Leaf, assert_copied_holds, assert_rows_hold, assert_table_is_complete, leaves, row};

fn v1beta1_leaves() -> Vec<Leaf> {
    let found = leaves(Family::Dgdr, "v1beta1");
    assert!(found.len() > 800, "{}", found.len());
    found
}

fn v1alpha1_leaves() -> Vec<Leaf> {
    leaves(Family::Dgdr, "v1alpha1")
}

/// A complete v1beta1 spec, which needs no discovery.
fn v1beta1_spec() -> Value {
    json!({
        "model": "Qwen/Qwen3-0.6B", "image": "planner:1.4.0",
        "hardware": { "gpuSku": "h100_sxm", "vramMb": 81_559, "numGpusPerNode": 8, "totalGpus": 8,
            "interconnect": "nvlink", "rdma": false },
    })
}

fn v1alpha1_spec() -> Value {
    json!({ "model": "Qwen/Qwen3-0.6B", "backend": "vllm", "profilingConfig": { "profilerImage": "planner:1.4.0" } })
}

/// The row's context merged over the base spec, without the field itself.
fn case(base_spec: Value, row: &Row) -> Case<'_> {
    let mut around = base_spec;
    merge(&mut around, &yaml(row.around));
    let pointer = format!("/{}", row.field.replace('.', "/"));
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    if let Some(Value::Object(parent)) = around.pointer_mut(parent) {
        parent.remove(name);
    }
    Case { field: row.field.to_owned(), around, row }
}

fn merge(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (name, value) in over {
                merge(under.entry(name.as_str()).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}

fn fields(rows: &[Row]) -> Vec<String> {
    rows.iter().map(|row| row.field.to_owned()).collect()
}

#[test]
fn leaves_and_rows_match_one_to_one() {
    assert_table_is_complete(&v1beta1_leaves(), table::ROWS, &fields(table::ROWS), table::JOB);
    assert_table_is_complete(&v1alpha1_leaves(), alpha::ROWS, &fields(alpha::ROWS), alpha::COPIED);
}

#[test]
fn v1beta1_fields_change_what_rows_state() {
    let cases = table::ROWS.iter().map(|row| case(v1beta1_spec(), row));
    assert_rows_hold(&v1beta1_leaves(), cases.collect(), output::v1beta1_output);
}

/// The profiler's arguments are not compared: of these fields it reads only the tolerations.
#[test]
fn job_override_fields_apply_or_are_reported() {
    let known = fields(table::ROWS);
    let checked = assert_copied_holds(&v1beta1_leaves(), table::JOB, &v1beta1_spec(), &[], &known, output::job_output);
    assert!(checked > 800, "{checked}");
}

#[test]
fn v1alpha1_fields_change_what_rows_state() {
    let cases = alpha::ROWS.iter().map(|row| case(v1alpha1_spec(), row));
    assert_rows_hold(&v1alpha1_leaves(), cases.collect(), output::v1alpha1_output);
    let known = fields(alpha::ROWS);
    assert_copied_holds(&v1alpha1_leaves(), alpha::COPIED, &v1alpha1_spec(), &[], &known, output::v1alpha1_output);
}
