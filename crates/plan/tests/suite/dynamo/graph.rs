//! From the profiler's output to a graph in the cluster.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use steersman_api::dynamo::v1beta1::Phase;
use steersman_plan::dynamo::graph::{ANNOTATION_LIMIT, generate, name, read};
use steersman_plan::dynamo::names::{self, ADDITIONAL, GENERATED_GRAPH, REQUEST_UID};
use steersman_plan::dynamo::{ObservedGraph, plan};
use steersman_reconcile::{Failure, ObjectId};

use super::{FINAL, World, a_request, now, output, spec};

const GRAPH: &str = "DynamoGraphDeployment qwen-dgd";

#[test]
fn the_graph_is_created_as_generated_under_our_name_with_our_labels_and_without_an_owner() {
    let world = World::deployed(&spec("runtimeVersionOverride: 1.4.1"));
    let graph = &world.objects[GRAPH];
    let want = json!({
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {
            "name": "qwen-dgd",
            "namespace": "team-a",
            "labels": {
                "team": "a",
                "dgdr.nvidia.com/name": "qwen",
                "dgdr.nvidia.com/namespace": "team-a",
                "nvidia.com/managed-by": "dynamo-operator",
            },
            "annotations": { REQUEST_UID: "8f3c" },
        },
        "spec": { "components": [
            {"name": "Frontend", "type": "frontend", "replicas": 1, "runtimeVersionOverride": "1.4.1"},
            {"name": "VllmDecodeWorker", "type": "worker", "replicas": 2, "runtimeVersionOverride": "1.3.0"},
        ] },
    });
    assert_eq!(*graph, want);
    assert_eq!(json!(world.status().profiling_results.unwrap().selected_config), want);
    assert_eq!(world.seen.object.annotations[GENERATED_GRAPH], "", "seen in the cluster, so its absence means deleted");
}

#[test]
fn a_version_set_at_ready_reaches_the_graph() {
    let mut world = World::profiled(&spec("autoApply: false"));
    world.edit(&spec("runtimeVersionOverride: 1.4.2\nautoApply: true"));
    world.settle();
    assert_eq!(world.objects[GRAPH]["spec"]["components"][0]["runtimeVersionOverride"], "1.4.2");
}

#[test]
fn overrides_name_the_graph() {
    let named = |metadata: Value| names::graph("qwen", json!({"metadata": metadata}).as_object());
    assert_eq!(named(json!({"name": "mine"})), "mine");
    for nothing in [json!({"name": ""}), json!({}), json!(null), json!({"name": 7})] {
        assert_eq!(named(nothing), "qwen-dgd");
    }
    let world = World::deployed(&spec(
        "overrides: {dgd: {apiVersion: nvidia.com/v1beta1, kind: DynamoGraphDeployment, metadata: {name: mine}}}",
    ));
    assert_eq!(world.status().dgd_name.as_deref(), Some("mine"));
    assert!(world.created.contains(&"DynamoGraphDeployment mine".to_owned()));
}

