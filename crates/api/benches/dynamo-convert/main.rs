//! How long it takes to convert a DynamoGraphDeploymentRequest. Run by `cargo xtask bench dynamo-convert`.
//! Comes in: manifests of examples and of tests; goes out: a table, and a failure where an object takes longer than it may.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks to its user")]
#![allow(clippy::unwrap_used, reason = "the inputs are our own files")]

use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use steersman_api::convert::convert;
use steersman_testkit::measure::{Row, measured, said, table};

/// For one object.
const LIMIT: Duration = Duration::from_micros(50);

const TYPICAL: &str = include_str!("../../../../examples/dynamo/v1beta1-sla.yaml");
const TYPICAL_EARLIER: &str = include_str!("../../../../examples/dynamo/v1alpha1-sla.yaml");
const FULL: &str = include_str!("../../tests/fixtures/dynamo/valid/v1beta1-everything.yaml");
const FULL_EARLIER: &str = include_str!("../../tests/fixtures/dynamo/valid/v1alpha1-everything.yaml");
const STATUS: &str = include_str!("../../tests/fixtures/dynamo/valid-status/v1beta1-deployed.yaml");

fn main() -> ExitCode {
    let [typical, full, status] = [TYPICAL, FULL, STATUS].map(last);
    let [earlier, full_earlier] = [TYPICAL_EARLIER, FULL_EARLIER].map(last);
    let kept = convert(full.clone(), "nvidia.com/v1alpha1").unwrap().object;
    let stored = convert(full_earlier.clone(), "nvidia.com/v1beta1").unwrap().object;
    let rows = [
        converted("to v1beta1", "a typical request", &earlier, "v1beta1"),
        converted("to v1beta1", "every field", &full_earlier, "v1beta1"),
        converted("back to v1beta1", "every field, much from annotations", &kept, "v1beta1"),
        converted("to v1alpha1", "a typical request", &typical, "v1alpha1"),
        converted("to v1alpha1", "a typical request, deployed", &status, "v1alpha1"),
        converted("to v1alpha1", "every field, much into annotations", &full, "v1alpha1"),
        converted("back to v1alpha1", "every field, much from annotations", &stored, "v1alpha1"),
    ];
    println!("{}", table(&rows));
    match rows.iter().find(|row| row.median > LIMIT) {
        Some(row) => {
            eprintln!("{} ({}) takes {}, more than {}", row.case, row.of, said(row.median), said(LIMIT));
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

/// The request of a file; what it needs stands before it.
fn last(text: &str) -> Value {
    serde_saphyr::from_multiple::<Value>(text).unwrap().pop().unwrap()
}

/// Copying the object is not a part of it.
fn converted(case: &'static str, of: &str, object: &Value, to: &str) -> Row {
    let to = format!("nvidia.com/{to}");
    measured(case, of.to_owned(), LIMIT, || object.clone(), |object| convert(object, &to))
}
