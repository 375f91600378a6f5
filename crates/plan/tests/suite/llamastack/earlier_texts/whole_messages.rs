//! Texts of the Llama Stack operator and its specification in the whole messages that users see. Each row separates the
//! earlier text, which is a contract, from the path before it and from the rest, which may be
//! reworded.

use serde_json::{Value, json};
use steersman_plan::llamastack::config::{Installed, external_providers, merge_external};
use steersman_plan::llamastack::{Snapshot, plan};
use steersman_plan::oci::ObservedLabels;
use steersman_plan::pods::{ObservedContainer, ObservedPod, Waiting};
use steersman_reconcile::{EventType, Outcome};

use super::starter;
use crate::llamastack::configuration::{VLLM, container, template, with_references};
use crate::llamastack::labels::{base, image_snapshot, read_labels};
use crate::llamastack::status::{assert_condition, render_status};
use crate::llamastack::trust::CA_KEY;
use crate::llamastack::{observed_deployment, settle, v1alpha2_snapshot};
use crate::llamastack_config::validate::errors as admission_errors;

/// Message and remedy of each finding.
fn findings(snapshot: &Snapshot) -> Vec<String> {
    let findings = plan(snapshot).findings;
    findings.into_iter().map(|finding| format!("{} {}", finding.message, finding.remedy)).collect()
}

#[test]
fn failed_generation_keeps_whole_message() {
    let with_version = |version: Value| {
        let mut base = base("mine");
        base.config["version"] = version;
        image_snapshot(read_labels(Ok(Some(base))))
    };
    let mut upgraded = settle(with_references(v1alpha2_snapshot(VLLM)));
    upgraded.object.provider_merge = Some("sideways".into());
    let failed = upgraded.clone();
    upgraded.settings.operator_version = "0.2.0".into();
    let merge_mode = "metadata.annotations[steersman.dev/provider-merge]: unknown merge mode \"sideways\". Set the \
                      annotation to overlay (by provider id) or replace (by API), or remove the annotation for overlay.";
    for (snapshot, reason, kept, ours) in [
        (
            image_snapshot(ObservedLabels::NotRead),
            "BaseConfigRequired",
            "Direct image references require either overrideConfig.configMapName or OCI config labels on the image. See \
             docs/configuration.md for details.",
            "",
        ),
        (
            with_version(json!(3)),
            "UnsupportedConfigVersion",
            "Unsupported config.yaml version 3. Supported versions: 1, 2",
            ". Use a distribution of this release, or provide the whole configuration with spec.overrideConfig.",
        ),
        (
            with_version(Value::Null),
            "ConfigGenerationFailed",
            "Failed to generate config.yaml: ",
            "spec.distribution: config.yaml missing required 'version' field. Use a distribution whose base \
             configuration has a version, or set spec.overrideConfig.",
        ),
        (
            starter("disabled: [toolRuntime], resources: {tools: [websearch]}"),
            "MissingProviderForResource",
            "resources.tools requires at least one toolRuntime provider to be configured",
            ". Add one to spec.providers.toolRuntime, or remove spec.resources.tools.",
        ),
        (
            starter("disabled: [safety], resources: {shields: [guard]}"),
            "MissingProviderForResource",
            "resources.shields requires at least one safety provider to be configured",
            ". Add one to spec.providers.safety, or remove spec.resources.shields.",
        ),
        (failed, "ConfigGenerationFailed", "Failed to generate config.yaml: ", merge_mode),
        (upgraded, "UpgradeConfigFailure", "Config generation failed after operator upgrade: ", merge_mode),
    ] {
        let status = render_status(&snapshot, &Outcome::default());
        assert_condition(&status, "ConfigGenerated", ["False", reason, &[kept, ours].concat()]);
    }
}

