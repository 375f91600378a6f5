//! The bases that are built in, the ones that images carry, and which of them counts. That the real server understands the
//! built-in ones is shown by `cargo xtask test --suite llamastack-real`.

mod labels;

use std::collections::BTreeSet;

use serde_json::Value;
use steersman_plan::llamastack::config::base::{
    Base, DISTRIBUTIONS, LabelError, NoBase, Source, base, distribution, images, names, resolve, unmet,
};

fn a_base(name: &str) -> &'static Base {
    base(name).unwrap_or_else(|| panic!("{name} has no base"))
}

/// Every string in a value, with its path.
fn strings(value: &Value, path: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::String(text) => found.push((path.to_owned(), text.clone())),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| strings(item, &format!("{path}[{index}]"), found));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(key, item)| strings(item, &format!("{path}.{key}"), found));
        }
        _ => {}
    }
}

/// The id that a provider has once it is switched on: `${env.X:+id}` and `id` are both `id`.
fn effective(id: &str) -> &str {
    id.strip_prefix("${env.").and_then(|rest| rest.split_once(":+")).map_or(id, |(_, id)| id.trim_end_matches('}'))
}

fn provider_ids(base: &Base) -> BTreeSet<&str> {
    let providers = base.config["providers"].as_object().unwrap();
    let all = providers.values().flat_map(|list| list.as_array().unwrap());
    all.map(|provider| effective(provider["provider_id"].as_str().unwrap())).collect()
}

#[test]
fn fr_027a_every_registered_name_has_a_base_for_the_server_in_its_image() {
    assert_eq!(
        names().collect::<Vec<_>>(),
        ["meta-reference-gpu", "postgres-demo", "remote-vllm", "starter", "starter-gpu"]
    );
    for known in DISTRIBUTIONS {
        let base = a_base(known.name);
        assert_eq!((base.name.as_str(), base.server_version.as_str()), (known.name, known.server_version));
        assert_eq!(base.config["version"], 2, "{}", known.name);
        let named = base.config.get("distro_name").or_else(|| base.config.get("image_name"));
        assert_eq!(named.and_then(Value::as_str), Some(known.name));
    }
    assert!(base("ollama").is_none() && distribution("ollama").is_none());
}

#[test]
fn fr_027d_image_base_and_proof_are_of_one_version() {
    for known in DISTRIBUTIONS {
        let (image, tag) = known.image.rsplit_once(':').unwrap();
        assert!(image.starts_with("docker.io/llamastack/distribution-"), "{image}");
        assert_eq!(tag, known.server_version, "{}", known.name);
        assert_eq!(known.verified_with.first(), Some(&known.server_version), "{}", known.name);
        let minor = |version: &str| version.rsplit_once('.').unwrap().0.to_owned();
        for version in known.verified_with {
            assert_eq!(minor(version), minor(known.server_version), "a base fits one minor version: {}", known.name);
        }
    }
    assert_eq!(images()["starter"], "docker.io/llamastack/distribution-starter:0.7.1");
    assert_eq!(images().len(), DISTRIBUTIONS.len());
}

#[test]
fn a_base_that_its_image_does_not_have_is_always_mounted() {
    let mounted: Vec<_> = DISTRIBUTIONS.iter().filter(|known| known.mounts_always).map(|known| known.name).collect();
    assert_eq!(mounted, ["meta-reference-gpu", "postgres-demo", "remote-vllm"]);
    for known in DISTRIBUTIONS {
        let own_image = known.image.contains(&format!("distribution-{}:", known.name));
        assert!(own_image || known.mounts_always, "{} runs the image of another", known.name);
    }
}

