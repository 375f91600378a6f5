//! The profiling Job. Tests are numbered by the items of the requirements document.

use serde_json::{Value, json};
use steersman_api::convert::convert;
use steersman_plan::dynamo::request::spec_hash;
use steersman_plan::dynamo::{ObservedBinding, Snapshot, plan};
use steersman_reconcile::WriteOp;

use super::{IMAGE, TestEnv, planned_job, request_snapshot, spec, yaml};

/// Reconciles until the plan contains the Job.
fn job_from_snapshot(snapshot: Snapshot) -> Value {
    let mut env = TestEnv::new(snapshot);
    while plan(&env.snapshot).writes.iter().all(|write| !matches!(write, WriteOp::Owned(_))) {
        assert!(env.reconcile(None), "the plan never contains a Job: {:?}", env.snapshot.object.status);
    }
    planned_job(&plan(&env.snapshot))
}

fn job(more: &str) -> Value {
    job_from_snapshot(request_snapshot(&spec(more)))
}

fn job_with_annotation(key: &str, value: &str) -> Value {
    let mut snapshot = request_snapshot(&spec(""));
    snapshot.object.annotations.insert(key.into(), value.into());
    job_from_snapshot(snapshot)
}

fn pod(job: &Value) -> &Value {
    &job["spec"]["template"]["spec"]
}

#[test]
fn item_4_1_spec_reaches_profiler_as_json() {
    let job = job("backend: vllm\nsla: {ttft: 500, itl: 12.5}\nfeatures: {mocker: {enabled: true}}");
    let args = pod(&job)["containers"][0]["args"].as_array().unwrap();
    assert_eq!((&args[0], &args[2], &args[3]), (&json!("--config"), &json!("--output-dir"), &json!("/data")));
    let config: Value = serde_json::from_str(args[1].as_str().unwrap()).unwrap();
    let want = yaml(&spec("backend: vllm\nsla: {ttft: 500, itl: 12.5}\nfeatures: {mocker: {enabled: true}}"));
    assert_eq!(config, want);
}

/// A converted v1alpha1 request: each field of the document's table has its place in the Job.
/// The Job of a request of v1alpha1, with this `spec.hardware`, which v1alpha1 does not have.
fn job_of_v1alpha1(request: Value, hardware: Value) -> Value {
    let converted_object = convert(request, "nvidia.com/v1beta1").unwrap().object;
    let mut snapshot = request_snapshot(&converted_object["spec"].to_string());
    snapshot.object.spec.hardware = serde_json::from_value(hardware).unwrap();
    snapshot.object.annotations = serde_json::from_value(converted_object["metadata"]["annotations"].clone()).unwrap();
    job_from_snapshot(snapshot)
}

#[test]
fn item_4_1_workers_image_replaces_absent_profiler_image() {
    for (profiling, expected) in [
        ("{}", "workers:1.3.0"),
        ("{profilerImage: ''}", "workers:1.3.0"),
        ("{profilerImage: 'planner:1.3.0'}", "planner:1.3.0"),
    ] {
        let request = yaml(&format!(
            "apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeploymentRequest
metadata: {{name: qwen, namespace: team-a}}
spec:
  model: m
  backend: vllm
  profilingConfig: {profiling}
  deploymentOverrides: {{workersImage: 'workers:1.3.0'}}
"
        ));
        let job = job_of_v1alpha1(request, json!(request_snapshot(&spec("")).object.spec.hardware));
        let profiler = &pod(&job)["containers"][0];
        let config: Value = serde_json::from_str(profiler["args"][1].as_str().unwrap()).unwrap();
        assert_eq!((&profiler["image"], &config["image"]), (&json!(expected), &json!(expected)), "{profiling}");
    }
}

