use serde_json::{Value, json};

use super::{config, config_of, errors, ids, made, remarks, texts};

#[test]
fn fr_009_a_disabled_api_goes_with_its_providers() {
    for name in ["eval", "datasetIo", "datasetio"] {
        let text = if name == "eval" {
            "{disabled: [eval]}".to_owned()
        } else {
            format!("{{disabled: [eval, scoring, {name}]}}")
        };
        let config = config_of(&text);
        assert!(!texts(&config["apis"]).contains(&"eval"), "{name}");
        assert_eq!(config["providers"]["eval"], Value::Null);
        assert_eq!(config["providers"]["datasetio"].is_null(), name != "eval", "{name}");
    }
}

#[test]
fn fr_009_both_spellings_mean_the_same() {
    assert_eq!(made("{disabled: [toolRuntime]}").config_yaml, made("{disabled: [tool_runtime]}").config_yaml);
    assert_eq!(made("{disabled: [vectorIo]}").config_yaml, made("{disabled: [vector_io]}").config_yaml);
}

#[test]
fn a_name_that_the_distribution_does_not_have_is_told() {
    let generated = made("{disabled: [postTraining, eval]}");
    assert_eq!(
        remarks(&generated),
        ["spec.disabled[0]: the distribution has no API \"postTraining\", so there is nothing to disable"]
    );
}

#[test]
fn the_old_name_of_an_api_means_the_new_one_and_the_other_way_round() {
    let mut older = super::a_base(|config| {
        let providers = config["providers"].as_object_mut().unwrap();
        let responses = providers.remove("responses").unwrap();
        providers.insert("agents".to_owned(), responses);
        config["apis"][5] = json!("agents");
    });
    older.server_version = "0.6.1".into();
    let generated = super::made_on(&older, "{disabled: [responses]}");
    assert_eq!(config(&generated)["providers"]["agents"], Value::Null);
    assert_eq!(
        remarks(&generated),
        ["spec.disabled: the API eval is left without builtin, which needs the API agents to start"]
    );
    let generated = made("{disabled: [agents, eval]}");
    assert_eq!(config(&generated)["providers"]["responses"], Value::Null);
    assert_eq!(remarks(&generated), Vec::<String>::new());
}

#[test]
fn an_api_with_providers_cannot_be_disabled() {
    let problems = super::try_on(
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
fn what_hangs_on_a_disabled_api_goes_too_and_is_told() {
    let generated = made("{disabled: [safety]}");
    let config = config(&generated);
    assert_eq!(config["safety"], Value::Null, "the server stops on it");
    assert_eq!(config["registered_resources"]["shields"], json!([]));
    assert_eq!(
        remarks(&generated),
        [
            "spec.disabled: shield \"llama-guard\" of the distribution is left out: its provider \"llama-guard\" is no longer \
             there",
            "spec.disabled: safety.default_shield_id \"llama-guard\" is left out: no provider serves that shield any more",
        ]
    );
}

#[test]
fn providers_that_need_a_disabled_api_go_and_so_do_those_that_need_them() {
    let generated = made("{disabled: [vectorIo]}");
    let config = config(&generated);
    assert_eq!(
        texts(&config["apis"]),
        ["batches", "datasetio", "files", "inference", "safety", "scoring", "tool_runtime"]
    );
    assert_eq!(ids(&config, "tool_runtime"), ["tavily-search"]);
    assert_eq!(config["providers"]["responses"], Value::Null);
    assert_eq!(config["providers"]["eval"], Value::Null, "it needs responses");
    let remarks = remarks(&generated);
    assert_eq!(
        remarks[0],
        "spec.disabled: the API responses is left without builtin, which needs the API vector_io to start"
    );
    assert_eq!(remarks.len(), 4, "{remarks:#?}");
}

#[test]
fn a_provider_of_the_spec_that_needs_a_disabled_api_is_refused() {
    assert_eq!(
        errors("{disabled: [inference], providers: {safety: {id: mine, provider: llama-guard}}}"),
        ["spec.providers.safety: provider \"mine\" needs the API inference, which this configuration does not serve"]
    );
}

#[test]
fn a_model_is_never_bound_to_a_provider_that_was_removed() {
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
fn a_list_that_leaves_nothing_would_mean_everything_and_is_refused() {
    let all = "[batches, datasetio, eval, files, inference, responses, safety, scoring, toolRuntime, vectorIo]";
    let errors = errors(&format!("{{disabled: {all}}}"));
    assert_eq!(errors.len(), 1);
    assert!(errors[0].starts_with("spec.disabled: every API of the distribution is disabled"), "{errors:?}");
}

#[test]
fn a_provider_of_the_spec_that_needs_an_api_which_the_base_never_had_is_refused() {
    let without_files = super::a_base(|config| {
        config["providers"].as_object_mut().unwrap().remove("files");
        config["apis"].as_array_mut().unwrap().retain(|api| api != "files");
    });
    let text = "{providers: {toolRuntime: {id: search, provider: file-search}}}";
    let problems = super::try_on(&without_files, text).unwrap_err();
    assert_eq!(
        problems.iter().map(|one| one.text().to_string()).collect::<Vec<_>>(),
        [
            "spec.providers.toolRuntime: provider \"search\" needs the API files, which this configuration does not serve. Use a \
          distribution that serves files, or remove the provider."
        ]
    );
    let generated = super::made_on(&without_files, "{resources: {models: [{name: m, provider: openai}]}}");
    assert_eq!(config(&generated)["providers"]["responses"], Value::Null, "the server would stop");
    let remark = &generated.remarks[0];
    assert_eq!(remark.path.to_string(), "spec.distribution");
}
