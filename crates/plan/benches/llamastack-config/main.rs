//! Measures the generation of a configuration and the conversion of an object. Run by `cargo xtask bench
//! llamastack-config`; fails if NFR-002 is violated.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks to its user")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the inputs are our own files")]

use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use steersman_api::convert::convert;
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_plan::llamastack::config::{Input, MAX_RESOURCES, Merge, base, generate};
use steersman_testkit::measure::{Measurement, format_duration, measure, table};

/// NFR-002: a configuration is generated within five seconds.
const MAX_GENERATION_TIME: Duration = Duration::from_secs(5);

/// A list of ten times the length may take this many times as long. Quadratic code takes a hundred times.
const MAX_RATIO: u32 = 30;

const MINIMAL_MANIFEST: &str = include_str!("minimal.yaml");
const TYPICAL_MANIFEST: &str = include_str!("typical.yaml");
const STRESS_MANIFEST: &str = include_str!("stress.yaml");
const V1ALPHA1_MANIFEST: &str = include_str!("../../../api/tests/fixtures/llamastack/valid/v1alpha1-everything.yaml");

fn main() -> ExitCode {
    let (micros, millis) = (Duration::from_micros, Duration::from_millis);
    let (v1alpha1_object, stress_object) = (parse_manifest(V1ALPHA1_MANIFEST), parse_manifest(STRESS_MANIFEST));
    let stress_as_v1alpha1 = convert(stress_object.clone(), "llamastack.io/v1alpha1").unwrap().object;
    let rows = [
        measure_generation("generate minimal", MINIMAL_MANIFEST, millis(1)),
        measure_generation("generate typical", TYPICAL_MANIFEST, millis(1)),
        measure_generation("generate stress", STRESS_MANIFEST, millis(5)),
        measure_generation(SHORT_LIST, &manifest_with_models(MAX_RESOURCES / 10), millis(5)),
        measure_generation(LONG_LIST, &manifest_with_models(MAX_RESOURCES), millis(50)),
        measure_conversion(
            "convert to v1alpha2",
            "a v1alpha1 object with every field",
            &v1alpha1_object,
            "v1alpha2",
            micros(50),
        ),
        measure_conversion(
            "convert to v1alpha1",
            "stress, most of it into an annotation",
            &stress_object,
            "v1alpha1",
            micros(50),
        ),
        measure_conversion(
            "convert it back",
            "stress, most of it from an annotation",
            &stress_as_v1alpha1,
            "v1alpha2",
            micros(50),
        ),
    ];
    println!("{}", table(&rows));
    let median = |case: &str| rows.iter().find(|row| row.case == case).unwrap().median;
    if median(LONG_LIST) > median(SHORT_LIST) * MAX_RATIO {
        eprintln!("{LONG_LIST} takes more than {MAX_RATIO} times as long as {SHORT_LIST}: the cost is not linear");
        return ExitCode::FAILURE;
    }
    match rows.iter().find(|row| row.p99 > MAX_GENERATION_TIME) {
        Some(row) => {
            eprintln!(
                "{} takes {}, more than the {} of NFR-002",
                row.case,
                format_duration(row.p99),
                format_duration(MAX_GENERATION_TIME)
            );
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

const SHORT_LIST: &str = "generate few models";
const LONG_LIST: &str = "generate most models";

fn manifest_with_models(count: usize) -> String {
    let models: Vec<String> = (0..count).map(|place| format!("model-{place}")).collect();
    format!("spec: {{distribution: {{name: starter}}, resources: {{models: [{}]}}}}", models.join(", "))
}

fn parse_manifest(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// Measures from the typed spec to the text of the file, its hash and the changes to the pod.
fn measure_generation(case: &'static str, text: &str, goal: Duration) -> Measurement {
    let spec: LlamaStackDistributionSpec = serde_json::from_value(parse_manifest(text)["spec"].clone()).unwrap();
    let base = base::base(spec.distribution.name.as_deref().unwrap());
    let input = Input { spec: &spec, base, merge: Merge::Overlay, operator_image: "registry.example/steersman:1" };
    let generated = generate(&input).unwrap();
    let input_size = format!(
        "{} providers, {} resources, {} KiB",
        generated.provider_count,
        generated.resource_count,
        generated.config_yaml.len() / 1024
    );
    measure(case, input_size, goal, || (), |()| generate(&input))
}

/// Measures a conversion, without the copy of the object.
fn measure_conversion(case: &'static str, input: &str, object: &Value, to: &str, goal: Duration) -> Measurement {
    let to = format!("llamastack.io/{to}");
    measure(case, input.to_owned(), goal, || object.clone(), |object| convert(object, &to))
}
