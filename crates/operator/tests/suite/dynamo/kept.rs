//! What users make of the ConfigMaps that were generated with a graph.

use super::*;

const MAP: &str = "planner-config-1a2b";

async fn edited(scene: &Scene, manager: &str, patch: Value) {
    let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    scene.namespace.all::<ConfigMap>().patch(MAP, &params, &Patch::Merge(patch)).await.unwrap();
}

async fn map(scene: &Scene) -> ConfigMap {
    scene.namespace.all::<ConfigMap>().get(MAP).await.unwrap()
}

#[tokio::test]
async fn an_edit_of_a_generated_config_map_stays_and_its_labels_come_back() {
    let Some(scene) = Scene::new("edited", spec(json!({}))).await else { return };
    scene.profiled().await;
    let label = json!({ names::LABEL_NAME: null, names::LABEL_MANAGED_BY: null });
    let data = json!({ "planner_config.json": "edited", "more": "1" });
    edited(&scene, "kubectl-edit", json!({ "metadata": { "labels": label }, "data": data })).await;
    scene.settle().await;
    let found = map(&scene).await;
    assert_eq!(json!(found.data), data);
    assert_eq!(found.labels()[names::LABEL_NAME], NAME);
    scene.assert_silent().await;
    edited(&scene, "kubectl-edit", json!({ "data": { "planner_config.json": null } })).await;
    scene.settle().await;
    assert_eq!(json!(map(&scene).await.data), json!({ "more": "1" }));
    scene.assert_silent().await;
}

/// As it stands after an operator that made the request the controller of everything.
#[tokio::test]
async fn a_config_map_that_an_earlier_operator_gave_to_the_request_is_given_to_the_graph() {
    let Some(scene) = Scene::new("given", spec(json!({}))).await else { return };
    scene.settle().await;
    let request = scene.request().await;
    let owner = profile_job::reference(NAME, &request.uid().unwrap());
    let theirs: ConfigMap = object(json!({
        "metadata": { "name": MAP, "labels": names::labels(NAME, scene.namespace.name()), "ownerReferences": [owner] },
        "data": { "planner_config.json": "theirs" },
    }));
    let params = PostParams { field_manager: Some("manager".to_owned()), ..PostParams::default() };
    scene.namespace.all::<ConfigMap>().create(&params, &theirs).await.unwrap();
    scene.profiled().await;
    let found = map(&scene).await;
    let owners: Vec<&str> = found.owner_references().iter().map(|owner| owner.kind.as_str()).collect();
    assert_eq!(owners, ["DynamoGraphDeployment"], "the request may go, and it stays");
    assert_eq!(json!(found.data), json!({ "planner_config.json": "{}" }), "what was generated now counts");
    scene.assert_silent().await;
}
