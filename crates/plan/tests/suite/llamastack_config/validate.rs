use std::collections::BTreeMap;

use serde_json::{Value, json};
use steersman_plan::llamastack::config::Base;
use steersman_plan::llamastack::validate::{
    Facts, Missing, ReferenceKind, ReferenceState, ReferencedObject, Review, validate,
};

use super::{starter, yaml};

const DISTRIBUTIONS: [&str; 3] = ["starter", "postgres-demo", "remote-vllm"];

fn object(spec: &str) -> Value {
    let mut spec = yaml(spec);
    if spec["distribution"].is_null() {
        spec["distribution"] = json!({"name": "starter"});
    }
    json!({"metadata": {"name": "x", "namespace": "team-a"}, "spec": spec})
}

/// The facts that admission knows about the cluster.
struct TestEnv {
    base: Option<Base>,
    found: BTreeMap<ReferencedObject, ReferenceState>,
    missing: Missing,
}

impl TestEnv {
    /// Facts with the starter base and without any looked-up reference.
    fn new() -> Self {
        Self { base: Some(starter()), found: BTreeMap::new(), missing: Missing::Refuse }
    }

    fn without_secret(name: &str) -> Self {
        let named = ReferencedObject { kind: ReferenceKind::Secret, namespace: "team-a".into(), name: name.into() };
        Self { found: [(named, ReferenceState::Missing)].into(), ..Self::new() }
    }

    fn review(&self, new: &Value, old: Option<&Value>) -> Review {
        let facts = Facts {
            namespace: "team-a",
            distributions: &DISTRIBUTIONS,
            base: self.base.as_ref(),
            always_mounted: false,
            config_namespace: None,
            found: &self.found,
            missing: self.missing,
        };
        validate(new, old, &facts)
    }
}

fn error_texts(review: &Review) -> Vec<String> {
    review.errors.iter().map(|one| format!("{}: {}", one.path, one.message)).collect()
}

pub fn errors(spec: &str) -> Vec<String> {
    error_texts(&TestEnv::new().review(&object(spec), None))
}

#[test]
fn valid_object_is_accepted_without_warnings() {
    let spec = "{providers: {inference: {provider: vllm, endpoint: 'http://x', apiKey: {name: s, key: k}}}, resources: \
                {models: [m, {name: o, provider: openai}]}, storage: {kv: {type: redis, endpoint: 'r:1'}}}";
    assert_eq!(TestEnv::new().review(&object(spec), None), Review::default());
}

#[test]
fn fr_079d_unknown_distribution_lists_available_ones() {
    assert_eq!(
        errors("{distribution: {name: stater}}"),
        [
            "spec.distribution.name: Unknown distribution \"stater\". Available distributions: postgres-demo, remote-vllm, starter"
        ]
    );
    assert_eq!(errors("{distribution: {image: any}}"), [""; 0]);
}

#[test]
fn wrong_types_are_rejected_with_path() {
    for (spec, expected) in [
        (
            "{providers: {inference: vllm}}",
            "spec.providers.inference: expected a provider (an object with the field provider) or a list of \
             providers, found a string",
        ),
        (
            "{providers: {safety: [x]}}",
            "spec.providers.safety[0]: expected a provider (an object with the field provider), found a string",
        ),
        (
            "{providers: {vectorIo: {provider: 5}}}",
            "spec.providers.vectorIo.provider: expected a string, found a number",
        ),
        ("{providers: {vectorIo: [{id: a}]}}", "spec.providers.vectorIo[0].provider: provider is required"),
        (
            "{providers: {inference: {provider: a, id: 1}}}",
            "spec.providers.inference.id: expected a string, found a number",
        ),
        (
            "{providers: {inference: {provider: a, apiKey: hush}}}",
            "spec.providers.inference.apiKey: not a reference to one key of a Secret",
        ),
        (
            "{providers: {inference: {provider: a, apiKey: {name: x}}}}",
            "spec.providers.inference.apiKey: not a reference to one key of a Secret",
        ),
        (
            "{providers: {inference: {provider: a, apiKey: {name: x, key: y, secretKeyRef: {name: x, key: y}}}}}",
            "spec.providers.inference.apiKey: not a reference to one key of a Secret",
        ),
        (
            "{providers: {inference: {provider: a, secretRefs: {t: {}}}}}",
            "spec.providers.inference.secretRefs.t: not a reference to one key of a Secret",
        ),
        (
            "{providers: {inference: {provider: a, secretRefs: [1]}}}",
            "spec.providers.inference.secretRefs: expected an object whose values are references to Secrets, found a \
             list",
        ),
        (
            "{resources: {models: [m, 7]}}",
            "spec.resources.models[1]: expected the name of a model or an object with the field name, found a number",
        ),
        ("{resources: {models: [{provider: p}]}}", "spec.resources.models[0].name: name is required"),
        (
            "{resources: {models: [{name: m, contextLength: '5'}]}}",
            "spec.resources.models[0].contextLength: expected a whole number, found a string",
        ),
        (
            "{networking: {expose: 'yes'}}",
            "spec.networking.expose: expected true, false or an object such as {hostname: llama.example.com}, found a string",
        ),
        ("{storage: {kv: {password: hush}}}", "spec.storage.kv.password: not a reference to one key of a Secret"),
    ] {
        assert_eq!(errors(spec), [expected], "{spec}");
    }
}

