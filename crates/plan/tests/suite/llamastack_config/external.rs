use serde_json::{Value, json};
use steersman_plan::llamastack::config::{
    External, Installed, external_providers, merge_external, merge_external_files,
};

use super::{OPERATOR, config, errors, generate_starter, remarks, spec, starter};

const TWO_PROVIDERS: &str = "{externalProviders: {vectorIo: [{providerId: store, image: 'i/store:1', config: {k: 1}}], inference: \
                   [{providerId: custom, image: 'i/custom:1', imagePullPolicy: Always}], volumeSizeLimit: 5Gi}}";

fn metadata(api: &str) -> Value {
    json!({
        "apiVersion": "llamastack.io/v1alpha1", "kind": "ProviderPackage",
        "metadata": {"name": "custom", "version": "1.0", "vendor": "us"},
        "spec": {"packageName": "custom_module", "providerType": "remote::custom", "api": api, "wheelPath": "x.whl"},
    })
}

fn install_all(externals: Vec<External>) -> Vec<Installed> {
    externals.into_iter().map(|external| Installed { metadata: Some(metadata(&external.api)), external }).collect()
}

fn merge_externals(config: &Value, text: &str) -> Result<(Value, Vec<String>), Vec<String>> {
    let problem_texts = |problems: Vec<steersman_plan::llamastack::config::FieldError>| {
        problems.iter().map(|one| one.text().to_string()).collect::<Vec<_>>()
    };
    merge_external(config, &install_all(external_providers(&spec(text))))
        .map(|(config, remarks)| (config, problem_texts(remarks)))
        .map_err(problem_texts)
}

#[test]
fn fr_090_init_containers_install_then_merge() {
    let generated = generate_starter(TWO_PROVIDERS);
    let names: Vec<&str> = generated.pod.init_containers.iter().map(|container| container.name.as_str()).collect();
    assert_eq!(names, ["install-provider-custom", "install-provider-store", "generate-config"]);
    let [install, _, merge] = &generated.pod.init_containers[..] else { panic!("{names:?}") };
    assert_eq!((install.image.as_deref(), install.image_pull_policy.as_deref()), (Some("i/custom:1"), Some("Always")));
    assert_eq!(merge.image.as_deref(), Some(OPERATOR));
    let base = ["merge-providers", "--config", "/etc/llama-stack/config.yaml"];
    assert_eq!(merge.args.clone().unwrap()[..3], base, "the generated file is the base of the merge");
    let script = &install.command.clone().unwrap()[2];
    assert!(!script.contains("custom"), "values of the spec are passed as variables");
    let list: Vec<External> = serde_json::from_str(merge.env.clone().unwrap()[0].value.as_deref().unwrap()).unwrap();
    assert_eq!(list, external_providers(&spec(TWO_PROVIDERS)), "the merging container reads the same list");
    assert_eq!(generated.pod.config_path, "/opt/llama-stack/config/config.yaml");
    assert_eq!(generated.pod.env[0].name, "PYTHONPATH");
    let limit = generated.pod.volumes[0].empty_dir.clone().unwrap().size_limit.unwrap();
    assert_eq!(limit.0, "5Gi");
    assert_eq!(config(&generated), starter().config, "the generated file is merged in the pod");
}

#[test]
fn no_external_providers_need_no_installation() {
    let pod = generate_starter("{externalProviders: {inference: []}}").pod;
    assert_eq!((pod.init_containers, pod.volumes, pod.env), (vec![], vec![], vec![]));
    assert_eq!(pod.config_path, "/etc/llama-stack/config.yaml");
}

#[test]
fn init_containers_are_restricted_and_report_failures() {
    for container in generate_starter(TWO_PROVIDERS).pod.init_containers {
        let security = container.security_context.unwrap();
        assert_eq!(security.run_as_non_root, Some(true));
        assert_eq!(security.allow_privilege_escalation, Some(false));
        assert_eq!(security.capabilities.unwrap().drop.unwrap(), ["ALL"]);
        assert_eq!(container.termination_message_policy.as_deref(), Some("FallbackToLogsOnError"));
    }
}

