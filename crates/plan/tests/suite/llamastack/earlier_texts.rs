//! Texts of the Llama Stack operator and its specification that stay word for word: contracts with their users, whose
//! alerts, scripts and dashboards match them, so a change here is a breaking change.

mod whole_messages;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use steersman_plan::llamastack::config::{Installed, external_providers, merge_external};
use steersman_plan::llamastack::{ObservedClaim, ObservedIngress, Snapshot, plan};
use steersman_plan::oci::ObservedLabels;
use steersman_reconcile::{EventType, Failure, ObjectId, Outcome};

use super::configuration::{VLLM, container, template, with_references};
use super::labels::{base, image_snapshot, read_labels};
use super::status::{SPEC_WITH_CHILDREN, assert_condition, condition, render_status};
use super::trust::{CA_KEY, CERTIFICATE};
use super::{
    observed_deployment, planned_object, settle, settled_snapshot, v1alpha1_snapshot, v1alpha2_snapshot, write_order,
};
use crate::llamastack_config::validate::errors as admission_errors;

const MINIMAL_SPEC: &str = "{server: {distribution: {name: starter}}}";

fn starter(fields: &str) -> Snapshot {
    v1alpha2_snapshot(&format!("{{distribution: {{name: starter}}, {fields}}}"))
}

/// Expects a condition whose message begins with the earlier text, which ours continues with the next step.
#[track_caller]
fn assert_condition_begins(snapshot: &Snapshot, type_: &str, expected: [&str; 3]) {
    let [status, reason, message] = condition(&render_status(snapshot, &Outcome::default()), type_).unwrap();
    assert_eq!([status.as_str(), reason.as_str()], expected[..2], "{type_}: {message}");
    assert!(message.starts_with(expected[2]), "{message}");
}

/// Messages of the findings that block the object.
fn blockers(snapshot: &Snapshot) -> Vec<String> {
    plan(snapshot).findings.into_iter().map(|finding| finding.message).collect()
}

fn rejected_write(kind: &str, name: &str) -> Outcome {
    let object = ObjectId::new(kind, "team-a", name);
    Outcome { written: 0, failure: Some(Failure { object, message: "no".into(), transient: false, conflict: false }) }
}

#[test]
fn ready_object_keeps_conditions() {
    let status = settled_snapshot(SPEC_WITH_CHILDREN).object.status.unwrap();
    for (type_, reason, message) in [
        ("DeploymentReady", "DeploymentReady", "Deployment is ready"),
        ("StorageReady", "StorageReady", "Storage is ready"),
        ("ServiceReady", "ServiceReady", "Service is ready"),
        ("HealthCheck", "HealthCheckPassed", "Health check passed"),
        ("Available", "MinimumReplicasAvailable", "1/1 replicas available with current config"),
    ] {
        assert_condition(&status, type_, ["True", reason, message]);
    }
    let status = json!(status);
    assert_eq!(status["phase"], "Ready");
    assert_eq!(status["serviceURL"], "http://starter-service.team-a.svc.cluster.local:9000");
    assert_eq!(status["distributionConfig"]["activeDistribution"], "starter");
    assert_eq!(status["resolvedDistribution"]["configSource"], "embedded");
}

#[test]
fn unready_deployment_keeps_conditions() {
    let spec = "{replicas: 2, server: {distribution: {name: starter}}}";
    for (deployment, phase, message) in [
        (None, "Pending", "Deployment is pending"),
        (Some(observed_deployment(2, 0)), "Initializing", "Deployment is pending"),
        (Some(observed_deployment(2, 1)), "Initializing", "Deployment is scaling: 1/2 replicas ready"),
        (Some(observed_deployment(2, 3)), "Initializing", "Deployment is scaling down: 3/2 replicas ready"),
    ] {
        let status = render_status(&Snapshot { deployment, ..v1alpha1_snapshot(spec) }, &Outcome::default());
        assert_eq!(json!(status)["phase"], phase);
        assert_condition(&status, "DeploymentReady", ["False", "DeploymentFailed", message]);
        assert_condition(&status, "HealthCheck", ["False", "HealthCheckFailed", "Deployment not ready"]);
    }
}

