//! DynamoGraphDeploymentRequests with the real profiler in its Job, and the relay as its sidecar.

use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use serde_json::json;
use steersman_api::Family;
use steersman_plan::dynamo::names;
use steersman_plan::dynamo::phase::{DEPLOYMENT, SUCCEEDED};
use steersman_testkit::condition_parts;
use steersman_testkit::real_node::scenario::{DYNAMO_IMAGE, NAMESPACE, REQUEST};

use crate::env::{objects, shared, wait_for_status};

#[tokio::test]
async fn real_profiler_job_leads_to_graph() {
    let Some(shared) = shared().await else { return };
    let cluster = shared.cluster;
    cluster.apply(REQUEST).await.unwrap();
    let profiling = |status: &serde_json::Value| status["profilingPhase"] == "SweepingPrefill";
    wait_for_status(cluster, Family::Dgdr, "profiled", "shows the phase of the profiler", profiling).await;
    // The condition about the graph follows once the graph exists.
    let deploying = |status: &serde_json::Value| {
        status["phase"] == "Failed" || condition_parts(status, DEPLOYMENT).1 == "DeploymentInProgress"
    };
    let status = wait_for_status(cluster, Family::Dgdr, "profiled", "is Deploying", deploying).await;
    assert_eq!(status["phase"], "Deploying", "{status:#}");
    let graph = status["dgdName"].as_str().unwrap_or_else(|| panic!("{status:#}"));
    // No controller runs the graph, and the conditions say that the request waits for it.
    let waits = format!("DGD {graph} is in initializing state");
    assert_eq!(condition_parts(&status, DEPLOYMENT), ("False", "DeploymentInProgress", waits.as_str()), "{status:#}");
    let summary = format!("Deployment is in progress: {waits}");
    assert_eq!(condition_parts(&status, SUCCEEDED), ("False", "Deploying", summary.as_str()), "{status:#}");
    let graph = objects(cluster, Family::Dgd).await.get(graph).await.unwrap();
    let components = graph.data["spec"]["components"].as_array().unwrap();
    let kinds: Vec<_> = components.iter().map(|component| &component["type"]).collect();
    assert!(kinds.contains(&&json!("frontend")), "{components:#?}");
    // The simulated workers that the profiler chose run in the image of the request.
    let images: Vec<_> =
        components.iter().map(|component| &component["podTemplate"]["spec"]["containers"][0]["image"]).collect();
    assert!(images.iter().all(|image| *image == DYNAMO_IMAGE), "{images:?}");
    let jobs: Api<Job> = Api::namespaced(cluster.cluster.admin().await.unwrap(), NAMESPACE);
    let job = jobs.get(&names::profiling_job("profiled")).await.unwrap();
    assert_eq!(job.status.unwrap().succeeded, Some(1));
}