#[test]
fn fr_091_merge_only_adds_providers() {
    let (config, remarks) = merge_externals(&starter().config, TWO_PROVIDERS).unwrap();
    assert_eq!(remarks, [""; 0]);
    let list = config["providers"]["inference"].as_array().unwrap();
    assert_eq!(
        list.last().unwrap(),
        &json!({"provider_id": "custom", "provider_type": "remote::custom", "module": "custom_module", "config": {}})
    );
    assert_eq!(config["providers"]["vector_io"][2]["config"], json!({"k": 1}));
    let mut remaining = config.clone();
    remaining["providers"]["inference"].as_array_mut().unwrap().pop();
    remaining["providers"]["vector_io"].as_array_mut().unwrap().pop();
    assert_eq!(remaining, starter().config);
}

#[test]
fn fr_092_external_provider_wins_with_remark() {
    let text =
        "{providers: {inference: {provider: vllm}}, externalProviders: {inference: [{providerId: vllm, image: i}]}}";
    let generated = generate_starter(text);
    assert_eq!(
        remarks(&generated),
        [
            "spec.externalProviders.inference[0].providerId: external provider \"vllm\" for API \"inference\" overrides inline \
          provider with same ID"
        ]
    );
    let (config, problem_texts) = merge_externals(&config(&generated), text).unwrap();
    assert!(
        problem_texts[0].contains(
            "External provider 'vllm' overrides base provider in API 'inference' (base remote::vllm, external remote::custom)"
        ),
        "{problem_texts:?}"
    );
    let same: Vec<&Value> = config["providers"]["inference"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["provider_id"] == "vllm")
        .collect();
    assert_eq!(same.len(), 1);
    assert_eq!(same[0]["module"], "custom_module");
}

#[test]
fn merge_lists_new_api() {
    let (config, _) =
        merge_externals(&super::remote_vllm().config, "{externalProviders: {safety: [{providerId: a, image: b}]}}")
            .unwrap();
    assert_eq!(super::texts(&config["apis"]), ["inference", "vector_io", "tool_runtime", "safety"]);
}

#[test]
fn models_can_use_external_providers() {
    let text = "{externalProviders: {inference: [{providerId: custom, image: i}]}, resources: {models: [m, {name: o, provider: \
                custom}]}}";
    let config = config(&generate_starter(text));
    let models = &config["registered_resources"]["models"];
    assert_eq!((&models[1]["provider_id"], &models[2]["provider_id"]), (&json!("custom"), &json!("custom")));
}

#[test]
fn external_ids_are_unique_container_names() {
    let text = "{externalProviders: {inference: [{providerId: a, image: one}, {providerId: 'A_b', image: ''}], safety: \
                [{providerId: a, image: two}]}}";
    assert_eq!(
        errors(text),
        [
            "spec.externalProviders.inference[1].providerId: \"A_b\" is not valid in the name of a container",
            "spec.externalProviders.inference[1].image: image must not be empty",
            "spec.externalProviders.safety[0].providerId: ERROR: Duplicate provider ID detected in external providers: \"a\" is \
             both one (spec.externalProviders.inference[0]) and two (spec.externalProviders.safety[0])",
        ]
    );
    assert_eq!(
        errors(&format!("{{externalProviders: {{eval: [{{providerId: {}, image: i}}]}}}}", "a".repeat(47))).len(),
        1
    );
}

