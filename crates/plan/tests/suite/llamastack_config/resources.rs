use serde_json::json;

use super::{a_base, config, config_of, errors, errors_on, made, made_on, remarks, remote_vllm};

#[test]
fn fr_007_a_name_is_the_same_as_an_object_with_that_name() {
    let name = made("{providers: {inference: {provider: vllm}}, resources: {models: [m]}}");
    let object = made("{providers: {inference: {provider: vllm}}, resources: {models: [{name: m}]}}");
    assert_eq!(name.config_yaml, object.config_yaml);
    assert_eq!(
        config(&name)["registered_resources"]["models"][1],
        json!({"model_id": "m", "provider_id": "vllm", "model_type": "llm", "metadata": {}})
    );
}

#[test]
fn fr_040_a_model_without_provider_gets_the_first_of_the_spec() {
    let config = config_of(
        "{providers: {inference: [{id: b, provider: vllm}, {id: a, provider: vllm}]}, resources: {models: [m, {name: o, \
         provider: a}]}}",
    );
    let models = &config["registered_resources"]["models"];
    assert_eq!((&models[1]["provider_id"], &models[2]["provider_id"]), (&json!("b"), &json!("a")));
}

#[test]
fn fr_040_without_providers_it_gets_the_bases_first_that_is_always_there() {
    let config = config_of("{resources: {models: [m]}}");
    assert_eq!(config["registered_resources"]["models"][1]["provider_id"], "openai", "vllm depends on VLLM_URL");
}

#[test]
fn fr_040_where_all_depend_on_variables_the_first_is_taken_and_told() {
    let base = a_base(|config| {
        config["providers"]["inference"].as_array_mut().unwrap().truncate(1);
    });
    let generated = made_on(&base, "{resources: {models: [m, o]}}");
    let told: Vec<String> = remarks(&generated).into_iter().filter(|remark| remark.contains("VLLM_URL")).collect();
    assert_eq!(
        told,
        [
            "spec.resources.models[0]: its provider \"vllm\" is there only when the variable VLLM_URL is set; the server skips \
          it otherwise"
        ]
    );
}

#[test]
fn fr_041_a_model_may_name_a_provider_of_the_base() {
    for id in ["openai", "vllm", "sentence-transformers"] {
        let config = config_of(&format!("{{resources: {{models: [{{name: m, provider: {id}}}]}}}}"));
        assert_eq!(config["registered_resources"]["models"][1]["provider_id"], id);
    }
}

#[test]
fn fr_041_an_unknown_provider_is_refused_with_all_that_there_are() {
    assert_eq!(
        errors(
            "{providers: {inference: {id: mine, provider: vllm}}, resources: {models: [a, {name: b, provider: nope}]}}"
        ),
        ["spec.resources.models[1].provider: provider ID \"nope\" not found; available providers: mine, openai, \
          sentence-transformers, transformers, vllm"]
    );
}

#[test]
fn fr_042_what_is_known_of_a_model_is_its_metadata() {
    let config = config_of(
        "{resources: {models: [{name: m, provider: openai, contextLength: 8192, modelType: rerank, quantization: fp8}]}}",
    );
    assert_eq!(
        config["registered_resources"]["models"][1],
        json!({"model_id": "m", "provider_id": "openai", "model_type": "rerank",
               "metadata": {"context_length": 8192, "quantization": "fp8"}})
    );
}

#[test]
fn a_model_type_that_stops_the_server_is_refused() {
    assert_eq!(
        errors("{resources: {models: [{name: m, modelType: chat}]}}"),
        ["spec.resources.models[0].modelType: modelType \"chat\" is not one that the server knows"]
    );
}

#[test]
fn empty_fields_of_a_model_are_refused() {
    assert_eq!(
        errors("{resources: {models: [{name: '', provider: '', modelType: '', quantization: ''}]}}"),
        [
            "spec.resources.models[0].provider: provider must not be empty if specified",
            "spec.resources.models[0].modelType: modelType must not be empty if specified",
            "spec.resources.models[0].quantization: quantization must not be empty if specified",
            "spec.resources.models[0].name: name must not be empty",
        ]
    );
}

#[test]
fn fr_043_tools_go_to_the_specs_provider_then_to_the_bases_else_they_are_refused() {
    let config = config_of("{providers: {toolRuntime: {provider: brave-search}}, resources: {tools: [websearch]}}");
    let group = |provider| json!([{"toolgroup_id": "websearch", "provider_id": provider}]);
    assert_eq!(config["registered_resources"]["tool_groups"], group("brave-search"));
    let config = config_of("{resources: {tools: [websearch]}}");
    assert_eq!(config["registered_resources"]["tool_groups"], group("tavily-search"));
    assert_eq!(
        errors("{disabled: [toolRuntime, agents, eval], resources: {tools: [websearch]}}"),
        ["spec.resources.tools: resources.tools requires at least one toolRuntime provider to be configured"]
    );
}

#[test]
fn fr_043_servers_that_ignore_the_list_are_told_of() {
    let told = |version: &str| {
        let base = steersman_plan::llamastack::config::Base { server_version: version.into(), ..super::starter() };
        remarks(&made_on(&base, "{resources: {tools: [websearch]}}")).iter().any(|remark| remark.contains("since 0.7"))
    };
    assert!(told("0.7.1") && !told("0.6.1") && !told(""));
}