#[test]
fn failed_reconcile_keeps_conditions() {
    let status = render_status(&v1alpha1_snapshot(SPEC_WITH_CHILDREN), &rejected_write("Deployment", "starter"));
    assert_eq!(json!(status)["phase"], "Failed");
    let message = "Resource reconciliation failed: Deployment team-a/starter: no";
    assert_condition(&status, "DeploymentReady", ["False", "DeploymentFailed", message]);
}

#[test]
fn unready_children_keep_conditions() {
    let mut snapshot = settled_snapshot(SPEC_WITH_CHILDREN);
    snapshot.volume_claim = Some(ObservedClaim { phase: Some("Lost".into()), ..ObservedClaim::default() });
    let status = render_status(&snapshot, &Outcome::default());
    assert_condition(&status, "StorageReady", ["False", "StorageFailed", "PVC is not bound: Lost"]);
    (snapshot.volume_claim, snapshot.service) = (None, false);
    let status = render_status(&snapshot, &rejected_write("Deployment", "starter"));
    let message = "Failed to get PVC: persistentvolumeclaims \"starter-pvc\" not found";
    assert_condition(&status, "StorageReady", ["False", "StorageFailed", message]);
    let message = "Failed to get Service: services \"starter-service\" not found";
    assert_condition(&status, "ServiceReady", ["False", "ServiceFailed", message]);
}

#[test]
fn exposed_server_keeps_route_url() {
    let mut snapshot = starter("networking: {expose: true}");
    snapshot.ingress = Some(ObservedIngress { address: None });
    assert_eq!(json!(render_status(&snapshot, &Outcome::default()))["routeURL"], "");
    snapshot.ingress = Some(ObservedIngress { address: Some("lb.example.com".into()) });
    assert_eq!(json!(render_status(&snapshot, &Outcome::default()))["routeURL"], "http://lb.example.com");
}

#[test]
fn invalid_distribution_keeps_message() {
    for (distribution, message) in [
        ("name: nobody", "failed to validate distribution: nobody. Distribution name not supported"),
        ("name: ''", "failed to validate distribution: either distribution.name or distribution.image must be set"),
        ("name: starter, image: x", "Only one of name or image can be specified"),
    ] {
        let snapshot = v1alpha1_snapshot(&format!("{{server: {{distribution: {{{distribution}}}}}}}"));
        assert_eq!(blockers(&snapshot), [message]);
        let message = format!("Resource reconciliation failed: {message}");
        let status = render_status(&snapshot, &Outcome::default());
        assert_condition(&status, "DeploymentReady", ["False", "DeploymentFailed", &message]);
    }
}

#[test]
fn long_name_keeps_message() {
    let mut snapshot = v1alpha1_snapshot(MINIMAL_SPEC);
    snapshot.object.name = "n".repeat(49);
    let message = format!(
        "failed to make valid prefixed name: failed to validate name \"{}-network-policy\": must be no more than 63 \
         characters",
        snapshot.object.name
    );
    assert_eq!(blockers(&snapshot), [message]);
}

/// A PEM block with the outer form of a certificate and more than 10 MiB.
fn large_certificate() -> String {
    let signed = [&[0x30, 0x83, 0x7a, 0x12, 0x00][..], &[0; 8_000_000]].concat();
    let der = [&[0x30, 0x83, 0x7a, 0x12, 0x0b][..], &signed, &[0x30, 1, 0, 0x03, 1, 0]].concat();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der))
}