#[test]
fn item_4_1_v1alpha1_fields_reach_job() {
    let v1alpha1_request = yaml(
        "apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeploymentRequest
metadata: {name: qwen, namespace: team-a}
spec:
  model: m
  backend: vllm
  useMocker: true
  profilingConfig:
    profilerImage: planner:1.3.0
    config: {sla: {ttft: 10, isl: 300}, planner: {mode: agg}, hardware: {gpuModel: h200_sxm, numGpusPerNode: 4}}
    resources: {limits: {cpu: 2}}
    tolerations: [{operator: Exists}]
    nodeSelector: {gpu: 'yes'}
    configMapRef: {name: base}
    outputPVC: results
  deploymentOverrides: {workersImage: workers:1.3.0}
",
    );
    let discovered = json!({ "vramMb": 143_771, "totalGpus": 8, "interconnect": "nvlink", "rdma": false });
    let job = job_of_v1alpha1(v1alpha1_request, discovered);
    let pod = pod(&job);
    let profiler = &pod["containers"][0];
    let config: Value = serde_json::from_str(profiler["args"][1].as_str().unwrap()).unwrap();
    for (field, found, want) in [
        ("profilerImage", &profiler["image"], json!("planner:1.3.0")),
        ("config", &config["sla"], json!({"ttft": 10})),
        ("config, lengths", &config["workload"], json!({"isl": 300})),
        ("config, planner", &config["features"]["planner"], json!({"mode": "agg"})),
        ("config, hardware.gpuModel", &config["hardware"]["gpuSku"], json!("h200_sxm")),
        ("config, hardware.numGpusPerNode", &config["hardware"]["numGpusPerNode"], json!(4)),
        ("--profile-config", &profiler["args"][0], json!("--config")),
        ("profile_sla", &profiler["command"], json!(["python", "-m", "dynamo.profiler"])),
        ("resources", &profiler["resources"], json!({"limits": {"cpu": 2}})),
        ("tolerations", &pod["tolerations"], json!([{"operator": "Exists"}])),
        ("nodeSelector", &pod["nodeSelector"], json!({"gpu": "yes"})),
        ("outputPVC", &pod["volumes"][0]["persistentVolumeClaim"]["claimName"], json!("results")),
        ("configMapRef", &pod["volumes"][1]["configMap"]["name"], json!("base")),
        ("useMocker", &config["features"]["mocker"], json!({"enabled": true})),
    ] {
        assert_eq!(*found, want, "{field}");
    }
}