#[test]
fn fr_044_shields_go_to_the_specs_provider_then_to_the_bases_else_they_are_refused() {
    let config = config_of("{providers: {safety: {id: mine, provider: llama-guard}}, resources: {shields: [s]}}");
    assert_eq!(config["registered_resources"]["shields"][1], json!({"shield_id": "s", "provider_id": "mine"}));
    let config = config_of("{resources: {shields: [s]}}");
    assert_eq!(config["registered_resources"]["shields"][1], json!({"shield_id": "s", "provider_id": "llama-guard"}));
    let errors = errors_on(&remote_vllm(), "{resources: {shields: [s]}}");
    assert_eq!(
        errors,
        ["spec.resources.shields: resources.shields requires at least one safety provider to be configured"]
    );
}

#[test]
fn fr_044_the_default_shield_stays_only_where_it_is_sure_to_be_there() {
    let generated = made("{resources: {shields: [s]}}");
    assert_eq!(config(&generated)["safety"], json!(null), "llama-guard depends on SAFETY_MODEL");
    assert!(remarks(&generated)[0].starts_with("spec.resources.shields: safety.default_shield_id \"llama-guard\""));
    let config = config_of("{resources: {shields: [s, llama-guard]}}");
    assert_eq!(config["safety"]["default_shield_id"], "llama-guard");
}

#[test]
fn a_model_of_the_base_gives_way_to_one_of_the_spec_with_the_same_name_and_provider() {
    let config = config_of(
        "{resources: {models: [{name: all-minilm, provider: sentence-transformers, modelType: embedding, \
         embeddingDimension: 256}]}}",
    );
    let models = config["registered_resources"]["models"].as_array().unwrap();
    assert_eq!(models.len(), 1);
    assert_eq!(models[0]["metadata"], json!({"embedding_dimension": 256}));
    let config = config_of("{resources: {models: [{name: all-minilm, provider: openai}]}}");
    assert_eq!(
        config["registered_resources"]["models"].as_array().unwrap().len(),
        2,
        "another provider, another model"
    );
}

#[test]
fn a_model_that_is_listed_twice_is_written_once_and_told() {
    let generated = made("{resources: {models: [m, {name: m, contextLength: 5}, o]}}");
    let models = config(&generated)["registered_resources"]["models"].clone();
    assert_eq!(models.as_array().unwrap().len(), 3);
    assert_eq!(models[1]["metadata"]["context_length"], 5);
    assert_eq!(generated.resource_count, 2);
    assert!(remarks(&generated)[0].starts_with("spec.resources.models[1]: "));
}

#[test]
fn a_model_without_any_provider_is_refused() {
    let base = a_base(|config| {
        config["providers"].as_object_mut().unwrap().remove("inference");
    });
    assert_eq!(
        errors_on(&base, "{resources: {models: [m]}}"),
        [
            "spec.resources.models[0]: failed to expand model \"m\": no provider specified and no default inference provider found"
        ]
    );
}

#[test]
fn variables_that_nothing_sets_are_told() {
    let told = |text: &str| {
        let base = super::remote_vllm();
        remarks(&made_on(&base, text)).into_iter().filter(|remark| remark.contains("VLLM_URL")).collect::<Vec<_>>()
    };
    assert_eq!(
        told("{resources: {models: [m]}}"),
        [
            "spec.workload.overrides.env: the server does not start without the variable VLLM_URL, which nothing here sets"
        ]
    );
    assert_eq!(told("{workload: {overrides: {env: [{name: VLLM_URL, value: x}]}}, resources: {models: [m]}}"), [""; 0]);
    assert_eq!(told("{providers: {inference: {provider: vllm, endpoint: x}}}"), [""; 0], "its entry gave way");
}

#[test]
fn an_embedding_model_says_how_long_its_vectors_are_or_has_a_name_that_does() {
    let models = config_of(
        "{resources: {models: [{name: own, provider: openai, modelType: embedding, embeddingDimension: 512}, {name: \
         BAAI/bge-m3, provider: openai, modelType: embedding}]}}",
    );
    let dimension = |id: &str| {
        let list = models["registered_resources"]["models"].as_array().unwrap();
        list.iter().find(|model| model["model_id"] == id).unwrap()["metadata"]["embedding_dimension"].clone()
    };
    assert_eq!((dimension("own"), dimension("BAAI/bge-m3")), (json!(512), json!(1024)));
}

#[test]
fn an_embedding_model_of_unknown_length_is_refused_since_the_server_would_stop() {
    let errors = errors(
        "{resources: {models: [{name: own, provider: openai, modelType: embedding}, {name: b, provider: openai, modelType: \
         embedding, embeddingDimension: 0}]}}",
    );
    assert_eq!(
        errors,
        [
            "spec.resources.models[0]: the server does not start with an embedding model of which it does not know how long \
             vectors are",
            "spec.resources.models[1].embeddingDimension: it has to be a whole number above 0",
        ]
    );
    let told = remarks(&made("{resources: {models: [{name: m, provider: openai, embeddingDimension: 3}]}}"));
    assert_eq!(told.len(), 1, "only an embedding model has vectors: {told:?}");
    assert!(told[0].starts_with("spec.resources.models[0].embeddingDimension: "), "{told:?}");
}
