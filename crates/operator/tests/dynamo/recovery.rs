//! Requests that continue after somebody deleted or changed their objects, and retries of failed requests.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use steersman_plan::dynamo::names;
use steersman_testkit::{PodBehaviour, object, wait};

use crate::test_namespace::{GRAPH, JOB, OUTPUT, TestNamespace, condition, spec};

/// Kubernetes' Job controller counts the deleted pod as a failed one, and ends the Job.
#[tokio::test]
async fn deleted_pod_is_replaced_and_profiling_completes() {
    let Some(ns) = TestNamespace::open("pod-gone").await else { return };
    ns.apply_request(spec(json!({}))).await;
    let profiler = ns.profiler().await;
    profiler.report_and_wait("SweepingPrefill", "Sweeping parallelization strategies").await;
    drop(profiler);
    let (job, pod) = (ns.job().await.uid(), ns.pod().await.name_any());
    ns.api::<Pod>().delete(&pod, &DeleteParams::default()).await.unwrap();
    ns.namespace.wait_for_event("ProfilingPodDeleted").await.unwrap();
    let replaced = async || (ns.api::<Job>().get_opt(JOB).await.ok()??.uid() != job).then_some(());
    wait::eventually("the Job is replaced", replaced).await.unwrap();
    wait::until_gone(ns.api::<Pod>(), &pod).await.unwrap();
    let request = ns.wait_for_phase("Profiling").await;
    assert_eq!(request["status"]["profilingPhase"], "Initializing", "nothing of the first Job stays: {request}");
    let output = ns.kubectl_output("pod-deleted");
    output.assert_status(
        "Profiling",
        "Profiling",
        &[],
        &["the pod of Job profile-qwen was deleted; profiling starts again"],
    );
    ns.complete_profiling().await;
    ns.wait_for_phase("Deploying").await;
    ns.graph().await;
}

#[tokio::test]
async fn failed_request_is_retried_by_annotation() {
    let Some(ns) = TestNamespace::open("retry").await else { return };
    ns.apply_request(spec(json!({}))).await;
    let profiler = ns.profiler().await;
    profiler.report_and_wait("SweepingPrefill", "On its way").await;
    profiler.fail("SweepingPrefill", "no candidate fits").await;
    ns.wait_for_phase("Failed").await;
    let failed = ns.job().await.uid();
    ns.patch_request(json!({ "spec": { "backend": "sglang" } })).await;
    let ignored = |request: &Value| condition(request, "SpecAccepted")["reason"] == "SpecChangeIgnored";
    let request = ns.wait_for("the change is reported", ignored).await;
    // The command of the message.
    let message = condition(&request, "SpecAccepted")["message"].as_str().unwrap();
    let (_, command) = message.split_once("kubectl ").unwrap();
    let (command, _) = command.split_once("$(date +%s)").unwrap();
    let command = format!("{command}1");
    ns.env.cluster.kubectl(&command.split_whitespace().collect::<Vec<_>>()).unwrap();
    ns.wait_for_phase("Profiling").await;
    let job = ns.job().await;
    assert_ne!(job.uid(), failed);
    let args = json!(job.spec.unwrap().template.spec.unwrap().containers[0].args);
    assert!(args[1].as_str().unwrap().contains("\"backend\":\"sglang\""), "{args}");
    ns.complete_profiling().await;
    let request = ns.wait_for_phase("Deploying").await;
    assert_eq!(request["status"]["lastRetry"], "1");
    // Events are published after the status is written.
    let published =
        async || Some(ns.kubectl_output("retried")).filter(|output| output.description.contains("DeploymentCreated"));
    let output = wait::eventually("the event of the new graph is published", published).await.unwrap();
    output.assert_status("Deploying", "Deploying", &[], &["Retrying", "DeploymentCreated"]);
}

