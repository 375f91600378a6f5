//! ConfigMaps that are generated with a graph, after edits by users and earlier operators.

use super::*;

const CONFIG_MAP: &str = "planner-config-1a2b";

async fn patch_config_map(test: &TestNamespace, manager: &str, patch: Value) {
    let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    test.namespace.api::<ConfigMap>().patch(CONFIG_MAP, &params, &Patch::Merge(patch)).await.unwrap();
}

async fn config_map(test: &TestNamespace) -> ConfigMap {
    test.namespace.api::<ConfigMap>().get(CONFIG_MAP).await.unwrap()
}

#[tokio::test]
async fn edited_config_map_keeps_data_and_regains_labels() {
    let Some(test) = TestNamespace::new("edited", spec(json!({}))).await else { return };
    test.complete_profiling().await;
    let label = json!({ names::LABEL_NAME: null, names::LABEL_MANAGED_BY: null });
    let data = json!({ "planner_config.json": "edited", "more": "1" });
    patch_config_map(&test, "kubectl-edit", json!({ "metadata": { "labels": label }, "data": data })).await;
    test.settle().await;
    let found = config_map(&test).await;
    assert_eq!(json!(found.data), data);
    assert_eq!(found.labels()[names::LABEL_NAME], NAME);
    test.assert_no_writes().await;
    patch_config_map(&test, "kubectl-edit", json!({ "data": { "planner_config.json": null } })).await;
    test.settle().await;
    assert_eq!(json!(config_map(&test).await.data), json!({ "more": "1" }));
    test.assert_no_writes().await;
}

/// An earlier operator made the request the controller of every object.
#[tokio::test]
async fn config_map_of_earlier_operator_moves_to_graph() {
    let Some(test) = TestNamespace::new("given", spec(json!({}))).await else { return };
    test.settle().await;
    let request = test.request().await;
    let owner = profile_job::reference(NAME, &request.uid().unwrap());
    let theirs: ConfigMap = object(json!({
        "metadata": { "name": CONFIG_MAP, "labels": names::labels(NAME, test.namespace.name()), "ownerReferences": [owner] },
        "data": { "planner_config.json": "theirs" },
    }));
    let params = PostParams { field_manager: Some("manager".to_owned()), ..PostParams::default() };
    test.namespace.api::<ConfigMap>().create(&params, &theirs).await.unwrap();
    test.complete_profiling().await;
    let found = config_map(&test).await;
    let owners: Vec<&str> = found.owner_references().iter().map(|owner| owner.kind.as_str()).collect();
    assert_eq!(owners, ["DynamoGraphDeployment"], "the ConfigMap must outlive the request");
    assert_eq!(json!(found.data), json!({ "planner_config.json": "{}" }), "the newly generated data replaces the old");
    test.assert_no_writes().await;
}
