//! Requests that cannot proceed: they report the cause, and proceed once it is gone.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::DeleteParams;
use steersman_testkit::wait;

use super::*;

#[tokio::test]
async fn missing_pvc_keeps_request_pending() {
    let Some(test) = TestNamespace::new("claim", spec(json!({ "modelCache": { "pvcName": "models" } }))).await else {
        return;
    };
    test.settle().await;
    let (phase, message) = test.phase_and_message().await;
    assert_eq!(phase, "Pending");
    assert!(message.contains("model cache PVC models not found in namespace"), "{message}");
    let claim: PersistentVolumeClaim = object(json!({ "metadata": { "name": "models" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }));
    test.namespace.api().create(&PostParams::default(), &claim).await.unwrap();
    test.settle().await;
    assert_eq!(test.phase_and_message().await.0, "Profiling");
}

#[tokio::test]
async fn image_pull_error_is_reported_until_resolved() {
    let Some(test) = TestNamespace::new("pull", spec(json!({}))).await else { return };
    test.settle().await;
    let waiting = json!({ "waiting": { "reason": "ErrImagePull", "message": "planner:1.4.0: not found" } });
    set_profiler_pod(&test.namespace, "Pending", waiting).await;
    test.settle().await;
    let (phase, message) = test.phase_and_message().await;
    assert_eq!(phase, "Profiling");
    assert!(
        message.contains("ErrImagePull: planner:1.4.0: not found. Check the name and tag of the image"),
        "{message}"
    );
    set_profiler_pod(&test.namespace, "Running", json!({ "running": {} })).await;
    test.settle().await;
    assert_eq!(test.phase_and_message().await.1, "Profiling is in progress");
}

/// A Job without our labels appears in no watch, so the operator has to read it by name.
#[tokio::test]
async fn foreign_job_is_untouched_and_reported() {
    let Some(test) = TestNamespace::new("foreign-job", spec(json!({}))).await else { return };
    let jobs = test.namespace.api::<Job>();
    let container = json!({ "name": "a", "image": "b" });
    let foreign: Job = object(json!({ "metadata": { "name": "profile-qwen" }, "spec": { "template": {
        "spec": { "restartPolicy": "Never", "containers": [container] } } } }));
    let foreign = jobs.create(&PostParams::default(), &foreign).await.unwrap();
    test.settle().await;
    let (phase, message) = test.phase_and_message().await;
    assert_eq!(phase, "Pending");
    assert!(message.contains("Job profile-qwen exists and belongs to another owner"), "{message}");
    assert_eq!(test.job().await.uid(), foreign.uid());
    jobs.delete("profile-qwen", &DeleteParams::background()).await.unwrap();
    test.settle().await;
    assert_eq!(test.phase_and_message().await.0, "Profiling");
}

/// An existing ServiceAccount may hold pull Secrets of users, or belong to another program. That of a Helm chart has the
/// labels of the chart, some of them equal to ours.
#[tokio::test]
async fn foreign_service_account_is_used_unchanged() {
    let helm = json!({ "app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/name": names::SERVICE_ACCOUNT,
        "app.kubernetes.io/component": "rbac", "helm.sh/chart": "dynamo-operator-1.4.0" });
    for (prefix, labels) in [("account", json!({})), ("chart-account", helm)] {
        let Some((cluster, admin)) = cluster_with_crds().await else { return };
        let namespace = cluster.namespace(prefix).await.unwrap();
        let metadata = json!({ "name": names::SERVICE_ACCOUNT, "labels": labels });
        let account: ServiceAccount = object(json!({ "metadata": metadata }));
        let account = namespace.api().create(&PostParams::default(), &account).await.unwrap();
        create(&admin, namespace.name(), spec(json!({}))).await.unwrap();
        let test = TestNamespace { cluster, admin, namespace };
        test.settle().await;
        assert_eq!(test.phase_and_message().await.0, "Profiling", "{prefix}");
        let used = test.namespace.api::<ServiceAccount>().get(names::SERVICE_ACCOUNT).await.unwrap();
        assert_eq!(used.metadata.resource_version, account.metadata.resource_version, "{prefix}");
        let binding = test.namespace.api::<RoleBinding>().get(names::ROLE_BINDING).await.unwrap();
        assert_eq!(binding.subjects.unwrap()[0].name, names::SERVICE_ACCOUNT, "its rights suffice");
    }
}

/// Conversion stores fields that only v1alpha1 has as annotations of v1beta1.
#[tokio::test]
async fn v1alpha1_annotations_are_awaited_and_mounted() {
    let Some(test) = TestNamespace::new("earlier", spec(json!({}))).await else { return };
    let annotations = json!({ "nvidia.com/dgdr-output-pvc": "results",
        "nvidia.com/dgdr-config-map-ref": "{\"name\":\"mine\",\"key\":\"base.yaml\"}" });
    test.patch_request(json!({ "metadata": { "annotations": annotations } })).await;
    test.settle().await;
    let (phase, message) = test.phase_and_message().await;
    assert_eq!(phase, "Pending");
    for part in ["output PVC results not found", "ConfigMap mine with key base.yaml not found"] {
        assert!(message.contains(part), "{message}");
    }
    let claim: PersistentVolumeClaim = object(json!({ "metadata": { "name": "results" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }));
    test.namespace.api().create(&PostParams::default(), &claim).await.unwrap();
    let map: ConfigMap = object(json!({ "metadata": { "name": "mine" }, "data": { "base.yaml": "{}" } }));
    test.namespace.api().create(&PostParams::default(), &map).await.unwrap();
    test.settle().await;
    assert_eq!(test.phase_and_message().await.0, "Profiling");
    let volumes = json!(test.job().await.spec.unwrap().template.spec.unwrap().volumes);
    assert_eq!(volumes[0]["persistentVolumeClaim"]["claimName"], "results", "{volumes}");
    assert_eq!(volumes[1]["configMap"]["name"], "mine", "{volumes}");
    let remark = condition(&test.status().await, "SpecAccepted");
    assert_eq!(remark.0, "ConfigMapRefUnread", "{}", remark.1);
}

/// Jobs and outputs are watched separately, so the cache may have the end of the Job and not yet the result.
#[tokio::test]
async fn uncached_result_counts_after_job_ended() {
    for gone in [false, true] {
        let Some(test) = TestNamespace::new("late-output", spec(json!({}))).await else { return };
        test.settle().await;
        test.deliver_output(json!({ "phase": "GeneratingDGD" })).await;
        test.settle().await;
        if gone {
            let jobs = test.namespace.api::<Job>();
            jobs.delete("profile-qwen", &DeleteParams::background()).await.unwrap();
            wait::until_gone(jobs, "profile-qwen").await.unwrap();
        } else {
            test.fail_job("evicted").await;
        }
        let cache = Arc::new(Cache::new(reconciler().children()));
        let server = server(test.cluster, test.admin.clone());
        cache.fill(&server, &Scope::Namespace(test.namespace.name().to_owned())).await.unwrap();
        test.deliver_output(
            json!({ "phase": "Done", "profiler_status": "success", "final_config.yaml": SAMPLE_RESULT }),
        )
        .await;
        let context = ReconcileContext { cache, ..ReconcileContext::new(&reconciler(), server, "test") };
        reconcile(&reconciler(), &context, &test.request().await).await.unwrap();
        test.settle().await;
        assert_eq!(test.phase_and_message().await.0, "Deploying", "gone: {gone}");
        let job = test.namespace.api::<Job>().get_opt("profile-qwen").await.unwrap();
        assert_eq!(job.is_some(), !gone, "a second Job must not be created");
    }
}
