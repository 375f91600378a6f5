//! `overrides.dgd` over a generated graph.

use serde_json::{Value, json};
use steersman_plan::dynamo::graph::merge::{Merged, merge};

use super::yaml;

pub const BETA: &str = "apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {name: vllm-agg, labels: {a: '1'}}
spec:
  env: [{name: X, value: '1'}]
  components:
  - name: Frontend
    podTemplate: {spec: {containers: [{name: main, image: f:1, args: [-m, dynamo.frontend]}]}}
  - name: Worker
    replicas: 2
    podTemplate:
      spec:
        nodeSelector: {old: '1'}
        tolerations: [{key: a}]
        containers:
        - name: main
          image: w:1
          args: [--x]
          env: [{name: A, value: '1'}, {name: B, value: '1'}]
          ports: [{containerPort: 80, name: http}]
          volumeMounts: [{name: v, mountPath: /v}]
        - {name: side, image: s:1}
";
pub const ALPHA: &str = "apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
spec:
  services:
    Frontend: {extraPodSpec: {mainContainer: {args: [a]}}}
    decode: {replicas: 1, extraPodSpec: {mainContainer: {args: [a]}}}
";

pub fn merge_yaml(graph: &str, version: &str, rest: &str) -> Result<Merged, String> {
    let graph_override = yaml(&format!("apiVersion: nvidia.com/{version}\nkind: DynamoGraphDeployment\n{rest}"));
    merge(yaml(graph).as_object().unwrap(), graph_override.as_object().unwrap())
}

fn merge_beta(rest: &str) -> Value {
    json!(merge_yaml(BETA, "v1beta1", rest).unwrap().graph)
}

fn merge_worker_pod(more: &str) -> Value {
    let graph = merge_beta(&format!("spec: {{components: [{{name: Worker, podTemplate: {{spec: {{{more}}}}}}}]}}"));
    graph["spec"]["components"][1]["podTemplate"]["spec"].clone()
}

#[test]
fn override_sets_fields_and_keeps_others() {
    let graph = merge_beta("spec: {backendFramework: vllm, components: [{name: Worker, replicas: 5}]}");
    let mut want = yaml(BETA);
    want["spec"]["backendFramework"] = json!("vllm");
    want["spec"]["components"][1]["replicas"] = json!(5);
    assert_eq!(graph, want);
}