#[test]
fn invalid_ca_bundle_keeps_message() {
    let keys_error = "failed to validate CA bundle ConfigMap keys: ";
    let long = "k".repeat(254);
    let many = CERTIFICATE.repeat(1_001);
    let large = large_certificate();
    let broken = CERTIFICATE.replace("MIIB", "AAAA");
    for (keys, text, message) in [
        ("['']", "", format!("{keys_error}ConfigMap key cannot be empty")),
        (
            &format!("[{long}]"),
            "",
            format!("{keys_error}failed to validate ConfigMap key '{long}': too long (max 253 characters)"),
        ),
        ("[a/b]", "", format!("{keys_error}failed to validate ConfigMap key 'a/b': contains invalid path characters")),
        (
            "[a b]",
            "",
            format!(
                "{keys_error}failed to validate ConfigMap key 'a b': contains invalid characters. Only alphanumeric \
                 characters, hyphens, underscores, and dots are allowed"
            ),
        ),
        ("[ca-bundle.crt]", &broken, "failed to parse X.509 certificate from key 'ca-bundle.crt': ".to_owned()),
        ("[ca-bundle.crt]", "no PEM", "failed to find valid certificates in CA bundle key 'ca-bundle.crt'".to_owned()),
        ("[ca-bundle.crt]", " ", "failed to find valid certificates in CA bundle ConfigMaps".to_owned()),
        (
            "[ca-bundle.crt]",
            &many,
            "failed to process CA bundle: contains more than 1000 certificates (maximum allowed)".to_owned(),
        ),
        (
            "[ca-bundle.crt]",
            &large,
            "failed to process CA bundle: total size exceeds maximum allowed size of 10485760 bytes".to_owned(),
        ),
    ] {
        let tls = format!("networking: {{tls: {{caBundle: {{configMapName: ca, configMapKeys: {keys}}}}}}}");
        let mut snapshot = with_references(starter(&tls));
        snapshot.trust.named = Some([(CA_KEY.to_owned(), text.to_owned())].into());
        let found = blockers(&snapshot);
        assert_eq!(found.len(), 1, "{found:?}");
        let path = "spec.networking.tls.caBundle";
        let rest = found[0].strip_prefix(path).unwrap_or_default().trim_start_matches(".configMapKeys");
        assert!(rest.starts_with(&format!(": {message}")), "{}\n{message}", found[0]);
    }
}

#[test]
fn missing_config_map_keeps_message() {
    let bundle = "networking: {tls: {caBundle: {configMapName: ca, configMapNamespace: certs}}}";
    let config = "overrideConfig: {configMapName: mine}";
    let without_key = |fields: &str| {
        let mut snapshot = with_references(starter(fields));
        (snapshot.references[0].keys, snapshot.references[0].content) = (Some([].into()), Some([].into()));
        snapshot
    };
    for (snapshot, message) in [
        (starter(bundle), "failed to find caBundle ConfigMap \"ca\" in namespace \"certs\""),
        (without_key(bundle), "failed to find CA bundle key 'ca-bundle.crt' in ConfigMap certs/ca"),
        (starter(config), "failed to find overrideConfig ConfigMap \"mine\" in namespace \"team-a\""),
        (without_key(config), "failed to read config from ConfigMap \"mine\": missing 'config.yaml' key"),
    ] {
        let found = blockers(&snapshot);
        assert!(found[0].ends_with(&format!(": {message}")), "{}\n{message}", found[0]);
    }
}

#[test]
fn generated_configuration_keeps_conditions_and_events() {
    let mut snapshot = with_references(v1alpha2_snapshot(VLLM));
    let generated = plan(&snapshot).events;
    let live = settle(snapshot.clone());
    let status = live.object.status.clone().unwrap();
    let config = status.config_generation.clone().unwrap();
    let summary = format!("Generated config.yaml with {} providers and 1 models", config.provider_count.unwrap());
    let deployed = format!("Deployment updated with config {}", config.config_map_name.unwrap());
    assert_condition(&status, "ConfigGenerated", ["True", "ConfigGenerationSucceeded", &summary]);
    assert_condition(&status, "DeploymentUpdated", ["True", "DeploymentUpdateSucceeded", &deployed]);
    assert_condition(&status, "SecretsResolved", ["True", "AllSecretsFound", "Resolved 1 secret references"]);
    let [event] = &generated[..] else { panic!("{generated:?}") };
    assert_eq!((event.type_, event.reason, &event.message), (EventType::Normal, "ConfigGenerated", &summary));
    // The Deployment is observed, and the status of its first reconcile is stored.
    snapshot.object.status = Some(render_status(&snapshot, &Outcome { written: 4, failure: None }));
    let events = plan(&Snapshot { object: snapshot.object, ..live }).events;
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!((event.type_, event.reason, &event.message), (EventType::Normal, "DeploymentUpdated", &deployed));
}

