//! Requests that NVIDIA's operator began: their Jobs and graphs are followed as they are.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::RoleBinding;

use super::*;

/// The labels that NVIDIA's operator sets on everything that it generates for a request.
fn labels(namespace: &str) -> Value {
    json!({ "dgdr.nvidia.com/name": NAME, "dgdr.nvidia.com/namespace": namespace, "nvidia.com/managed-by": "dynamo-operator" })
}

fn owner(request: &DynamicObject) -> Value {
    json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest", "name": NAME,
        "uid": request.uid(), "controller": true, "blockOwnerDeletion": true })
}

fn condition_of(type_: &str, status: bool, reason: &str, message: &str) -> Value {
    json!({ "type": type_, "status": if status { "True" } else { "False" }, "reason": reason, "message": message,
        "observedGeneration": 1, "lastTransitionTime": "2026-11-16T05:00:00Z" })
}

/// Creates an object with the field manager of NVIDIA's operator.
async fn create_as_nvidia<K>(test: &TestNamespace, manifest: Value) -> K
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let params = PostParams { field_manager: Some("manager".to_owned()), ..PostParams::default() };
    test.namespace.api::<K>().create(&params, &object(manifest)).await.unwrap()
}

async fn write_status_as_nvidia(test: &TestNamespace, status: Value) {
    let params = PatchParams { field_manager: Some("manager".to_owned()), ..PatchParams::default() };
    test.requests().patch_status(NAME, &params, &Patch::Merge(json!({ "status": status }))).await.unwrap();
}

/// The ServiceAccount and the RoleBinding of profiling Jobs. NVIDIA's operator never deletes them.
async fn create_profiling_account(test: &TestNamespace) {
    let metadata = |name: &str| {
        json!({ "name": name, "labels": { "app.kubernetes.io/managed-by": "dynamo-operator",
        "app.kubernetes.io/component": "rbac", "app.kubernetes.io/name": "dgdr-profiling-job" } })
    };
    create_as_nvidia::<ServiceAccount>(test, json!({ "metadata": metadata("dgdr-profiling-job") })).await;
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "dynamo-platform-dynamo-operator-dgdr-profiling" });
    let subjects =
        json!([{ "kind": "ServiceAccount", "name": "dgdr-profiling-job", "namespace": test.namespace.name() }]);
    let binding = json!({ "metadata": metadata("dgdr-profiling-job-binding"), "roleRef": role, "subjects": subjects });
    create_as_nvidia::<RoleBinding>(test, binding).await;
}

/// The Job of NVIDIA's operator, with the annotations by which it finds changes.
async fn create_profiling_job(test: &TestNamespace) -> Job {
    let request = test.request().await;
    let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
    let token = json!({ "name": "HUGGING_FACE_HUB_TOKEN", "valueFrom": {
        "secretKeyRef": { "name": "hf-token-secret", "key": "HF_TOKEN" } } });
    let profiler = json!({ "name": "profiler", "image": "planner:1.4.0", "command": ["python", "-m", "dynamo.profiler"],
        "args": ["--config", request.data["spec"].to_string(), "--output-dir", "/data"], "workingDir": "/workspace",
        "env": [variable("DGDR_NAME", NAME), variable("DGDR_NAMESPACE", test.namespace.name()),
            variable("DGDR_UID", &request.uid().unwrap()), token],
        "volumeMounts": [{ "name": "profiling-output", "mountPath": "/data" }] });
    let copier = json!({ "name": "output-copier", "image": "bitnami/kubectl:latest", "command": ["/bin/sh", "-c"],
        "args": ["sleep 10"],
        "volumeMounts": [{ "name": "profiling-output", "mountPath": "/data", "readOnly": true }] });
    let security = json!({ "runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000 });
    let pod = json!({ "serviceAccountName": "dgdr-profiling-job", "restartPolicy": "Never", "securityContext": security,
        "imagePullSecrets": [{ "name": "nvcr-imagepullsecret" }], "containers": [profiler, copier],
        "volumes": [{ "name": "profiling-output", "emptyDir": {} }] });
    let metadata = json!({ "name": "profile-qwen", "ownerReferences": [owner(&request)],
        "labels": { "app": "dynamo-profiler", "dgdr": NAME, "nvidia.com/managed-by": "dynamo-operator" },
        "annotations": { "nvidia.com/last-applied-hash": "0123", "nvidia.com/last-applied-generation": "1" } });
    create_as_nvidia(test, json!({ "metadata": metadata, "spec": { "backoffLimit": 0, "template": { "spec": pod } } }))
        .await
}

#[track_caller]
fn assert_same_job(found: &Job, before: &Job) {
    assert_eq!(found.metadata.uid, before.metadata.uid, "the Job must not be replaced");
    assert_eq!(found.metadata.generation, before.metadata.generation, "the Job must not be changed");
    assert_eq!(found.spec, before.spec);
}

#[tokio::test]
async fn running_job_of_nvidia_operator_is_followed() {
    let Some(test) = TestNamespace::new("nvidia-job", spec(json!({}))).await else { return };
    create_profiling_account(&test).await;
    let before = create_profiling_job(&test).await;
    let conditions = json!([
        condition_of("Validation", true, "ValidationSucceeded", "Spec validation succeeded"),
        condition_of("Profiling", false, "Initializing", "Profiling job is initializing"),
        condition_of("Succeeded", false, "Profiling", "Profiling is in progress"),
    ]);
    write_status_as_nvidia(
        &test,
        json!({ "phase": "Profiling", "profilingPhase": "Initializing", "profilingJobName": "profile-qwen",
            "observedGeneration": 1, "conditions": conditions }),
    )
    .await;
    test.settle().await;
    assert_same_job(&test.job().await, &before);
    let (phase, message) = test.phase_and_message().await;
    assert!(phase == "Profiling" && message.starts_with("Profiling is in progress"), "{phase}: {message}");

    // The sidecar of the Job relays a sub-phase, and then the result.
    let request = test.request().await;
    let output = |data: Value| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "dgdr-output-qwen",
            "labels": labels(test.namespace.name()), "ownerReferences": [owner(&request)] }, "data": data })
    };
    let params = PatchParams { field_manager: Some("kubectl-client-side-apply".to_owned()), ..PatchParams::default() };
    create_as_nvidia::<ConfigMap>(&test, output(json!({ "phase": "SweepingDecode", "message": "Benchmarking" }))).await;
    test.settle().await;
    assert_eq!(test.status().await["profilingPhase"], "SweepingDecode");
    let result = output(json!({ "phase": "Done", "message": "Done", "profiler_status": "success",
        "final_config.yaml": SAMPLE_RESULT, "profiler_status.yaml": "status: success\nphase: Done\n" }));
    test.namespace.api::<ConfigMap>().patch("dgdr-output-qwen", &params, &Patch::Merge(result)).await.unwrap();
    test.complete_job().await;
    test.settle().await;
    assert_eq!(test.phase_and_message().await.0, "Deploying");
    assert!(test.graphs().get_opt(GRAPH).await.unwrap().is_some(), "the result is used");
    assert_same_job(&test.job().await, &before);
    let jobs = test.namespace.api::<Job>().list(&ListParams::default()).await.unwrap();
    assert_eq!(jobs.items.len(), 1);
    let binding = test.namespace.api::<RoleBinding>().get("dgdr-profiling-job-binding").await.unwrap();
    assert_eq!(binding.role_ref.name, "steersman-profiling-job", "the role of NVIDIA's release may be gone");
    test.assert_no_writes().await;
}