#[test]
fn documents_come_in_any_order_and_bad_ones_are_passed_over() {
    let text = "---
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
spec: {components: [{name: first}]}
--- # the next
: not : yaml : {
---
just: data
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data: {text: \"--- not a document\"}
---
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
spec: {services: {Last: {}}}
---
apiVersion: v1
kind: Secret
metadata: {name: b}
";
    let found = read(&BTreeMap::from([("final_config.yaml".to_owned(), text.to_owned())]), false).unwrap();
    assert_eq!(json!(found.graph)["spec"], json!({"services": {"Last": {}}}));
    let kinds: Vec<&str> = found.additional.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ConfigMap", "Secret"]);
}

#[test]
fn words_that_some_take_for_true_stay_words_on_the_way_from_the_profiler_into_the_cluster() {
    let mut world = World::settled(&spec("autoApply: false"));
    let words = "[y, N, 'yes', 'off', '1e3', '010', 'null', ' x', true, 1.5]";
    world.deliver(&FINAL.replace("replicas: 1", &format!("podTemplate: {{args: {words}}}")));
    world.edit(&spec(""));
    world.settle();
    let args = &world.objects[GRAPH]["spec"]["components"][0]["podTemplate"]["args"];
    assert_eq!(*args, json!(["y", "N", "yes", "off", "1e3", "010", "null", " x", true, 1.5]));
}

#[test]
fn a_graph_of_the_first_version_is_created_in_that_version() {
    let mut world = World::settled(&spec("runtimeVersionOverride: 1.4.1"));
    world.deliver(
        "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\nspec: {services: {Frontend: {replicas: 1}}}",
    );
    let graph = &world.objects[GRAPH];
    assert_eq!(graph["apiVersion"], "nvidia.com/v1alpha1");
    assert_eq!(graph["spec"]["services"]["Frontend"], json!({"replicas": 1, "runtimeVersionOverride": "1.4.1"}));
}

#[test]
fn other_configurations_are_kept_where_the_profiler_delivers_them() {
    let mut world = World::settled(&spec(""));
    world.seen.output = Some(output(&[
        ("profiler_status", "success"),
        ("final_config.yaml", FINAL),
        ("pareto.yaml", "- {gpus: 4}\n- {gpus: 8}"),
    ]));
    world.job(steersman_plan::dynamo::JobState::Complete);
    world.settle();
    assert_eq!(
        json!(world.status().profiling_results.unwrap().pareto),
        json!([{"config": {"gpus": 4}}, {"config": {"gpus": 8}}])
    );
}

#[test]
fn a_graph_that_is_not_this_requests_is_left_alone_until_it_is_gone() {
    let ours = names::labels("qwen", "team-a");
    let graph = |labels: BTreeMap<String, String>, uid: &str| ObservedGraph {
        name: "qwen-dgd".into(),
        uid: "theirs".into(),
        labels,
        annotations: [(REQUEST_UID.to_owned(), uid.to_owned())].into_iter().filter(|_| !uid.is_empty()).collect(),
        created: Some(now() - jiff::SignedDuration::from_hours(1)),
        state: Some("successful".into()),
        ..ObservedGraph::default()
    };
    for (found, whose) in [
        (graph(BTreeMap::new(), ""), "was not made for this request"),
        (graph(names::labels("other", "team-a"), "8f3c"), "was not made for this request"),
        (graph(ours.clone(), "earlier"), "was made for an earlier request of the same name"),
        (graph(ours.clone(), ""), "was made for an earlier request of the same name"),
    ] {
        let mut world = World::settled(&spec(""));
        world.seen.graph = Some(found.clone());
        world.notes.clear();
        world.deliver(FINAL);
        assert_eq!((world.phase(), world.seen.graph.as_ref()), (Phase::Deploying, Some(&found)));
        let (status, reason, message) = world.says("DeploymentReady");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "DeploymentNameTaken"));
        assert!(message.starts_with(&format!("DGD qwen-dgd exists and {whose}; it is left as it is.")), "{message}");
        assert_eq!(world.told(), ["SpecGenerated", "DeploymentCreationFailed"]);
        assert_eq!(world.status().deployment_info, None);
        assert_eq!(world.objects["ConfigMap planner-config-1a2b"]["metadata"]["ownerReferences"], Value::Null);
        world.seen.graph = None;
        world.settle();
        assert_eq!(world.seen.graph.as_ref().unwrap().uid, "graph-1");
        assert_eq!(world.told().last(), Some(&"DeploymentCreated"));
    }
}

#[test]
fn a_request_replaced_by_its_manifest_still_knows_which_graph_is_its() {
    let replaced = |world: &mut World| world.seen.object.annotations.remove(GENERATED_GRAPH);
    let forbidden = Failure {
        object: ObjectId::new("DynamoGraphDeployment", "team-a", "qwen-dgd"),
        message: "the API server answered 403: exceeded quota".into(),
        transient: true,
        conflict: false,
    };
    let mut world = World::settled(&spec(""));
    world.seen.output = Some(output(&[("profiler_status", "success"), ("final_config.yaml", FINAL)]));
    world.job(steersman_plan::dynamo::JobState::Complete);
    world.pass(Some(forbidden));
    assert_eq!(world.phase(), Phase::Deploying);
    assert_eq!(world.says("DeploymentReady").1, "DeploymentCreationFailed");
    replaced(&mut world);
    world.settle();
    assert!(world.created.contains(&GRAPH.to_owned()), "it was never there, so nobody deleted it");
    assert_eq!(world.says("DeploymentReady").1, "DeploymentInProgress");

    let mut world = World::settled(&spec("autoApply: false"));
    world.deliver(FINAL);
    assert!(world.says("Succeeded").2.ends_with("yourself from annotation nvidia.com/generated-dgd-spec"));
    replaced(&mut world);
    world.settle();
    assert!(world.says("Succeeded").2.ends_with("yourself from status.profilingResults.selectedConfig"));
    let theirs =
        ObservedGraph { name: "qwen-dgd".into(), state: Some("successful".into()), ..ObservedGraph::default() };
    world.seen.graph = Some(theirs);
    world.edit(&spec(""));
    world.settle();
    assert_eq!((world.phase(), world.says("DeploymentReady").1.as_str()), (Phase::Deploying, "DeploymentNameTaken"));
    assert_eq!(world.objects["ConfigMap planner-config-1a2b"]["metadata"]["ownerReferences"], Value::Null);
}