#[test]
fn missing_secret_keeps_whole_event() {
    let mut snapshot = with_references(v1alpha2_snapshot(VLLM));
    let path = "spec.providers.inference.apiKey.secretKeyRef";
    for (keys, field, kept, ours) in [
        (
            None,
            ".name: ",
            "Secret \"vllm\" not found in namespace \"team-a\"",
            ". Create it in namespace team-a, or reference another one.",
        ),
        (
            Some([].into()),
            ".key: ",
            "Key \"token\" not found in Secret \"team-a/vllm\"",
            ". Add the key token to it, or use another one.",
        ),
    ] {
        snapshot.references[0].keys = keys;
        let event = &plan(&snapshot).events[0];
        assert_eq!((event.type_, event.reason), (EventType::Warning, "SecretResolutionFailed"));
        assert_eq!(event.message, [path, field, kept, ours].concat());
    }
}

#[test]
fn admission_keeps_paths_of_errors() {
    let excluded = "{overrideConfig: {configMapName: c}, ";
    for (spec, errors) in [
        (
            "{distribution: {name: stater}}",
            &["spec.distribution.name: Unknown distribution \"stater\". Available distributions: postgres-demo, \
                 remote-vllm, starter"][..],
        ),
        (
            "{distribution: {name: starter, image: x}}",
            &["spec.distribution: only one of name or image can be specified"],
        ),
        ("{distribution: {}}", &["spec.distribution: one of name or image must be specified"]),
        (
            "{providers: {inference: {provider: passthrough}, safety: [{id: passthrough, provider: llama-guard}]}}",
            &[
                "spec.providers.safety[0].id: provider ID \"passthrough\" conflicts with provider in \"inference\"; all \
                 provider IDs must be unique across all API types",
            ],
        ),
        (
            "{providers: {inference: [{provider: vllm}, {provider: openai}]}}",
            &[
                "spec.providers.inference[0].id: each provider must have an explicit id when multiple providers are \
                 specified",
                "spec.providers.inference[1].id: each provider must have an explicit id when multiple providers are \
                 specified",
            ],
        ),
        (
            "{providers: {inference: {provider: vllm, id: ''}}}",
            &["spec.providers.inference.id: id must not be empty if specified"],
        ),
        (
            "{resources: {models: [{name: m, provider: ''}]}}",
            &["spec.resources.models[0].provider: provider must not be empty if specified"],
        ),
        (
            "{resources: {models: [{name: m, modelType: ''}]}}",
            &["spec.resources.models[0].modelType: modelType must not be empty if specified"],
        ),
        (
            "{resources: {models: [{name: m, quantization: ''}]}}",
            &["spec.resources.models[0].quantization: quantization must not be empty if specified"],
        ),
        ("{storage: {kv: {type: redis}}}", &["spec.storage.kv.endpoint: endpoint is required when type is redis"]),
        (
            "{storage: {sql: {type: postgres}}}",
            &["spec.storage.sql.connectionString: connectionString is required when type is postgres"],
        ),
        (
            "{networking: {tls: {enabled: true}}}",
            &["spec.networking.tls.secretName: secretName is required when TLS is enabled"],
        ),
        (
            &format!("{excluded}providers: {{}}}}"),
            &["spec.providers: providers and overrideConfig are mutually exclusive"],
        ),
        (
            &format!("{excluded}resources: {{}}}}"),
            &["spec.resources: resources and overrideConfig are mutually exclusive"],
        ),
        (&format!("{excluded}storage: {{}}}}"), &["spec.storage: storage and overrideConfig are mutually exclusive"]),
        (&format!("{excluded}disabled: []}}"), &["spec.disabled: disabled and overrideConfig are mutually exclusive"]),
    ] {
        assert_eq!(admission_errors(spec), errors, "{spec}");
    }
}