#[test]
fn all_wrong_types_are_reported_unquoted() {
    let messages =
        errors("{providers: {inference: hush, safety: 1}, resources: {models: [[]]}, networking: {expose: []}}");
    let places =
        ["spec.providers.inference", "spec.providers.safety", "spec.resources.models[0]", "spec.networking.expose"];
    assert_eq!(messages.len(), places.len());
    for (message, place) in messages.iter().zip(places) {
        assert!(message.starts_with(&format!("{place}: ")), "{message}");
    }
    assert!(!messages.concat().contains("hush"));
}

#[test]
fn undecodable_spec_is_rejected_without_values() {
    let messages = errors("{workload: {replicas: hush}}");
    assert_eq!(messages.len(), 1);
    assert!(
        messages[0]
            .starts_with("spec.workload.replicas: cannot be decoded: invalid type: string (a value), expected i32"),
        "{messages:?}"
    );
}

#[test]
fn generation_errors_are_validation_errors() {
    let messages = errors(
        "{providers: {inference: [{provider: vllm}, {id: a, provider: vllm}], safety: {id: a, provider: llama-guard}}, resources: \
         {models: [{name: m, provider: nope}]}, disabled: [safety], storage: {kv: {type: redis}}}",
    );
    let places: Vec<&str> = messages.iter().map(|error| error.split(": ").next().unwrap()).collect();
    assert_eq!(
        places,
        [
            "spec.providers.inference[0].id",
            "spec.providers.safety.id",
            "spec.providers.safety",
            "spec.resources.models[0].provider",
            "spec.storage.kv.endpoint",
        ]
    );
}

#[test]
fn missing_base_skips_dependent_rules() {
    let env = TestEnv { base: None, ..TestEnv::new() };
    let spec =
        "{distribution: {image: any}, resources: {models: [{name: m, provider: theirs}, o], tools: [t], shields: [s]}}";
    assert_eq!(error_texts(&env.review(&object(spec), None)), [""; 0]);
    let spec = "{distribution: {image: any}, providers: {inference: [{provider: a}, {provider: b}]}}";
    assert_eq!(env.review(&object(spec), None).errors.len(), 2, "rules about ids do not need a base");
}

#[test]
fn privileged_port_is_rejected_only_if_generated() {
    assert_eq!(errors("{networking: {port: 80}}"), [""; 0]);
    assert_eq!(errors("{networking: {port: 80}, overrideConfig: {configMapName: x}}"), [""; 0]);
    assert_eq!(errors("{networking: {port: 80}, disabled: [eval]}").len(), 1);
}

#[test]
fn fr_079c_ineffective_fields_warn_with_remedy() {
    let review =
        TestEnv::new().review(&object("{storage: {kv: {endpoint: x}}, providers: {telemetry: {provider: w}}}"), None);
    assert_eq!(review.errors, []);
    assert_eq!(review.warnings.len(), 2);
    assert!(
        review.warnings[0]
            .to_string()
            .starts_with("spec.providers.telemetry: the server of this distribution has no API \"telemetry\"")
    );
    assert_eq!(
        review.warnings[1].to_string(),
        "spec.storage.kv.endpoint: endpoint is only valid when type is redis; with sqlite it is not used. Set type to redis, or \
         remove endpoint."
    );
}

const SPEC_WITH_SECRET: &str =
    "{providers: {inference: {provider: vllm, apiKey: {secretKeyRef: {name: creds, key: k}}}}}";

#[test]
fn fr_076_missing_secret_follows_configured_policy() {
    let mut env = TestEnv::without_secret("creds");
    let new = object(SPEC_WITH_SECRET);
    let expected =
        "spec.providers.inference.apiKey.secretKeyRef.name: Secret \"creds\" not found in namespace \"team-a\"";
    assert_eq!(error_texts(&env.review(&new, None)), [expected]);
    env.missing = Missing::Warn;
    let review = env.review(&new, None);
    assert_eq!(review.errors, []);
    assert!(review.warnings[0].to_string().starts_with(expected), "{:?}", review.warnings);
}

