use serde_json::{Value, json};
use steersman_plan::llamastack::config::{
    External, Installed, external_providers, merge_external, merge_external_files,
};

use super::{OPERATOR, config, errors, made, remarks, spec, starter};

const TWO: &str = "{externalProviders: {vectorIo: [{providerId: store, image: 'i/store:1', config: {k: 1}}], inference: \
                   [{providerId: custom, image: 'i/custom:1', imagePullPolicy: Always}], volumeSizeLimit: 5Gi}}";

fn metadata(api: &str) -> Value {
    json!({
        "apiVersion": "llamastack.io/v1alpha1", "kind": "ProviderPackage",
        "metadata": {"name": "custom", "version": "1.0", "vendor": "us"},
        "spec": {"packageName": "custom_module", "providerType": "remote::custom", "api": api, "wheelPath": "x.whl"},
    })
}

fn installed(of: Vec<External>) -> Vec<Installed> {
    of.into_iter().map(|external| Installed { metadata: Some(metadata(&external.api)), external }).collect()
}

fn merged(config: &Value, text: &str) -> Result<(Value, Vec<String>), Vec<String>> {
    let told = |problems: Vec<steersman_plan::llamastack::config::FieldError>| {
        problems.iter().map(|one| one.text().to_string()).collect::<Vec<_>>()
    };
    merge_external(config, &installed(external_providers(&spec(text))))
        .map(|(config, remarks)| (config, told(remarks)))
        .map_err(told)
}

#[test]
fn fr_090_images_are_installed_in_the_order_of_the_apis_and_merged_last() {
    let generated = made(TWO);
    let names: Vec<&str> = generated.pod.init_containers.iter().map(|container| container.name.as_str()).collect();
    assert_eq!(names, ["install-provider-custom", "install-provider-store", "generate-config"]);
    let [install, _, merge] = &generated.pod.init_containers[..] else { panic!("{names:?}") };
    assert_eq!((install.image.as_deref(), install.image_pull_policy.as_deref()), (Some("i/custom:1"), Some("Always")));
    assert_eq!(merge.image.as_deref(), Some(OPERATOR));
    let script = &install.command.clone().unwrap()[2];
    assert!(!script.contains("custom"), "values of the spec travel as variables");
    let list: Vec<External> = serde_json::from_str(merge.env.clone().unwrap()[0].value.as_deref().unwrap()).unwrap();
    assert_eq!(list, external_providers(&spec(TWO)), "what the merging container reads is what is meant");
    assert_eq!(generated.pod.config_path, "/opt/llama-stack/config/config.yaml");
    assert_eq!(generated.pod.env[0].name, "PYTHONPATH");
    let limit = generated.pod.volumes[0].empty_dir.clone().unwrap().size_limit.unwrap();
    assert_eq!(limit.0, "5Gi");
    assert_eq!(config(&generated), starter().config, "the file itself is the base of the merge");
}

#[test]
fn without_external_providers_there_is_nothing_to_install() {
    let pod = made("{externalProviders: {inference: []}}").pod;
    assert_eq!((pod.init_containers, pod.volumes, pod.env), (vec![], vec![], vec![]));
    assert_eq!(pod.config_path, "/etc/llama-stack/config.yaml");
}

#[test]
fn init_containers_have_no_rights_and_tell_why_they_failed() {
    for container in made(TWO).pod.init_containers {
        let security = container.security_context.unwrap();
        assert_eq!(security.run_as_non_root, Some(true));
        assert_eq!(security.allow_privilege_escalation, Some(false));
        assert_eq!(security.capabilities.unwrap().drop.unwrap(), ["ALL"]);
        assert_eq!(container.termination_message_policy.as_deref(), Some("FallbackToLogsOnError"));
    }
}

#[test]
fn fr_091_merging_adds_and_changes_nothing_else() {
    let (config, remarks) = merged(&starter().config, TWO).unwrap();
    assert_eq!(remarks, [""; 0]);
    let list = config["providers"]["inference"].as_array().unwrap();
    assert_eq!(
        list.last().unwrap(),
        &json!({"provider_id": "custom", "provider_type": "remote::custom", "module": "custom_module", "config": {}})
    );
    assert_eq!(config["providers"]["vector_io"][2]["config"], json!({"k": 1}));
    let mut without = config.clone();
    without["providers"]["inference"].as_array_mut().unwrap().pop();
    without["providers"]["vector_io"].as_array_mut().unwrap().pop();
    assert_eq!(without, starter().config);
}

