use serde_json::{Value, json};

use super::{config, config_for, errors, generate_starter, ids, remarks, texts};

#[test]
fn fr_009_disabled_api_loses_its_providers() {
    for name in ["eval", "datasetIo", "datasetio"] {
        let text = if name == "eval" {
            "{disabled: [eval]}".to_owned()
        } else {
            format!("{{disabled: [eval, scoring, {name}]}}")
        };
        let config = config_for(&text);
        assert!(!texts(&config["apis"]).contains(&"eval"), "{name}");
        assert_eq!(config["providers"]["eval"], Value::Null);
        assert_eq!(config["providers"]["datasetio"].is_null(), name != "eval", "{name}");
    }
}

#[test]
fn fr_009_both_spellings_are_equivalent() {
    assert_eq!(
        generate_starter("{disabled: [toolRuntime]}").config_yaml,
        generate_starter("{disabled: [tool_runtime]}").config_yaml
    );
    assert_eq!(
        generate_starter("{disabled: [vectorIo]}").config_yaml,
        generate_starter("{disabled: [vector_io]}").config_yaml
    );
}

#[test]
fn unknown_disabled_api_is_reported() {
    let generated = generate_starter("{disabled: [postTraining, eval]}");
    assert_eq!(
        remarks(&generated),
        ["spec.disabled[0]: the distribution has no API \"postTraining\", so there is nothing to disable"]
    );
}

#[test]
fn old_and_new_api_names_are_equivalent() {
    let mut older = super::modified_starter(|config| {
        let providers = config["providers"].as_object_mut().unwrap();
        let responses = providers.remove("responses").unwrap();
        providers.insert("agents".to_owned(), responses);
        config["apis"][5] = json!("agents");
    });
    older.server_version = "0.6.1".into();
    let generated = super::generate_on(&older, "{disabled: [responses]}");
    assert_eq!(config(&generated)["providers"]["agents"], Value::Null);
    assert_eq!(
        remarks(&generated),
        ["spec.disabled: provider builtin of the API eval is removed: it needs the API agents, which has no provider"]
    );
    let generated = generate_starter("{disabled: [agents, eval]}");
    assert_eq!(config(&generated)["providers"]["responses"], Value::Null);
    assert_eq!(remarks(&generated), Vec::<String>::new());
}

#[test]
fn api_with_providers_cannot_be_disabled() {
    let problems = super::try_generate_on(
        &super::starter(),
        "{disabled: [inference, vector_io, safety, eval], providers: {inference: {provider: vllm}, vectorIo: [{provider: faiss}]}, \
         externalProviders: {eval: [{providerId: x, image: w}]}}",
    )
    .unwrap_err();
    let conflicts: Vec<String> = problems
        .iter()
        .filter(|problem| problem.message.to_string().contains("conflicts"))
        .map(|problem| problem.sentence().to_string())
        .collect();
    assert_eq!(
        conflicts,
        [
            "spec.providers.inference conflicts with spec.disabled: inference API is disabled but has providers configured. \
             Remove the provider configuration or remove 'inference' from the disabled list.",
            "spec.providers.vectorIo conflicts with spec.disabled: vector_io API is disabled but has providers configured. \
             Remove the provider configuration or remove 'vector_io' from the disabled list.",
            "spec.externalProviders.eval conflicts with spec.disabled: eval API is disabled but has providers configured. \
             Remove the provider configuration or remove 'eval' from the disabled list.",
        ]
    );
}

#[test]
fn dependents_of_disabled_api_are_removed() {
    let generated = generate_starter("{disabled: [safety]}");
    let config = config(&generated);
    assert_eq!(config["safety"], Value::Null, "the server does not start with it");
    assert_eq!(config["registered_resources"]["shields"], json!([]));
    assert_eq!(
        remarks(&generated),
        [
            "spec.disabled: shield \"llama-guard\" of the distribution is removed: its provider \"llama-guard\" is no \
             longer in the configuration",
            "spec.disabled: safety.default_shield_id \"llama-guard\" is removed: no provider serves that shield",
        ]
    );
}

#[test]
fn removal_of_dependent_providers_is_transitive() {
    let generated = generate_starter("{disabled: [vectorIo]}");
    let config = config(&generated);
    assert_eq!(
        texts(&config["apis"]),
        ["batches", "datasetio", "files", "inference", "safety", "scoring", "tool_runtime"]
    );
    assert_eq!(ids(&config, "tool_runtime"), ["tavily-search"]);
    assert_eq!(config["providers"]["responses"], Value::Null);
    assert_eq!(config["providers"]["eval"], Value::Null, "eval needs responses");
    let remarks = remarks(&generated);
    assert_eq!(
        remarks[0],
        "spec.disabled: provider builtin of the API responses is removed: it needs the API vector_io, which has no \
         provider"
    );
    assert_eq!(remarks.len(), 4, "{remarks:#?}");
}

#[test]
fn spec_provider_needing_disabled_api_is_rejected() {
    assert_eq!(
        errors("{disabled: [inference], providers: {safety: {id: mine, provider: llama-guard}}}"),
        ["spec.providers.safety: provider \"mine\" needs the API inference, which this configuration does not serve"]
    );
}

#[test]
fn model_never_uses_removed_provider() {
    let errors = errors("{disabled: [inference], resources: {models: [m, {name: o, provider: openai}]}}");
    assert_eq!(
        errors,
        [
            "spec.resources.models[0]: failed to expand model \"m\": no provider specified and no default inference provider \
             found",
            "spec.resources.models[1].provider: provider ID \"openai\" not found; available providers: none",
        ]
    );
}

#[test]
fn disabling_every_api_is_rejected() {
    let all_apis = "[batches, datasetio, eval, files, inference, responses, safety, scoring, toolRuntime, vectorIo]";
    let errors = errors(&format!("{{disabled: {all_apis}}}"));
    assert_eq!(errors.len(), 1);
    assert!(errors[0].starts_with("spec.disabled: every API of the distribution is disabled"), "{errors:?}");
}

#[test]
fn spec_provider_needing_absent_api_is_rejected() {
    let without_files = super::modified_starter(|config| {
        config["providers"].as_object_mut().unwrap().remove("files");
        config["apis"].as_array_mut().unwrap().retain(|api| api != "files");
    });
    let text = "{providers: {toolRuntime: {id: search, provider: file-search}}}";
    let problems = super::try_generate_on(&without_files, text).unwrap_err();
    assert_eq!(
        problems.iter().map(|one| one.text().to_string()).collect::<Vec<_>>(),
        [
            "spec.providers.toolRuntime: provider \"search\" needs the API files, which this configuration does not serve. Use a \
          distribution that serves files, or remove the provider."
        ]
    );
    let generated = super::generate_on(&without_files, "{resources: {models: [{name: m, provider: openai}]}}");
    assert_eq!(config(&generated)["providers"]["responses"], Value::Null, "the server would not start");
    let remark = &generated.remarks[0];
    assert_eq!(remark.path.to_string(), "spec.distribution");
}
