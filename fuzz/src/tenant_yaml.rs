//! YAML that a tenant can write: the output of a profiler, ConfigMaps of the autoscaler, configurations of a server; with a line
//! `===`, two annotations of a request, or a graph and its override.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use steersman_api::Family;
use steersman_plan::dynamo::graph::merge::{self, component_names, merge};
use steersman_plan::dynamo::graph::{self, ANNOTATION_LIMIT, FINAL, PARETO};
use steersman_plan::dynamo::hardware::ObservedHardware;
use steersman_plan::dynamo::names::{self, ADDITIONAL, GENERATED_GRAPH};
use steersman_plan::dynamo::{ObservedObject, ObservedOutput, ObservedReferences, Settings, Snapshot, plan};
use steersman_plan::llamastack::config::base::{LABEL_LAYER, LABEL_PATH, from_labels};
use steersman_plan::llamastack::config::read_yaml;
use steersman_plan::variant::config::{self, Config, ConfigSources, concerns};
use steersman_plan::yaml::{Booleans, Budget, MAX_DOCUMENTS};
use steersman_reconcile::Lookup;

pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // An input is one source or two, because each source may cost as much as its limits allow.
    if let Some((first, second)) = text.split_once("\n===\n") {
        check_annotations(first, second);
        check_override(first, second);
    } else {
        check_profiler_output(text);
        check_settings(text);
        check_configurations(text);
    }
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

/// A request with any annotations writes its graph and its ConfigMaps, in its own namespace.
fn check_annotations(generated: &str, additional: &str) {
    let mut object = request();
    object.annotations.insert(GENERATED_GRAPH.to_owned(), generated.to_owned());
    object.annotations.insert(ADDITIONAL.to_owned(), additional.to_owned());
    let status = json!({ "phase": "Deploying", "observedGeneration": 1 });
    object.status = Some(serde_json::from_value(status).expect("a phase is enough"));
    if let Ok(wanted) = graph::wanted(&object) {
        assert_eq!(wanted["kind"], Family::Dgd.kind());
        assert_eq!(wanted["metadata"]["namespace"], "tenant", "the graph leaves the request's namespace");
    }
    let plan = plan(&snapshot(object));
    for written in plan.writes.iter().filter_map(|write| write.object()) {
        let (kind, metadata) = (written.types.as_ref().map(|types| types.kind.as_str()), &written.metadata);
        assert!(kind == Some("ConfigMap") || kind == Some(Family::Dgd.kind()), "a write of {kind:?}");
        assert_eq!(metadata.namespace.as_deref(), Some("tenant"), "a write leaves the request's namespace");
        assert!(metadata.name.as_deref().is_some_and(|name| !name.is_empty() && name != names::output("request")));
        assert!(metadata.finalizers.is_none());
    }
    assert!(plan.writes.len() <= MAX_DOCUMENTS + 2, "{} writes", plan.writes.len());
    let texts =
        plan.findings.iter().map(|finding| &finding.message).chain(plan.events.iter().map(|event| &event.message));
    for text in texts {
        assert!(text.len() <= crate::MAX_MESSAGE_BYTES, "a message of {} bytes", text.len());
    }
}

/// An override changes neither the identity nor the components of a graph, and leaves no modifier in it.
fn check_override(graph: &str, wanted: &str) {
    let read = |text| Budget::new(Booleans::TrueAndFalse).parse::<Map<String, Value>>(text).ok();
    let (Some(graph), Some(wanted)) = (read(graph), read(wanted)) else { return };
    if merge::problem(&graph).is_some() {
        return;
    }
    let Ok(merged) = merge(&graph, &wanted) else { return };
    assert!(merge::problem(&wanted).is_none() && merge::unknown(&wanted).is_none(), "a wrong override is merged");
    for field in ["apiVersion", "kind", "status"] {
        assert_eq!(merged.graph.get(field), graph.get(field), "{field}");
    }
    let identity = |graph: &Map<String, Value>| -> Vec<Value> {
        let metadata = graph.get("metadata").cloned().unwrap_or_default();
        ["name", "namespace", "ownerReferences", "finalizers"].map(|field| metadata[field].clone()).into()
    };
    assert_eq!(identity(&merged.graph), identity(&graph));
    let names = |graph: &Map<String, Value>| component_names(graph, graph).existing;
    assert_eq!(names(&merged.graph), names(&graph), "an override adds or removes a component");
}

fn snapshot(object: ObservedObject) -> Snapshot {
    Snapshot {
        now: Timestamp::UNIX_EPOCH,
        settings: Settings::default(),
        object,
        job: None,
        job_pods: Vec::new(),
        output: None,
        graph: None,
        graphs_served: true,
        graph_pods: Vec::new(),
        additional: Vec::new(),
        references: ObservedReferences::default(),
        account: None,
        binding: None,
        thorough_binding: None,
        hardware: ObservedHardware {
            awaited: false,
            exporters: Lookup::Known(Vec::new()),
            gpu_operator: false,
            by_labels: true,
            nodes: Lookup::Known(Vec::new()),
            rdma_pod: false,
        },
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
