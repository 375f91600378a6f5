//! The profiling Job, item by item of the document that asked for it.

use serde_json::{Value, json};
use steersman_api::convert::convert;
use steersman_plan::dynamo::asked::mark as mark_of;
use steersman_plan::dynamo::{ObservedBinding, Snapshot, plan};
use steersman_reconcile::WriteOp;

use super::{IMAGE, World, a_request, spec, the_job, yaml};

/// The Job that this request leads to.
fn job_of(seen: Snapshot) -> Value {
    let mut world = World::new(seen);
    while plan(&world.seen).writes.iter().all(|write| !matches!(write, WriteOp::Owned(_))) {
        assert!(world.pass(None), "no Job comes: {:?}", world.seen.object.status);
    }
    the_job(&plan(&world.seen))
}

fn job(more: &str) -> Value {
    job_of(a_request(&spec(more)))
}

fn annotated(key: &str, value: &str) -> Value {
    let mut seen = a_request(&spec(""));
    seen.object.annotations.insert(key.into(), value.into());
    job_of(seen)
}

fn pod(job: &Value) -> &Value {
    &job["spec"]["template"]["spec"]
}

#[test]
fn item_4_1_the_whole_spec_goes_to_the_profiler_as_json() {
    let job = job("backend: vllm\nsla: {ttft: 500, itl: 12.5}\nfeatures: {mocker: {enabled: true}}");
    let args = pod(&job)["containers"][0]["args"].as_array().unwrap();
    assert_eq!((&args[0], &args[2], &args[3]), (&json!("--config"), &json!("--output-dir"), &json!("/data")));
    let config: Value = serde_json::from_str(args[1].as_str().unwrap()).unwrap();
    let want = yaml(&spec("backend: vllm\nsla: {ttft: 500, itl: 12.5}\nfeatures: {mocker: {enabled: true}}"));
    assert_eq!(config, want);
}