#[test]
fn rejected_deployment_keeps_condition() {
    let snapshot = settle(with_references(v1alpha2_snapshot(VLLM)));
    let status = render_status(&snapshot, &rejected_write("Deployment", "starter"));
    let message = "Failed to update Deployment: Deployment team-a/starter: no";
    assert_condition(&status, "DeploymentUpdated", ["False", "DeploymentUpdateFailed", message]);
}

#[test]
fn unavailable_server_keeps_conditions() {
    for (ready, updated, reason, message) in [
        (0, 1, "ReplicasUnavailable", "0/1 replicas available"),
        (1, 0, "RolloutInProgress", "Rolling update in progress: 0/1 updated"),
    ] {
        let mut snapshot = settle(with_references(v1alpha2_snapshot(VLLM)));
        let deployment = snapshot.deployment.as_mut().unwrap();
        (deployment.ready, deployment.updated) = (ready, updated);
        assert_condition(&render_status(&snapshot, &Outcome::default()), "Available", ["False", reason, message]);
    }
}

#[test]
fn failed_generation_keeps_conditions_and_event() {
    let unsupported = {
        let mut base = base("mine");
        base.config["version"] = json!(3);
        image_snapshot(read_labels(Ok(Some(base))))
    };
    let mut upgraded = settle(with_references(v1alpha2_snapshot(VLLM)));
    upgraded.object.provider_merge = Some("sideways".into());
    let failed = upgraded.clone();
    upgraded.settings.operator_version = "0.2.0".into();
    for (snapshot, reason, message) in [
        (
            image_snapshot(ObservedLabels::NotRead),
            "BaseConfigRequired",
            "Direct image references require either overrideConfig.configMapName or OCI config labels on the image. See \
             docs/configuration.md for details.",
        ),
        (unsupported, "UnsupportedConfigVersion", "Unsupported config.yaml version 3. Supported versions: 1, 2"),
        (
            starter("disabled: [toolRuntime], resources: {tools: [websearch]}"),
            "MissingProviderForResource",
            "resources.tools requires at least one toolRuntime provider to be configured",
        ),
        (
            starter("disabled: [safety], resources: {shields: [guard]}"),
            "MissingProviderForResource",
            "resources.shields requires at least one safety provider to be configured",
        ),
        (failed, "ConfigGenerationFailed", "Failed to generate config.yaml: "),
        (upgraded, "UpgradeConfigFailure", "Config generation failed after operator upgrade: "),
    ] {
        assert_condition_begins(&snapshot, "ConfigGenerated", ["False", reason, message]);
        let event = &plan(&snapshot).events[0];
        assert_eq!((event.type_, event.reason), (EventType::Warning, "ConfigGenerationFailed"), "{reason}");
        assert_eq!(json!(render_status(&snapshot, &Outcome::default()))["phase"], "Failed");
    }
}

#[test]
fn missing_secret_keeps_condition_and_event() {
    let mut snapshot = with_references(v1alpha2_snapshot(VLLM));
    let referenced = "Referenced by: spec.providers.inference.apiKey.secretKeyRef";
    for (keys, reason, message) in [
        (None, "SecretNotFound", "Secret \"vllm\" not found in namespace \"team-a\""),
        (Some([].into()), "SecretKeyMissing", "Key \"token\" not found in Secret \"team-a/vllm\""),
    ] {
        snapshot.references[0].keys = keys;
        let message = format!("{message}. {referenced}");
        assert_condition(
            &render_status(&snapshot, &Outcome::default()),
            "SecretsResolved",
            ["False", reason, &message],
        );
        let event = &plan(&snapshot).events[0];
        assert_eq!((event.type_, event.reason), (EventType::Warning, "SecretResolutionFailed"));
    }
}

