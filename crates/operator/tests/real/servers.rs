//! A LlamaStackDistribution with the real llama-stack server.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::real_node::scenario::{NAMESPACE, ROLLOUT_TIMEOUT};
use steersman_testkit::wait;

use crate::env::{objects, shared, wait_for_status};
use crate::running_server::{NAME, RunningServer, assert_all_answered};

#[tokio::test]
async fn real_server_answers_across_spec_change() {
    let Some(shared) = shared().await else { return };
    let cluster = shared.cluster;
    let server = RunningServer::start(cluster).await;
    server.chat().await;
    let version = |status: &Value| status["version"]["llamaStackServerVersion"] == "0.7.1";
    wait_for_status(cluster, Family::Llsd, NAME, "has the version of the server", version).await;

    let deployments: Api<Deployment> = Api::namespaced(cluster.cluster.admin().await.unwrap(), NAMESPACE);
    let generation = deployments.get(NAME).await.unwrap().metadata.generation;
    let old_pods = server.pods().await;
    assert_eq!(old_pods.len(), 1);
    // Requests go on while the spec changes and the new pod takes over.
    let load = server.start_load();
    let disabled = json!({ "spec": { "disabled": ["eval"] } });
    objects(cluster, Family::Llsd).await.patch(NAME, &PatchParams::default(), &Patch::Merge(disabled)).await.unwrap();
    let is_newer = |deployment: &Deployment| deployment.metadata.generation > generation;
    wait::until(deployments, NAME, "has a new generation", ROLLOUT_TIMEOUT, is_newer).await.unwrap();
    cluster.wait_for_rollout(NAMESPACE, NAME, 1).await.unwrap();
    let new_pods = server.pods().await;
    assert!(new_pods.len() == 1 && new_pods.is_disjoint(&old_pods), "{old_pods:?}, then {new_pods:?}");
    server.wait_for_end_of(&old_pods).await;
    assert_all_answered(&load.stop().await);
    let ready = |status: &Value| status["phase"] == "Ready";
    wait_for_status(cluster, Family::Llsd, NAME, "is Ready again", ready).await;
    server.chat().await;
}
