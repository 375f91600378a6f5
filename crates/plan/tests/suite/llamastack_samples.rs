//! The v1alpha1 samples of the upstream project, if the developer's machine has them: after conversion each is
//! accepted, and its server keeps its configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use steersman_api::convert;
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_plan::llamastack::config::{Input, Merge, Source, base, detect_version, generate, read_yaml, source};
use steersman_plan::llamastack::validate::{Facts, Missing, ReferenceKind, ReferenceState, ReferencedObject, validate};

const NAMESPACE: &str = "default";

fn upstream_folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/upstream/llamastack");
    if folder.is_dir() {
        return Some(folder);
    }
    steersman_testkit::skip::skip("the published v1alpha1 samples", "no upstream files");
    None
}

/// All documents of one kind in the sample files, with the name of the file.
#[expect(clippy::disallowed_methods, reason = "the test reads manifests; the crate reads nothing")]
fn objects(folder: &Path, kind: &str) -> Vec<(String, Value)> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with("sample-") {
            let text = std::fs::read_to_string(&path).unwrap();
            let documents: Vec<Value> =
                serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            found.extend(
                documents.into_iter().filter(|object| object["kind"] == kind).map(|object| (name.clone(), object)),
            );
        }
    }
    found
}

fn convert_sample(name: &str, object: &Value) -> Value {
    let converted = convert::convert(object.clone(), "llamastack.io/v1alpha2").unwrap();
    assert_eq!(converted.lost, [] as [&str; 0], "{name}");
    converted.object
}

fn spec(object: &Value) -> LlamaStackDistributionSpec {
    serde_json::from_value(object["spec"].clone()).unwrap()
}

#[test]
fn converted_samples_are_accepted() {
    let Some(folder) = upstream_folder() else { return };
    let present_config_map = |name: &str, key: &str| {
        let named = ReferencedObject { kind: ReferenceKind::ConfigMap, namespace: NAMESPACE.into(), name: name.into() };
        (named, ReferenceState::Exists(Some(BTreeSet::from([key.to_owned()]))))
    };
    let found = BTreeMap::from([
        present_config_map("llama-stack-config", "config.yaml"),
        present_config_map("custom-ca-bundle", "ca-bundle.crt"),
    ]);
    let names: Vec<&str> = base::names().collect();
    let samples = objects(&folder, "LlamaStackDistribution");
    assert!(samples.len() >= 6, "only {} samples found", samples.len());
    for (name, object) in samples {
        let facts = Facts {
            namespace: NAMESPACE,
            distributions: &names,
            base: base::base("starter"),
            always_mounted: false,
            config_namespace: None,
            found: &found,
            missing: Missing::Refuse,
        };
        let review = validate(&convert_sample(&name, &object), None, &facts);
        assert_eq!(review.errors, [], "{name}");
        assert_eq!(review.warnings, [], "{name}");
    }
}

#[test]
fn converted_samples_keep_their_configuration() {
    let Some(folder) = upstream_folder() else { return };
    let mut has_override = BTreeSet::new();
    for (name, object) in objects(&folder, "LlamaStackDistribution") {
        let user_config_map = &object["spec"]["server"]["userConfig"]["configMapName"];
        let converted = convert_sample(&name, &object);
        let mut spec = spec(&converted);
        let source = source(&spec, false);
        assert_eq!(source, if user_config_map.is_null() { Source::Distribution } else { Source::Override }, "{name}");
        has_override.insert(source == Source::Override);
        if source == Source::Override {
            assert_eq!(&converted["spec"]["overrideConfig"]["configMapName"], user_config_map, "{name}");
            continue;
        }
        let base = base::base("starter");
        let generate_sample = |spec: &LlamaStackDistributionSpec| {
            generate(&Input { spec, base, merge: Merge::Overlay, operator_image: "own:1" })
                .unwrap_or_else(|problems| panic!("{name}: {problems:#?}"))
        };
        let unchanged = generate_sample(&spec);
        let base_with_workers = |workers: Option<i64>| {
            let mut config = base.unwrap().config.clone();
            workers.into_iter().for_each(|workers| config["server"]["workers"] = json!(workers));
            config
        };
        let workers = object["spec"]["server"]["workers"].as_i64();
        assert_eq!(read_yaml(&unchanged.config_yaml).unwrap(), base_with_workers(workers), "{name}");
        spec.providers =
            serde_json::from_value(json!({"inference": {"provider": "vllm", "endpoint": "http://v/v1"}})).unwrap();
        let generated = generate_sample(&spec);
        let more = generated.provider_count - unchanged.provider_count;
        assert!((0..=1).contains(&more), "{name}: vllm is in the base, which needs a variable for it");
    }
    assert_eq!(has_override.len(), 2, "there are samples with and without their own ConfigMap");
}

#[test]
fn sample_config_maps_have_supported_version() {
    let Some(folder) = upstream_folder() else { return };
    let maps = objects(&folder, "ConfigMap");
    assert!(!maps.is_empty());
    for (name, map) in maps {
        let config = read_yaml(map["data"]["config.yaml"].as_str().unwrap()).unwrap();
        assert_eq!(detect_version(&config), Ok(2), "{name}");
    }
}