#[test]
fn invalid_provider_metadata_names_image_and_remedy() {
    let external = external_providers(&spec("{externalProviders: {inference: [{providerId: a, image: i}]}}")).remove(0);
    let problem_texts = |metadata: Option<Value>| {
        let installed = Installed { external: external.clone(), metadata };
        let problems = merge_external(&starter().config, &[installed]).unwrap_err();
        problems.iter().map(|one| one.text().to_string()).collect::<Vec<_>>()
    };
    let prefix = "spec.externalProviders.inference[0]: external provider a (image i, container install-provider-a): ";
    assert!(
        problem_texts(None)[0].starts_with(&format!("{prefix}Missing /lls-provider/lls-provider-spec.yaml in image i"))
    );
    assert_eq!(problem_texts(Some(json!({}))).len(), 9, "all missing fields are reported at once");
    let mismatch = problem_texts(Some(metadata("safety")));
    assert!(mismatch[0].contains("declares api=safety"), "{mismatch:?}");
    assert!(
        mismatch[0].ends_with("Move the provider to externalProviders.safety section in the LLSD spec."),
        "{mismatch:?}"
    );
    let mut invalid_metadata = metadata("inference");
    invalid_metadata["spec"]["providerType"] = json!("Remote::x");
    invalid_metadata["kind"] = json!("Other");
    let problem_texts = problem_texts(Some(invalid_metadata));
    assert!(
        problem_texts[0].starts_with(&format!("{prefix}kind: expected ProviderPackage, got Other")),
        "{problem_texts:?}"
    );
    assert!(
        problem_texts[1].contains("spec.providerType: must match pattern (remote|inline)::[a-z0-9-]+, got Remote::x"),
        "{problem_texts:?}"
    );
}

#[test]
fn merge_rejects_duplicate_external_ids() {
    let text = "{externalProviders: {inference: [{providerId: a, image: one}, {providerId: a, image: two}]}}";
    let problem_texts = merge_externals(&starter().config, text).unwrap_err();
    assert_eq!(problem_texts.len(), 1);
    assert!(problem_texts[0].contains("Duplicate provider ID detected"), "{problem_texts:?}");
}

#[test]
fn removed_api_is_rejected() {
    let text = "{externalProviders: {agents: [{providerId: a, image: i}]}}";
    let expected = "spec.externalProviders.agents[0]: the server of this distribution has no API \"agents\", and would not \
                  start with a provider for it";
    assert_eq!(errors(text), [expected]);
    let older = steersman_plan::llamastack::config::Base { server_version: "0.6.1".into(), ..starter() };
    assert!(super::try_generate_on(&older, text).is_ok());
}

#[test]
fn merge_reads_files_of_pod() {
    let generated = generate_starter(TWO_PROVIDERS);
    let list = serde_json::to_string(&external_providers(&spec(TWO_PROVIDERS))).unwrap();
    let metadata = |external: &External| Some(metadata(&external.api).to_string());
    let (text, remarks) = merge_external_files(&generated.config_yaml, &list, metadata).unwrap();
    assert_eq!(remarks, []);
    assert_eq!(super::yaml(&text), merge_externals(&starter().config, TWO_PROVIDERS).unwrap().0);
}

#[test]
fn unreadable_pod_files_are_reported_unquoted() {
    let list = serde_json::to_string(&external_providers(&spec(TWO_PROVIDERS))).unwrap();
    let problem_texts = |config: &str, list: &str, metadata: Option<&str>| {
        let problems = merge_external_files(config, list, |_| metadata.map(ToOwned::to_owned)).unwrap_err();
        problems.iter().map(|one| one.text().to_string()).collect::<Vec<_>>()
    };
    let generated = problem_texts("a: [hush", &list, None).remove(0);
    assert!(generated.starts_with("config.yaml: not valid YAML"), "{generated}");
    assert!(generated.ends_with("Correct the configuration in the ConfigMap of overrideConfig."), "{generated}");
    assert!(
        problem_texts("{}", "hush", None)[0]
            .starts_with("spec.externalProviders: the list of external providers cannot be parsed")
    );
    let unreadable = problem_texts("{}", &list, Some("a: {hush"));
    assert_eq!(unreadable.len(), 2, "{unreadable:?}");
    assert!(unreadable[0].contains("lls-provider-spec.yaml in image i/custom:1: not valid YAML"), "{unreadable:?}");
    assert!(!unreadable.concat().contains("hush"), "{unreadable:?}");
}