#[test]
fn invalid_configuration_keeps_message() {
    let model = "resources: {models: [{name: m, provider: p}]}";
    let conflict = "providers: {inference: {provider: vllm}}, disabled: [inference]";
    let collision = "providers: {inference: [{id: a-b, provider: vllm, apiKey: {name: s, key: k}}, {id: a_b, provider: \
                     vllm, apiKey: {name: s, key: other}}]}";
    for (fields, message) in [
        (model, "spec.resources.models[0].provider: provider ID \"p\" not found; available providers: "),
        (
            conflict,
            "spec.providers.inference conflicts with spec.disabled: inference API is disabled but has providers \
             configured.",
        ),
        (collision, "failed to validate env var name collision for \"LLSD_A_B_API_KEY\": s/k conflicts with s/other"),
    ] {
        let found = blockers(&with_references(starter(fields)));
        assert!(found[0].contains(message), "{}\n{message}", found[0]);
    }
    let remedy = "Remove the provider configuration or remove 'inference' from the disabled list.";
    assert_eq!(plan(&starter(conflict)).findings[0].remedy, remedy);
}

#[test]
fn admission_keeps_error_texts() {
    let excluded = "{overrideConfig: {configMapName: c}, ";
    for (spec, error) in [
        (
            "{distribution: {name: stater}}",
            "spec.distribution.name: Unknown distribution \"stater\". Available distributions: postgres-demo, \
             remote-vllm, starter",
        ),
        ("{distribution: {name: starter, image: x}}", "only one of name or image can be specified"),
        ("{distribution: {}}", "one of name or image must be specified"),
        (
            "{providers: {inference: {provider: passthrough}, safety: [{id: passthrough, provider: llama-guard}]}}",
            "provider ID \"passthrough\" conflicts with provider in \"inference\"; all provider IDs must be unique across \
             all API types",
        ),
        (
            "{providers: {inference: [{provider: vllm}, {provider: openai}]}}",
            "each provider must have an explicit id when multiple providers are specified",
        ),
        ("{providers: {inference: {provider: vllm, id: ''}}}", "id must not be empty if specified"),
        ("{resources: {models: [{name: m, provider: ''}]}}", "provider must not be empty if specified"),
        ("{resources: {models: [{name: m, modelType: ''}]}}", "modelType must not be empty if specified"),
        ("{resources: {models: [{name: m, quantization: ''}]}}", "quantization must not be empty if specified"),
        ("{storage: {kv: {type: redis}}}", "endpoint is required when type is redis"),
        ("{storage: {sql: {type: postgres}}}", "connectionString is required when type is postgres"),
        ("{networking: {tls: {enabled: true}}}", "secretName is required when TLS is enabled"),
        (&format!("{excluded}providers: {{}}}}"), "providers and overrideConfig are mutually exclusive"),
        (&format!("{excluded}resources: {{}}}}"), "resources and overrideConfig are mutually exclusive"),
        (&format!("{excluded}storage: {{}}}}"), "storage and overrideConfig are mutually exclusive"),
        (&format!("{excluded}disabled: []}}"), "disabled and overrideConfig are mutually exclusive"),
    ] {
        let errors = admission_errors(spec);
        assert!(errors.iter().any(|found| found.ends_with(error)), "{errors:?}\n{error}");
    }
}

