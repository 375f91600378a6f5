use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use steersman_testkit::pod_behaviour::{BEHAVIOUR_ANNOTATION, START_DELAY_ANNOTATION};
use steersman_testkit::{Namespace, PodBehaviour, object, wait};

use crate::support::{condition, first_container, full_cluster, gpu_deployment, is_ready, phase, pod, waiting_reason};

async fn create(namespace: &Namespace, pod: &Pod) {
    namespace.api::<Pod>().create(&PostParams::default(), pod).await.unwrap();
}

async fn until(namespace: &Namespace, name: &str, what: &str, holds: impl Fn(&Pod) -> bool) -> Pod {
    wait::until(namespace.api::<Pod>(), name, what, wait::TIMEOUT, holds).await.unwrap()
}

async fn set_behaviour(namespace: &Namespace, name: &str, play: PodBehaviour) {
    let patch = Patch::Merge(play.merge_patch());
    namespace.api::<Pod>().patch(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn pending_pod_starts_after_change_to_run() {
    let cluster = full_cluster!();
    let namespace = cluster.namespace("pending").await.unwrap();
    create(&namespace, &pod("slow", PodBehaviour::Pending, &[])).await;
    let pending =
        until(&namespace, "slow", "creates its container", |pod| waiting_reason(pod) == Some("ContainerCreating"))
            .await;
    assert_eq!(phase(&pending), Some("Pending"));
    assert!(!is_ready(&pending));
    set_behaviour(&namespace, "slow", PodBehaviour::Run).await;
    until(&namespace, "slow", "is Ready", is_ready).await;
}

#[tokio::test]
async fn pod_starts_after_its_delay() {
    let cluster = full_cluster!();
    let namespace = cluster.namespace("delay").await.unwrap();
    create(&namespace, &pod("late", PodBehaviour::Run, &[(START_DELAY_ANNOTATION, "3s")])).await;
    // A slow watch may miss the intermediate states, but transition times stay.
    let ready = until(&namespace, "late", "is Ready", is_ready).await;
    let scheduled = transition(&ready, "PodScheduled");
    let delay = transition(&ready, "Ready").duration_since(scheduled);
    assert!(delay.as_secs() >= 2, "a delay of three seconds, seen in whole seconds, took {delay:?}");
}

fn transition(pod: &Pod, type_: &str) -> k8s_openapi::jiff::Timestamp {
    let conditions = pod.status.as_ref().unwrap().conditions.as_ref().unwrap();
    let condition = conditions.iter().find(|condition| condition.type_ == type_).unwrap();
    condition.last_transition_time.as_ref().unwrap().0
}

#[tokio::test]
async fn crashed_pod_recovers_after_change_to_run() {
    let cluster = full_cluster!();
    let namespace = cluster.namespace("crash").await.unwrap();
    create(&namespace, &pod("server", PodBehaviour::Run, &[])).await;
    until(&namespace, "server", "is Ready", is_ready).await;
    set_behaviour(&namespace, "server", PodBehaviour::Crash).await;
    let crashed = until(&namespace, "server", "crashes", |pod| waiting_reason(pod) == Some("CrashLoopBackOff")).await;
    assert!(!is_ready(&crashed));
    let container = first_container(&crashed).unwrap();
    assert!(container.restart_count >= 1);
    let ended = container.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!(ended.exit_code, 1);
    set_behaviour(&namespace, "server", PodBehaviour::Run).await;
    let healed = until(&namespace, "server", "is Ready again", is_ready).await;
    assert!(first_container(&healed).unwrap().restart_count >= 1, "the restart count must not be reset");
}

#[tokio::test]
async fn pull_error_ends_after_change_to_run() {
    let cluster = full_cluster!();
    let namespace = cluster.namespace("pull").await.unwrap();
    create(&namespace, &pod("server", PodBehaviour::PullError, &[])).await;
    let stuck =
        until(&namespace, "server", "fails to pull", |pod| waiting_reason(pod) == Some("ImagePullBackOff")).await;
    assert_eq!(phase(&stuck), Some("Pending"));
    let state = first_container(&stuck).unwrap().state.as_ref().unwrap();
    let message = state.waiting.as_ref().unwrap().message.clone().unwrap();
    assert!(message.contains("example.com/main:1"), "{message}");
    set_behaviour(&namespace, "server", PodBehaviour::Run).await;
    until(&namespace, "server", "is Ready", is_ready).await;
}

#[tokio::test]
async fn unready_pod_runs_without_becoming_ready() {
    let cluster = full_cluster!();
    let namespace = cluster.namespace("unready").await.unwrap();
    create(&namespace, &pod("server", PodBehaviour::Unready, &[])).await;
    let running = until(&namespace, "server", "runs", |pod| phase(pod) == Some("Running")).await;
    assert_eq!(condition(&running, "Ready"), Some("False"));
    assert!(!first_container(&running).unwrap().ready);
}

#[tokio::test]
async fn deleted_pod_is_removed() {
    let cluster = full_cluster!();
    let namespace = cluster.namespace("delete").await.unwrap();
    create(&namespace, &pod("server", PodBehaviour::Run, &[])).await;
    until(&namespace, "server", "is Ready", is_ready).await;
    namespace.api::<Pod>().delete("server", &kube::api::DeleteParams::default()).await.unwrap();
    wait::until_gone(namespace.api::<Pod>(), "server").await.unwrap();
}

/// Tests cannot annotate the pods of an operator, which come from its templates, but can annotate their namespace.
#[tokio::test]
async fn namespace_annotation_applies_to_pods_without_one() {
    let cluster = full_cluster!();
    let namespace = cluster
        .namespace_with_annotations("steered", &[(BEHAVIOUR_ANNOTATION, PodBehaviour::Crash.annotation_value())])
        .await
        .unwrap();
    let mut deployment = gpu_deployment("server", 1, 0, "unused");
    deployment.spec.as_mut().unwrap().template.spec.as_mut().unwrap().node_selector = None;
    let created = namespace.api::<Deployment>().create(&PostParams::default(), &deployment).await.unwrap();
    create(&namespace, &pod("own-mind", PodBehaviour::Run, &[])).await;
    until(&namespace, "own-mind", "is Ready", is_ready).await;

    let selector = ListParams::default().labels("app=server");
    let pods = namespace.api::<Pod>();
    let name = wait::eventually("a pod of the Deployment", async || {
        pods.list(&selector).await.ok()?.items.first().and_then(|pod| pod.metadata.name.clone())
    })
    .await
    .unwrap();
    until(&namespace, &name, "crashes", |pod| waiting_reason(pod) == Some("CrashLoopBackOff")).await;
    let template = created.spec.unwrap().template.metadata.unwrap();
    assert_eq!(template.annotations, None, "the policy must change pods only, not their templates");
}

/// A misspelt behaviour must not look like a healthy pod.
#[tokio::test]
async fn unknown_behaviour_is_rejected() {
    let cluster = full_cluster!();
    let namespace = cluster.namespace("typing-error").await.unwrap();
    let mut wrong = pod("wrong", PodBehaviour::Run, &[]);
    wrong.metadata.annotations.as_mut().unwrap().insert(BEHAVIOUR_ANNOTATION.to_owned(), "crashh".to_owned());
    let error = namespace.api::<Pod>().create(&PostParams::default(), &wrong).await.unwrap_err().to_string();
    assert!(error.contains("steersman.dev/play: crashh is not one of run, pending"), "{error}");
    let late = pod("late", PodBehaviour::Run, &[(START_DELAY_ANNOTATION, "5 seconds")]);
    let error = namespace.api::<Pod>().create(&PostParams::default(), &late).await.unwrap_err().to_string();
    assert!(error.contains("durations such as 300ms"), "{error}");
}

#[tokio::test]
async fn pod_without_annotation_is_unchanged() {
    let cluster = full_cluster!();
    let namespace = cluster.namespace("plain").await.unwrap();
    let plain: Pod = object(json!({ "metadata": { "name": "plain" }, "spec": crate::support::pod_spec() }));
    create(&namespace, &plain).await;
    let ready = until(&namespace, "plain", "is Ready", is_ready).await;
    assert_eq!(ready.metadata.annotations, None);
}
