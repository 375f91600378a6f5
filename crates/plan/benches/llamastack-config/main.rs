//! How long it takes to generate a configuration, and to convert an object. Run by `cargo xtask bench llamastack-config`.
//! Comes in: manifests beside this file; goes out: a table, and a failure where NFR-002 is not kept.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks to its user")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the inputs are our own files")]

use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use steersman_api::convert::convert;
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_plan::llamastack::config::{Input, Merge, base, generate};
use steersman_testkit::measure::{Row, measured, said, table};

/// NFR-002: a configuration is generated within five seconds.
const LIMIT: Duration = Duration::from_secs(5);

const MINIMAL: &str = include_str!("minimal.yaml");
const TYPICAL: &str = include_str!("typical.yaml");
const STRESS: &str = include_str!("stress.yaml");
const OLD: &str = include_str!("../../../api/tests/fixtures/llamastack/valid/v1alpha1-everything.yaml");

fn main() -> ExitCode {
    let (micros, millis) = (Duration::from_micros, Duration::from_millis);
    let (old, new) = (read(OLD), read(STRESS));
    let kept = convert(new.clone(), "llamastack.io/v1alpha1").unwrap().object;
    let rows = [
        generated("generate minimal", MINIMAL, millis(1)),
        generated("generate typical", TYPICAL, millis(1)),
        generated("generate stress", STRESS, millis(5)),
        converted("convert to v1alpha2", "a v1alpha1 object with every field", &old, "v1alpha2", micros(50)),
        converted("convert to v1alpha1", "stress, most of it into an annotation", &new, "v1alpha1", micros(50)),
        converted("convert it back", "stress, most of it from an annotation", &kept, "v1alpha2", micros(50)),
    ];
    println!("{}", table(&rows));
    match rows.iter().find(|row| row.p99 > LIMIT) {
        Some(row) => {
            eprintln!("{} takes {}, more than the {} of NFR-002", row.case, said(row.p99), said(LIMIT));
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

fn read(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// From the typed spec to the text of the file, its hash and what the pod needs.
fn generated(case: &'static str, text: &str, goal: Duration) -> Row {
    let spec: LlamaStackDistributionSpec = serde_json::from_value(read(text)["spec"].clone()).unwrap();
    let base = base::base(spec.distribution.name.as_deref().unwrap());
    let input = Input { spec: &spec, base, merge: Merge::Overlay, operator_image: "registry.example/steersman:1" };
    let made = generate(&input).unwrap();
    let of = format!(
        "{} providers, {} resources, {} KiB",
        made.provider_count,
        made.resource_count,
        made.config_yaml.len() / 1024
    );
    measured(case, of, goal, || (), |()| generate(&input))
}

/// Copying the object is not a part of it.
fn converted(case: &'static str, of: &str, object: &Value, to: &str, goal: Duration) -> Row {
    let to = format!("llamastack.io/{to}");
    measured(case, of.to_owned(), goal, || object.clone(), |object| convert(object, &to))
}
