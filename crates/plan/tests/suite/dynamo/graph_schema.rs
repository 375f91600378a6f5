//! The checks of `overrides.dgd` against the published CRD of graphs, if the developer's machine has it next to the
//! repository: each field, type, limit and required field of the CRD.

use std::path::Path;

use serde_json::{Map, Value, json};
use steersman_plan::dynamo::graph::merge::{problem, unknown};

use super::yaml;

/// Rules of the CRD that its types do not express, or that the generated graph decides: `(end of the path, reason)`.
const NOT_CHECKED: [(&str, &str); 5] = [
    ("restart", "a new graph must not have it"),
    ("extraClientPods", "it must be empty"),
    ("podTemplate.spec.containers", "the generated graph has containers"),
    ("multinode.nodeCount", "the API server sets it"),
    ("imagePullSecrets.[]", "the CRD accepts an entry without a name, which has no effect"),
];

#[expect(clippy::disallowed_methods, reason = "the test reads a manifest; the crate reads nothing")]
fn published_crd() -> Option<Value> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/upstream/dynamo/crd-dynamographdeployments.yaml");
    let Ok(text) = std::fs::read_to_string(&path) else {
        steersman_testkit::skip::skip("the published CRD of graphs", "no upstream files");
        return None;
    };
    let options = serde_saphyr::options! { budget: None };
    Some(serde_saphyr::from_str_with_options(&text, options).unwrap())
}

/// A place in the schema of a spec.
#[derive(Clone)]
struct Node<'a> {
    schema: &'a Value,
    /// Schemas and steps from the spec to here.
    parents: Vec<(&'a Value, String)>,
    /// A list or map above replaces that of the generated graph as a whole.
    whole: bool,
}

const ITEM: &str = "[]";
const ENTRY: &str = "*";

impl<'a> Node<'a> {
    fn path(&self) -> String {
        self.parents.iter().map(|(_, step)| step.as_str()).collect::<Vec<_>>().join(".")
    }

    fn last(&self) -> &str {
        self.parents.last().map_or("spec", |(_, step)| step.as_str())
    }

    fn child(&self, schema: &'a Value, step: &str) -> Self {
        let mut parents = self.parents.clone();
        parents.push((self.schema, step.to_owned()));
        let is_list = self.schema["type"] == "array";
        let keyed = self.schema["x-kubernetes-list-type"] == "map";
        let atomic = self.schema["x-kubernetes-map-type"] == "atomic";
        Self { schema, parents, whole: self.whole || atomic || is_list && !keyed }
    }

    fn children(&self) -> Vec<Self> {
        let fields = self.schema["properties"].as_object().into_iter().flatten();
        let mut found: Vec<Self> = fields.map(|(name, schema)| self.child(schema, name)).collect();
        if self.schema["additionalProperties"].is_object() {
            found.push(self.child(&self.schema["additionalProperties"], ENTRY));
        }
        if self.schema["items"].is_object() {
            found.push(self.child(&self.schema["items"], ITEM));
        }
        found
    }

    /// An override that has this value here, and else only what the CRD requires.
    fn graph(&self, version: &str, value: Value) -> Value {
        let mut value = value;
        for (at, (parent, step)) in self.parents.iter().enumerate().rev() {
            value = match step.as_str() {
                ITEM => json!([value]),
                ENTRY => json!({ "a": value }),
                field => {
                    let name = self.parents[..at].last().map_or("spec", |(_, step)| step.as_str());
                    let mut object = minimal(parent, name);
                    object[field] = value;
                    satisfy_rules(&mut object, parent, field);
                    object
                }
            };
        }
        json!({ "apiVersion": format!("nvidia.com/{version}"), "kind": "DynamoGraphDeployment", "spec": value })
    }

    fn exempt(&self) -> bool {
        let path = self.path();
        NOT_CHECKED.iter().any(|(exempt, _)| path.ends_with(exempt) || path.contains(&format!("{exempt}.")))
    }
}

