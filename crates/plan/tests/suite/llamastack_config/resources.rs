use serde_json::json;
use steersman_plan::llamastack::config::{
    MAX_ALLOWED_FROM, MAX_DISABLED, MAX_NAME_BYTES, MAX_POD_ENTRIES, MAX_PROVIDERS, MAX_RESOURCES,
    MAX_SECRET_REFERENCES, MAX_SPREAD_CONSTRAINTS,
};

use super::{
    config, config_for, errors, errors_on, generate_on, generate_starter, modified_starter, remarks, remote_vllm,
};

#[test]
fn fr_007_model_name_equals_model_object() {
    let name = generate_starter("{providers: {inference: {provider: vllm}}, resources: {models: [m]}}");
    let object = generate_starter("{providers: {inference: {provider: vllm}}, resources: {models: [{name: m}]}}");
    assert_eq!(name.config_yaml, object.config_yaml);
    assert_eq!(
        config(&name)["registered_resources"]["models"][1],
        json!({"model_id": "m", "provider_id": "vllm", "model_type": "llm", "metadata": {}})
    );
}

#[test]
fn fr_040_model_defaults_to_first_spec_provider() {
    let config = config_for(
        "{providers: {inference: [{id: b, provider: vllm}, {id: a, provider: vllm}]}, resources: {models: [m, {name: o, \
         provider: a}]}}",
    );
    let models = &config["registered_resources"]["models"];
    assert_eq!((&models[1]["provider_id"], &models[2]["provider_id"]), (&json!("b"), &json!("a")));
}

#[test]
fn fr_040_model_defaults_to_unconditional_base_provider() {
    let config = config_for("{resources: {models: [m]}}");
    assert_eq!(config["registered_resources"]["models"][1]["provider_id"], "openai", "vllm depends on VLLM_URL");
}

#[test]
fn base_provider_of_model_is_reported() {
    let found = remarks(&generate_starter("{resources: {models: [m, {name: p}, {name: o, provider: openai}]}}"));
    let expected = "no provider is given for m, p, so the first of the base is used: \"openai\"";
    assert!(found.iter().any(|text| text.contains(expected)), "{found:?}");
    let given = remarks(&generate_starter("{providers: {inference: {provider: vllm}}, resources: {models: [m]}}"));
    assert!(given.iter().all(|text| !text.contains("of the base")), "{given:?}");
}

#[test]
fn fr_040_conditional_default_provider_is_reported() {
    let base = modified_starter(|config| {
        config["providers"]["inference"].as_array_mut().unwrap().truncate(1);
    });
    let generated = generate_on(&base, "{resources: {models: [m, o]}}");
    let vllm_remarks: Vec<String> =
        remarks(&generated).into_iter().filter(|remark| remark.contains("VLLM_URL")).collect();
    assert_eq!(
        vllm_remarks,
        ["spec.resources.models[0]: its provider \"vllm\" exists only if the environment variable VLLM_URL is set; \
             otherwise the server skips it"]
    );
}

#[test]
fn fr_041_model_may_name_base_provider() {
    for id in ["openai", "vllm", "sentence-transformers"] {
        let config = config_for(&format!("{{resources: {{models: [{{name: m, provider: {id}}}]}}}}"));
        assert_eq!(config["registered_resources"]["models"][1]["provider_id"], id);
    }
}

#[test]
fn fr_041_unknown_provider_lists_available_ones() {
    assert_eq!(
        errors(
            "{providers: {inference: {id: mine, provider: vllm}}, resources: {models: [a, {name: b, provider: nope}]}}"
        ),
        ["spec.resources.models[1].provider: provider ID \"nope\" not found; available providers: mine, openai, \
          sentence-transformers, transformers, vllm"]
    );
}

#[test]
fn fr_042_model_fields_become_metadata() {
    let config = config_for(
        "{resources: {models: [{name: m, provider: openai, contextLength: 8192, modelType: rerank, quantization: fp8}]}}",
    );
    assert_eq!(
        config["registered_resources"]["models"][1],
        json!({"model_id": "m", "provider_id": "openai", "model_type": "rerank",
               "metadata": {"context_length": 8192, "quantization": "fp8"}})
    );
}

#[test]
fn unknown_model_type_is_rejected() {
    assert_eq!(
        errors("{resources: {models: [{name: m, modelType: chat}]}}"),
        ["spec.resources.models[0].modelType: the server does not know modelType \"chat\""]
    );
}