#[test]
fn fr_092_the_external_provider_wins_and_that_is_told_before_and_at_the_merge() {
    let text =
        "{providers: {inference: {provider: vllm}}, externalProviders: {inference: [{providerId: vllm, image: i}]}}";
    let generated = made(text);
    assert_eq!(
        remarks(&generated),
        [
            "spec.externalProviders.inference[0].providerId: external provider \"vllm\" for API \"inference\" overrides inline \
          provider with same ID"
        ]
    );
    let (config, told) = merged(&config(&generated), text).unwrap();
    assert!(
        told[0].contains(
            "External provider 'vllm' overrides base provider in API 'inference' (base remote::vllm, external remote::custom)"
        ),
        "{told:?}"
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
fn an_api_that_the_file_does_not_list_is_listed() {
    let (config, _) =
        merged(&super::remote_vllm().config, "{externalProviders: {safety: [{providerId: a, image: b}]}}").unwrap();
    assert_eq!(super::texts(&config["apis"]), ["inference", "vector_io", "tool_runtime", "safety"]);
}

#[test]
fn a_model_may_name_an_external_provider_and_gets_one_by_default() {
    let text = "{externalProviders: {inference: [{providerId: custom, image: i}]}, resources: {models: [m, {name: o, provider: \
                custom}]}}";
    let config = config(&made(text));
    let models = &config["registered_resources"]["models"];
    assert_eq!((&models[1]["provider_id"], &models[2]["provider_id"]), (&json!("custom"), &json!("custom")));
}

#[test]
fn ids_of_external_providers_are_unique_and_can_name_a_container() {
    let text = "{externalProviders: {inference: [{providerId: a, image: one}, {providerId: 'A_b', image: ''}], safety: \
                [{providerId: a, image: two}]}}";
    assert_eq!(
        errors(text),
        [
            "spec.externalProviders.inference[1].providerId: \"A_b\" cannot be part of a container's name",
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
fn what_an_image_says_wrongly_of_itself_is_told_with_image_container_and_resolution() {
    let external = external_providers(&spec("{externalProviders: {inference: [{providerId: a, image: i}]}}")).remove(0);
    let told = |metadata: Option<Value>| {
        let installed = Installed { external: external.clone(), metadata };
        let problems = merge_external(&starter().config, &[installed]).unwrap_err();
        problems.iter().map(|one| one.text().to_string()).collect::<Vec<_>>()
    };
    let who = "spec.externalProviders.inference[0]: external provider a (image i, container install-provider-a): ";
    assert!(told(None)[0].starts_with(&format!("{who}Missing /lls-provider/lls-provider-spec.yaml in image i")));
    assert_eq!(told(Some(json!({}))).len(), 9, "all that is missing at once");
    let mismatch = told(Some(metadata("safety")));
    assert!(mismatch[0].contains("declares api=safety"), "{mismatch:?}");
    assert!(
        mismatch[0].ends_with("Move the provider to externalProviders.safety section in the LLSD spec."),
        "{mismatch:?}"
    );
    let mut odd = metadata("inference");
    odd["spec"]["providerType"] = json!("Remote::x");
    odd["kind"] = json!("Other");
    let told = told(Some(odd));
    assert!(told[0].starts_with(&format!("{who}kind: expected ProviderPackage, got Other")), "{told:?}");
    assert!(
        told[1].contains("spec.providerType: must match pattern (remote|inline)::[a-z0-9-]+, got Remote::x"),
        "{told:?}"
    );
}

#[test]
fn two_external_providers_with_one_id_are_refused_at_the_merge_too() {
    let text = "{externalProviders: {inference: [{providerId: a, image: one}, {providerId: a, image: two}]}}";
    let told = merged(&starter().config, text).unwrap_err();
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("Duplicate provider ID detected"), "{told:?}");
}

#[test]
fn an_api_that_the_server_no_longer_has_is_refused() {
    let text = "{externalProviders: {agents: [{providerId: a, image: i}]}}";
    let wanted = "spec.externalProviders.agents[0]: the server of this distribution has no API agents, and would not start \
                  with a provider for it";
    assert_eq!(errors(text), [wanted]);
    let older = steersman_plan::llamastack::config::Base { server_version: "0.6.1".into(), ..starter() };
    assert!(super::try_on(&older, text).is_ok());
}

#[test]
fn the_merge_works_on_the_files_of_the_pod() {
    let generated = made(TWO);
    let list = serde_json::to_string(&external_providers(&spec(TWO))).unwrap();
    let metadata = |external: &External| Some(metadata(&external.api).to_string());
    let (text, remarks) = merge_external_files(&generated.config_yaml, &list, metadata).unwrap();
    assert_eq!(remarks, []);
    assert_eq!(super::yaml(&text), merged(&starter().config, TWO).unwrap().0);
}

#[test]
fn files_of_the_pod_that_cannot_be_read_are_told_without_their_content() {
    let list = serde_json::to_string(&external_providers(&spec(TWO))).unwrap();
    let told = |config: &str, list: &str, metadata: Option<&str>| {
        let problems = merge_external_files(config, list, |_| metadata.map(ToOwned::to_owned)).unwrap_err();
        problems.iter().map(|one| one.text().to_string()).collect::<Vec<_>>()
    };
    assert!(told("a: [hush", &list, None)[0].starts_with("config.yaml: not valid YAML"));
    assert!(told("{}", "hush", None)[0].starts_with("spec.externalProviders: the list cannot be read"));
    let unreadable = told("{}", &list, Some("a: {hush"));
    assert_eq!(unreadable.len(), 2, "{unreadable:?}");
    assert!(unreadable[0].contains("lls-provider-spec.yaml in image i/custom:1: not valid YAML"), "{unreadable:?}");
    assert!(!unreadable.concat().contains("hush"), "{unreadable:?}");
}