#[test]
fn external_provider_keeps_error_texts() {
    let spec = "externalProviders: {inference: [{providerId: a, image: one}, {providerId: a, image: two}]}";
    let found = blockers(&starter(spec));
    assert!(found[0].contains(": ERROR: Duplicate provider ID detected in external providers"), "{found:?}");
    let spec = "externalProviders: {inference: [{providerId: a, image: one}]}";
    let external = external_providers(&starter(spec).object.spec).remove(0);
    let merge = |config: Value, metadata: Option<Value>| {
        let installed = Installed { external: external.clone(), metadata };
        let texts = |errors: Vec<steersman_plan::llamastack::config::FieldError>| {
            errors.iter().map(|error| error.text().to_string()).collect::<Vec<_>>().join("\n")
        };
        merge_external(&config, &[installed]).map_or_else(texts, |(_, remarks)| texts(remarks))
    };
    let package = |api: &str| {
        json!({
            "apiVersion": "llamastack.io/v1alpha1", "kind": "ProviderPackage",
            "metadata": { "name": "custom", "version": "1.0", "vendor": "us" },
            "spec": { "packageName": "custom", "providerType": "remote::custom", "api": api, "wheelPath": "x.whl" },
        })
    };
    let wrong = json!({ "apiVersion": "v1", "kind": "Other", "spec": { "providerType": "x", "api": "chat" } });
    let all = "inference safety agents vector_io datasetio scoring eval tool_runtime post_training";
    for (metadata, texts) in [
        (None, vec!["Missing /lls-provider/lls-provider-spec.yaml in image one".to_owned()]),
        (
            Some(wrong),
            vec![
                "apiVersion: expected llamastack.io/v1alpha1, got v1".to_owned(),
                "kind: expected ProviderPackage, got Other".to_owned(),
                "metadata.name: is required".to_owned(),
                "spec.providerType: must match pattern (remote|inline)::[a-z0-9-]+, got x".to_owned(),
                format!("spec.api: must be one of [{all}], got chat"),
            ],
        ),
        (
            Some(package("safety")),
            vec![
                "ERROR: Provider API type mismatch".to_owned(),
                "declares api=safety".to_owned(),
                "placed under externalProviders.inference".to_owned(),
                "Resolution: Move the provider to externalProviders.safety section in the LLSD spec.".to_owned(),
            ],
        ),
    ] {
        let found = merge(json!({}), metadata);
        texts.iter().for_each(|text| assert!(found.contains(text), "{found}\n{text}"));
    }
    let same = json!({ "providers": { "inference": [{ "provider_id": "a", "provider_type": "remote::vllm" }] } });
    let found = merge(same, Some(package("inference")));
    assert!(found.contains("External provider 'a' overrides base provider in API 'inference'"), "{found}");
}