#[tokio::test]
async fn deployed_graph_of_nvidia_operator_is_kept() {
    let Some(test) = TestNamespace::new("nvidia-graph", spec(json!({}))).await else { return };
    create_profiling_account(&test).await;
    let job = create_profiling_job(&test).await;
    test.complete_job().await;
    let params = PostParams { field_manager: Some("manager".to_owned()), ..PostParams::default() };
    let mut graph: Value =
        SAMPLE_RESULT.split("---\n").nth(1).map(|text| serde_saphyr::from_str(text).unwrap()).unwrap();
    let mut of_graph = labels(test.namespace.name());
    of_graph["team"] = json!("a");
    graph["metadata"] = json!({ "name": GRAPH, "labels": of_graph });
    let graph = test.graphs().create(&params, &object(graph)).await.unwrap();
    test.set_graph_state("successful").await;
    let graph_owner = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "name": GRAPH,
        "uid": graph.uid(), "controller": true, "blockOwnerDeletion": true });
    let config = json!({ "metadata": { "name": "planner-config-1a2b", "labels": labels(test.namespace.name()),
        "ownerReferences": [graph_owner], "annotations": { "nvidia.com/last-applied-hash": "0123" } },
        "data": { "planner_config.json": "{}" } });
    let config: ConfigMap = create_as_nvidia(&test, config).await;
    test.patch_request(json!({ "metadata": { "annotations": { "nvidia.com/generated-dgd-spec": "",
        "dgdr.nvidia.com/additional-resources": SAMPLE_RESULT.split("---\n").next() } } }))
        .await;
    let conditions = json!([
        condition_of("Validation", true, "ValidationSucceeded", "Spec validation succeeded"),
        condition_of("Profiling", true, "ProfilingCompleted", "Profiling job completed successfully"),
        condition_of("SpecGenerated", true, "SpecGenerated", "Spec generated"),
        condition_of("DeploymentReady", true, "DeploymentReady", "DynamoGraphDeployment qwen-dgd is ready"),
        condition_of("Succeeded", true, "Deployed", "Deployment is healthy"),
    ]);
    write_status_as_nvidia(
        &test,
        json!({ "phase": "Deployed", "profilingJobName": "profile-qwen", "dgdName": GRAPH, "observedGeneration": 1,
            "deploymentInfo": { "replicas": 3, "availableReplicas": 1 }, "conditions": conditions }),
    )
    .await;
    let assert_kept = async || {
        let found = test.graphs().get(GRAPH).await.unwrap();
        assert_eq!(
            (&found.metadata.uid, &found.metadata.generation),
            (&graph.metadata.uid, &graph.metadata.generation)
        );
        assert_eq!(found.data["spec"], graph.data["spec"]);
        let found = test.namespace.api::<ConfigMap>().get("planner-config-1a2b").await.unwrap();
        assert_eq!((&found.metadata.uid, &found.data), (&config.metadata.uid, &config.data));
        assert_eq!(found.owner_references()[0].kind, "DynamoGraphDeployment");
        assert_same_job(&test.job().await, &job);
    };
    test.settle().await;
    assert_eq!(test.phase_and_message().await, ("Deployed".to_owned(), "Deployment is healthy".to_owned()));
    assert_kept().await;
    test.assert_no_writes().await;

    // The graph is followed from here on.
    test.set_graph_state("failed").await;
    test.settle().await;
    assert_eq!(test.phase_and_message().await.0, "Deploying");
    test.set_graph_state("successful").await;
    test.settle().await;
    assert_eq!(test.phase_and_message().await.0, "Deployed");
    assert_kept().await;
}
