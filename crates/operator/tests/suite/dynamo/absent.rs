//! A cluster without DynamoGraphDeployments: profiling goes on, the graph is created as soon as there can be one.

use kube::api::ListParams;
use steersman_testkit::play::{PLAY, Play};
use steersman_testkit::shown::Shown;
use steersman_testkit::{turn, wait};

use super::*;
use crate::process::operator::Place;
use crate::schemas::uninstall;

#[tokio::test]
async fn a_result_waits_for_the_crd_of_graphs_and_is_deployed_once_it_is_installed() {
    let Some(turn) = turn(Flavour::Full).await else { return };
    let cluster = turn.cluster;
    let place = Place::of(cluster).await;
    let admin = cluster.admin().await.unwrap();
    install(&admin, &only(Family::Dgdr, VERSION), &resource(Family::Dgdr, VERSION)).await;
    let namespace = cluster.namespace_with("no-graphs", &[(PLAY, Play::Hang.value())]).await.unwrap();
    create(&admin, namespace.name(), spec(json!({}))).await.unwrap();
    let scene = Scene { cluster, admin, namespace };
    let flags = ["--controllers", "dgdr", "--operator-image", "steersman:1"];
    let operator = place.start("dgdr-no-graphs", &flags).await;
    let until = async |what: &str, holds: &dyn Fn(&Value) -> bool| {
        let seen = wait::eventually(what, async || holds(&scene.status().await).then_some(()));
        seen.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    };
    until("the profiler runs", &|status| condition(status, "Profiling").0 == "ProfilingRunning").await;
    scene.deliver(json!({ "phase": "Done", "profiler_status": "success", "final_config.yaml": RESULT })).await;
    let pods = scene.namespace.all::<Pod>();
    let pod = pods.list(&ListParams::default()).await.unwrap().items.remove(0).name_any();
    pods.patch(&pod, &PatchParams::default(), &Patch::Merge(Play::Run.patch())).await.unwrap();
    let said = "the cluster does not serve DynamoGraphDeployment (nvidia.com/v1beta1); install its CRD";
    until("the missing CRD is told", &|status| {
        status["phase"] == "Deploying" && condition(status, "Succeeded").1.contains(said)
    })
    .await;
    assert_eq!(condition(&scene.status().await, "DeploymentReady").0, "DeploymentCreationFailed");
    let kubectl = |command: &str| cluster.kubectl(&[command, "dgdr", NAME, "-n", scene.namespace.name()]).unwrap();
    let shown = Shown::new("graph-crd-absent", "dgdr", kubectl("get"), kubectl("describe")).unwrap();
    shown.assert("Deploying", "Deploying", &[said], &["DeploymentCreationFailed"]);

    install(&scene.admin, &graph_crd(), &resource(Family::Dgd, VERSION)).await;
    let made = wait::eventually("the graph is made", async || scene.graphs().get_opt(GRAPH).await.ok()?);
    made.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    scene.graph_is("successful").await;
    until("it is deployed", &|status| status["phase"] == "Deployed").await;

    // A CRD that is rolled back takes no graph away, though nobody can see it.
    let crds: Api<CustomResourceDefinition> = Api::all(scene.admin.clone());
    let serve = async |served: bool| {
        let patch = json!([{ "op": "replace", "path": "/spec/versions/0/served", "value": served }]);
        let patch = Patch::<()>::Json(serde_json::from_value(patch).unwrap());
        crds.patch(Family::Dgd.crd_name(), &PatchParams::default(), &patch).await.unwrap();
    };
    serve(false).await;
    until("it says that nothing is known", &|status| condition(status, "DeploymentReady").0 == "DeploymentUnknown")
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
    until("it is seen again", &|status| condition(status, "DeploymentReady").0 == "DeploymentReady").await;
    assert_eq!(scene.status().await["phase"], "Deployed");
    drop(operator);
    for family in [Family::Dgdr, Family::Dgd] {
        uninstall(&scene.admin, family).await;
    }
}
