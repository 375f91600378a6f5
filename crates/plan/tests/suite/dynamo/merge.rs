//! `overrides.dgd` over a generated graph.

use serde_json::{Value, json};
use steersman_plan::dynamo::graph::merge::{Merged, merge, problem, unknown};

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
        let (old, new) = match field {
            "selector" => ("{matchLabels: {old: x}}", "{matchLabels: {new: x}}"),
            "fileKeyRef" => ("{key: x, path: p, volumeName: v, optional: true}", "{key: new, path: p, volumeName: v}"),
            "dataSource" => ("{apiGroup: a, kind: K, name: x}", "{kind: K, name: new}"),
            "secretKeyRef" => ("{name: x, key: k, optional: true}", "{name: new, key: k}"),
            _ => ("{name: x, optional: true}", "{name: new}"),
        };
        let mut graph = yaml(BETA);
        graph["spec"]["components"][1]["podTemplate"]["spec"] = yaml(&format!("{{{}}}", pod_with(old)));
        let graph_override = yaml(&format!(
            "apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\nspec: {{components: [{{name: Worker, podTemplate: \
             {{spec: {{{}}}}}}}]}}",
            pod_with(new)
        ));
        let Merged { graph, .. } = merge(graph.as_object().unwrap(), graph_override.as_object().unwrap()).unwrap();
        let want = yaml(&format!("{{{}}}", pod_with(new)));
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

fn override_problem(version: &str, spec: &str) -> Option<String> {
    let text = format!("apiVersion: nvidia.com/{version}\nkind: DynamoGraphDeployment\nspec: {spec}");
    problem(yaml(&text).as_object().unwrap())
}

