use std::collections::BTreeMap;

use serde_json::{Value, json};
use steersman_plan::llamastack::config::{ANNOTATION, Generated, Input, Merge, generate};

use super::{OPERATOR, config, config_for, entry, generate_starter, ids, remarks, spec, starter, texts};

fn generate_with_replace(text: &str) -> Generated {
    let (spec, base) = (spec(text), starter());
    let input = Input { spec: &spec, base: Some(&base), merge: Merge::Replace, operator_image: OPERATOR };
    generate(&input).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

#[test]
fn fr_021_unmentioned_fields_stay_unchanged() {
    let config = config_for("{providers: {inference: {provider: vllm}}}");
    let base = starter().config;
    for key in base.as_object().unwrap().keys().filter(|key| *key != "providers") {
        assert_eq!(config[key], base[key], "{key}");
    }
    for (api, list) in base["providers"].as_object().unwrap().iter().filter(|(api, _)| *api != "inference") {
        assert_eq!(config["providers"][api], *list, "{api}");
    }
}

#[test]
fn overlay_puts_spec_providers_first() {
    let config = config_for("{providers: {inference: [{id: b, provider: vllm}, {id: openai, provider: openai}]}}");
    assert_eq!(
        ids(&config, "inference"),
        ["b", "openai", "${env.VLLM_URL:+vllm}", "sentence-transformers", "transformers"]
    );
    assert_eq!(entry(&config, "inference", "openai")["config"], json!({}), "the spec replaces the base's entry");
}

#[test]
fn overlay_compares_effective_ids() {
    let config = config_for("{providers: {inference: {provider: vllm}, vectorIo: {provider: pgvector}}}");
    assert_eq!(ids(&config, "inference"), ["vllm", "openai", "sentence-transformers", "transformers"]);
    assert_eq!(ids(&config, "vector_io"), ["pgvector", "faiss"]);
}

#[test]
fn overlay_prunes_nothing_of_valid_base() {
    assert_eq!(remarks(&generate_starter("{providers: {inference: {provider: vllm}}}")), Vec::<String>::new());
}

#[test]
fn replace_drops_base_providers_and_dependents() {
    let generated = generate_with_replace("{providers: {inference: {provider: vllm}, vectorIo: {provider: pgvector}}}");
    let config = config(&generated);
    assert_eq!(ids(&config, "inference"), ["vllm"]);
    assert_eq!(ids(&config, "vector_io"), ["pgvector"]);
    assert_eq!(ids(&config, "safety"), ["llama-guard", "code-scanner"], "other APIs stay");
    assert_eq!(config["registered_resources"]["models"], json!([]));
    assert_eq!(config["vector_stores"].as_object().unwrap().keys().collect::<Vec<_>>(), ["chunk_retrieval_params"]);
    assert_eq!(
        remarks(&generated),
        [
            "spec.providers.inference: model \"all-minilm\" of the distribution is removed: its provider \
             \"sentence-transformers\" is no longer in the configuration",
            "spec.providers.vectorIo: vector_stores.default_provider_id is removed: its provider \"faiss\" is no \
             longer in the configuration",
            "spec.providers.inference: vector_stores.default_embedding_model is removed: its provider \
             \"sentence-transformers\" is no longer in the configuration",
            "spec.providers.inference: vector_stores.default_reranker_model is removed: its provider \"transformers\" \
             is no longer in the configuration",
        ]
    );
}

#[test]
fn replace_prunes_orphaned_shields() {
    let generated = generate_with_replace("{providers: {safety: {provider: prompt-guard}}}");
    let config = config(&generated);
    assert_eq!(config["registered_resources"]["shields"], json!([]));
    assert_eq!(config["safety"], Value::Null);
    assert_eq!(remarks(&generated).len(), 2);
}

#[test]
fn annotation_selects_merge_mode() {
    let merge_mode = |value: Option<&str>| {
        let annotations: BTreeMap<String, String> =
            value.map(|value| (ANNOTATION.into(), value.into())).into_iter().collect();
        Merge::of(Some(&annotations))
    };
    assert_eq!(merge_mode(None), Ok(Merge::Overlay));
    assert_eq!(merge_mode(Some("overlay")), Ok(Merge::Overlay));
    assert_eq!(merge_mode(Some("replace")), Ok(Merge::Replace));
    assert_eq!(Merge::of(None), Ok(Merge::Overlay));
    let problem = merge_mode(Some("Replace")).unwrap_err();
    assert_eq!(problem.path.to_string(), "metadata.annotations[steersman.dev/provider-merge]");
    assert!(problem.message.to_string().contains("\"Replace\""), "{}", problem.message);
}

#[test]
fn empty_spec_yields_base() {
    let generated = generate_starter("{}");
    assert_eq!(config(&generated), starter().config);
    assert_eq!(generated.provider_count, 15, "two of 17 need a variable that is not set");
    assert_eq!(generated.resource_count, 0);
}

#[test]
fn provider_counts_if_its_variable_is_set() {
    let count = |value: &str| {
        let overrides = format!("{{workload: {{overrides: {{env: [{{name: PGVECTOR_DB, {value}}}]}}}}}}");
        generate_starter(&overrides).provider_count
    };
    assert_eq!([count("value: db"), count("value: ''")], [16, 15]);
    assert_eq!(count("valueFrom: {secretKeyRef: {name: pg, key: db}}"), 16);
}

#[test]
fn counts_cover_all_providers_and_spec_resources() {
    let generated = generate_starter(
        "{providers: {inference: {provider: vllm}, safety: {id: guard, provider: llama-guard}}, resources: {models: [a, b], \
         tools: [t], shields: [s]}}",
    );
    assert_eq!(generated.provider_count, 17, "one provider replaces a base provider, one is new");
    assert_eq!(generated.resource_count, 4);
    assert_eq!(generated.config_version, 2);
}

#[test]
fn old_server_keeps_top_level_lists() {
    let mut base = super::modified_starter(|config| {
        let lists = config["registered_resources"].take();
        config["models"] = lists["models"].clone();
        config["tool_groups"] = json!([{"toolgroup_id": "builtin::rag", "provider_id": "gone"}]);
        let all = config.as_object_mut().unwrap();
        all.retain(|key, _| !["storage", "registered_resources", "safety", "vector_stores"].contains(&key.as_str()));
    });
    for version in ["0.2.23", ""] {
        base.server_version = version.into();
        let text = "{resources: {models: [m]}, storage: {kv: {type: redis, endpoint: 'r:7'}, sql: {type: sqlite}}}";
        let config = config(&super::generate_on(&base, text));
        assert_eq!(config["models"][1]["model_id"], "m", "{version}");
        assert_eq!(config["tool_groups"], json!([]), "{version}");
        assert_eq!(config["metadata_store"], json!({"type": "redis", "host": "r", "port": 7}), "{version}");
        assert_eq!(config["inference_store"]["type"], "sqlite", "{version}");
        assert_eq!(config["storage"], Value::Null, "{version}");
        assert_eq!(config["registered_resources"], Value::Null, "{version}");
    }
}

#[test]
fn empty_api_list_stays_empty() {
    let base = super::modified_starter(|config| config["apis"] = json!([]));
    let config = config(&super::generate_on(&base, "{providers: {safety: {id: x, provider: llama-guard}}}"));
    assert_eq!(texts(&config["apis"]), Vec::<&str>::new());
}
