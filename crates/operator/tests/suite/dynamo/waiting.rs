//! What requests wait for, and that they say so while it lasts.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ServiceAccount};
use kube::api::DeleteParams;
use steersman_testkit::wait;

use super::*;

#[tokio::test]
async fn a_missing_claim_is_awaited_and_named() {
    let Some(scene) = Scene::new("claim", spec(json!({ "modelCache": { "pvcName": "models" } }))).await else { return };
    scene.settle().await;
    let (phase, said) = scene.says().await;
    assert_eq!(phase, "Pending");
    assert!(said.contains("model cache PVC models not found in namespace"), "{said}");
    let claim: PersistentVolumeClaim = object(json!({ "metadata": { "name": "models" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }));
    scene.namespace.all().create(&PostParams::default(), &claim).await.unwrap();
    scene.settle().await;
    assert_eq!(scene.says().await.0, "Profiling");
}

#[tokio::test]
async fn an_image_that_cannot_be_pulled_is_told_while_it_lasts() {
    let Some(scene) = Scene::new("pull", spec(json!({}))).await else { return };
    scene.settle().await;
    let waiting = json!({ "waiting": { "reason": "ErrImagePull", "message": "planner:1.4.0: not found" } });
    a_pod(&scene.namespace, "Pending", waiting).await;
    scene.settle().await;
    let (phase, said) = scene.says().await;
    assert_eq!(phase, "Profiling");
    assert!(said.contains("ErrImagePull: planner:1.4.0: not found. Check the image's name and tag"), "{said}");
    a_pod(&scene.namespace, "Running", json!({ "running": {} })).await;
    scene.settle().await;
    assert_eq!(scene.says().await.1, "Profiling is in progress");
}

/// It has no label of ours, so that no watch tells of it.
#[tokio::test]
async fn a_job_of_somebody_elses_is_left_alone_and_named() {
    let Some(scene) = Scene::new("foreign-job", spec(json!({}))).await else { return };
    let jobs = scene.namespace.all::<Job>();
    let container = json!({ "name": "a", "image": "b" });
    let foreign: Job = object(json!({ "metadata": { "name": "profile-qwen" }, "spec": { "template": {
        "spec": { "restartPolicy": "Never", "containers": [container] } } } }));
    let foreign = jobs.create(&PostParams::default(), &foreign).await.unwrap();
    scene.settle().await;
    let (phase, said) = scene.says().await;
    assert_eq!(phase, "Pending");
    assert!(said.contains("Job profile-qwen belongs to somebody else"), "{said}");
    assert_eq!(scene.job().await.uid(), foreign.uid());
    jobs.delete("profile-qwen", &DeleteParams::background()).await.unwrap();
    scene.settle().await;
    assert_eq!(scene.says().await.0, "Profiling");
}

/// Its users may have put pull Secrets into it, or it may be another program's.
#[tokio::test]
async fn an_account_of_somebody_elses_is_not_taken_over_unless_it_is_labelled() {
    let (Some((cluster, admin)), prefix) = (with_crds().await, "account") else { return };
    let namespace = cluster.namespace(prefix).await.unwrap();
    let account: ServiceAccount = object(json!({ "metadata": { "name": names::SERVICE_ACCOUNT } }));
    namespace.all().create(&PostParams::default(), &account).await.unwrap();
    create(&admin, namespace.name(), spec(json!({}))).await.unwrap();
    let scene = Scene { cluster, admin, namespace };
    let mut refused = None;
    for _ in 0..10 {
        refused = pass_once(cluster, scene.admin.clone(), scene.namespace.name()).await.err();
        if refused.is_some() {
            break;
        }
    }
    let refused = format!("{:#}", refused.unwrap());
    assert!(refused.contains("without the labels that say what it is for"), "{refused}");
    let (phase, said) = scene.says().await;
    assert_eq!(phase, "Pending", "nothing is lost");
    assert!(said.contains("app.kubernetes.io/name=dgdr-profiling-job"), "what to do: {said}");
    let labels = Patch::Merge(json!({ "metadata": { "labels": names::account_labels() } }));
    let accounts = scene.namespace.all::<ServiceAccount>();
    accounts.patch(names::SERVICE_ACCOUNT, &PatchParams::default(), &labels).await.unwrap();
    scene.settle().await;
    assert_eq!(scene.says().await.0, "Profiling");
}

/// What v1alpha1 says in fields, and v1beta1 keeps in annotations.
#[tokio::test]
async fn what_an_earlier_version_names_is_awaited_and_mounted() {
    let Some(scene) = Scene::new("earlier", spec(json!({}))).await else { return };
    let annotations = json!({ "nvidia.com/dgdr-output-pvc": "results",
        "nvidia.com/dgdr-config-map-ref": "{\"name\":\"mine\",\"key\":\"base.yaml\"}" });
    scene.change(json!({ "metadata": { "annotations": annotations } })).await;
    scene.settle().await;
    let (phase, said) = scene.says().await;
    assert_eq!(phase, "Pending");
    for part in ["output PVC results not found", "ConfigMap mine with key base.yaml not found"] {
        assert!(said.contains(part), "{said}");
    }
    let claim: PersistentVolumeClaim = object(json!({ "metadata": { "name": "results" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }));
    scene.namespace.all().create(&PostParams::default(), &claim).await.unwrap();
    let map: ConfigMap = object(json!({ "metadata": { "name": "mine" }, "data": { "base.yaml": "{}" } }));
    scene.namespace.all().create(&PostParams::default(), &map).await.unwrap();
    scene.settle().await;
    assert_eq!(scene.says().await.0, "Profiling");
    let volumes = json!(scene.job().await.spec.unwrap().template.spec.unwrap().volumes);
    assert_eq!(volumes[0]["persistentVolumeClaim"]["claimName"], "results", "{volumes}");
    assert_eq!(volumes[1]["configMap"]["name"], "mine", "{volumes}");
    let remark = condition(&scene.status().await, "SpecAccepted");
    assert_eq!(remark.0, "ConfigMapRefUnread", "{}", remark.1);
}

/// Two watches, of Jobs and of outputs: the one may be ahead of the other.
#[tokio::test]
async fn a_result_that_no_watch_has_told_of_yet_counts_when_its_job_has_failed_or_is_gone() {
    for gone in [false, true] {
        let Some(scene) = Scene::new("late-output", spec(json!({}))).await else { return };
        scene.settle().await;
        scene.deliver(json!({ "phase": "GeneratingDGD" })).await;
        scene.settle().await;
        if gone {
            let jobs = scene.namespace.all::<Job>();
            jobs.delete("profile-qwen", &DeleteParams::background()).await.unwrap();
            wait::until_gone(jobs, "profile-qwen").await.unwrap();
        } else {
            scene.job_fails("evicted").await;
        }
        let cache = Arc::new(Cache::new(family().children()));
        let server = server(scene.cluster, scene.admin.clone());
        cache.fill(&server, &Scope::Namespace(scene.namespace.name().to_owned())).await.unwrap();
        scene.deliver(json!({ "phase": "Done", "profiler_status": "success", "final_config.yaml": RESULT })).await;
        let context = ReconcileContext { cache, ..ReconcileContext::new(&family(), server, "test") };
        reconcile(&family(), &context, &scene.request().await).await.unwrap();
        scene.settle().await;
        assert_eq!(scene.says().await.0, "Deploying", "gone: {gone}");
        let again = scene.namespace.all::<Job>().get_opt("profile-qwen").await.unwrap();
        assert_eq!(again.is_some(), !gone, "no second Job");
    }
}