#[test]
fn fr_079c_unused_fields_keep_text() {
    for (fields, path, kept, ours) in [
        (
            "storage: {kv: {endpoint: 'redis:6379'}}",
            "spec.storage.kv.endpoint: ",
            "endpoint is only valid when type is redis",
            "; with sqlite it is not used Set type to redis, or remove endpoint.",
        ),
        (
            "storage: {kv: {password: {name: s, key: k}}}",
            "spec.storage.kv.password: ",
            "password is only valid when type is redis",
            "; with sqlite it is not used Set type to redis, or remove password.",
        ),
        (
            "storage: {sql: {connectionString: {name: s, key: k}}}",
            "spec.storage.sql.connectionString: ",
            "connectionString is only valid when type is postgres",
            "; with sqlite it is not used Set type to postgres, or remove connectionString.",
        ),
        (
            "networking: {tls: {secretName: s}}",
            "spec.networking.tls.secretName: ",
            "secretName is only valid when TLS is enabled",
            "; the server speaks plain HTTP Set spec.networking.tls.enabled to true, or remove secretName.",
        ),
    ] {
        assert_eq!(findings(&with_references(starter(fields))), [[path, kept, ours].concat()]);
    }
}

#[test]
fn fr_075_findings_keep_text_after_path() {
    let config = "overrideConfig: {configMapName: mine}";
    let bundle = "networking: {tls: {caBundle: {configMapName: ca, configMapNamespace: certs}}}";
    let without_key = |fields: &str| {
        let mut snapshot = with_references(starter(fields));
        (snapshot.references[0].keys, snapshot.references[0].content) = (Some([].into()), Some([].into()));
        snapshot
    };
    let with_certificates = |text: &str| {
        let mut snapshot = with_references(starter("networking: {tls: {caBundle: {configMapName: ca}}}"));
        snapshot.trust.named = Some([(CA_KEY.to_owned(), text.to_owned())].into());
        snapshot
    };
    for (snapshot, path, kept, ours) in [
        (
            starter(bundle),
            "spec.networking.tls.caBundle.configMapName: ",
            "failed to find caBundle ConfigMap \"ca\" in namespace \"certs\"",
            " Create it in namespace certs with the label steersman.dev/shared-with=team-a, by which its owner lets objects \
             of namespace team-a use it, or reference another one.",
        ),
        (
            without_key(bundle),
            "spec.networking.tls.caBundle.configMapName: ",
            "failed to find CA bundle key 'ca-bundle.crt' in ConfigMap certs/ca",
            " Add the key ca-bundle.crt to it, or use another one.",
        ),
        (
            starter(config),
            "spec.overrideConfig.configMapName: ",
            "failed to find overrideConfig ConfigMap \"mine\" in namespace \"team-a\"",
            " Create it in namespace team-a, or reference another one.",
        ),
        (
            without_key(config),
            "spec.overrideConfig.configMapName: ",
            "failed to read config from ConfigMap \"mine\": missing 'config.yaml' key",
            " Add the key config.yaml to it, or use another one.",
        ),
        (
            with_certificates("no PEM"),
            "spec.networking.tls.caBundle: ",
            "failed to find valid certificates in CA bundle key 'ca-bundle.crt'",
            " Put PEM certificates under this key, or list other keys in configMapKeys.",
        ),
        (
            with_certificates(" "),
            "spec.networking.tls.caBundle: ",
            "failed to find valid certificates in CA bundle ConfigMaps",
            " Put at least one PEM certificate into the ConfigMap.",
        ),
        (
            starter("providers: {inference: {provider: vllm}}, disabled: [inference]"),
            "spec.providers.inference: ",
            "spec.providers.inference conflicts with spec.disabled: inference API is disabled but has providers \
             configured. Remove the provider configuration or remove 'inference' from the disabled list.",
            "",
        ),
    ] {
        assert_eq!(findings(&snapshot), [[path, kept, ours].concat()]);
    }
    let unknown = starter("resources: {models: [{name: m, provider: p}]}");
    let kept =
        "spec.resources.models[0].provider: provider ID \"p\" not found; available providers: anthropic, azure, ";
    assert!(findings(&unknown)[0].starts_with(kept), "{:?}", findings(&unknown));
}