/// No watch sees objects without these labels.
#[tokio::test]
async fn objects_without_labels_are_still_followed() {
    let Some(ns) = TestNamespace::open("unlabelled").await else { return };
    ns.apply_request(spec(json!({}))).await;
    let profiler = ns.profiler().await;
    profiler.report_and_wait("SweepingPrefill", "On its way").await;
    let unlabelled = |keys: &[&str]| {
        let labels: serde_json::Map<String, Value> = keys.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
        Patch::Merge(json!({ "metadata": { "labels": labels } }))
    };
    let of_job = [names::LABEL_MANAGED_BY, names::LABEL_APP, names::LABEL_REQUEST];
    ns.api::<Job>().patch(JOB, &PatchParams::default(), &unlabelled(&of_job)).await.unwrap();
    profiler.succeed().await;
    ns.wait_for_phase("Deploying").await;
    ns.set_graph_state("successful", "").await;
    ns.wait_for_phase("Deployed").await;
    let of_graph = [names::LABEL_NAME, names::LABEL_NAMESPACE, names::LABEL_MANAGED_BY];
    ns.graphs().patch(GRAPH, &PatchParams::default(), &unlabelled(&of_graph)).await.unwrap();
    assert!(!ns.graph().await.labels().contains_key(names::LABEL_NAME));
    ns.set_graph_state("failed", "VllmDecodeWorker: CrashLoopBackOff").await;
    let request = ns.wait_for_phase("Deploying").await;
    assert_eq!(condition(&request, "DeploymentReady")["reason"], "DeploymentDegraded");
    ns.set_graph_state("successful", "").await;
    ns.wait_for_phase("Deployed").await;
}

/// The test sets the container's state, because the simulated kubelet does not read Secrets.
#[tokio::test]
async fn unstartable_graph_pod_is_explained() {
    let Some(ns) = TestNamespace::open("graph-pod").await else { return };
    ns.apply_request(spec(json!({}))).await;
    ns.complete_profiling().await;
    ns.set_graph_state("pending", "").await;
    let name = "qwen-dgd-vllmdecodeworker-0";
    let mut pod = json!({ "metadata": { "name": name, "labels": { "nvidia.com/dynamo-graph-deployment-name": GRAPH } },
        "spec": { "containers": [{ "name": "main", "image": "vllm-runtime:1.4.0" }] } });
    pod["metadata"]["annotations"] = PodBehaviour::Pending.merge_patch()["metadata"]["annotations"].clone();
    let pods = ns.api::<Pod>();
    pods.create(&PostParams::default(), &object(pod)).await.unwrap();
    let has_statuses = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.container_statuses.is_some());
    let pod = wait::until(ns.api::<Pod>(), name, "has container statuses", wait::TIMEOUT, has_statuses).await.unwrap();
    let mut containers = json!(pod.status.as_ref().unwrap().container_statuses);
    containers[0]["state"] = json!({ "waiting": { "reason": "CreateContainerConfigError",
        "message": "secret \"hf-token-secret\" not found" } });
    let patch = Patch::Merge(json!({ "status": { "containerStatuses": containers } }));
    pods.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    ns.wait_for_message("CreateContainerConfigError").await;
    let messages = [
        "DGD qwen-dgd is in pending state. pod qwen-dgd-vllmdecodeworker-0 container main: CreateContainerConfigError",
        "secret \"hf-token-secret\" not found. Create the Secret or ConfigMap that the message names",
    ];
    ns.kubectl_output("graph-secret-missing").assert_status(
        "Deploying",
        "Deploying",
        &messages,
        &["DeploymentCreated"],
    );
    pods.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    ns.wait_for("the problem is resolved", |request| {
        !condition(request, "Succeeded")["message"].to_string().contains("CreateContainerConfigError")
    })
    .await;
}

/// Job, pod and output have no effect once the graph is generated.
#[tokio::test]
async fn remains_of_profiling_may_be_deleted() {
    let Some(ns) = TestNamespace::open("remains").await else { return };
    ns.apply_request(spec(json!({ "autoApply": false }))).await;
    ns.complete_profiling().await;
    let before = ns.wait_for_phase("Ready").await;
    ns.api::<Job>().delete(JOB, &DeleteParams::background()).await.unwrap();
    ns.api::<ConfigMap>().delete(OUTPUT, &DeleteParams::default()).await.unwrap();
    wait::until_gone(ns.api::<Job>(), JOB).await.unwrap();
    wait::until_gone(ns.api::<ConfigMap>(), OUTPUT).await.unwrap();
    ns.patch_request(json!({ "spec": { "autoApply": true } })).await;
    ns.wait_for_phase("Deploying").await;
    assert_eq!(json!(ns.graph().await.metadata.name), before["status"]["dgdName"]);
    assert!(ns.api::<Job>().get_opt(JOB).await.unwrap().is_none(), "nothing is profiled again");
}