#[test]
fn override_outside_schema_is_refused() {
    let main = "extraPodSpec: {mainContainer:";
    for (version, spec, why) in [
        (
            "v1beta1",
            "{components: [{name: Worker, replicas: three}]}",
            "spec.components.Worker.replicas must be an integer",
        ),
        ("v1beta1", "{components: [{name: Worker, replicas: -1}]}", "replicas must be an integer of at least 0"),
        (
            "v1beta1",
            "{components: [{name: Worker, replicas: 2147483648}]}",
            "replicas must be an integer of at least 0, and at most 2147483647",
        ),
        (
            "v1beta1",
            "{components: [{name: Worker, replicas: 18446744073709551615}]}",
            "replicas must be an integer of at least 0, and at most 2147483647",
        ),
        ("v1beta1", "{components: [{name: Worker, replicas: 1.5}]}", "replicas must be an integer of at least 0"),
        ("v1beta1", "{components: [{name: Worker, sharedMemorySize: 8GB}]}", "sharedMemorySize must be a quantity"),
        ("v1beta1", "{components: [{name: Worker, minAvailable: 0}]}", "minAvailable must be an integer of at least 1"),
        ("v1beta1", "{components: [{name: W}, {name: W}]}", "spec.components has two entries with name W"),
        ("v1beta1", "{components: [{replicas: 1}]}", "spec.components[0] has no name"),
        ("v1beta1", "{components: {Worker: {replicas: 1}}}", "spec.components must be a list"),
        ("v1beta1", "{components: [{name: W, type: server}]}", "type must be one of frontend, worker"),
        (
            "v1beta1",
            "{components: [{name: W, podTemplate: {spec: {containers: [{name: main, args: --z}]}}}]}",
            "spec.components.W.podTemplate.spec.containers.main.args must be a list",
        ),
        (
            "v1beta1",
            "{components: [{name: W, podTemplate: {spec: {containers: [{args: [a]}]}}}]}",
            "containers[0] has no name",
        ),
        (
            "v1beta1",
            "{components: [{name: W, podTemplate: {spec: {containers: [{name: main, env: [{name: A}, {name: A}]}]}}}]}",
            "env has two entries with name A",
        ),
        (
            "v1beta1",
            "{components: [{name: W, podTemplate: {spec: {containers: [{name: main, env: [{name: A, value: 1}]}]}}}]}",
            "env.A.value must be a string",
        ),
        (
            "v1beta1",
            "{components: [{name: W, podTemplate: {spec: {containers: [{name: main, $patch: {args: replace}, args: [a]}]}}}]}",
            "only {args: append}",
        ),
        ("v1beta1", "{components: [{name: W, $patch: {args: append}, args: [a]}]}", "only {args: append}"),
        (
            "v1beta1",
            "{components: [{name: W, podTemplate: {spec: {containers: [{name: main, resources: {limits: {cpu: two}}}]}}}]}",
            "spec.components.W.podTemplate.spec.containers.main.resources.limits.cpu must be a quantity",
        ),
        (
            "v1beta1",
            "{components: [{name: W, podTemplate: {spec: {containers: [{name: main, imagePullPolicy: always}]}}}]}",
            "imagePullPolicy must be one of Always, IfNotPresent, Never",
        ),
        (
            "v1beta1",
            "{components: [{name: W, podTemplate: {spec: {containers: [{name: main, readinessProbe: {httpGet: {port: []}}}]}}}]}",
            "readinessProbe.httpGet.port must be an integer or a string",
        ),
        (
            "v1beta1",
            "{components: [{name: W, podTemplate: {spec: {tolerations: [{key: a, tolerationSeconds: '5'}]}}}]}",
            "tolerations.0.tolerationSeconds must be an integer",
        ),
        (
            "v1beta1",
            "{components: [{name: W, podTemplate: {spec: {terminationGracePeriodSeconds: -1}}}]}",
            "terminationGracePeriodSeconds must be an integer of at least 0",
        ),
        (
            "v1beta1",
            "{components: [{name: W, podTemplate: {spec: {volumes: [{name: v, persistentVolumeClaim: weights}]}}}]}",
            "volumes.v.persistentVolumeClaim must be an object",
        ),
        (
            "v1beta1",
            "{components: [{name: W, podTemplate: {spec: {nodeSelector: {gpu: true}}}}]}",
            "nodeSelector.gpu must be a string",
        ),
        ("v1alpha1", "{services: {decode: {resources: {limits: {gpu: 1}}}}}", "resources.limits.gpu must be a string"),
        ("v1alpha1", "{services: {decode: {livenessProbe: {periodSeconds: 5s}}}}", "periodSeconds must be an integer"),
        ("v1beta1", "{backendFramework: tgi}", "backendFramework must be one of sglang, vllm, trtllm"),
        ("v1alpha1", "{services: {decode: {replicas: '2'}}}", "spec.services.decode.replicas must be an integer"),
        ("v1alpha1", "{services: [{name: decode}]}", "spec.services must be an object"),
        (
            "v1alpha1",
            &format!("{{services: {{decode: {{{main} {{args: --z}}}}}}}}}}"),
            "mainContainer.args must be a list",
        ),
        (
            "v1alpha1",
            &format!("{{services: {{decode: {{{main} {{$patch: {{args: append}}, args: [a]}}}}}}}}}}"),
            "only {args: append}",
        ),
        (
            "v1alpha1",
            "{services: {decode: {scalingAdapter: {enabled: 'no'}}}}",
            "scalingAdapter.enabled must be true or false",
        ),
    ] {
        let found = override_problem(version, spec).unwrap_or_else(|| panic!("accepted: {spec}"));
        assert!(found.starts_with("override ") && found.contains(why), "{spec}: {found}");
        let graph = if version == "v1beta1" { BETA } else { ALPHA };
        assert_eq!(
            merge_yaml(graph, version, &format!("spec: {spec}")).unwrap_err(),
            found,
            "the merge refuses it as well"
        );
    }
}

