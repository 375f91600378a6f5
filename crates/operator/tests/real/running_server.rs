//! The real llama-stack server of the scenario, and its users.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::Value;
use steersman_api::Family;
use steersman_testkit::real_node::RealCluster;
use steersman_testkit::real_node::scenario::{MODEL, NAMESPACE, SERVER, chat_request};
use steersman_testkit::wait;

use crate::env::wait_for_status;
use crate::load::{Load, Report, Request};

/// Name of the server, of its Deployment and of its pods.
pub const NAME: &str = "stack";

const CHAT: &str = "/v1/chat/completions";
const MODELS: &str = "/v1/models";

/// Length of the answers in a load.
const ANSWER_TOKENS: u32 = 16;

/// Requests of each path without which a load proves nothing.
const MIN_REQUESTS: usize = 5;

pub struct RunningServer {
    cluster: &'static RealCluster,
    url: String,
    model: String,
}

impl RunningServer {
    /// Creates the server unless it exists, and waits until it lists its model.
    pub async fn start(cluster: &'static RealCluster) -> Self {
        cluster.apply(SERVER).await.unwrap();
        let ready = |status: &Value| status["phase"] == "Ready";
        wait_for_status(cluster, Family::Llsd, NAME, "is Ready", ready).await;
        let url = cluster.service_url(NAMESPACE, "stack-service").await.unwrap();
        let model = cluster.wait_for_model(&url, MODEL).await.unwrap();
        Self { cluster, url, model }
    }

    /// Sends one request for a chat completion.
    pub async fn chat(&self) {
        let text = self.cluster.chat(&self.url, &self.model).await.unwrap();
        assert!(!text.trim().is_empty(), "{text:?}");
    }

    /// Starts clients that ask for chat completions, and one that lists the models.
    pub fn start_load(&self) -> Load {
        let chat = Request { path: CHAT, body: Some(chat_request(&self.model, ANSWER_TOKENS)) };
        Load::start(self.cluster, &self.url, vec![chat.clone(), chat, Request { path: MODELS, body: None }])
    }

    /// The unique ids of its pods. Pods that are being deleted are left out.
    pub async fn pods(&self) -> BTreeSet<String> {
        let pods = self.all_pods().await;
        pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).filter_map(ResourceExt::uid).collect()
    }

    /// Waits until the pods with these ids have ended.
    pub async fn wait_for_end_of(&self, ids: &BTreeSet<String>) {
        let ended = wait::eventually("the old pods have ended", async || {
            let pods = self.all_pods().await;
            let living: BTreeSet<String> = pods.iter().filter_map(ResourceExt::uid).collect();
            living.is_disjoint(ids).then_some(())
        });
        ended.await.unwrap();
    }

    async fn all_pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.cluster.admin().await.unwrap(), NAMESPACE);
        let own = ListParams::default().labels(&format!("app=llama-stack,app.kubernetes.io/instance={NAME}"));
        pods.list(&own).await.unwrap().items
    }
}

/// Checks that every request of the load was answered.
#[track_caller]
pub fn assert_all_answered(report: &Report) {
    let (answered, failed) = (&report.answered, &report.failed);
    assert!(failed.is_empty(), "{} requests failed, {answered:?} were answered: {:#?}", failed.len(), failed.first());
    let enough = |path: &str| answered.get(path).is_some_and(|count| *count >= MIN_REQUESTS);
    assert!(enough(CHAT) && enough(MODELS), "too few requests were answered: {answered:?}");
}
