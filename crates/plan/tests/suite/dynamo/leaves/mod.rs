//! Every leaf of a spec, in both versions, against the tables of what it changes.

mod alpha;
mod table;
mod world;

use serde_json::{Value, json};
use steersman_api::Family;

use super::yaml;
use crate::leaves::row::Row;
use crate::leaves::{Case, Leaf, assert_copied_holds, assert_rows_hold, assert_table_is_whole, leaves, row};

fn beta() -> Vec<Leaf> {
    let found = leaves(Family::Dgdr, "v1beta1");
    assert!(found.len() > 800, "{}", found.len());
    found
}

fn alpha() -> Vec<Leaf> {
    leaves(Family::Dgdr, "v1alpha1")
}

/// A whole spec of v1beta1: nothing of it is left to be found out.
fn whole() -> Value {
    json!({
        "model": "Qwen/Qwen3-0.6B", "image": "planner:1.4.0",
        "hardware": { "gpuSku": "h100_sxm", "vramMb": 81_559, "numGpusPerNode": 8, "totalGpus": 8,
            "interconnect": "nvlink", "rdma": false },
    })
}

fn earlier() -> Value {
    json!({ "model": "Qwen/Qwen3-0.6B", "backend": "vllm", "profilingConfig": { "profilerImage": "planner:1.4.0" } })
}

/// The row's own surroundings over those of all, without the field.
fn case(whole: Value, row: &Row) -> Case<'_> {
    let mut around = whole;
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
fn every_leaf_has_a_row_and_every_row_a_leaf() {
    assert_table_is_whole(&beta(), table::ROWS, &fields(table::ROWS), table::JOB);
    assert_table_is_whole(&alpha(), alpha::ROWS, &fields(alpha::ROWS), alpha::COPIED);
}

#[test]
fn every_leaf_of_v1beta1_changes_what_its_row_says() {
    let cases = table::ROWS.iter().map(|row| case(whole(), row));
    assert_rows_hold(&beta(), cases.collect(), world::life);
}

/// What the profiler is told does not count: it reads nothing of it but the tolerations.
#[test]
fn every_leaf_of_the_jobs_overrides_reaches_the_job_or_is_told() {
    let known = fields(table::ROWS);
    let checked = assert_copied_holds(&beta(), table::JOB, &whole(), &[], &known, world::job);
    assert!(checked > 800, "{checked}");
}

#[test]
fn every_leaf_of_v1alpha1_changes_what_its_row_says() {
    let cases = alpha::ROWS.iter().map(|row| case(earlier(), row));
    assert_rows_hold(&alpha(), cases.collect(), world::earlier);
    let known = fields(alpha::ROWS);
    assert_copied_holds(&alpha(), alpha::COPIED, &earlier(), &[], &known, world::earlier);
}