#[test]
fn override_within_schema_is_accepted() {
    for (version, spec) in [
        ("v1beta1", "{components: [{name: W, replicas: 0, sharedMemorySize: 8Gi, podTemplate: {metadata: {labels: {a: b}}, spec: {
            tolerations: [{key: a}], terminationGracePeriodSeconds: 60, containers: [{name: main, image: i, args: [a],
            resources: {limits: {cpu: 2, nvidia.com/gpu: '1'}}, ports: [{containerPort: 1}, {containerPort: 1, protocol: UDP}]}]}}}]}"),
        ("v1beta1", "{components: [{name: W, podTemplate: {spec: {containers: [{name: main, $patch: {args: append}, args: [a]}]}}}]}"),
        ("v1alpha1", "{envs: [{name: A, value: b}], services: {decode: {replicas: 2, resources: {limits: {gpu: '1'}},
            sharedMemory: {size: 1Gi}, volumeMounts: [{name: c, mountPoint: /c}, {name: c, mountPoint: /d}],
            extraPodSpec: {mainContainer: {image: i, args: [a]}}}}}"),
    ] {
        assert_eq!(override_problem(version, spec), None, "{spec}");
    }
}

#[test]
fn disabled_v1alpha1_features_leave_v1beta1_graph() {
    let graph = "apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
spec:
  components:
  - {name: Worker, scalingAdapter: {}, experimental: {failover: {mode: IntraPod}, checkpoint: {enabled: true}}}
  - {name: Other, scalingAdapter: {}}
";
    let rest = "spec: {services: {Worker: {scalingAdapter: {enabled: false}, failover: {enabled: false}}}}";
    let Merged { graph, warnings } = merge_yaml(graph, "v1alpha1", rest).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    let expected = json!([{ "name": "Worker", "experimental": { "checkpoint": { "enabled": true } } },
        { "name": "Other", "scalingAdapter": {} }]);
    assert_eq!(graph["spec"]["components"], expected);
}

#[test]
fn field_outside_schema_is_found_at_any_depth() {
    let graph = |version: &str, spec: &str| {
        yaml(&format!("apiVersion: nvidia.com/{version}\nkind: DynamoGraphDeployment\nspec: {spec}"))
    };
    for (version, spec, place) in [
        ("v1beta1", "{replicas: 2}", "spec.replicas"),
        ("v1beta1", "{components: [{name: W, replica: 2}]}", "spec.components[W].replica"),
        (
            "v1beta1",
            "{components: [{name: W, podTemplate: {spec: {imagePullSecret: [{name: a}]}}}]}",
            "spec.components[W].podTemplate.spec.imagePullSecret",
        ),
        (
            "v1beta1",
            "{components: [{name: W, podTemplate: {spec: {mainContainer: {image: i}}}}]}",
            "spec.components[W].podTemplate.spec.mainContainer",
        ),
        (
            "v1beta1",
            "{components: [{name: W, podTemplate: {spec: {containers: [{name: main, env: [{name: A, valueForm: {}}]}]}}}]}",
            "spec.components[W].podTemplate.spec.containers.main.env.A.valueForm",
        ),
        (
            "v1alpha1",
            "{services: {decode: {extraPodSpec: {mainContainer: {arg: [a]}}}}}",
            "spec.services[decode].extraPodSpec.mainContainer.arg",
        ),
        (
            "v1alpha1",
            "{services: {decode: {extraPodSpec: {toleration: []}}}}",
            "spec.services[decode].extraPodSpec.toleration",
        ),
    ] {
        let wanted = graph(version, spec);
        let why = format!("override {place} is not a field of nvidia.com/{version}");
        assert_eq!(unknown(wanted.as_object().unwrap()), Some(why.clone()));
        let graph = if version == "v1beta1" { BETA } else { ALPHA };
        assert_eq!(merge_yaml(graph, version, &format!("spec: {spec}")).unwrap_err(), why);
    }
    let append =
        "{components: [{name: W, podTemplate: {spec: {containers: [{name: main, $patch: {args: append}, args: [a]}],
        volumes: [{name: v, emptyDir: {}}], affinity: {nodeAffinity: {}}}}}]}";
    assert_eq!(unknown(graph("v1beta1", append).as_object().unwrap()), None);
}