#[test]
fn empty_model_fields_are_rejected() {
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
fn fr_043_tools_need_a_tool_runtime_provider() {
    let config = config_for("{providers: {toolRuntime: {provider: brave-search}}, resources: {tools: [websearch]}}");
    let group = |provider| json!([{"toolgroup_id": "websearch", "provider_id": provider}]);
    assert_eq!(config["registered_resources"]["tool_groups"], group("brave-search"));
    let config = config_for("{resources: {tools: [websearch]}}");
    assert_eq!(config["registered_resources"]["tool_groups"], group("tavily-search"));
    assert_eq!(
        errors("{disabled: [toolRuntime, agents, eval], resources: {tools: [websearch]}}"),
        ["spec.resources.tools: resources.tools requires at least one toolRuntime provider to be configured"]
    );
}

#[test]
fn fr_043_ignored_tool_list_is_reported() {
    let has_tool_remark = |version: &str| {
        let base = steersman_plan::llamastack::config::Base { server_version: version.into(), ..super::starter() };
        remarks(&generate_on(&base, "{resources: {tools: [websearch]}}"))
            .iter()
            .any(|remark| remark.contains("since 0.7"))
    };
    assert!(has_tool_remark("0.7.1") && !has_tool_remark("0.6.1") && !has_tool_remark(""));
}

#[test]
fn fr_044_shields_need_a_safety_provider() {
    let config = config_for("{providers: {safety: {id: mine, provider: llama-guard}}, resources: {shields: [s]}}");
    assert_eq!(config["registered_resources"]["shields"][1], json!({"shield_id": "s", "provider_id": "mine"}));
    let config = config_for("{resources: {shields: [s]}}");
    assert_eq!(config["registered_resources"]["shields"][1], json!({"shield_id": "s", "provider_id": "llama-guard"}));
    let errors = errors_on(&remote_vllm(), "{resources: {shields: [s]}}");
    assert_eq!(
        errors,
        ["spec.resources.shields: resources.shields requires at least one safety provider to be configured"]
    );
}

#[test]
fn fr_044_conditional_default_shield_is_removed() {
    let generated = generate_starter("{resources: {shields: [s]}}");
    assert_eq!(config(&generated)["safety"], json!(null), "llama-guard depends on SAFETY_MODEL");
    assert!(remarks(&generated)[0].starts_with("spec.resources.shields: safety.default_shield_id \"llama-guard\""));
    let config = config_for("{resources: {shields: [s, llama-guard]}}");
    assert_eq!(config["safety"]["default_shield_id"], "llama-guard");
}

#[test]
fn spec_model_replaces_same_base_model() {
    let config = config_for(
        "{resources: {models: [{name: all-minilm, provider: sentence-transformers, modelType: embedding, \
         embeddingDimension: 256}]}}",
    );
    let models = config["registered_resources"]["models"].as_array().unwrap();
    assert_eq!(models.len(), 1);
    assert_eq!(models[0]["metadata"], json!({"embedding_dimension": 256}));
    let config = config_for("{resources: {models: [{name: all-minilm, provider: openai}]}}");
    assert_eq!(
        config["registered_resources"]["models"].as_array().unwrap().len(),
        2,
        "a different provider is a different model"
    );
}

#[test]
fn duplicate_model_is_written_once() {
    let generated = generate_starter("{resources: {models: [m, {name: m, contextLength: 5}, o]}}");
    let models = config(&generated)["registered_resources"]["models"].clone();
    assert_eq!(models.as_array().unwrap().len(), 3);
    assert_eq!(models[1]["metadata"]["context_length"], 5);
    assert_eq!(generated.resource_count, 2);
    assert!(remarks(&generated).iter().any(|remark| remark.starts_with("spec.resources.models[1]: ")));
}

#[test]
fn model_without_provider_is_rejected() {
    let base = modified_starter(|config| {
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
fn unset_variables_are_reported() {
    let vllm_remarks = |text: &str| {
        let base = super::remote_vllm();
        remarks(&generate_on(&base, text)).into_iter().filter(|remark| remark.contains("VLLM_URL")).collect::<Vec<_>>()
    };
    assert_eq!(
        vllm_remarks("{resources: {models: [m]}}"),
        ["spec.workload.overrides.env: the server does not start without the environment variable VLLM_URL, which \
             the spec does not set"]
    );
    assert_eq!(
        vllm_remarks("{workload: {overrides: {env: [{name: VLLM_URL, value: x}]}}, resources: {models: [m]}}"),
        [""; 0]
    );
    assert_eq!(
        vllm_remarks("{providers: {inference: {provider: vllm, endpoint: x}}}"),
        [""; 0],
        "the spec replaces the base's entry"
    );
}

#[test]
fn embedding_dimension_is_given_or_known() {
    let models = config_for(
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
fn unknown_embedding_dimension_is_rejected() {
    let errors = errors(
        "{resources: {models: [{name: own, provider: openai, modelType: embedding}, {name: b, provider: openai, modelType: \
         embedding, embeddingDimension: 0}]}}",
    );
    assert_eq!(
        errors,
        [
            "spec.resources.models[0]: the vector length of this embedding model is unknown, and the server does not \
             start without it",
            "spec.resources.models[1].embeddingDimension: it must be a whole number above 0",
        ]
    );
    let dimension_remarks =
        remarks(&generate_starter("{resources: {models: [{name: m, provider: openai, embeddingDimension: 3}]}}"));
    assert_eq!(dimension_remarks.len(), 1, "only embedding models have a dimension: {dimension_remarks:?}");
    assert!(dimension_remarks[0].starts_with("spec.resources.models[0].embeddingDimension: "), "{dimension_remarks:?}");
}

#[test]
fn long_lists_are_refused_with_their_limit() {
    let list = |count: usize| (0..count).map(|place| format!("m{place}")).collect::<Vec<_>>().join(", ");
    for (section, most) in [("models", MAX_RESOURCES), ("tools", MAX_RESOURCES), ("shields", MAX_RESOURCES)] {
        assert_eq!(
            errors(&format!("{{resources: {{{section}: [{}]}}}}", list(20_000))),
            [format!("spec.resources.{section}: it has 20000 entries, but at most {most} are allowed")]
        );
    }
    let generated = generate_starter(&format!("{{resources: {{models: [{}]}}}}", list(MAX_RESOURCES)));
    assert_eq!(generated.resource_count, MAX_RESOURCES as i64);
    assert_eq!(
        errors(&format!("{{disabled: [{}]}}", list(MAX_DISABLED + 1))),
        ["spec.disabled: it has 101 entries, but at most 100 are allowed"]
    );
    let env = (0..=MAX_POD_ENTRIES).map(|place| format!("{{name: A{place}}}")).collect::<Vec<_>>().join(", ");
    assert_eq!(
        errors(&format!("{{resources: {{}}, workload: {{overrides: {{env: [{env}]}}}}}}")),
        ["spec.workload.overrides.env: it has 1001 entries, but at most 1000 are allowed"]
    );
    for part in ["namespaces", "labels"] {
        assert_eq!(
            errors(&format!(
                "{{resources: {{}}, networking: {{allowedFrom: {{{part}: [{}]}}}}}}",
                list(MAX_ALLOWED_FROM + 1)
            )),
            [format!("spec.networking.allowedFrom.{part}: it has 1001 entries, but at most 1000 are allowed")]
        );
    }
    let constraint = |place| format!("{{maxSkew: 1, topologyKey: k{place}, whenUnsatisfiable: DoNotSchedule}}");
    let constraints = (0..=MAX_SPREAD_CONSTRAINTS).map(constraint).collect::<Vec<_>>().join(", ");
    for field in ["topologySpreadConstraints", "topologySpread"] {
        assert_eq!(
            errors(&format!("{{resources: {{}}, workload: {{{field}: [{constraints}]}}}}")),
            [format!("spec.workload.{field}: it has 101 entries, but at most 100 are allowed")]
        );
    }
}

#[test]
fn many_providers_and_secrets_are_refused() {
    let providers = |count: usize, more: &str| {
        let each = |place| format!("{{id: p{place}, provider: vllm, endpoint: http://p{place}{more}}}");
        (0..count).map(each).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(
        errors(&format!("{{providers: {{inference: [{}]}}}}", providers(MAX_PROVIDERS + 1, ""))),
        ["spec.providers: it has 201 entries, but at most 200 are allowed"]
    );
    let refs = (0..20).map(|place| format!("k{place}: {{name: s, key: k}}")).collect::<Vec<_>>().join(", ");
    assert_eq!(
        errors(&format!(
            "{{providers: {{inference: [{}]}}}}",
            providers(MAX_SECRET_REFERENCES / 20 + 1, &format!(", secretRefs: {{{refs}}}"))
        )),
        ["spec.providers: it has 520 entries, but at most 500 are allowed"]
    );
    let long = "x".repeat(MAX_NAME_BYTES + 1);
    for provider in [
        format!("{{id: {long}, provider: vllm}}"),
        format!("{{provider: {long}}}"),
        format!("{{provider: vllm, apiKey: {{name: {long}, key: k}}}}"),
        format!("{{provider: vllm, settings: {{? {long} : 1}}}}"),
    ] {
        let found = errors(&format!("{{providers: {{inference: [{provider}]}}}}"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("spec.providers.inference[0]: an id, an image"), "{found:?}");
    }
}

#[test]
fn unknown_provider_lists_at_most_fifty() {
    let each = |place| format!("{{id: p{place:03}, provider: vllm, endpoint: http://p{place}}}");
    let providers = (0..MAX_PROVIDERS).map(each).collect::<Vec<_>>().join(", ");
    let found = errors(&format!(
        "{{providers: {{inference: [{providers}]}}, resources: {{models: [{{name: m, provider: x}}]}}}}"
    ));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains(" more"), "{found:?}");
    assert!(found[0].len() < 1_000, "{found:?}");
}
