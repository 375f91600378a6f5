//! Embedded bases, bases in image labels, and the precedence between them. `cargo xtask test --suite llamastack-real`
//! checks the embedded bases with the real server.

mod labels;

use std::collections::BTreeSet;

use serde_json::Value;
use steersman_plan::llamastack::config::base::{
    Base, BaseSource, DISTRIBUTIONS, LabelError, NoBase, base, distribution, images, names, resolve, unmet,
};

fn embedded_base(name: &str) -> &'static Base {
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

/// The id of an enabled provider: `id` for both `${env.X:+id}` and `id`.
fn effective_id(id: &str) -> &str {
    id.strip_prefix("${env.").and_then(|rest| rest.split_once(":+")).map_or(id, |(_, id)| id.trim_end_matches('}'))
}

fn provider_ids(base: &Base) -> BTreeSet<&str> {
    let providers = base.config["providers"].as_object().unwrap();
    let all = providers.values().flat_map(|list| list.as_array().unwrap());
    all.map(|provider| effective_id(provider["provider_id"].as_str().unwrap())).collect()
}

#[test]
fn fr_027a_every_distribution_has_matching_base() {
    assert_eq!(
        names().collect::<Vec<_>>(),
        ["meta-reference-gpu", "postgres-demo", "remote-vllm", "starter", "starter-gpu"]
    );
    for known in DISTRIBUTIONS {
        let base = embedded_base(known.name);
        assert_eq!((base.name.as_str(), base.server_version.as_str()), (known.name, known.server_version));
        assert_eq!(base.config["version"], 2, "{}", known.name);
        let named = base.config.get("distro_name").or_else(|| base.config.get("image_name"));
        assert_eq!(named.and_then(Value::as_str), Some(known.name));
    }
    assert!(base("ollama").is_none() && distribution("ollama").is_none());
}