#[test]
fn item_4_2_image_command_and_identity() {
    let job = job("");
    let want = yaml(&format!(
        "apiVersion: batch/v1
kind: Job
metadata:
  name: profile-qwen
  namespace: team-a
  labels: {{app: dynamo-profiler, dgdr: qwen, nvidia.com/managed-by: dynamo-operator}}
  annotations: {{}}
  ownerReferences:
  - {{apiVersion: nvidia.com/v1beta1, kind: DynamoGraphDeploymentRequest, name: qwen, uid: 8f3c, controller: true,
     blockOwnerDeletion: true}}
spec:
  backoffLimit: 0
  podFailurePolicy: {{rules: [{{action: Ignore, onPodConditions: [{{type: DisruptionTarget, status: 'True'}}]}}]}}
  template:
    metadata: {{labels: {{steersman.dev/profiled-request: qwen}}}}
    spec:
      restartPolicy: Never
      serviceAccountName: dgdr-profiling-job
      imagePullSecrets: [{{name: nvcr-imagepullsecret}}]
      securityContext: {{runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1000, fsGroup: 1000}}
      volumes: [{{name: profiling-output, emptyDir: {{}}}}]
      containers:
      - name: profiler
        image: {IMAGE}
        command: [python, -m, dynamo.profiler]
        args: []
        workingDir: /workspace
        env:
        - {{name: DGDR_NAME, value: qwen}}
        - {{name: DGDR_NAMESPACE, value: team-a}}
        - {{name: DGDR_UID, value: 8f3c}}
        - name: HUGGING_FACE_HUB_TOKEN
          valueFrom: {{secretKeyRef: {{name: hf-token-secret, key: HF_TOKEN, optional: true}}}}
        volumeMounts: [{{name: profiling-output, mountPath: /data}}]
      - name: output-copier
        image: steersman:1
        command: [steersman, relay]
        args: [--name, qwen, --namespace, team-a, --uid, 8f3c, --container, profiler, --directory, /data]
        env: [{{name: POD_NAME, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}]
        terminationMessagePolicy: FallbackToLogsOnError
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {{drop: [ALL]}}
          seccompProfile: {{type: RuntimeDefault}}
        volumeMounts: [{{name: profiling-output, mountPath: /data, readOnly: true}}]
"
    ));
    let mut found = job.clone();
    found["spec"]["template"]["spec"]["containers"][0]["args"] = json!([]);
    let hash = found["metadata"]["annotations"].as_object_mut().unwrap().remove("steersman.dev/accepted-spec").unwrap();
    assert_eq!(hash, spec_hash(&request_snapshot(&spec("")).object.spec));
    assert_eq!(found, want);
}

#[test]
fn item_4_3_overrides_apply_to_pod_template() {
    let job = job("overrides:
  profilingJob:
    backoffLimit: 2
    activeDeadlineSeconds: 60
    template:
      metadata: {labels: {app: mine, team: a, steersman.dev/profiled-request: mine}, annotations: {note: x}}
      spec:
        tolerations: [{operator: Exists}]
        nodeSelector: {gpu: 'yes'}
        serviceAccountName: other
        imagePullSecrets: [{name: more}]
        securityContext: {runAsUser: 7}
        volumes: [{name: profiling-output, persistentVolumeClaim: {claimName: keep}}, {name: extra, emptyDir: {}}]
        initContainers: [{name: init, image: busybox}]
        containers:
        - name: output-copier
          image: relay:2
          resources: {limits: {cpu: 1}}
          env: [{name: NO, value: 'no'}]
        - name: profiler
          image: profiler:2
          command: [sh]
          resources: {limits: {cpu: 2}}
          env: [{name: A, value: a}, {name: DGDR_NAME, value: mine}]
          envFrom: [{secretRef: {name: s}}]
          volumeMounts: [{name: extra, mountPath: /extra}]");
    assert_eq!((&job["spec"]["backoffLimit"], &job["spec"]["activeDeadlineSeconds"]), (&json!(2), &json!(60)));
    let labels = json!({"team": "a", "steersman.dev/profiled-request": "qwen"});
    assert_eq!(job["spec"]["template"]["metadata"], json!({"labels": labels, "annotations": {"note": "x"}}));
    let pod = pod(&job);
    assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!((&pod["nodeSelector"], &pod["serviceAccountName"]), (&json!({"gpu": "yes"}), &json!("other")));
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "nvcr-imagepullsecret"}, {"name": "more"}]));
    let security = json!({"runAsNonRoot": true, "runAsUser": 7, "runAsGroup": 1000, "fsGroup": 1000});
    assert_eq!(pod["securityContext"], security);
    assert_eq!(pod["volumes"][0], json!({"name": "profiling-output", "persistentVolumeClaim": {"claimName": "keep"}}));
    assert_eq!((&pod["volumes"][1]["name"], &pod["initContainers"][0]["name"]), (&json!("extra"), &json!("init")));
    let profiler = &pod["containers"][0];
    assert_eq!((&profiler["image"], &profiler["command"][0]), (&json!("profiler:2"), &json!("python")));
    assert_eq!(profiler["resources"], json!({"limits": {"cpu": 2}}));
    assert_eq!((&profiler["env"][0]["name"], &profiler["env"][1]["value"]), (&json!("A"), &json!("mine")));
    assert_eq!(profiler["envFrom"], json!([{"secretRef": {"name": "s"}}]));
    assert_eq!(profiler["volumeMounts"].as_array().unwrap().len(), 2);
    let copier = &pod["containers"][1];
    assert_eq!((&copier["image"], copier["env"].as_array().unwrap().len()), (&json!("steersman:1"), 1));
    assert_eq!(copier["resources"], json!({"limits": {"cpu": 1}}));
}

#[test]
fn item_4_3_other_container_name_means_profiler() {
    let with_limits = job(
        "overrides: {profilingJob: {template: {spec: {containers: [{name: main, resources: {limits: {cpu: 1}}}]}}}}",
    );
    assert_eq!(pod(&with_limits)["containers"][0]["resources"], json!({"limits": {"cpu": 1}}));
    assert_eq!(pod(&with_limits)["containers"].as_array().unwrap().len(), 2);
    let without_containers = job("overrides: {profilingJob: {template: {spec: {containers: []}}}}");
    for field in ["tolerations", "nodeSelector", "affinity"] {
        assert_eq!(pod(&without_containers)[field], Value::Null);
    }
}

