use std::collections::BTreeMap;

use serde_json::{Value, json};
use steersman_plan::llamastack::config::Base;
use steersman_plan::llamastack::validate::{Facts, Found, Kind, Missing, Named, Review, validate};

use super::{starter, yaml};

const KNOWN: [&str; 3] = ["starter", "postgres-demo", "remote-vllm"];

fn object(spec: &str) -> Value {
    let mut spec = yaml(spec);
    if spec["distribution"].is_null() {
        spec["distribution"] = json!({"name": "starter"});
    }
    json!({"metadata": {"name": "x", "namespace": "team-a"}, "spec": spec})
}

struct World {
    base: Option<Base>,
    found: BTreeMap<Named, Found>,
    missing: Missing,
}

impl World {
    /// With the starter's base, and with nothing looked up.
    fn new() -> Self {
        Self { base: Some(starter()), found: BTreeMap::new(), missing: Missing::Refuse }
    }

    fn without_secret(name: &str) -> Self {
        let named = Named { kind: Kind::Secret, namespace: "team-a".into(), name: name.into() };
        Self { found: [(named, Found::Absent)].into(), ..Self::new() }
    }

    fn verdict(&self, new: &Value, old: Option<&Value>) -> Review {
        let facts = Facts {
            namespace: "team-a",
            distributions: &KNOWN,
            base: self.base.as_ref(),
            always_mounted: false,
            config_namespace: None,
            found: &self.found,
            missing: self.missing,
        };
        validate(new, old, &facts)
    }
}

fn told(verdict: &Review) -> Vec<String> {
    verdict.errors.iter().map(|one| format!("{}: {}", one.path, one.message)).collect()
}

fn errors(spec: &str) -> Vec<String> {
    told(&World::new().verdict(&object(spec), None))
}

#[test]
fn a_sound_object_is_accepted_without_a_word() {
    let spec = "{providers: {inference: {provider: vllm, endpoint: 'http://x', apiKey: {name: s, key: k}}}, resources: \
                {models: [m, {name: o, provider: openai}]}, storage: {kv: {type: redis, endpoint: 'r:1'}}}";
    assert_eq!(World::new().verdict(&object(spec), None), Review::default());
}

#[test]
fn fr_079d_an_unknown_distribution_is_refused_with_those_that_there_are() {
    assert_eq!(
        errors("{distribution: {name: stater}}"),
        [
            "spec.distribution.name: Unknown distribution \"stater\". Available distributions: postgres-demo, remote-vllm, starter"
        ]
    );
    assert_eq!(errors("{distribution: {image: any}}"), [""; 0]);
}

#[test]
fn wrong_kinds_in_fields_with_several_forms_are_refused_with_their_place() {
    for (spec, wanted) in [
        (
            "{providers: {inference: vllm}}",
            "spec.providers.inference: expected a provider (an object with provider in it) or a list of them, found a text",
        ),
        (
            "{providers: {safety: [x]}}",
            "spec.providers.safety[0]: expected a provider: an object with provider in it, found a text",
        ),
        ("{providers: {vectorIo: {provider: 5}}}", "spec.providers.vectorIo.provider: expected a text, found a number"),
        ("{providers: {vectorIo: [{id: a}]}}", "spec.providers.vectorIo[0].provider: provider is required"),
        (
            "{providers: {inference: {provider: a, id: 1}}}",
            "spec.providers.inference.id: expected a text, found a number",
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
            "spec.providers.inference.secretRefs: expected an object of references to Secrets, found a list",
        ),
        (
            "{resources: {models: [m, 7]}}",
            "spec.resources.models[1]: expected the name of a model or an object with name in it, found a number",
        ),
        ("{resources: {models: [{provider: p}]}}", "spec.resources.models[0].name: name is required"),
        (
            "{resources: {models: [{name: m, contextLength: '5'}]}}",
            "spec.resources.models[0].contextLength: expected a whole number, found a text",
        ),
        (
            "{networking: {expose: 'yes'}}",
            "spec.networking.expose: expected true, false or an object such as {hostname: llama.example.com}, found a text",
        ),
        ("{storage: {kv: {password: hush}}}", "spec.storage.kv.password: not a reference to one key of a Secret"),
    ] {
        assert_eq!(errors(spec), [wanted], "{spec}");
    }
}

#[test]
fn several_wrong_kinds_are_told_at_once_and_no_value_is_repeated() {
    let told = errors("{providers: {inference: hush, safety: 1}, resources: {models: [[]]}, networking: {expose: []}}");
    assert_eq!(told.len(), 4);
    assert!(!told.concat().contains("hush"));
}

#[test]
fn a_spec_that_cannot_be_read_is_refused_without_its_values() {
    let told = errors("{workload: {replicas: hush}}");
    assert_eq!(told.len(), 1);
    assert!(
        told[0].starts_with("spec.workload.replicas: cannot be read: invalid type: string (a value), expected i32"),
        "{told:?}"
    );
}

