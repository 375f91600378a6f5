//! Complete configurations on the embedded bases, compared byte by byte. `cargo xtask test --suite llamastack-real`
//! runs the real server with the same files; `STEERSMAN_WRITE=1` updates them.

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
    let cases = folders.map(|folder| {
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
    cases.collect()
}

#[test]
fn configurations_on_embedded_bases_match_snapshots() {
    let cases = cases();
    for case in cases.values() {
        let stored_config =
            super::snapshots::read_or_write(&case.folder.join("config.yaml"), &case.generated.config_yaml);
        assert_eq!(
            case.generated.config_yaml, stored_config,
            "{}: run with STEERSMAN_WRITE=1 if the change is intended",
            case.name
        );
    }
    let covered: BTreeSet<&str> = cases.values().filter_map(|case| case.spec.distribution.name.as_deref()).collect();
    assert_eq!(covered, names().collect(), "each distribution has a case");
}

#[test]
fn remaining_providers_have_required_apis() {
    for case in cases().values() {
        assert_eq!(unmet(&config(&case.generated)), [], "{}", case.name);
    }
}

/// Each variable that the server requires comes from a Secret or the prepared file, or a remark names it.
#[test]
fn required_variables_are_set_or_reported() {
    for case in cases().values() {
        let set_variables: Vec<&str> = case.generated.env.iter().map(|variable| variable.name.as_str()).collect();
        let remark_texts = remarks(&case.generated).join("\n");
        for rest in case.generated.config_yaml.split("${env.").skip(1) {
            let name = rest.split('}').next().unwrap();
            if name.contains(":=") || name.contains(":+") || name.starts_with("LLSD_STORAGE_SQL_") {
                continue;
            }
            assert!(set_variables.contains(&name) || remark_texts.contains(name), "{}: {name}", case.name);
        }
    }
}

#[test]
fn typical_and_stress_cases_have_expected_size() {
    let cases = cases();
    let size = |name: &str| {
        let Case { spec, generated, .. } = &cases[name];
        let providers = serde_json::to_value(spec.providers.as_ref().unwrap()).unwrap();
        let count = |form: &Value| form.as_array().map_or(1, Vec::len);
        let models = spec.resources.as_ref().unwrap().models.as_ref().unwrap().len();
        let spec_providers: usize = providers.as_object().unwrap().values().map(count).sum();
        assert!(generated.provider_count > spec_providers as i64, "{name}: base providers are kept");
        (spec_providers, models)
    };
    assert_eq!((size("minimal"), size("typical"), size("stress")), ((1, 1), (5, 10), (10, 50)));
}

#[test]
fn replaced_apis_keep_only_spec_providers() {
    let cases = cases();
    let generated_config = config(&cases["replace-merge"].generated);
    assert_eq!(ids(&generated_config, "inference"), ["vllm"]);
    assert_eq!(ids(&generated_config, "tool_runtime"), ["tavily-search"]);
    assert_eq!(ids(&generated_config, "vector_io"), ["sqlite-vec"]);
    assert_eq!(generated_config["vector_stores"], Value::Null, "its provider and models are removed");
    assert!(texts(&generated_config["apis"]).contains(&"responses"), "APIs that depend on them are still served");
}
