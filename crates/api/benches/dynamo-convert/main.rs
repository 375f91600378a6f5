//! Measures the conversion of DynamoGraphDeploymentRequests. Run by `cargo xtask bench dynamo-convert`. Fails if the
//! conversion of one object takes longer than its limit.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks to its user")]
#![allow(clippy::unwrap_used, reason = "the inputs are our own files")]

use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use steersman_api::convert::convert;
use steersman_testkit::measure::{Measurement, format_duration, measure, table};

/// Limit of the median time of one conversion.
const MAX_CONVERSION_TIME: Duration = Duration::from_micros(50);

const TYPICAL: &str = include_str!("../../../../examples/dynamo/v1beta1-sla.yaml");
const TYPICAL_V1ALPHA1: &str = include_str!("../../../../examples/dynamo/v1alpha1-sla.yaml");
const FULL: &str = include_str!("../../tests/fixtures/dynamo/valid/v1beta1-everything.yaml");
const FULL_V1ALPHA1: &str = include_str!("../../tests/fixtures/dynamo/valid/v1alpha1-everything.yaml");
const STATUS: &str = include_str!("../../tests/fixtures/dynamo/valid-status/v1beta1-deployed.yaml");

fn main() -> ExitCode {
    let [typical, full, status] = [TYPICAL, FULL, STATUS].map(last_document);
    let [typical_v1alpha1, full_v1alpha1] = [TYPICAL_V1ALPHA1, FULL_V1ALPHA1].map(last_document);
    let full_in_v1alpha1 = convert(full.clone(), "nvidia.com/v1alpha1").unwrap().object;
    let full_in_v1beta1 = convert(full_v1alpha1.clone(), "nvidia.com/v1beta1").unwrap().object;
    let rows = [
        measure_conversion("to v1beta1", "a typical request", &typical_v1alpha1, "v1beta1"),
        measure_conversion("to v1beta1", "every field", &full_v1alpha1, "v1beta1"),
        measure_conversion("back to v1beta1", "every field, much from annotations", &full_in_v1alpha1, "v1beta1"),
        measure_conversion("to v1alpha1", "a typical request", &typical, "v1alpha1"),
        measure_conversion("to v1alpha1", "a typical request, deployed", &status, "v1alpha1"),
        measure_conversion("to v1alpha1", "every field, much into annotations", &full, "v1alpha1"),
        measure_conversion("back to v1alpha1", "every field, much from annotations", &full_in_v1beta1, "v1alpha1"),
    ];
    println!("{}", table(&rows));
    match rows.iter().find(|row| row.median > MAX_CONVERSION_TIME) {
        Some(row) => {
            eprintln!(
                "{} ({}) takes {}, more than {}",
                row.case,
                row.input,
                format_duration(row.median),
                format_duration(MAX_CONVERSION_TIME)
            );
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

/// The request of a file. It is the last document, after the objects that it needs.
fn last_document(text: &str) -> Value {
    serde_saphyr::from_multiple::<Value>(text).unwrap().pop().unwrap()
}

/// Measures conversions of `object`, without the time to copy it.
fn measure_conversion(case: &'static str, of: &str, object: &Value, to: &str) -> Measurement {
    let to = format!("nvidia.com/{to}");
    measure(case, of.to_owned(), MAX_CONVERSION_TIME, || object.clone(), |object| convert(object, &to))
}
