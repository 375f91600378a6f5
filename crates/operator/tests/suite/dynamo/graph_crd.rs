//! A cluster without the CRD of DynamoGraphDeployment: profiling continues, and the graph is created once the CRD is
//! installed.

use steersman_testkit::kubectl_output::KubectlOutput;

use super::process::LiveOperator;
use super::*;

#[tokio::test]
async fn missing_graph_crd_defers_deployment_until_installed() {
    let Some(operator) = LiveOperator::start("no-graphs", false).await else { return };
    let test = &operator.test;
    operator.deliver_result().await;
    operator.complete_pod().await;
    let missing_crd_message = "the cluster does not serve DynamoGraphDeployment (nvidia.com/v1beta1); install its CRD";
    operator
        .until("the missing CRD is reported", |status| {
            status["phase"] == "Deploying" && condition(status, "Succeeded").1.contains(missing_crd_message)
        })
        .await;
    assert_eq!(condition(&test.status().await, "DeploymentReady").0, "DeploymentCreationFailed");
    let kubectl = |command: &str| test.cluster.kubectl(&[command, "dgdr", NAME, "-n", test.namespace.name()]).unwrap();
    let shown = KubectlOutput::new("graph-crd-absent", "dgdr", kubectl("get"), kubectl("describe")).unwrap();
    shown.assert_status("Deploying", "Deploying", &[missing_crd_message], &["DeploymentCreationFailed"]);

    install_crd(&test.admin, &graph_crd(), &api_resource(Family::Dgd, VERSION)).await;
    operator.until_graph().await;
    test.set_graph_state("successful").await;
    operator.until("the graph is deployed", |status| status["phase"] == "Deployed").await;

    // While the CRD is not served, the graph still exists but cannot be observed: the request must stay Deployed.
    let crds: Api<CustomResourceDefinition> = Api::all(test.admin.clone());
    let serve = async |served: bool| {
        let patch = json!([{ "op": "replace", "path": "/spec/versions/0/served", "value": served }]);
        let patch = Patch::<()>::Json(serde_json::from_value(patch).unwrap());
        crds.patch(Family::Dgd.crd_name(), &PatchParams::default(), &patch).await.unwrap();
    };
    serve(false).await;
    operator
        .until("the graph's state is reported as unknown", |status| {
            condition(status, "DeploymentReady").0 == "DeploymentUnknown"
        })
        .await;
    let status = test.status().await;
    assert_eq!((&status["phase"], &status["dgdName"]), (&json!("Deployed"), &json!(GRAPH)));
    let unknown = "DeploymentUnknown: the cluster does not serve DynamoGraphDeployment (nvidia.com/v1beta1), so the \
                   state of \
                   DGD qwen-dgd is unknown. Install NVIDIA's Dynamo operator, or its CRD \
                   dynamographdeployments.nvidia.com;";
    let (truth, _, message) = condition_parts(&status, "Succeeded");
    assert!(truth == "Unknown" && message.starts_with(unknown), "{status}");
    let shown = KubectlOutput::new("graph-crd-unserved", "dgdr", kubectl("get"), kubectl("describe")).unwrap();
    shown.assert_status("Deployed", "Deployed", &[unknown], &["DeploymentUnknown"]);
    serve(true).await;
    operator
        .until("the graph is observed again", |status| condition(status, "DeploymentReady").0 == "DeploymentReady")
        .await;
    assert_eq!(test.status().await["phase"], "Deployed");
    operator.stop().await;
}