/// Adds what the rules of the CRD demand besides `field`.
fn satisfy_rules(object: &mut Value, schema: &Value, field: &str) {
    let rules = schema["x-kubernetes-validations"].to_string();
    if rules.contains("exactly one of configMapRef") && field == "config" {
        object.as_object_mut().unwrap().remove("configMapRef");
    }
    if rules.contains("exactly one of labelKey") && field == "clusterTopologyName" {
        object.as_object_mut().unwrap().remove("labelKey");
    }
    if rules.contains("preferredWeight") && field == "preferredWeight" {
        object["enforcement"] = json!("preferred");
    }
    if rules.contains("When create is true") && field == "create" {
        object["size"] = json!("1Gi");
        object["storageClass"] = json!("a");
        object["volumeAccessMode"] = json!("a");
    }
    if rules.contains("size is required") && field == "disabled" {
        object["size"] = json!("1Gi");
    }
}

/// The least value that the CRD accepts.
fn minimal(schema: &Value, name: &str) -> Value {
    if schema["x-kubernetes-int-or-string"] == true {
        return json!(1);
    }
    if let Some(words) = schema["enum"].as_array() {
        return words[0].clone();
    }
    match schema["type"].as_str() {
        Some("string") if name == "imagePullPolicy" => json!("Always"),
        Some("string") if name == "runtimeVersionOverride" => json!("1.5.0"),
        Some("string") => json!("a"),
        Some("integer") => json!(schema["minimum"].as_i64().unwrap_or(1)),
        Some("number") => json!(schema["minimum"].as_f64().unwrap_or(0.5)),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        _ => {
            let mut fields = Map::new();
            for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                fields.insert(name.to_owned(), minimal(&schema["properties"][name], name));
            }
            let rules = schema["x-kubernetes-validations"].to_string();
            if rules.contains("exactly one of configMapRef") {
                fields.insert("configMapRef".to_owned(), json!({ "key": "a" }));
            }
            if rules.contains("exactly one of labelKey") {
                fields.insert("labelKey".to_owned(), json!("a"));
            }
            fields.into()
        }
    }
}

/// Values that the CRD refuses here, and why.
fn refused(schema: &Value) -> Vec<(Value, &'static str)> {
    if schema["x-kubernetes-int-or-string"] == true {
        let mut found = vec![(json!(1.5), "type"), (json!([]), "type"), (json!(true), "type")];
        if schema["pattern"].is_string() {
            found.push((json!("1 GB"), "pattern"));
        }
        return found;
    }
    let mut found = match schema["type"].as_str() {
        Some("string") => vec![(json!(1), "type"), (json!({}), "type")],
        Some("integer") => vec![(json!("1"), "type"), (json!(1.5), "type")],
        Some("number") => vec![(json!("1"), "type")],
        Some("boolean") => vec![(json!("true"), "type"), (json!(1), "type")],
        Some("array") => vec![(json!({}), "type"), (json!("a"), "type")],
        Some("object") => vec![(json!([]), "type"), (json!("a"), "type")],
        _ => vec![],
    };
    if let Some(minimum) = schema["minimum"].as_f64() {
        found.push((
            if schema["type"] == "integer" { json!(minimum as i64 - 1) } else { json!(minimum - 1.0) },
            "minimum",
        ));
    }
    if let Some(maximum) = schema["maximum"].as_f64() {
        found.push((
            if schema["type"] == "integer" { json!(maximum as i64 + 1) } else { json!(maximum + 1.0) },
            "maximum",
        ));
    }
    if schema["format"] == "int32" {
        found.push((json!(i64::from(i32::MAX) + 1), "format"));
    }
    if schema["enum"].is_array() {
        found.push((json!("other"), "enum"));
    }
    if schema["pattern"].is_string() {
        found.extend([(json!("-a"), "pattern"), (json!("a "), "pattern"), (json!(""), "pattern")]);
    }
    if schema["minLength"] == 1 {
        found.push((json!(""), "minLength"));
    }
    // The length of annotations is limited by that of the object as well.
    if let Some(most) = schema["maxLength"].as_u64().filter(|most| *most < 1_000) {
        found.push((json!("a".repeat(most as usize + 1)), "maxLength"));
    }
    found
}