#[test]
fn update_checks_only_new_references() {
    let env = TestEnv::without_secret("creds");
    let old = object(SPEC_WITH_SECRET);
    let mut new = old.clone();
    new["spec"]["workload"] = json!({"replicas": 3});
    assert_eq!(env.review(&new, Some(&old)), Review::default());
    assert_eq!(env.review(&new, Some(&object("{}"))).errors.len(), 1);
    new["spec"]["providers"]["inference"]["apiKey"]["secretKeyRef"]["key"] = json!("another");
    assert_eq!(env.review(&new, Some(&old)).errors.len(), 1, "a different key is a new reference");
}

#[test]
fn existing_errors_become_warnings() {
    let old =
        object("{distribution: {name: gone}, resources: {models: [{name: m, provider: openai, modelType: chat}]}}");
    let mut new = old.clone();
    new["spec"]["workload"] = json!({"replicas": 3});
    let review = TestEnv::new().review(&new, Some(&old));
    assert_eq!(review.errors, []);
    assert_eq!(review.warnings.len(), 2, "existing errors are warnings: {:?}", review.warnings);
    new["spec"]["resources"]["models"][0]["modelType"] = json!("talk");
    assert_eq!(error_texts(&TestEnv::new().review(&new, Some(&old))).len(), 1, "new errors are rejected");
}

#[test]
fn deletion_and_metadata_changes_are_never_rejected() {
    let old = object("{distribution: {name: gone}, providers: {inference: 5}}");
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!([]);
    assert_eq!(TestEnv::new().review(&new, Some(&old)), Review::default());
    let mut deleting = object("{providers: {inference: 7}}");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-11-16T00:00:00Z");
    assert_eq!(TestEnv::new().review(&deleting, Some(&old)), Review::default());
}

#[test]
fn merge_annotation_is_validated_and_applied() {
    let mut new = object(
        "{providers: {inference: {id: mine, provider: vllm}}, resources: {models: [{name: m, provider: openai}]}}",
    );
    assert_eq!(error_texts(&TestEnv::new().review(&new, None)), [""; 0]);
    let old = new.clone();
    new["metadata"]["annotations"] = json!({"steersman.dev/provider-merge": "replace"});
    assert_eq!(
        error_texts(&TestEnv::new().review(&new, Some(&old))),
        ["spec.resources.models[0].provider: provider ID \"openai\" not found; available providers: mine"]
    );
    new["metadata"]["annotations"] = json!({"steersman.dev/provider-merge": "both"});
    let messages = error_texts(&TestEnv::new().review(&new, None));
    assert!(messages[0].starts_with("metadata.annotations[steersman.dev/provider-merge]: "), "{messages:?}");
}

#[test]
fn spec_too_large_for_v1alpha1_is_refused() {
    let with = |bytes: usize| {
        object(&format!(
            "{{providers: {{inference: {{provider: vllm, endpoint: http://v, settings: {{text: {}}}}}}}}}",
            "x".repeat(bytes)
        ))
    };
    let review = |new: &Value, old: Option<&Value>| error_texts(&TestEnv::new().review(new, old));
    assert_eq!(review(&with(150_000), None), [""; 0]);
    let error = "spec: the fields that only v1alpha2 has exceed 200000 bytes of JSON, so that clients of v1alpha1 could not \
                 read the object";
    assert_eq!(review(&with(300_000), None), [error]);
    assert_eq!(review(&with(300_001), Some(&with(150_000))), [error]);
    assert_eq!(review(&with(300_001), Some(&with(300_000))), [""; 0], "a stored object can be changed");
}

#[test]
fn v1alpha1_write_never_drops_omitted_fields() {
    let mut written = object("{}");
    written["metadata"]["annotations"] = json!({ "llamastack.io/v1alpha2-fields-omitted": "true" });
    let refused = TestEnv::new().review(&written, Some(&written));
    assert_eq!(
        error_texts(&refused),
        [
            "metadata.annotations[llamastack.io/v1alpha2-fields-omitted]: the object has fields of v1alpha2 that v1alpha1 cannot \
          show, and storing it in this form would remove them"
        ]
    );
    written["metadata"]["deletionTimestamp"] = json!("2026-11-18T00:00:00Z");
    assert_eq!(error_texts(&TestEnv::new().review(&written, Some(&written))), [""; 0], "a finalizer can be removed");
}