#[test]
fn the_rules_of_the_generation_are_asked() {
    let told = errors(
        "{providers: {inference: [{provider: vllm}, {id: a, provider: vllm}], safety: {id: a, provider: llama-guard}}, resources: \
         {models: [{name: m, provider: nope}]}, disabled: [safety], storage: {kv: {type: redis}}}",
    );
    let places: Vec<&str> = told.iter().map(|error| error.split(": ").next().unwrap()).collect();
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
fn without_a_base_nothing_is_refused_that_depends_on_it() {
    let world = World { base: None, ..World::new() };
    let spec =
        "{distribution: {image: any}, resources: {models: [{name: m, provider: theirs}, o], tools: [t], shields: [s]}}";
    assert_eq!(told(&world.verdict(&object(spec), None)), [""; 0]);
    let spec = "{distribution: {image: any}, providers: {inference: [{provider: a}, {provider: b}]}}";
    assert_eq!(world.verdict(&object(spec), None).errors.len(), 2, "ids do not depend on it");
}

#[test]
fn a_port_below_1024_is_refused_only_where_a_file_says_it() {
    assert_eq!(errors("{networking: {port: 80}}"), [""; 0]);
    assert_eq!(errors("{networking: {port: 80}, overrideConfig: {configMapName: x}}"), [""; 0]);
    assert_eq!(errors("{networking: {port: 80}, disabled: [eval]}").len(), 1);
}

#[test]
fn fr_079c_what_has_no_effect_is_a_warning_with_place_and_remedy() {
    let verdict =
        World::new().verdict(&object("{storage: {kv: {endpoint: x}}, providers: {telemetry: {provider: w}}}"), None);
    assert_eq!(verdict.errors, []);
    assert_eq!(verdict.warnings.len(), 2);
    assert!(
        verdict.warnings[0]
            .to_string()
            .starts_with("spec.providers.telemetry: the server of this distribution has no API telemetry")
    );
    assert_eq!(
        verdict.warnings[1].to_string(),
        "spec.storage.kv.endpoint: endpoint is only valid when type is redis; with sqlite it is not used. Set type to redis, or \
         remove endpoint."
    );
}

const WITH_SECRET: &str = "{providers: {inference: {provider: vllm, apiKey: {secretKeyRef: {name: creds, key: k}}}}}";

#[test]
fn fr_076_a_missing_secret_is_refused_or_told_as_set() {
    let mut world = World::without_secret("creds");
    let new = object(WITH_SECRET);
    let wanted =
        "spec.providers.inference.apiKey.secretKeyRef.name: Secret \"creds\" not found in namespace \"team-a\"";
    assert_eq!(told(&world.verdict(&new, None)), [wanted]);
    world.missing = Missing::Warn;
    let verdict = world.verdict(&new, None);
    assert_eq!(verdict.errors, []);
    assert!(verdict.warnings[0].to_string().starts_with(wanted), "{:?}", verdict.warnings);
}

#[test]
fn an_update_is_asked_only_for_references_that_it_adds() {
    let world = World::without_secret("creds");
    let old = object(WITH_SECRET);
    let mut new = old.clone();
    new["spec"]["workload"] = json!({"replicas": 3});
    assert_eq!(world.verdict(&new, Some(&old)), Review::default());
    assert_eq!(world.verdict(&new, Some(&object("{}"))).errors.len(), 1);
    new["spec"]["providers"]["inference"]["apiKey"]["secretKeyRef"]["key"] = json!("another");
    assert_eq!(world.verdict(&new, Some(&old)).errors.len(), 1, "another key is another reference");
}

#[test]
fn what_was_wrong_before_does_not_stand_against_a_change() {
    let old = object("{distribution: {name: gone}, resources: {models: [{name: m, modelType: chat}]}}");
    let mut new = old.clone();
    new["spec"]["workload"] = json!({"replicas": 3});
    let verdict = World::new().verdict(&new, Some(&old));
    assert_eq!(verdict.errors, []);
    assert_eq!(verdict.warnings.len(), 2, "but it is told: {:?}", verdict.warnings);
    new["spec"]["resources"]["models"][0]["modelType"] = json!("talk");
    assert_eq!(told(&World::new().verdict(&new, Some(&old))).len(), 1, "what is newly wrong does");
}

#[test]
fn deletion_and_changes_beside_the_spec_are_never_refused() {
    let old = object("{distribution: {name: gone}, providers: {inference: 5}}");
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!([]);
    assert_eq!(World::new().verdict(&new, Some(&old)), Review::default());
    let mut deleting = object("{providers: {inference: 7}}");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-11-16T00:00:00Z");
    assert_eq!(World::new().verdict(&deleting, Some(&old)), Review::default());
}

#[test]
fn a_wrong_annotation_is_refused_and_a_right_one_counts() {
    let mut new = object(
        "{providers: {inference: {id: mine, provider: vllm}}, resources: {models: [{name: m, provider: openai}]}}",
    );
    assert_eq!(told(&World::new().verdict(&new, None)), [""; 0]);
    let old = new.clone();
    new["metadata"]["annotations"] = json!({"steersman.dev/provider-merge": "replace"});
    assert_eq!(
        told(&World::new().verdict(&new, Some(&old))),
        ["spec.resources.models[0].provider: provider ID \"openai\" not found; available providers: mine"]
    );
    new["metadata"]["annotations"] = json!({"steersman.dev/provider-merge": "both"});
    let told = told(&World::new().verdict(&new, None));
    assert!(told[0].starts_with("metadata.annotations[steersman.dev/provider-merge]: "), "{told:?}");
}