#[test]
fn item_4_4_annotated_config_map_is_mounted() {
    for (value, key) in [(r#"{"name":"base"}"#, "disagg.yaml"), (r#"{"name":"base","key":"a.yaml"}"#, "a.yaml")] {
        let job = job_with_annotation("nvidia.com/dgdr-config-map-ref", value);
        let volume = json!({
            "name": "profiling-config",
            "configMap": {"name": "base", "items": [{"key": key, "path": "disagg.yaml"}]},
        });
        assert_eq!(pod(&job)["volumes"][1], volume);
        let mount = json!({"name": "profiling-config", "mountPath": "/config", "readOnly": true});
        assert_eq!(pod(&job)["containers"][0]["volumeMounts"][1], mount);
    }
    assert_eq!(pod(&job(""))["volumes"].as_array().unwrap().len(), 1);
}

#[test]
fn item_4_5_output_volume_uses_annotated_claim() {
    let with_claim = job_with_annotation("nvidia.com/dgdr-output-pvc", "results");
    let volume = json!({"name": "profiling-output", "persistentVolumeClaim": {"claimName": "results"}});
    assert_eq!(pod(&with_claim)["volumes"], json!([volume]));
    assert_eq!(pod(&job(""))["volumes"], json!([{"name": "profiling-output", "emptyDir": {}}]));
}

#[test]
fn item_4_5_model_cache_is_mounted() {
    for (more, path) in [("", "/opt/model-cache"), (", pvcMountPath: /m", "/m")] {
        let mut snapshot = request_snapshot(&spec(&format!("modelCache: {{pvcName: weights{more}}}")));
        snapshot.references.model_cache = Some(true);
        let job = job_from_snapshot(snapshot);
        let volume =
            json!({"name": "model-cache", "persistentVolumeClaim": {"claimName": "weights", "readOnly": true}});
        assert_eq!(pod(&job)["volumes"][1], volume);
        let mount = json!({"name": "model-cache", "mountPath": path, "readOnly": true});
        assert_eq!(pod(&job)["containers"][0]["volumeMounts"][1], mount);
    }
}

#[test]
fn item_4_6_only_one_job_is_created() {
    let env = TestEnv::after_deployment(&spec(""));
    assert_eq!(env.created.iter().filter(|name| name.starts_with("Job ")).count(), 1);
    assert_eq!(env.status().profiling_job_name.as_deref(), Some("profile-qwen"));
}

#[test]
fn item_4_7_mocker_selects_simulated_output() {
    let graph = |name: &str| {
        format!("apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\nspec: {{components: [{{name: {name}}}]}}")
    };
    for (more, want) in [("", "real"), ("features: {mocker: {enabled: true}}", "simulated")] {
        let mut env = TestEnv::after_settling(&spec(more));
        env.snapshot.output = Some(super::output(&[
            ("config_with_planner.yaml", &graph("real")),
            ("mocker_config_with_planner.yaml", &graph("simulated")),
        ]));
        env.set_job_state(steersman_plan::dynamo::JobState::Complete);
        env.settle();
        let graph = &env.objects["DynamoGraphDeployment qwen-dgd"];
        assert_eq!(graph["spec"]["components"][0]["name"], want);
    }
}

#[test]
fn only_configured_infrastructure_reaches_profiler_env() {
    let mut snapshot = request_snapshot(&spec(""));
    snapshot.settings.infrastructure =
        [("NATS_SERVER".into(), "nats://x:4222".into()), ("ETCD_ENDPOINTS".into(), String::new())].into();
    let job = job_from_snapshot(snapshot);
    let names: Vec<&str> =
        pod(&job)["containers"][0]["env"].as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["DGDR_NAME", "DGDR_NAMESPACE", "DGDR_UID", "HUGGING_FACE_HUB_TOKEN", "NATS_SERVER"]);
}