/// The table of the document: a request of v1alpha1, as it is stored, and the place of each of its fields.
#[test]
fn item_4_1_each_field_of_the_earlier_version_has_its_place_in_the_job() {
    let earlier = yaml(
        "apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeploymentRequest
metadata: {name: qwen, namespace: team-a}
spec:
  model: m
  backend: vllm
  useMocker: true
  profilingConfig:
    profilerImage: planner:1.3.0
    config: {sla: {ttft: 10, isl: 300}, planner: {mode: agg}}
    resources: {limits: {cpu: 2}}
    tolerations: [{operator: Exists}]
    nodeSelector: {gpu: 'yes'}
    configMapRef: {name: base}
    outputPVC: results
  deploymentOverrides: {workersImage: workers:1.3.0}
",
    );
    let stored = convert(earlier, "nvidia.com/v1beta1").unwrap().object;
    let mut seen = a_request(&stored["spec"].to_string());
    seen.object.spec.hardware = a_request(&spec("")).object.spec.hardware;
    seen.object.annotations = serde_json::from_value(stored["metadata"]["annotations"].clone()).unwrap();
    let job = job_of(seen);
    let pod = pod(&job);
    let profiler = &pod["containers"][0];
    let config: Value = serde_json::from_str(profiler["args"][1].as_str().unwrap()).unwrap();
    for (field, found, want) in [
        ("profilerImage", &profiler["image"], json!("planner:1.3.0")),
        ("config", &config["sla"], json!({"ttft": 10})),
        ("config, lengths", &config["workload"], json!({"isl": 300})),
        ("config, planner", &config["features"]["planner"], json!({"mode": "agg"})),
        ("--profile-config", &profiler["args"][0], json!("--config")),
        ("profile_sla", &profiler["command"], json!(["python", "-m", "dynamo.profiler"])),
        ("resources", &profiler["resources"], json!({"limits": {"cpu": 2}})),
        ("tolerations", &pod["tolerations"], json!([{"operator": "Exists"}])),
        ("nodeSelector", &pod["nodeSelector"], json!({"gpu": "yes"})),
        ("outputPVC", &pod["volumes"][0]["persistentVolumeClaim"]["claimName"], json!("results")),
        ("configMapRef", &pod["volumes"][1]["configMap"]["name"], json!("base")),
        ("workersImage", &config["image"], json!("planner:1.3.0")),
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
    let mark = found["metadata"]["annotations"].as_object_mut().unwrap().remove("steersman.dev/accepted-spec").unwrap();
    assert_eq!(mark, mark_of(&a_request(&spec("")).object.spec));
    assert_eq!(found, want);
}

#[test]
fn item_4_3_resources_tolerations_and_node_selector_come_from_the_overrides() {
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
fn item_4_3_a_container_without_the_profilers_name_is_taken_for_it_and_nothing_is_set_by_default() {
    let with = job(
        "overrides: {profilingJob: {template: {spec: {containers: [{name: main, resources: {limits: {cpu: 1}}}]}}}}",
    );
    assert_eq!(pod(&with)["containers"][0]["resources"], json!({"limits": {"cpu": 1}}));
    assert_eq!(pod(&with)["containers"].as_array().unwrap().len(), 2);
    let without = job("overrides: {profilingJob: {template: {spec: {containers: []}}}}");
    for field in ["tolerations", "nodeSelector", "affinity"] {
        assert_eq!(pod(&without)[field], Value::Null);
    }
}

#[test]
fn item_4_4_the_config_map_of_the_annotation_is_mounted() {
    for (value, key) in [(r#"{"name":"base"}"#, "disagg.yaml"), (r#"{"name":"base","key":"a.yaml"}"#, "a.yaml")] {
        let job = annotated("nvidia.com/dgdr-config-map-ref", value);
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
fn item_4_5_the_output_goes_to_the_claim_of_the_annotation_or_to_nowhere() {
    let claimed = annotated("nvidia.com/dgdr-output-pvc", "results");
    let volume = json!({"name": "profiling-output", "persistentVolumeClaim": {"claimName": "results"}});
    assert_eq!(pod(&claimed)["volumes"], json!([volume]));
    assert_eq!(pod(&job(""))["volumes"], json!([{"name": "profiling-output", "emptyDir": {}}]));
}

#[test]
fn item_4_5_the_model_cache_is_mounted_where_it_is_wanted() {
    for (more, path) in [("", "/opt/model-cache"), (", pvcMountPath: /m", "/m")] {
        let mut seen = a_request(&spec(&format!("modelCache: {{pvcName: weights{more}}}")));
        seen.named.model_cache = Some(true);
        let job = job_of(seen);
        let volume =
            json!({"name": "model-cache", "persistentVolumeClaim": {"claimName": "weights", "readOnly": true}});
        assert_eq!(pod(&job)["volumes"][1], volume);
        let mount = json!({"name": "model-cache", "mountPath": path, "readOnly": true});
        assert_eq!(pod(&job)["containers"][0]["volumeMounts"][1], mount);
    }
}

#[test]
fn item_4_6_one_job_of_one_name_is_ever_asked_for() {
    let world = World::deployed(&spec(""));
    assert_eq!(world.created.iter().filter(|name| name.starts_with("Job ")).count(), 1);
    assert_eq!(world.status().profiling_job_name.as_deref(), Some("profile-qwen"));
}

#[test]
fn item_4_7_simulated_workers_choose_the_earlier_profilers_simulated_output() {
    let graph = |name: &str| {
        format!("apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\nspec: {{components: [{{name: {name}}}]}}")
    };
    for (more, want) in [("", "real"), ("features: {mocker: {enabled: true}}", "simulated")] {
        let mut world = World::settled(&spec(more));
        world.seen.output = Some(super::output(&[
            ("config_with_planner.yaml", &graph("real")),
            ("mocker_config_with_planner.yaml", &graph("simulated")),
        ]));
        world.job(steersman_plan::dynamo::JobState::Complete);
        world.settle();
        let graph = &world.objects["DynamoGraphDeployment qwen-dgd"];
        assert_eq!(graph["spec"]["components"][0]["name"], want);
    }
}

#[test]
fn infrastructure_is_told_only_where_it_is_configured() {
    let mut seen = a_request(&spec(""));
    seen.settings.infrastructure =
        [("NATS_SERVER".into(), "nats://x:4222".into()), ("ETCD_ENDPOINTS".into(), String::new())].into();
    let job = job_of(seen);
    let names: Vec<&str> =
        pod(&job)["containers"][0]["env"].as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["DGDR_NAME", "DGDR_NAMESPACE", "DGDR_UID", "HUGGING_FACE_HUB_TOKEN", "NATS_SERVER"]);
}

#[test]
fn the_sidecar_reaches_the_api_even_where_the_pod_gets_no_token() {
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
fn the_merging_program_is_installed_where_there_is_something_to_merge_and_wins_over_what_collides() {
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
fn the_account_belongs_to_nobody_and_a_binding_to_another_role_is_replaced() {
    let mut seen = a_request(&spec(""));
    seen.binding = Some(ObservedBinding { uid: "old".into(), cluster_role: "other".into() });
    let mut world = World::new(seen);
    world.settle();
    assert_eq!(world.seen.binding.as_ref().unwrap().cluster_role, "dgdr-profiling");
    let binding = &world.objects["RoleBinding dgdr-profiling-job-binding"];
    assert_eq!(binding["subjects"][0]["name"], "dgdr-profiling-job");
    assert_eq!(binding["metadata"]["ownerReferences"], Value::Null);
    let mut seen = a_request(&spec(""));
    seen.settings.profiling_cluster_role = None;
    let mut world = World::new(seen);
    world.settle();
    assert_eq!(world.created, ["Job profile-qwen"]);
}