#[test]
fn fr_092_overriding_external_provider_keeps_warning() {
    let spec = "externalProviders: {inference: [{providerId: a, image: one}]}";
    let metadata = json!({
        "apiVersion": "llamastack.io/v1alpha1", "kind": "ProviderPackage",
        "metadata": { "name": "custom", "version": "1.0", "vendor": "us" },
        "spec": { "packageName": "custom", "providerType": "remote::custom", "api": "inference", "wheelPath": "x.whl" },
    });
    let config = json!({ "providers": { "inference": [{ "provider_id": "a", "provider_type": "remote::vllm" }] } });
    let external = external_providers(&starter(spec).object.spec).remove(0);
    let (_, remarks) = merge_external(&config, &[Installed { external, metadata: Some(metadata) }]).unwrap();
    let texts: Vec<String> = remarks.iter().map(|remark| remark.text().to_string()).collect();
    let expected = "spec.externalProviders.inference[0].providerId: External provider 'a' overrides base provider in API \
                    'inference' (base remote::vllm, external remote::custom). Give it another providerId to keep both.";
    assert_eq!(texts, [expected]);
    let inline = format!("providers: {{inference: {{id: a, provider: vllm}}}}, {spec}");
    let expected = "spec.externalProviders.inference[0].providerId: external provider \"a\" for API \"inference\" \
                    overrides inline provider with same ID Give it another providerId to keep both.";
    assert_eq!(findings(&starter(&inline)), [expected]);
}

#[test]
fn unpulled_provider_image_keeps_text() {
    let mut snapshot = settle(starter("externalProviders: {inference: [{providerId: a, image: one}]}"));
    let waiting = Waiting { reason: "ImagePullBackOff".into(), message: "no such tag".into() };
    snapshot.deployment = Some(observed_deployment(1, 0));
    snapshot.pods = Some(vec![ObservedPod {
        phase: "Pending".into(),
        containers: vec![ObservedContainer {
            name: "install-provider-a".into(),
            image: "one".into(),
            init: true,
            waiting: Some(waiting),
            ..ObservedContainer::default()
        }],
        ..ObservedPod::default()
    }]);
    let message = "Deployment is pending: external provider \"a\", init container install-provider-a: Failed to pull \
                   provider image one (ImagePullBackOff: no such tag). Resolution: Correct \
                   spec.externalProviders.inference[0].image, or add a pull secret to the server's ServiceAccount";
    let status = render_status(&snapshot, &Outcome::default());
    assert_condition(&status, "DeploymentReady", ["False", "DeploymentFailed", message]);
}

#[test]
fn external_providers_keep_container_and_volume_names() {
    let snapshot = starter("externalProviders: {inference: [{providerId: a, image: one}]}");
    let pod = &template(&snapshot)["spec"];
    let names = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&pod["initContainers"]), ["install-provider-a", "generate-config"]);
    assert_eq!(names(&pod["volumes"]), ["lls-storage", "user-config", "external-providers", "final-config"]);
    let env = container(&snapshot)["env"].clone();
    let value =
        |name: &str| env.as_array().unwrap().iter().find(|variable| variable["name"] == name).unwrap()["value"].clone();
    assert_eq!(value("PYTHONPATH"), "/opt/llama-stack/external-providers/python-packages");
    assert_eq!(value("LLAMA_STACK_CONFIG"), "/opt/llama-stack/config/config.yaml");
}

#[test]
fn fr_032_secrets_keep_variable_names() {
    let spec = "providers: {inference: [{id: vllm-primary, provider: vllm, apiKey: {name: a, key: k}, secretRefs: {host: \
                {name: b, key: h}}}]}, storage: {kv: {type: redis, endpoint: 'redis:6379', password: {name: c, key: p}}, \
                sql: {type: postgres, connectionString: {name: d, key: c}}}";
    let server = container(&with_references(starter(spec)));
    let names: Vec<&str> = server["env"].as_array().unwrap().iter().map(|env| env["name"].as_str().unwrap()).collect();
    for name in [
        "LLSD_VLLM_PRIMARY_API_KEY",
        "LLSD_VLLM_PRIMARY_HOST",
        "LLSD_STORAGE_KV_PASSWORD",
        "LLSD_STORAGE_SQL_CONNECTION_STRING",
    ] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
}