#[test]
fn a_graph_that_an_earlier_operator_made_for_this_request_is_followed() {
    let mut world = World::settled(&spec(""));
    world.seen.graph = Some(ObservedGraph {
        name: "qwen-dgd".into(),
        labels: names::labels("qwen", "team-a"),
        created: Some(now() + jiff::SignedDuration::from_mins(5)),
        state: Some("successful".into()),
        ..ObservedGraph::default()
    });
    world.deliver(FINAL);
    assert_eq!(world.phase(), Phase::Deployed);
    assert!(!world.created.contains(&GRAPH.to_owned()));
}

#[test]
fn config_maps_belong_to_nobody_and_then_to_the_graph() {
    let mut world = World::settled(&spec("autoApply: false"));
    let stray = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: dgdr-output-qwen}\n---\napiVersion: v1\nkind: Secret\n\
                 metadata: {name: s}\n";
    world.deliver(&format!("{FINAL}{stray}"));
    let map = world.objects["ConfigMap planner-config-1a2b"].clone();
    assert_eq!(
        (&map["metadata"]["ownerReferences"], &map["data"]),
        (&Value::Null, &json!({"planner_config.json": "{}"}))
    );
    assert_eq!(map["metadata"]["labels"], json!(names::labels("qwen", "team-a")));
    assert!(!world.seen.object.annotations[ADDITIONAL].contains("Secret"), "annotations are for everybody to read");
    let note = world.notes.iter().find(|note| note.reason == "AdditionalResourcesSkipped").unwrap();
    assert!(note.message.starts_with("Not created from the profiling output: Secret s. Only ConfigMaps are"));
    world.edit(&spec(""));
    world.settle();
    let owner = json!([{
        "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "name": "qwen-dgd", "uid": "graph-1",
        "controller": true, "blockOwnerDeletion": true,
    }]);
    assert_eq!(world.objects["ConfigMap planner-config-1a2b"]["metadata"]["ownerReferences"], owner);
    assert!(!world.objects.contains_key("Secret s") && !world.objects.contains_key("ConfigMap dgdr-output-qwen"));
    assert_eq!(plan(&world.seen).writes.len(), 1, "the same is asked for in every pass");
}

#[test]
fn more_than_annotations_can_hold_is_refused_with_its_size() {
    let object = a_request(&spec("")).object;
    let long = "x".repeat(ANNOTATION_LIMIT);
    let error = generate(&object, &output(&[("final_config.yaml", &FINAL.replace("'{}'", &long))])).unwrap_err();
    assert!(error.starts_with("additional resources YAML size (250"), "{error}");
    assert!(error.ends_with(
        "bytes) exceeds maximum annotation size (250000 bytes); consider reducing the number of resources or storing them \
         separately"
    ));
    let error =
        generate(&object, &output(&[("final_config.yaml", &FINAL.replace("team: a", &format!("team: {long}")))]));
    assert!(error.unwrap_err().contains("exceed the 250000 bytes that annotations can hold"));
}

#[test]
fn a_lost_annotation_is_made_good_from_the_status() {
    let mut world = World::profiled(&spec("autoApply: false"));
    world.seen.object.annotations.remove(GENERATED_GRAPH);
    world.edit(&spec(""));
    world.settle();
    assert_eq!(world.seen.graph.as_ref().unwrap().name, "qwen-dgd");
    let mut world = World::profiled(&spec("autoApply: false"));
    world.seen.object.annotations.remove(GENERATED_GRAPH);
    world.seen.object.status.as_mut().unwrap().profiling_results = None;
    world.edit(&spec(""));
    world.settle();
    assert_eq!(world.phase(), Phase::Deploying);
    assert!(world.says("DeploymentReady").2.contains("Put the manifest back into the annotation"));
}

#[test]
fn the_name_is_the_statuss_then_the_manifests_then_the_requests() {
    let mut world = World::profiled(&spec("autoApply: false"));
    // A manifest under another name would be created where nobody looks for it.
    let renamed = world.seen.object.annotations[GENERATED_GRAPH].replace("qwen-dgd", "renamed");
    world.seen.object.annotations.insert(GENERATED_GRAPH.into(), renamed);
    assert_eq!(name(&world.seen.object), "qwen-dgd");
    world.edit(&spec(""));
    let mut earlier = World::new(world.seen.clone());
    world.settle();
    assert_eq!(world.seen.graph.as_ref().unwrap().name, "qwen-dgd");

    earlier.seen.object.status.as_mut().unwrap().dgd_name = None;
    assert_eq!(name(&earlier.seen.object), "renamed");
    earlier.settle();
    assert_eq!(earlier.status().dgd_name.as_deref(), Some("renamed"));
    earlier.seen.object.status = None;
    earlier.seen.object.annotations.clear();
    assert_eq!(name(&earlier.seen.object), "qwen-dgd");
}
