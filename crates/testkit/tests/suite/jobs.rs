use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use steersman_testkit::pod_behaviour::{BEHAVIOUR_ANNOTATION, TERMINATION_MESSAGE_ANNOTATION};
use steersman_testkit::{Namespace, PodBehaviour, wait};

use crate::support::{first_container, full_cluster, is_ready, job};

async fn start(namespace: &Namespace, name: &str, annotations: Value) {
    namespace.api::<Job>().create(&PostParams::default(), &job(name, annotations)).await.unwrap();
}

async fn until(namespace: &Namespace, name: &str, what: &str, holds: impl Fn(&Job) -> bool) -> Job {
    wait::until(namespace.api::<Job>(), name, what, wait::TIMEOUT, holds).await.unwrap()
}

fn has_condition(type_: &'static str) -> impl Fn(&Job) -> bool {
    move |job| {
        let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.type_ == type_ && condition.status == "True")
    }
}

async fn pod_of(namespace: &Namespace, job: &str) -> Pod {
    let selector = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
    let pods = namespace.api::<Pod>().list(&selector).await.unwrap();
    pods.items.into_iter().next().expect("the Job has a pod")
}

#[tokio::test]
async fn job_succeeds_by_default() {
    let cluster = full_cluster!();
    let namespace = cluster.namespace("job-succeeds").await.unwrap();
    start(&namespace, "work", json!({})).await;
    let done = until(&namespace, "work", "is complete", has_condition("Complete")).await;
    assert_eq!(done.status.unwrap().succeeded, Some(1));
}

#[tokio::test]
async fn failing_job_has_termination_message() {
    let cluster = full_cluster!();
    let namespace = cluster.namespace("job-fails").await.unwrap();
    let fail = PodBehaviour::Fail.annotation_value();
    let annotations = json!({ BEHAVIOUR_ANNOTATION: fail, TERMINATION_MESSAGE_ANNOTATION: "out of memory" });
    start(&namespace, "work", annotations).await;
    let done = until(&namespace, "work", "has failed", has_condition("Failed")).await;
    assert_eq!(done.status.unwrap().failed, Some(1));
    let pod = pod_of(&namespace, "work").await;
    let terminated = first_container(&pod).unwrap().state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((terminated.exit_code, terminated.message.as_deref()), (1, Some("out of memory")));
}

#[tokio::test]
async fn hanging_job_completes_after_change_to_run() {
    let cluster = full_cluster!();
    let namespace = cluster.namespace("job-hangs").await.unwrap();
    start(&namespace, "work", json!({ BEHAVIOUR_ANNOTATION: PodBehaviour::Hang.annotation_value() })).await;
    let has_ready_pod = |job: &Job| job.status.as_ref().is_some_and(|status| status.ready == Some(1));
    until(&namespace, "work", "has a ready pod", has_ready_pod).await;

    // A later Job that is already complete shows that this one had the time to end.
    start(&namespace, "other", json!({})).await;
    until(&namespace, "other", "is complete", has_condition("Complete")).await;
    let pod = pod_of(&namespace, "work").await;
    assert!(is_ready(&pod));
    let job = namespace.api::<Job>().get("work").await.unwrap();
    assert!(!has_condition("Complete")(&job) && !has_condition("Failed")(&job));

    let patch = Patch::Merge(PodBehaviour::Run.merge_patch());
    namespace.api::<Pod>().patch(&pod.metadata.name.unwrap(), &PatchParams::default(), &patch).await.unwrap();
    until(&namespace, "work", "is complete", has_condition("Complete")).await;
}
