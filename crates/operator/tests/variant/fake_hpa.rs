//! Scales workloads like an HPA: sets their replicas to the operator's gauge `wva_desired_replicas`.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use steersman_testkit::metrics::find_series;
use tokio::task::JoinHandle;

use crate::operator::OperatorProbe;
use crate::test_namespace::TestNamespace;

const SYNC_INTERVAL: Duration = Duration::from_millis(250);

/// Scales all Deployments of a namespace until it is dropped.
pub struct FakeHpa(JoinHandle<()>);

impl Drop for FakeHpa {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl FakeHpa {
    pub fn start(ns: &TestNamespace, probe: &OperatorProbe) -> Self {
        let (workloads, namespace, probe) = (ns.namespace.api(), ns.name().to_owned(), probe.clone());
        Self(tokio::spawn(async move {
            loop {
                let text = probe.metrics().await.unwrap_or_default();
                for (labels, replicas) in find_series(&text, "wva_desired_replicas", &[("namespace", &namespace)]) {
                    let target = labels.split_once("target_name=\"").and_then(|(_, rest)| rest.split_once('"'));
                    if let Some((target, _)) = target {
                        scale(&workloads, target, replicas as i32).await;
                    }
                }
                tokio::time::sleep(SYNC_INTERVAL).await;
            }
        }))
    }
}

/// Errors are ignored: the next iteration tries again.
async fn scale(workloads: &Api<Deployment>, name: &str, replicas: i32) {
    let Ok(Some(found)) = workloads.get_opt(name).await else { return };
    if found.spec.and_then(|spec| spec.replicas) != Some(replicas) {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        let _ = workloads.patch_scale(name, &PatchParams::default(), &patch).await;
    }
}