#[test]
fn children_keep_names_and_labels() {
    let spec = "distribution: {name: starter}
networking: {port: 9000, expose: true, allowedFrom: {namespaces: [a]}, tls: {caBundle: {configMapName: ca}}}
workload: {replicas: 2, storage: {}, autoscaling: {maxReplicas: 3}}
overrideConfig: {configMapName: mine}";
    let mut snapshot = with_references(v1alpha2_snapshot(spec));
    snapshot.trust.named = Some([(CA_KEY.to_owned(), CERTIFICATE.to_owned())].into());
    snapshot.any_user = true;
    let plan = plan(&snapshot);
    assert_eq!(
        write_order(&plan),
        [
            "create PersistentVolumeClaim starter-pvc",
            "apply ServiceAccount starter-sa",
            "apply RoleBinding starter-rb",
            "apply NetworkPolicy starter-network-policy",
            "apply ConfigMap starter-ca-bundle",
            "apply Deployment starter",
            "apply Service starter-service",
            "apply HorizontalPodAutoscaler starter-hpa",
            "apply PodDisruptionBudget starter-pdb",
            "apply Ingress starter-ingress",
        ]
    );
    for kind in ["PersistentVolumeClaim", "ServiceAccount", "RoleBinding", "Deployment", "Service"] {
        let labels = &planned_object(&plan, kind).unwrap()["metadata"]["labels"];
        let expected = json!({
            "app.kubernetes.io/managed-by": "llama-stack-operator",
            "app.kubernetes.io/part-of": "llama-stack",
            "llamastack.io/watch": "true",
        });
        assert_eq!(*labels, expected, "{kind}");
    }
    let bundle = &planned_object(&plan, "ConfigMap").unwrap()["metadata"]["labels"];
    for (label, value) in [
        ("app.kubernetes.io/managed-by", "llama-stack-operator"),
        ("app.kubernetes.io/instance", "starter"),
        ("app.kubernetes.io/component", "ca-bundle"),
        ("llamastack.io/watch", "true"),
    ] {
        assert_eq!(bundle[label], value, "{label}");
    }
    let selector = json!({ "app": "llama-stack", "app.kubernetes.io/instance": "starter" });
    let service = planned_object(&plan, "Service").unwrap();
    assert_eq!((&service["spec"]["selector"], &service["spec"]["ports"][0]["name"]), (&selector, &json!("http")));
    let deployment = planned_object(&plan, "Deployment").unwrap();
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], selector);
    assert_eq!(template(&snapshot)["metadata"]["labels"], selector);
    let annotations: Vec<String> =
        template(&snapshot)["metadata"]["annotations"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(annotations, ["configmap.hash/ca-bundle", "configmap.hash/user-config"]);
    let role = &planned_object(&plan, "RoleBinding").unwrap()["roleRef"]["name"];
    assert_eq!(*role, "system:openshift:scc:anyuid");
}

#[test]
fn server_container_keeps_names_and_paths() {
    let spec = "distribution: {name: starter}
networking: {tls: {caBundle: {configMapName: ca}}}
workload: {storage: {}, workers: 2}
overrideConfig: {configMapName: mine}";
    let mut snapshot = with_references(v1alpha2_snapshot(spec));
    snapshot.trust.named = Some([(CA_KEY.to_owned(), CERTIFICATE.to_owned())].into());
    let server = container(&snapshot);
    assert_eq!(server["name"], "llama-stack");
    assert_eq!(server["ports"][0]["containerPort"], 8321);
    assert_eq!(server["startupProbe"]["httpGet"]["path"], "/v1/health");
    let env: Vec<String> = server["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| format!("{}={}", variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap()))
        .collect();
    assert_eq!(
        env,
        [
            "HF_HOME=/.llama",
            "SSL_CERT_FILE=/etc/ssl/certs/ca-bundle/ca-bundle.crt",
            "LLS_WORKERS=2",
            "LLS_PORT=8321",
            "LLAMA_STACK_CONFIG=/etc/llama-stack/config.yaml",
        ]
    );
    let pod = &template(&snapshot)["spec"];
    let volumes: Vec<&Value> = pod["volumes"].as_array().unwrap().iter().map(|volume| &volume["name"]).collect();
    assert_eq!(volumes, ["lls-storage", "user-config", "ca-bundle"]);
    assert_eq!((&pod["serviceAccountName"], &pod["securityContext"]["fsGroup"]), (&json!("starter-sa"), &json!(1001)));
}

#[test]
fn generated_config_map_keeps_name_and_labels() {
    let map = planned_object(&plan(&with_references(v1alpha2_snapshot(VLLM))), "ConfigMap").unwrap();
    let name = map["metadata"]["name"].as_str().unwrap();
    let digits = name.strip_prefix("starter-config-").unwrap_or_else(|| panic!("{name}"));
    assert!(digits.len() == 8 && digits.chars().all(|c| c.is_ascii_hexdigit()), "{name}");
    assert!(map["data"]["config.yaml"].as_str().unwrap().contains("${env.LLSD_VLLM_API_KEY}"));
    for (label, value) in [
        ("app.kubernetes.io/managed-by", "llama-stack-operator"),
        ("app.kubernetes.io/instance", "starter"),
        ("app.kubernetes.io/component", "generated-config"),
    ] {
        assert_eq!(map["metadata"]["labels"][label], value, "{label}");
    }
}