#[test]
fn fr_027d_image_and_base_versions_match() {
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
fn base_missing_in_image_is_mounted() {
    let mounted: Vec<_> = DISTRIBUTIONS.iter().filter(|known| known.mounts_always).map(|known| known.name).collect();
    assert_eq!(mounted, ["meta-reference-gpu", "postgres-demo", "remote-vllm"]);
    for known in DISTRIBUTIONS {
        let own_image = known.image.contains(&format!("distribution-{}:", known.name));
        assert!(own_image || known.mounts_always, "{} runs the image of another distribution", known.name);
    }
}

#[test]
fn served_apis_and_provider_apis_match() {
    for known in DISTRIBUTIONS {
        let config = &embedded_base(known.name).config;
        let served: BTreeSet<_> = config["apis"].as_array().unwrap().iter().map(|api| api.as_str().unwrap()).collect();
        let provided: BTreeSet<_> = config["providers"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(served, provided, "{}", known.name);
    }
}

#[test]
fn base_providers_have_type_id_and_config() {
    for known in DISTRIBUTIONS {
        for (api, list) in embedded_base(known.name).config["providers"].as_object().unwrap() {
            let list = list.as_array().unwrap();
            let ids: BTreeSet<_> =
                list.iter().map(|entry| effective_id(entry["provider_id"].as_str().unwrap())).collect();
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
fn base_references_are_resolvable() {
    for known in DISTRIBUTIONS {
        let base = embedded_base(known.name);
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
                assert!(ids.contains(effective_id(&text)), "{}{path}: {text}", known.name);
            }
        }
    }
}

#[test]
fn base_providers_have_required_apis() {
    for known in DISTRIBUTIONS {
        assert_eq!(unmet(&embedded_base(known.name).config), [], "{}", known.name);
    }
}

#[test]
fn removed_api_is_missed_by_dependents() {
    let dependents_after_removal = |name: &str, api: &str| {
        let mut config = embedded_base(name).config.clone();
        config["providers"].as_object_mut().unwrap().remove(api);
        let dependents = unmet(&config).into_iter().map(|provider| {
            assert_eq!(provider.missing, [api]);
            format!("{}/{}", provider.api, provider.provider_id)
        });
        dependents.collect::<Vec<_>>()
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
        assert_eq!(dependents_after_removal("starter", api), missed_by, "{api}");
    }
    // Older bases use the provider names from before 0.7.
    assert_eq!(dependents_after_removal("starter-gpu", "scoring"), ["eval/meta-reference"]);
    assert_eq!(
        dependents_after_removal("meta-reference-gpu", "files"),
        ["agents/meta-reference", "tool_runtime/rag-runtime"]
    );
}

/// The server leaves variables with other names unsubstituted and reports nothing.
#[test]
fn base_variables_have_substitutable_names() {
    for known in DISTRIBUTIONS {
        let mut found = Vec::new();
        strings(&embedded_base(known.name).config, "", &mut found);
        for (path, text) in found {
            for rest in text.split("${").skip(1) {
                let expression =
                    rest.strip_prefix("env.").and_then(|rest| rest.split_once('}')).map(|(expression, _)| expression);
                let expression = expression.unwrap_or_else(|| panic!("{}{path}: {text}", known.name));
                let name = expression.split(':').next().unwrap();
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
fn bases_contain_no_literal_secrets() {
    for known in DISTRIBUTIONS {
        let mut found = Vec::new();
        strings(&embedded_base(known.name).config, "", &mut found);
        for (path, text) in found {
            let key = path.rsplit('.').next().unwrap();
            if ["api_key", "api_token", "password", "openai_api_key", "elasticsearch_api_key"].contains(&key) {
                assert!(text.starts_with("${env.") && text.ends_with('}'), "{}{path}: {text}", known.name);
            }
        }
    }
}

#[test]
fn remote_vllm_starts_without_variables() {
    let base = embedded_base("remote-vllm");
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
fn fr_027b_name_selects_embedded_base() {
    for known in DISTRIBUTIONS {
        let resolved = resolve(Some(known.name), Ok(None)).unwrap();
        assert_eq!((resolved.source, resolved.passed_over), (BaseSource::Embedded, None));
        assert_eq!(resolved.base.name, known.name);
        assert_eq!(*resolved.base, *embedded_base(known.name));
    }
}

#[test]
fn fr_027g_labels_win_over_embedded_base() {
    let label_base = Base { name: "starter".into(), ..embedded_base("remote-vllm").clone() };
    let resolved = resolve(Some("starter"), Ok(Some(label_base.clone()))).unwrap();
    assert_eq!((resolved.source.as_str(), resolved.base.into_owned()), ("oci-label", label_base));
}

#[test]
fn invalid_labels_fall_back_to_embedded_base() {
    let resolved = resolve(Some("starter"), Err(LabelError::NotBase64)).unwrap();
    assert_eq!((resolved.source, resolved.passed_over), (BaseSource::Embedded, Some(LabelError::NotBase64)));
    assert_eq!(resolved.base.name, "starter");
}

#[test]
fn fr_027c_image_without_labels_has_no_base() {
    let requirement = "Direct image references require either overrideConfig.configMapName or OCI config labels on the \
                  image. See docs/configuration.md for details.";
    assert_eq!(resolve(None, Ok(None)).unwrap_err().to_string(), requirement);
    let wrong = resolve(None, Err(LabelError::NotBase64)).unwrap_err();
    assert_eq!(wrong, NoBase::Labels(LabelError::NotBase64));
    let text = wrong.to_string();
    assert!(text.starts_with(requirement) && text.ends_with("encode config.yaml with `base64 -w0`"), "{text}");
}

#[test]
fn fr_027j_labels_make_image_usable() {
    let label_base = Base { name: "example.test/own:1".into(), ..embedded_base("starter").clone() };
    let resolved = resolve(None, Ok(Some(label_base))).unwrap();
    assert_eq!((resolved.source, resolved.base.name.as_str()), (BaseSource::OciLabel, "example.test/own:1"));
}
