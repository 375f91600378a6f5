//! Whole objects over the bases that are built in, byte by byte. `cargo xtask test --suite llamastack-real` gives the same
//! files to the real server; `STEERSMAN_WRITE=1` writes them anew.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_plan::llamastack::config::base::{self, names, unmet};
use steersman_plan::llamastack::config::{Generated, Input, Merge, generate};

use super::{OPERATOR, config, ids, remarks, texts, yaml};

struct Case {
    name: String,
    folder: PathBuf,
    spec: LlamaStackDistributionSpec,
    generated: Generated,
}

#[expect(clippy::disallowed_methods, reason = "the test reads its cases; the crate reads nothing")]
fn cases() -> BTreeMap<String, Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/llamastack/config");
    let folders = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let read = folders.map(|folder| {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let object = yaml(&std::fs::read_to_string(folder.join("spec.yaml")).unwrap());
        assert_eq!(object["metadata"]["name"], name.as_str());
        let spec: LlamaStackDistributionSpec = serde_json::from_value(object["spec"].clone()).unwrap();
        let annotations = serde_json::from_value(object["metadata"]["annotations"].clone()).unwrap();
        let generated = generate(&Input {
            spec: &spec,
            base: base::base(spec.distribution.name.as_deref().unwrap()),
            merge: Merge::of(Option::as_ref(&annotations)).unwrap(),
            operator_image: OPERATOR,
        });
        let generated = generated.unwrap_or_else(|problems| panic!("{name}: {problems:#?}"));
        (name.clone(), Case { name, folder, spec, generated })
    });
    read.collect()
}

#[test]
fn what_is_made_of_the_built_in_bases_is_the_same_byte_by_byte() {
    let cases = cases();
    for case in cases.values() {
        let stored = super::snapshots::read_or_write(&case.folder.join("config.yaml"), &case.generated.config_yaml);
        assert_eq!(case.generated.config_yaml, stored, "{}: run with STEERSMAN_WRITE=1 if this is meant", case.name);
    }
    let covered: BTreeSet<&str> = cases.values().filter_map(|case| case.spec.distribution.name.as_deref()).collect();
    assert_eq!(covered, names().collect(), "each distribution has a case");
}

#[test]
fn no_provider_that_is_left_misses_an_api() {
    for case in cases().values() {
        assert_eq!(unmet(&config(&case.generated)), [], "{}", case.name);
    }
}

/// The variables that the server does not start without come from Secrets, from the prepared file, or are told.
#[test]
fn every_variable_of_the_files_is_set_or_told() {
    for case in cases().values() {
        let set: Vec<&str> = case.generated.env.iter().map(|variable| variable.name.as_str()).collect();
        let told = remarks(&case.generated).join("\n");
        for rest in case.generated.config_yaml.split("${env.").skip(1) {
            let name = rest.split('}').next().unwrap();
            if name.contains(":=") || name.contains(":+") || name.starts_with("LLSD_STORAGE_SQL_") {
                continue;
            }
            assert!(set.contains(&name) || told.contains(name), "{}: {name}", case.name);
        }
    }
}

#[test]
fn the_typical_and_the_largest_case_have_the_sizes_that_their_names_promise() {
    let cases = cases();
    let size = |name: &str| {
        let Case { spec, generated, .. } = &cases[name];
        let providers = serde_json::to_value(spec.providers.as_ref().unwrap()).unwrap();
        let count = |form: &Value| form.as_array().map_or(1, Vec::len);
        let models = spec.resources.as_ref().unwrap().models.as_ref().unwrap().len();
        let given: usize = providers.as_object().unwrap().values().map(count).sum();
        assert!(generated.provider_count > given as i64, "{name}: the base's stay");
        (given, models)
    };
    assert_eq!((size("minimal"), size("typical"), size("stress")), ((1, 1), (5, 10), (10, 50)));
}

#[test]
fn replaced_apis_have_the_providers_of_the_spec_alone_and_nothing_points_at_the_others() {
    let cases = cases();
    let made = config(&cases["replace-merge"].generated);
    assert_eq!(ids(&made, "inference"), ["vllm"]);
    assert_eq!(ids(&made, "tool_runtime"), ["tavily-search"]);
    assert_eq!(ids(&made, "vector_io"), ["sqlite-vec"]);
    assert_eq!(made["vector_stores"], Value::Null, "its provider and models are gone");
    assert!(texts(&made["apis"]).contains(&"responses"), "what needs those APIs still has them");
}
