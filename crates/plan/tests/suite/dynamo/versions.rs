//! Overrides in v1beta1 over graphs that profilers of Dynamo 1.4 write in v1alpha1.

use serde_json::{Value, json};
use steersman_plan::dynamo::graph::merge::{Merged, merge};

use super::yaml;

/// A graph as profilers write it, with every service field that v1beta1 moves to the main container.
const GRAPH: &str = "apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: vllm-disagg}
spec:
  envs: [{name: X, value: '1'}]
  services:
    Frontend:
      componentType: frontend
      replicas: 1
      extraPodSpec: {mainContainer: {image: f:1, command: [python3], args: [-m, dynamo.frontend]}}
    VllmDecodeWorker:
      componentType: worker
      subComponentType: decode
      replicas: 2
      envFromSecret: hf-token-secret
      envs: [{name: A, value: '1'}, {name: B, value: '1'}]
      sharedMemory: {size: 16Gi}
      resources: {limits: {gpu: '2', custom: {rdma/hca: '1'}}, requests: {gpu: '2', cpu: '4'}}
      livenessProbe: {periodSeconds: 5, httpGet: {path: /live, port: 9090}}
      volumeMounts: [{name: cache, mountPoint: /c, useAsCompilationCache: true}, {name: m, mountPoint: /m}]
      extraPodSpec:
        tolerations: [{key: a}]
        mainContainer:
          image: w:1
          args: [--model, m]
          env: [{name: B, value: '2'}]
          volumeMounts: [{name: v, mountPath: /v}]
";

fn apply_override(graph: &Value, version: &str, rest: &str) -> Result<Merged, String> {
    let graph_override = yaml(&format!("apiVersion: nvidia.com/{version}\nkind: DynamoGraphDeployment\n{rest}"));
    merge(graph.as_object().unwrap(), graph_override.as_object().unwrap())
}

fn worker_override(rest: &str) -> String {
    format!("spec: {{components: [{{name: VllmDecodeWorker, {rest}}}]}}")
}

fn merged_service(rest: &str) -> Value {
    json!(apply_override(&yaml(GRAPH), "v1beta1", &worker_override(rest)).unwrap().graph)["spec"]["services"]["VllmDecodeWorker"].clone()
}

fn main_container(rest: &str) -> String {
    format!("podTemplate: {{spec: {{containers: [{{name: main, {rest}}}]}}}}")
}

/// Converts a v1alpha1 graph by merging it into an empty v1beta1 graph.
fn to_v1beta1(graph: &Value) -> Value {
    let names = graph["spec"]["services"].as_object().unwrap().keys();
    let components: Vec<Value> = names.map(|name| json!({ "name": name })).collect();
    let blank = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment",
        "spec": { "components": components } });
    json!(merge(blank.as_object().unwrap(), graph.as_object().unwrap()).unwrap().graph)
}

fn sort_lists(mut graph: Value) -> Value {
    for component in graph["spec"]["components"].as_array_mut().unwrap() {
        let containers = component.pointer_mut("/podTemplate/spec/containers").and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            for (list, key) in [("env", "name"), ("volumeMounts", "mountPath")] {
                if let Some(items) = container.get_mut(list).and_then(Value::as_array_mut) {
                    items.sort_by_key(|item| item[key].to_string());
                }
            }
        }
    }
    graph
}

#[test]
fn merge_result_is_independent_of_graph_version() {
    let component_overrides = [
        "replicas: 5",
        "type: prefill",
        "type: worker",
        "sharedMemorySize: 32Gi",
        "sharedMemorySize: '0'",
        "scalingAdapter: {}",
        "multinode: {nodeCount: 3}",
        "compilationCache: {pvcName: other}",
        "experimental: {gpuMemoryService: {mode: InterPod}, failover: {numShadows: 1}, checkpoint: {enabled: true}}",
        "podTemplate: {metadata: {labels: {x: '1'}}}",
        "podTemplate: {spec: {tolerations: [{key: b}], nodeSelector: {a: b}, containers: [{name: side, image: s:1}]}}",
    ];
    let main_overrides = [
        "image: w:2, args: [--other]",
        "$patch: {args: append}, args: [--more]",
        "env: [{name: A}, {name: B, value: '3'}, {name: C, value: '1'}]",
        "resources: {limits: {nvidia.com/gpu: '4', cpu: '8'}}",
        "livenessProbe: {periodSeconds: 9}",
        "readinessProbe: {periodSeconds: 9}",
        "startupProbe: {periodSeconds: 9}",
        "volumeMounts: [{name: m2, mountPath: /m}, {name: n2, mountPath: /n, readOnly: true}]",
        "envFrom: [{secretRef: {name: s}}]",
    ];
    for component in component_overrides
        .iter()
        .map(|component| (*component).to_owned())
        .chain(main_overrides.iter().map(|component| main_container(component)))
    {
        let first = json!(apply_override(&yaml(GRAPH), "v1beta1", &worker_override(&component)).unwrap().graph);
        assert_eq!(first["apiVersion"], "nvidia.com/v1alpha1", "{component}: the merged graph keeps its version");
        let second =
            json!(apply_override(&to_v1beta1(&yaml(GRAPH)), "v1beta1", &worker_override(&component)).unwrap().graph);
        assert_eq!(sort_lists(to_v1beta1(&first)), sort_lists(second), "{component}");
    }
    let rest =
        "spec: {env: [{name: Z}], labels: {a: b}, topologyConstraint: {clusterTopologyName: t, packDomain: rack}}";
    let graph = json!(apply_override(&yaml(GRAPH), "v1beta1", rest).unwrap().graph);
    let want = json!({"topologyProfile": "t", "packDomain": "rack"});
    assert_eq!((&graph["spec"]["envs"], &graph["spec"]["topologyConstraint"]), (&json!([{"name": "Z"}]), &want));
}