fn problem_of(graph: &Value) -> Option<String> {
    let graph = graph.as_object().unwrap();
    problem(graph).or_else(|| unknown(graph))
}

fn visit(node: &Node<'_>, version: &str, found: &mut Vec<String>) {
    if node.exempt() {
        return;
    }
    let place = format!("{version} {}", node.path());
    let valid = minimal(node.schema, node.last());
    if !node.parents.is_empty() {
        if let Some(problem) = problem_of(&node.graph(version, valid.clone())) {
            found.push(format!("{place}: {valid} is refused: {problem}"));
        }
        for (wrong, why) in refused(node.schema) {
            if problem_of(&node.graph(version, wrong.clone())).is_none() {
                found.push(format!("{place}: {wrong} is accepted ({why})"));
            }
        }
    }
    let opaque = node.schema["x-kubernetes-preserve-unknown-fields"] == true;
    if node.schema["type"] == "object" && !opaque && !node.schema["additionalProperties"].is_object() {
        let mut wrong = valid.clone();
        wrong["noSuchField"] = json!("a");
        if node.parents.is_empty() || problem_of(&node.graph(version, wrong)).is_none() {
            let spec = json!({ "apiVersion": format!("nvidia.com/{version}"), "kind": "DynamoGraphDeployment",
                "spec": { "noSuchField": "a" } });
            if !node.parents.is_empty() || problem_of(&spec).is_none() {
                found.push(format!("{place}: an unknown field is accepted"));
            }
        }
    }
    // The generated graph may have what an override of a pod leaves out.
    let in_pod = ["podTemplate.", "extraPodSpec.", "Probe"].iter().any(|part| node.path().contains(part));
    if node.whole || !in_pod {
        for name in node.schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let exempt = node.schema["properties"].get(name).is_some_and(|schema| node.child(schema, name).exempt());
            let mut wrong = valid.clone();
            wrong.as_object_mut().unwrap().remove(name);
            if !exempt && problem_of(&node.graph(version, wrong)).is_none() {
                found.push(format!("{place}: accepted without {name}"));
            }
        }
    }
    for child in node.children() {
        visit(&child, version, found);
    }
}

/// Each field of the CRD gets the least valid value, which is accepted, and values of another type, outside of its limits,
/// without required fields and with an unknown field, which are refused.
#[test]
fn override_checks_follow_the_published_graph_crd() {
    let Some(crd) = published_crd() else { return };
    let mut found = Vec::new();
    for version in crd["spec"]["versions"].as_array().unwrap() {
        let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
        assert!(spec["properties"].is_object(), "the CRD has a schema");
        let root = Node { schema: spec, parents: Vec::new(), whole: false };
        visit(&root, version["name"].as_str().unwrap(), &mut found);
    }
    assert_eq!(found, Vec::<String>::new(), "{} differences:\n{}", found.len(), found.join("\n"));
}

