//! Whoever scales by the operator's gauges, as an HPA does: it sets a workload's replicas to what it reads.
//! Comes in: `wva_desired_replicas` of a namespace; goes out: workloads with these replicas.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use steersman_testkit::metrics::find;
use tokio::task::JoinHandle;

use crate::operator::Voice;
use crate::scene::Scene;

const OFTEN: Duration = Duration::from_millis(250);

/// Dropping it ends it.
pub struct Follower(JoinHandle<()>);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Follower {
    pub fn start(scene: &Scene, voice: &Voice) -> Self {
        let (workloads, namespace, voice) = (scene.namespace.all(), scene.name().to_owned(), voice.clone());
        Self(tokio::spawn(async move {
            loop {
                let text = voice.metrics().await.unwrap_or_default();
                for (labels, replicas) in find(&text, "wva_desired_replicas", &[("namespace", &namespace)]) {
                    let target = labels.split_once("target_name=\"").and_then(|(_, rest)| rest.split_once('"'));
                    if let Some((target, _)) = target {
                        follow(&workloads, target, replicas as i32).await;
                    }
                }
                tokio::time::sleep(OFTEN).await;
            }
        }))
    }
}

/// What cannot be scaled now is tried again soon.
async fn follow(workloads: &Api<Deployment>, name: &str, replicas: i32) {
    let Ok(Some(found)) = workloads.get_opt(name).await else { return };
    if found.spec.and_then(|spec| spec.replicas) != Some(replicas) {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        let _ = workloads.patch_scale(name, &PatchParams::default(), &patch).await;
    }
}