#[test]
fn sidecar_mounts_token_without_automount() {
    let job =
        job("overrides: {profilingJob: {template: {spec: {automountServiceAccountToken: false, containers: []}}}}");
    let mount = json!({
        "name": "output-copier-kube-api-access",
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        "readOnly": true,
    });
    assert_eq!(pod(&job)["containers"][1]["volumeMounts"][1], mount);
    assert_eq!(pod(&job)["containers"][0]["volumeMounts"].as_array().unwrap().len(), 1);
    assert_eq!(pod(&job)["volumes"][1]["projected"]["sources"].as_array().unwrap().len(), 3);
}

#[test]
fn override_tool_is_installed_despite_name_collisions() {
    let job = job("overrides:
  dgd: {apiVersion: nvidia.com/v1beta1, kind: DynamoGraphDeployment, spec: {}}
  profilingJob:
    template:
      spec:
        volumes: [{name: dgd-override-tool, hostPath: {path: /}}]
        containers: [{name: profiler, env: [{name: DYNAMO_DGD_APPLY_OVERRIDES_BIN, value: /evil}],
          volumeMounts: [{name: mine, mountPath: /opt/dynamo/bin}]}]");
    let pod = pod(&job);
    assert_eq!(pod["initContainers"][0]["name"], "dgd-override-installer");
    assert_eq!(pod["initContainers"][0]["args"], json!(["--install-to", "/opt/dynamo/bin/dgd-apply-overrides"]));
    assert_eq!(pod["volumes"][1], json!({"name": "dgd-override-tool", "emptyDir": {}}));
    let profiler = &pod["containers"][0];
    assert_eq!(profiler["env"][3]["value"], "/opt/dynamo/bin/dgd-apply-overrides");
    let mounts = profiler["volumeMounts"].as_array().unwrap();
    assert_eq!((mounts.len(), &mounts[1]["name"]), (2, &json!("dgd-override-tool")));
}

#[test]
fn role_binding_to_other_role_is_replaced() {
    let mut snapshot = request_snapshot(&spec(""));
    snapshot.binding =
        Some(ObservedBinding { uid: "old".into(), cluster_role: "other".into(), ..ObservedBinding::default() });
    let mut env = TestEnv::new(snapshot);
    env.settle();
    assert_eq!(env.snapshot.binding.as_ref().unwrap().cluster_role, "dgdr-profiling");
    let binding = &env.objects["RoleBinding dgdr-profiling-job-binding"];
    assert_eq!(binding["subjects"][0]["name"], "dgdr-profiling-job");
    assert_eq!(binding["metadata"]["resourceVersion"], Value::Null, "the old binding is deleted");
    let mut snapshot = request_snapshot(&spec(""));
    snapshot.settings.profiling_cluster_role = None;
    let mut env = TestEnv::new(snapshot);
    env.settle();
    assert_eq!(env.created, ["Job profile-qwen"]);
}

#[test]
fn volume_may_be_mounted_twice_in_profiler() {
    let mounts =
        "[{name: extra, mountPath: /a}, {name: extra, mountPath: /b, subPath: b}, {name: results, mountPath: /data}]";
    let more = format!(
        "overrides: {{profilingJob: {{template: {{spec: {{containers: [{{name: profiler, volumeMounts: {mounts}}}]}}}}}}}}"
    );
    let job = planned_job(&plan(&request_snapshot(&spec(&more))));
    let found = &job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"];
    assert_eq!(*found, yaml(mounts), "a mount at the same path replaces ours");
}

/// The sidecar reads the profiler's files in this volume.
#[test]
fn output_volume_stays_mounted() {
    let more = "overrides: {profilingJob: {template: {spec: {containers: [{name: profiler, volumeMounts: [{name: profiling-output, \
                mountPath: /artifacts}]}]}}}}";
    let job = planned_job(&plan(&request_snapshot(&spec(more))));
    let found = &job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"];
    let both = "[{name: profiling-output, mountPath: /data}, {name: profiling-output, mountPath: /artifacts}]";
    assert_eq!(*found, yaml(both));
}