#[test]
fn every_served_api_has_providers_and_the_other_way_round() {
    for known in DISTRIBUTIONS {
        let config = &a_base(known.name).config;
        let served: BTreeSet<_> = config["apis"].as_array().unwrap().iter().map(|api| api.as_str().unwrap()).collect();
        let provided: BTreeSet<_> = config["providers"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(served, provided, "{}", known.name);
    }
}

#[test]
fn every_provider_has_a_type_an_id_and_a_config() {
    for known in DISTRIBUTIONS {
        for (api, list) in a_base(known.name).config["providers"].as_object().unwrap() {
            let list = list.as_array().unwrap();
            let ids: BTreeSet<_> = list.iter().map(|entry| effective(entry["provider_id"].as_str().unwrap())).collect();
            assert_eq!(ids.len(), list.len(), "{} has an id twice in {api}", known.name);
            for entry in list {
                let kind = entry["provider_type"].as_str().unwrap();
                assert!(kind.starts_with("remote::") || kind.starts_with("inline::"), "{}: {kind}", known.name);
                assert!(entry["config"].is_object(), "{}: {kind}", known.name);
            }
        }
    }
}

#[test]
fn nothing_in_a_base_points_at_what_is_not_there() {
    for known in DISTRIBUTIONS {
        let base = a_base(known.name);
        let backends: BTreeSet<_> = base.config["storage"]["backends"].as_object().unwrap().keys().collect();
        assert_eq!(backends, BTreeSet::from([&"kv_default".to_owned(), &"sql_default".to_owned()]), "{}", known.name);
        let mut found = Vec::new();
        strings(&base.config, "", &mut found);
        let ids = provider_ids(base);
        for (path, text) in found {
            if path.ends_with(".backend") {
                assert!(backends.contains(&text), "{}{path}: {text}", known.name);
            }
            if path.ends_with("provider_id") {
                assert!(ids.contains(effective(&text)), "{}{path}: {text}", known.name);
            }
        }
    }
}

#[test]
fn no_provider_of_a_base_lacks_an_api_that_it_needs() {
    for known in DISTRIBUTIONS {
        assert_eq!(unmet(&a_base(known.name).config), [], "{}", known.name);
    }
}

#[test]
fn an_api_that_is_taken_away_is_missed_by_all_that_need_it() {
    let without = |name: &str, api: &str| {
        let mut config = a_base(name).config.clone();
        config["providers"].as_object_mut().unwrap().remove(api);
        let missed = unmet(&config).into_iter().map(|provider| {
            assert_eq!(provider.missing, [api]);
            format!("{}/{}", provider.api, provider.provider_id)
        });
        missed.collect::<Vec<_>>()
    };
    for (api, missed_by) in [
        ("files", vec!["batches/reference", "file_processors/pypdf", "responses/builtin", "tool_runtime/file-search"]),
        ("datasetio", vec!["eval/builtin", "scoring/basic", "scoring/llm-as-judge", "scoring/braintrust"]),
        ("scoring", vec!["eval/builtin"]),
        ("responses", vec!["eval/builtin"]),
        ("tool_runtime", vec!["responses/builtin"]),
        ("safety", vec![]),
        ("batches", vec![]),
    ] {
        assert_eq!(without("starter", api), missed_by, "{api}");
    }
    // Under its name before 0.7.
    assert_eq!(without("starter-gpu", "scoring"), ["eval/meta-reference"]);
    assert_eq!(without("meta-reference-gpu", "files"), ["agents/meta-reference", "tool_runtime/rag-runtime"]);
}

/// Other names stay unsubstituted, without a word from the server.
#[test]
fn every_variable_has_a_name_that_the_server_replaces() {
    for known in DISTRIBUTIONS {
        let mut found = Vec::new();
        strings(&a_base(known.name).config, "", &mut found);
        for (path, text) in found {
            for rest in text.split("${").skip(1) {
                let inside = rest.strip_prefix("env.").and_then(|rest| rest.split_once('}')).map(|(inside, _)| inside);
                let inside = inside.unwrap_or_else(|| panic!("{}{path}: {text}", known.name));
                let name = inside.split(':').next().unwrap();
                assert!(
                    name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_') && !name.is_empty(),
                    "{}{path}: {text}",
                    known.name
                );
            }
        }
    }
}

#[test]
fn no_base_holds_a_secret_of_its_own() {
    for known in DISTRIBUTIONS {
        let mut found = Vec::new();
        strings(&a_base(known.name).config, "", &mut found);
        for (path, text) in found {
            let key = path.rsplit('.').next().unwrap();
            if ["api_key", "api_token", "password", "openai_api_key", "elasticsearch_api_key"].contains(&key) {
                assert!(text.starts_with("${env.") && text.ends_with('}'), "{}{path}: {text}", known.name);
            }
        }
    }
}

#[test]
fn remote_vllm_has_vllm_for_models_and_starts_with_no_variable_set() {
    let base = a_base("remote-vllm");
    let inference = base.config["providers"]["inference"].as_array().unwrap();
    let remote: Vec<_> = inference
        .iter()
        .filter(|provider| provider["provider_type"].as_str().unwrap().starts_with("remote::"))
        .map(|provider| provider["provider_id"].as_str().unwrap())
        .collect();
    assert_eq!(remote, ["vllm-inference"]);
    let mut found = Vec::new();
    strings(&base.config, "", &mut found);
    for (path, text) in found {
        assert!(!text.contains("${env.") || text.contains(":=") || text.contains(":+"), "{path}: {text} must be set");
    }
}

#[test]
fn fr_027b_a_name_has_its_embedded_base() {
    let resolved = resolve(Some("starter"), Ok(None)).unwrap();
    assert_eq!((resolved.source, resolved.passed_over), (Source::Embedded, None));
    assert_eq!(*resolved.base, *a_base("starter"));
}

#[test]
fn fr_027g_labels_win_over_the_embedded_base() {
    let labelled = Base { name: "starter".into(), ..a_base("remote-vllm").clone() };
    let resolved = resolve(Some("starter"), Ok(Some(labelled.clone()))).unwrap();
    assert_eq!((resolved.source.as_str(), resolved.base.into_owned()), ("oci-label", labelled));
}

#[test]
fn wrong_labels_are_told_and_the_embedded_base_serves() {
    let resolved = resolve(Some("starter"), Err(LabelError::NotBase64)).unwrap();
    assert_eq!((resolved.source, resolved.passed_over), (Source::Embedded, Some(LabelError::NotBase64)));
    assert_eq!(resolved.base.name, "starter");
}

#[test]
fn fr_027c_an_image_without_labels_has_no_base() {
    let needed = "Direct image references require either overrideConfig.configMapName or OCI config labels on the \
                  image. See docs/configuration.md for details.";
    assert_eq!(resolve(None, Ok(None)).unwrap_err().to_string(), needed);
    let wrong = resolve(None, Err(LabelError::NotBase64)).unwrap_err();
    assert_eq!(wrong, NoBase::Labels(LabelError::NotBase64));
    let text = wrong.to_string();
    assert!(text.starts_with(needed) && text.ends_with("encode config.yaml with `base64 -w0`"), "{text}");
}

#[test]
fn fr_027j_labels_make_an_image_usable() {
    let labelled = Base { name: "example.test/own:1".into(), ..a_base("starter").clone() };
    let resolved = resolve(None, Ok(Some(labelled))).unwrap();
    assert_eq!((resolved.source, resolved.base.name.as_str()), (Source::OciLabel, "example.test/own:1"));
}