/// The rules of the CRD about several fields, and the limits of lists.
#[test]
fn override_against_graph_rules_is_refused() {
    let many = |field: &str, count: usize, item: &str, map: bool| {
        let entries: Vec<String> =
            (0..count).map(|n| if map { format!("s{n}: {item}") } else { item.replace('#', &n.to_string()) }).collect();
        let (open, close) = if map { ('{', '}') } else { ('[', ']') };
        format!("{{{field}: {open}{}{close}}}", entries.join(", "))
    };
    let (services, claims) = (many("services", 26, "{replicas: 1}", true), many("pvcs", 101, "{name: p#}", false));
    let components = many("components", 26, "{name: c#}", false);
    let worker = |fields: &str| format!("{{components: [{{name: Worker, {fields}}}]}}");
    let service = |fields: &str| format!("{{services: {{decode: {{{fields}}}}}}}");
    let policy = |fields: &str| format!("{{experimental: {{kvTransferPolicy: {{domain: a, {fields}}}}}}}");
    let at = |field: &str, words: &str| format!("spec.components.Worker.{field} {words}");
    for (version, spec, why) in [
        ("v1beta1", "{restart: {id: a}}".to_owned(), "spec.restart must be absent".to_owned()),
        ("v1alpha1", "{restart: {id: a}}".to_owned(), "spec.restart must be absent".to_owned()),
        ("v1alpha1", services, "spec.services has 26 entries, but a graph has at most 25".to_owned()),
        ("v1beta1", components, "spec.components has 26 entries, but a graph has at most 25".to_owned()),
        ("v1alpha1", claims, "spec.pvcs has 101 entries, but a graph has at most 100".to_owned()),
        (
            "v1beta1",
            worker("replicas: 2, minAvailable: 3"),
            at("minAvailable", "must be at most the number of replicas, 2"),
        ),
        (
            "v1alpha1",
            service("replicas: 2, minAvailable: 3"),
            "spec.services.decode.minAvailable must be at most the number of replicas, 2".to_owned(),
        ),
        ("v1beta1", worker("eppConfig: {}"), at("eppConfig", "must have either configMapRef or config")),
        (
            "v1beta1",
            worker("eppConfig: {configMapRef: {key: a}, config: {plugins: [], schedulingProfiles: []}}"),
            at("eppConfig", "must have either configMapRef or config"),
        ),
        (
            "v1beta1",
            worker("type: worker, eppConfig: {configMapRef: {key: a}}"),
            at("eppConfig", "must be absent unless type is epp"),
        ),
        (
            "v1beta1",
            worker("experimental: {checkpoint: {enabled: true, checkpointRef: a, job: {}}}"),
            at("experimental.checkpoint.job", "must be absent if checkpointRef is set"),
        ),
        (
            "v1beta1",
            worker("experimental: {gpuMemoryService: {extraClientPods: [{name: a, podTemplate: {}}]}}"),
            at("experimental.gpuMemoryService.extraClientPods", "must be empty"),
        ),
        (
            "v1beta1",
            worker("experimental: {gpuMemoryService: {mode: InterPod, extraClientContainers: [a]}}"),
            at("experimental.gpuMemoryService.extraClientContainers", "must be empty unless mode is intra-pod"),
        ),
        (
            "v1beta1",
            worker("podTemplate: {metadata: {annotations: {nvidia.com/vllm-distributed-executor-backend: other}}}"),
            at("podTemplate.metadata.annotations[nvidia.com/vllm-distributed-executor-backend]", "must be mp or ray"),
        ),
        (
            "v1beta1",
            worker("podTemplate: {spec: {containers: [{name: side, image: ''}]}}"),
            at("podTemplate.spec.containers.side.image", "must be non-empty"),
        ),
        (
            "v1alpha1",
            service("sharedMemory: {size: '0'}"),
            "spec.services.decode.sharedMemory.size must be greater than 0 unless disabled is true".to_owned(),
        ),
        ("v1alpha1", "{pvcs: [{size: 1Gi}]}".to_owned(), "spec.pvcs.0 has no name".to_owned()),
        (
            "v1alpha1",
            "{pvcs: [{name: a, create: true, size: 1Gi}]}".to_owned(),
            "spec.pvcs.a has no storageClass, which is required if create is true".to_owned(),
        ),
        ("v1beta1", policy("enforcement: required"), "must have either labelKey or clusterTopologyName".to_owned()),
        (
            "v1beta1",
            policy("labelKey: a, clusterTopologyName: b"),
            "must have either labelKey or clusterTopologyName".to_owned(),
        ),
        (
            "v1beta1",
            policy("labelKey: a, enforcement: preferred"),
            "preferredWeight is required if enforcement is preferred".to_owned(),
        ),
        (
            "v1beta1",
            policy("labelKey: a, preferredWeight: 0.5"),
            "preferredWeight must be absent unless enforcement is preferred".to_owned(),
        ),
        ("v1beta1", worker("runtimeVersionOverride: latest"), at("runtimeVersionOverride", "must be a version")),
        ("v1beta1", worker("runtimeVersionOverride: 1.05.0"), at("runtimeVersionOverride", "must be a version")),
        (
            "v1beta1",
            worker("podTemplate: {spec: {topologySpreadConstraints: [{topologyKey: a, maxSkew: 1}]}}"),
            "topologySpreadConstraints[0] has no whenUnsatisfiable".to_owned(),
        ),
        (
            "v1beta1",
            worker("podTemplate: {spec: {containers: [{name: main, $patch: {args: append}, args: [a, '']}]}}"),
            at("podTemplate.spec.containers.main.args.1", "must be non-empty"),
        ),
    ] {
        let graph = json!({ "apiVersion": format!("nvidia.com/{version}"), "kind": "DynamoGraphDeployment",
            "spec": yaml(&spec) });
        let found = problem(graph.as_object().unwrap()).unwrap_or_else(|| panic!("accepted: {spec}"));
        assert!(found.starts_with("override ") && found.contains(&why), "{spec}: {found}");
    }
}