#[test]
fn keyed_lists_merge_and_others_are_replaced() {
    let pod = merge_worker_pod(
        "nodeSelector: {new: '2'}, tolerations: [{key: b}], containers: [{name: main, env: [{name: B, value: '2'}, {name: C}], \
         ports: [{containerPort: 80, protocol: TCP, name: web}, {containerPort: 81}], volumeMounts: [{name: w, mountPath: /v}]}, \
         {name: more}]",
    );
    assert_eq!((&pod["nodeSelector"], &pod["tolerations"]), (&json!({"new": "2"}), &json!([{"key": "b"}])));
    let names: Vec<&Value> = pod["containers"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["main", "side", "more"]);
    let main = &pod["containers"][0];
    assert_eq!(main["env"], json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C"}]));
    assert_eq!(main["ports"], json!([{"containerPort": 80, "protocol": "TCP", "name": "web"}, {"containerPort": 81}]));
    assert_eq!((&main["volumeMounts"], &main["image"]), (&json!([{"name": "w", "mountPath": "/v"}]), &json!("w:1")));
    assert_eq!(merge_beta("spec: {env: [{name: Z}]}")["spec"]["env"], json!([{"name": "Z"}]));
}

#[test]
fn v1beta1_args_replace_unless_append_is_requested() {
    assert_eq!(merge_worker_pod("containers: [{name: main, args: [--y]}]")["containers"][0]["args"], json!(["--y"]));
    let appended = merge_worker_pod("containers: [{name: main, $patch: {args: append}, args: [--y, z]}]");
    assert_eq!(appended["containers"][0]["args"], json!(["--x", "--y", "z"]));
    assert_eq!(appended["containers"][0].get("$patch"), None);
    for (container, why) in [
        ("{name: main, $patch: {args: append}}", "must be a non-empty list of strings"),
        ("{name: main, $patch: {args: append}, args: []}", "must be a non-empty list of strings"),
        ("{name: main, $patch: {args: prepend}, args: [a]}", "only {args: append} on an existing container"),
        (
            "{name: main, $patch: {args: append, env: append}, args: [a]}",
            "only {args: append} on an existing container",
        ),
        ("{name: new, $patch: {args: append}, args: [a]}", "only {args: append} on an existing container"),
        ("{name: side, $patch: {args: append}, args: [a]}", "the generated container has no args"),
        ("{name: main, env: [{name: A, $patch: {args: append}}]}", "only {args: append} on an existing container"),
    ] {
        let rest =
            format!("spec: {{components: [{{name: Worker, podTemplate: {{spec: {{containers: [{container}]}}}}}}]}}");
        let error = merge_yaml(BETA, "v1beta1", &rest).unwrap_err();
        assert!(error.contains(why), "{container}: {error}");
    }
}

#[test]
fn v1alpha1_worker_args_are_appended() {
    let rest = "spec: {services: {Frontend: {extraPodSpec: {mainContainer: {args: [b]}}}, decode: {extraPodSpec: \
                {mainContainer: {args: [b]}}}, nobody: {replicas: 1}}}";
    let Merged { graph, warnings } = merge_yaml(ALPHA, "v1alpha1", rest).unwrap();
    let args = |name: &str| json!(graph)["spec"]["services"][name]["extraPodSpec"]["mainContainer"]["args"].clone();
    assert_eq!((args("Frontend"), args("decode")), (json!(["b"]), json!(["a", "b"])));
    assert_eq!(warnings, ["spec.services[nobody]: ignored because the generated blueprint has no such service"]);
}

#[test]
fn v1alpha1_override_converts_for_v1beta1_graph() {
    let rest = "spec:
  services:
    Frontend: {extraPodSpec: {mainContainer: {args: [b]}}}
    Worker:
      replicas: 7
      componentType: worker
      subComponentType: decode
      sharedMemory: {size: 16Gi}
      scalingAdapter: {enabled: true}
      gpuMemoryService: {enabled: true, mode: intraPod}
      ingress: {enabled: true}
      envs: [{name: B, value: '2'}, {name: C, value: '1'}]
      resources: {limits: {gpu: '2', cpu: '4', custom: {rdma/hca: '1'}}}
      volumeMounts: [{name: cache, mountPoint: /c, useAsCompilationCache: true}, {name: w, mountPoint: /w}]
      extraPodMetadata: {labels: {x: '1'}}
      extraPodSpec:
        tolerations: [{key: b}]
        mainContainer: {image: w:2, args: [--y], env: [{name: C, value: '2'}]}
        containers: [{name: more, image: m:1}]
    Nobody: {replicas: 1}
  pvcs: [{name: p}]";
    let Merged { graph, warnings } = merge_yaml(BETA, "v1alpha1", rest).unwrap();
    let graph = json!(graph);
    assert_eq!(graph["apiVersion"], "nvidia.com/v1beta1");
    assert_eq!(graph["spec"]["components"][0]["podTemplate"]["spec"]["containers"][0]["args"], json!(["b"]));
    let want = yaml(
        "name: Worker
type: decode
replicas: 7
sharedMemorySize: 16Gi
scalingAdapter: {}
experimental: {gpuMemoryService: {mode: IntraPod}}
compilationCache: {pvcName: cache, mountPath: /c}
podTemplate:
  metadata: {labels: {x: '1'}}
  spec:
    nodeSelector: {old: '1'}
    tolerations: [{key: b}]
    containers:
    - name: main
      image: w:2
      args: [--x, --y]
      env: [{name: A, value: '1'}, {name: B, value: '2'}, {name: C, value: '2'}]
      ports: [{containerPort: 80, name: http}]
      resources: {limits: {nvidia.com/gpu: '2', cpu: '4', rdma/hca: '1'}}
      volumeMounts: [{name: v, mountPath: /v}, {name: w, mountPath: /w}]
    - {name: side, image: s:1}
    - {name: more, image: m:1}",
    );
    assert_eq!(graph["spec"]["components"][1], want);
    let why = "ignored because v1beta1, in which the graph is generated, has no such field";
    let want = [
        format!("spec.pvcs: {why}"),
        format!("spec.services[Worker].ingress: {why}"),
        "spec.components[Nobody]: ignored because the generated blueprint has no such component".to_owned(),
    ];
    assert_eq!(warnings, want);
}

/// The CRD of graphs marks these lists and references as atomic.
#[test]
fn atomic_lists_and_references_are_replaced_whole() {
    let graph =
        ALPHA.replace("replicas: 1,", "volumeMounts: [{name: a, mountPoint: /a}], resources: {claims: [{name: a}]},");
    let rest = "spec: {services: {decode: {volumeMounts: [{name: b, mountPoint: /b}, {name: c, mountPoint: /c}], resources: \
                {claims: [{name: b}]}}}}";
    let decode = json!(merge_yaml(&graph, "v1alpha1", rest).unwrap().graph)["spec"]["services"]["decode"].clone();
    let want = json!([{"name": "b", "mountPoint": "/b"}, {"name": "c", "mountPoint": "/c"}]);
    assert_eq!((&decode["volumeMounts"], &decode["resources"]["claims"]), (&want, &json!([{"name": "b"}])));

    for (place, field) in [
        ("volumes: [{name: v, @}]", "configMap"),
        ("volumes: [{name: v, csi: {driver: d, @}}]", "nodePublishSecretRef"),
        ("volumes: [{name: v, cephfs: {@}}]", "secretRef"),
        ("volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {@}}}}]", "dataSource"),
        ("volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {@}}}}]", "selector"),
        ("containers: [{name: main, env: [{name: A, valueFrom: {@}}]}]", "fileKeyRef"),
        ("containers: [{name: main, env: [{name: A, valueFrom: {@}}]}]", "secretKeyRef"),
    ] {
        let pod_with = |value: &str| place.replace('@', &format!("{field}: {value}"));
        let mut graph = yaml(BETA);
        graph["spec"]["components"][1]["podTemplate"]["spec"] =
            yaml(&format!("{{{}}}", pod_with("{name: x, optional: true}")));
        let graph_override = yaml(&format!(
            "apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\nspec: {{components: [{{name: Worker, podTemplate: \
             {{spec: {{{}}}}}}}]}}",
            pod_with("{name: new}")
        ));
        let Merged { graph, .. } = merge(graph.as_object().unwrap(), graph_override.as_object().unwrap()).unwrap();
        let want = yaml(&format!("{{{}}}", pod_with("{name: new}")));
        assert_eq!(json!(graph)["spec"]["components"][1]["podTemplate"]["spec"], want, "{field}");
    }
    let graph = BETA.replace("replicas: 2", "eppConfig: {configMapRef: {name: x, key: k, optional: true}}");
    let rest = "spec: {components: [{name: Worker, eppConfig: {configMapRef: {name: new, key: k}}}]}";
    let merged = json!(merge_yaml(&graph, "v1beta1", rest).unwrap().graph);
    assert_eq!(merged["spec"]["components"][1]["eppConfig"], json!({"configMapRef": {"name": "new", "key": "k"}}));
}

#[test]
fn identity_metadata_and_unknown_components_are_ignored() {
    let rest = "metadata: {name: n, uid: u, labels: {a: '2', b: '1'}, annotations: {nvidia.com/dgd-spec: x, ok: '1'}}\n\
                spec: {components: [{name: Other, replicas: 1}]}";
    let Merged { graph, warnings } = merge_yaml(BETA, "v1beta1", rest).unwrap();
    let want = json!({"name": "vllm-agg", "labels": {"a": "2", "b": "1"}, "annotations": {"ok": "1"}});
    assert_eq!(graph["metadata"], want);
    assert_eq!(json!(graph)["spec"], yaml(BETA)["spec"]);
    let want = [
        "metadata: ignored identity/runtime fields: name, uid",
        "metadata.annotations: ignored reserved operator keys: nvidia.com/dgd-spec",
        "spec.components[Other]: ignored because the generated blueprint has no such component",
    ];
    assert_eq!(warnings, want);
}

#[test]
fn unmergeable_override_is_rejected_with_path() {
    for (rest, why) in [
        ("status: {}", "override status is not supported"),
        (
            "spec: {components: [{name: Worker, replicas: null}]}",
            "override spec.components.0.replicas must not be null; field deletion is not supported",
        ),
        ("spec: {services: {}}", "override spec.services is not a field of nvidia.com/v1beta1"),
        (
            "spec: {components: [{name: Worker, replica: 1}]}",
            "override spec.components[Worker].replica is not a field of nvidia.com/v1beta1",
        ),
        ("spec: [1]", "override spec must be an object"),
    ] {
        assert_eq!(merge_yaml(BETA, "v1beta1", rest).unwrap_err(), why);
    }
    assert!(
        merge_yaml(BETA, "v2", "")
            .unwrap_err()
            .starts_with("override must be a DynamoGraphDeployment of nvidia.com/v1alpha1")
    );
    let later = BETA.replace("v1beta1", "v2");
    let error = merge_yaml(&later, "v1beta1", "").unwrap_err();
    assert!(error.contains("cannot be merged into a graph of nvidia.com/v2"), "{error}");
    // A null inside a field without a schema is a value.
    let rest = "spec: {providerOverride: {apiVersion: a, value: {x: null}}}";
    assert!(merge_yaml(BETA, "v1beta1", rest).is_ok());
}
