//! YAML that a tenant can write: the output of a profiler, ConfigMaps of the autoscaler, configurations of a server.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use steersman_plan::dynamo::graph::{self, ANNOTATION_LIMIT, FINAL, PARETO};
use steersman_plan::dynamo::{ObservedObject, ObservedOutput};
use steersman_plan::llamastack::config::base::{LABEL_LAYER, LABEL_PATH, from_labels};
use steersman_plan::llamastack::config::read_yaml;
use steersman_plan::variant::config::{self, Config, ConfigSources, concerns};

pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    check_profiler_output(text);
    check_settings(text);
    check_configurations(text);
}

/// The graph survives being stored as an annotation and read again.
fn check_profiler_output(text: &str) {
    let data = BTreeMap::from([(FINAL.to_owned(), text.to_owned()), (PARETO.to_owned(), text.to_owned())]);
    let object = request();
    let output = ObservedOutput { data, ..ObservedOutput::default() };
    let Ok(generated) = graph::generate(&object, &output) else { return };
    assert!(generated.text.len() + generated.additional.len() <= ANNOTATION_LIMIT);
    assert_eq!(generated.graph["metadata"]["namespace"], "tenant", "the graph leaves the request's namespace");
    let stored = BTreeMap::from([(FINAL.to_owned(), generated.text.clone())]);
    let again = graph::generate(&object, &ObservedOutput { data: stored, ..ObservedOutput::default() });
    let again = again.expect("the stored graph can be read");
    assert_eq!(again.graph, generated.graph, "{}", generated.text);
    for name in generated.additional_names(&object) {
        assert!(!name.is_empty() && name != "dgdr-output-request");
    }
}

fn request() -> ObservedObject {
    ObservedObject {
        name: "request".to_owned(),
        namespace: "tenant".to_owned(),
        uid: "u".to_owned(),
        generation: Some(1),
        created: None,
        deleting: false,
        finalizers: Vec::new(),
        annotations: BTreeMap::new(),
        spec: serde_json::from_value(json!({ "model": "m" })).expect("a model is enough"),
        status: None,
    }
}

/// Settings in a tenant's namespace change nothing for other namespaces.
fn check_settings(text: &str) {
    let entries = |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), text.to_owned())).collect();
    let map = |name: &str| ("tenant".to_owned(), name.to_owned());
    let sources = ConfigSources {
        namespace: "operator".to_owned(),
        maps: BTreeMap::from([
            (map("model-scale-to-zero-config"), entries(&["__defaults__", "model.a", "b"])),
            (map("wva-saturation-scaling-config"), entries(&["default", "a"])),
        ]),
        too_large: BTreeSet::new(),
        local: BTreeSet::from(["tenant".to_owned()]),
        environment: BTreeMap::new(),
        allow_http: false,
    };
    let empty = ConfigSources { maps: BTreeMap::new(), ..sources.clone() };
    let (fleet, _) = config::read(&empty, &Config::default());
    let (read, findings) = config::read(&sources, &Config::default());
    let others =
        |config: &Config| (config.interval, config.prometheus.clone(), config.zero.clone(), config.saturation.clone());
    assert_eq!(others(&read), others(&fleet), "a tenant changes the settings of the fleet");
    for finding in &findings {
        assert!(finding.finding.message.len() <= crate::MAX_MESSAGE_BYTES, "{} bytes", finding.finding.message.len());
        let own = finding.config_map.as_ref().is_some_and(|map| map.namespace == "tenant");
        assert!(!own || !concerns(finding, &sources, "other"), "a finding reaches another namespace");
    }
    let (again, _) = config::read(&sources, &read);
    assert_eq!(again, read, "the same ConfigMap yields other settings");
}

/// Messages quote nothing of a file that may hold secrets.
fn check_configurations(text: &str) {
    if let Err(message) = read_yaml(text) {
        check_quotes_nothing(text, &message);
    }
    let labels = BTreeMap::from([
        (LABEL_LAYER.to_owned(), format!("sha256:{}", "0".repeat(64))),
        (LABEL_PATH.to_owned(), "config.yaml".to_owned()),
    ]);
    match from_labels("", "", &labels, |_| Ok(text.as_bytes().to_vec())) {
        Ok(base) => assert!(base.is_some_and(|base| base.config["providers"].is_object())),
        Err(error) => check_quotes_nothing(text, &error.to_string()),
    }
}

/// Long words of the text that are no words of our own messages.
fn check_quotes_nothing(text: &str, message: &str) {
    assert!(message.len() <= crate::MAX_MESSAGE_BYTES);
    let own = |word: &str| OWN_WORDS.iter().any(|known| known.contains(word));
    let secrets = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| word.len() >= 8);
    for secret in secrets.filter(|word| !own(word)) {
        assert!(!message.contains(secret), "{message:?} quotes {secret:?}");
    }
}

const OWN_WORDS: [&str; 6] = [
    "configuration of a Llama Stack server config",
    "not valid YAML at line column",
    "mapping of keys to values providers",
    "in layer sha256",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "it is not UTF",
];
