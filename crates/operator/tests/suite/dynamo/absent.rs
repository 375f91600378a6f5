//! A cluster without DynamoGraphDeployments: profiling goes on, the graph is created as soon as there can be one.

use steersman_testkit::shown::Shown;

use super::process::Live;
use super::*;

#[tokio::test]
async fn a_result_waits_for_the_crd_of_graphs_and_is_deployed_once_it_is_installed() {
    let Some(live) = Live::start("no-graphs", false).await else { return };
    let scene = &live.scene;
    live.delivers().await;
    live.pod_ends().await;
    let said = "the cluster does not serve DynamoGraphDeployment (nvidia.com/v1beta1); install its CRD";
    live.until("the missing CRD is told", |status| {
        status["phase"] == "Deploying" && condition(status, "Succeeded").1.contains(said)
    })
    .await;
    assert_eq!(condition(&scene.status().await, "DeploymentReady").0, "DeploymentCreationFailed");
    let kubectl =
        |command: &str| scene.cluster.kubectl(&[command, "dgdr", NAME, "-n", scene.namespace.name()]).unwrap();
    let shown = Shown::new("graph-crd-absent", "dgdr", kubectl("get"), kubectl("describe")).unwrap();
    shown.assert("Deploying", "Deploying", &[said], &["DeploymentCreationFailed"]);

    install(&scene.admin, &graph_crd(), &resource(Family::Dgd, VERSION)).await;
    live.until_graph().await;
    scene.graph_is("successful").await;
    live.until("it is deployed", |status| status["phase"] == "Deployed").await;

    // A CRD that is rolled back takes no graph away, though nobody can see it.
    let crds: Api<CustomResourceDefinition> = Api::all(scene.admin.clone());
    let serve = async |served: bool| {
        let patch = json!([{ "op": "replace", "path": "/spec/versions/0/served", "value": served }]);
        let patch = Patch::<()>::Json(serde_json::from_value(patch).unwrap());
        crds.patch(Family::Dgd.crd_name(), &PatchParams::default(), &patch).await.unwrap();
    };
    serve(false).await;
    live.until("it says that nothing is known", |status| condition(status, "DeploymentReady").0 == "DeploymentUnknown")
        .await;
    let status = scene.status().await;
    assert_eq!((&status["phase"], &status["dgdName"]), (&json!("Deployed"), &json!(GRAPH)));
    let unknown = "DeploymentUnknown: the cluster does not serve DynamoGraphDeployment (nvidia.com/v1beta1), so that nothing \
                   is known of DGD qwen-dgd";
    let (truth, _, message) = statement(&status, "Succeeded");
    assert!(truth == "Unknown" && message.starts_with(unknown), "{status}");
    let shown = Shown::new("graph-crd-unserved", "dgdr", kubectl("get"), kubectl("describe")).unwrap();
    shown.assert("Deployed", "Deployed", &[unknown], &["DeploymentUnknown"]);
    serve(true).await;
    live.until("it is seen again", |status| condition(status, "DeploymentReady").0 == "DeploymentReady").await;
    assert_eq!(scene.status().await["phase"], "Deployed");
    live.end().await;
}