/// Profilers read the merged graph again: arguments in the main container, GPUs in the service.
#[test]
fn fields_read_by_profilers_keep_their_place() {
    let changed = merged_service(&main_container(
        "$patch: {args: append}, args: [--x], resources: {limits: {nvidia.com/gpu: 4, cpu: 8}}",
    ));
    let want = yaml("{limits: {gpu: '4', cpu: '8', custom: {rdma/hca: '1'}}, requests: {gpu: '2', cpu: '4'}}");
    assert_eq!(changed["resources"], want);
    let main_container = &changed["extraPodSpec"]["mainContainer"];
    assert_eq!(main_container["args"], json!(["--model", "m", "--x"]));
    assert_eq!(main_container.get("resources"), None);
    let untouched = merged_service("replicas: 5");
    let mut want = yaml(GRAPH)["spec"]["services"]["VllmDecodeWorker"].clone();
    want["replicas"] = json!(5);
    assert_eq!(untouched, want, "fields outside of the override keep their place");
}

#[test]
fn example_override_merges_into_v1alpha1_graph() {
    let example = yaml(include_str!("../../../../../examples/dynamo/v1beta1-overrides.yaml"));
    let graph_override = &example["spec"]["overrides"]["dgd"];
    let Merged { graph, warnings } =
        merge(yaml(GRAPH).as_object().unwrap(), graph_override.as_object().unwrap()).unwrap();
    let services = json!(graph)["spec"]["services"].clone();
    let frontend = &services["Frontend"]["extraPodSpec"]["mainContainer"];
    assert_eq!(frontend["env"], json!([{"name": "DYN_LOG", "value": "debug"}]));
    let pod = &services["VllmDecodeWorker"]["extraPodSpec"];
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry-credentials"}]));
    assert_eq!(pod["mainContainer"]["args"], json!(["--model", "m", "--max-model-len", "8192"]));
    assert_eq!(warnings, ["metadata: ignored identity/runtime fields: name"]);
}

#[test]
fn fields_unknown_to_v1alpha1_are_rejected() {
    for (rest, field) in [
        ("frontendSidecar: side", "frontendSidecar"),
        ("experimental: {grove: {forceScalingGroup: true}}", "experimental.grove"),
        ("podTemplate: {metadata: {finalizers: [a]}}", "podTemplate.metadata.finalizers"),
    ] {
        let want = format!(
            "override spec.components[VllmDecodeWorker].{field} cannot be merged: this profiler generates graphs of \
             nvidia.com/v1alpha1, which have no such field; use a profiler of Dynamo 1.5 or later, or remove the \
             field"
        );
        assert_eq!(apply_override(&yaml(GRAPH), "v1beta1", &worker_override(rest)).unwrap_err(), want);
    }
    for (rest, place) in [
        (
            main_container("$patch: {env: append}"),
            "spec.components.VllmDecodeWorker.podTemplate.spec.containers.main.$patch",
        ),
        (
            "podTemplate: {spec: {containers: [{name: new, $patch: {args: append}, args: [a]}]}}".to_owned(),
            "spec.components.VllmDecodeWorker.podTemplate.spec.containers.$patch",
        ),
    ] {
        let error = apply_override(&yaml(GRAPH), "v1beta1", &worker_override(&rest)).unwrap_err();
        let want = format!("override {place}: only {{args: append}} on an existing container is supported");
        assert_eq!(error, want, "{rest}");
    }
    let duplicate = "spec: {components: [{name: Frontend, replicas: 1}, {name: Frontend, replicas: 2}]}";
    let error = apply_override(&yaml(GRAPH), "v1beta1", duplicate).unwrap_err();
    assert_eq!(error, "override spec.components has two entries with name Frontend");
    let unknown = apply_override(&yaml(GRAPH), "v1beta1", "spec: {components: [{name: Nobody, replicas: 1}]}").unwrap();
    let want = "spec.components[Nobody]: ignored because the generated blueprint has no such component";
    assert_eq!((unknown.warnings, json!(unknown.graph)), (vec![want.to_owned()], yaml(GRAPH)));
}