#[test]
fn override_rules_spare_valid_graphs() {
    for (version, spec) in [
        ("v1beta1", "{components: [{name: W, replicas: 0, minAvailable: 3}]}"),
        ("v1beta1", "{components: [{name: W, minAvailable: 3}]}"),
        ("v1beta1", "{components: [{name: W, type: epp, eppConfig: {configMapRef: {key: a}}}]}"),
        ("v1beta1", "{components: [{name: W, multinode: {}, runtimeVersionOverride: 1.5.0}]}"),
        ("v1beta1", "{components: [{name: W, providerOverride: {apiVersion: a, value: {x: null}}}]}"),
        ("v1beta1", "{components: [{name: W, experimental: {gpuMemoryService: {extraClientContainers: [a]}}}]}"),
        (
            "v1beta1",
            "{components: [{name: W, podTemplate: {metadata: {annotations: {nvidia.com/vllm-distributed-executor-backend: Ray}}}}]}",
        ),
        ("v1beta1", "{components: [{name: W, podTemplate: {spec: {containers: [{name: main, image: ''}]}}}]}"),
        ("v1alpha1", "{services: {a: {multinode: {}, sharedMemory: {disabled: true, size: '0'}}}}"),
        ("v1alpha1", "{services: {a: {sharedMemory: {disabled: false}}}}"),
        (
            "v1alpha1",
            "{experimental: {kvTransferPolicy: {domain: a, labelKey: example.com/rack, enforcement: preferred, preferredWeight: 1}}}",
        ),
    ] {
        let graph = json!({ "apiVersion": format!("nvidia.com/{version}"), "kind": "DynamoGraphDeployment",
            "spec": yaml(spec) });
        assert_eq!(problem_of(&graph), None, "{spec}");
    }
}

#[test]
fn override_metadata_must_be_texts() {
    for (metadata, why) in [
        ("{labels: {a: 1}}", "metadata.labels.a must be a string"),
        ("{annotations: [a]}", "metadata.annotations must be an object"),
        ("{labels: null}", "metadata.labels must not be null"),
        ("{labels: {a: null}}", "metadata.labels.a must not be null"),
        ("[]", "metadata must be an object"),
    ] {
        let graph = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment",
            "metadata": yaml(metadata) });
        let found = problem(graph.as_object().unwrap()).unwrap_or_else(|| panic!("accepted: {metadata}"));
        assert!(found.starts_with("override ") && found.contains(why), "{metadata}: {found}");
    }
    let ignored = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment",
        "metadata": { "uid": null, "namespace": 1 } });
    assert_eq!(problem_of(&ignored), None);
}
