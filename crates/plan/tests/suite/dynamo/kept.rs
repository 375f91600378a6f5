//! What users make of what was generated is theirs: reviewed manifests, edited ConfigMaps, graphs of their own.

use jiff::SignedDuration;
use serde_json::{Value, json};
use steersman_api::dynamo::v1beta1::Phase;
use steersman_plan::dynamo::names::{self, GENERATED_GRAPH, REQUEST_UID};
use steersman_plan::dynamo::{JobState, ObservedConfigMap, ObservedGraph, plan};
use steersman_reconcile::{Failure, ObjectId, Write, WriteOp};

use super::{FINAL, World, now, said, spec};

const MAP: &str = "planner-config-1a2b";

fn map_asked_for(world: &World) -> Value {
    let maps = plan(&world.seen).writes.into_iter().filter_map(|write| match write {
        WriteOp::Unowned(Write::Apply(object)) => Some(json!(object)),
        _ => None,
    });
    let maps: Vec<Value> = maps.filter(|object| object["kind"] == "ConfigMap").collect();
    assert_eq!(maps.len(), 1, "{maps:?}");
    maps[0].clone()
}

#[test]
fn the_content_of_config_maps_is_written_once_and_then_left_to_their_users() {
    for automatic in ["", "autoApply: false"] {
        let mut world = World::profiled(&spec(automatic));
        world.seen.additional[0].content =
            json!({"data": {"planner_config.json": "edited", "more": "1"}}).as_object().unwrap().clone();
        world.seen.additional[0].resource_version = Some("8".into());
        let map = map_asked_for(&world);
        assert_eq!(map["data"], json!({"planner_config.json": "edited", "more": "1"}), "{automatic}");
        assert_eq!(map["metadata"]["resourceVersion"], "8", "as long as it is what was seen");
        assert_eq!(map["metadata"]["labels"], json!(names::labels("qwen", "team-a")));
        assert_eq!(map["metadata"]["annotations"][REQUEST_UID], "8f3c");
        world.seen.additional.clear();
        let map = map_asked_for(&world);
        assert_eq!(map["data"], json!({"planner_config.json": "{}"}), "one that was deleted is made again");
        assert_eq!(map["metadata"].get("resourceVersion"), None);
    }
}

#[test]
fn whose_content_a_config_map_has_is_told_by_our_mark_and_of_earlier_operators_by_its_age() {
    let hour = SignedDuration::from_hours(1);
    for (mark, age, earlier, kept) in [
        (Some("8f3c"), -hour, false, true),
        (Some("another request"), hour, false, false),
        // Somebody labelled one of their own: the graph would start with something else than was generated.
        (None, hour, false, false),
        (None, hour, true, true),
        (None, -hour, true, false),
    ] {
        let mut world = World::deployed(&spec(""));
        let results = world.seen.object.status.as_mut().unwrap().profiling_results.as_mut().unwrap();
        if earlier {
            let metadata = results.selected_config.as_mut().unwrap().get_mut("metadata").unwrap();
            metadata.as_object_mut().unwrap().remove("annotations");
        }
        world.seen.additional = vec![ObservedConfigMap {
            name: MAP.into(),
            created: Some(now() + age),
            request: mark.map(str::to_owned),
            content: json!({"data": {"a": "b"}}).as_object().unwrap().clone(),
            ..ObservedConfigMap::default()
        }];
        let want = if kept { json!({"a": "b"}) } else { json!({"planner_config.json": "{}"}) };
        assert_eq!(map_asked_for(&world)["data"], want, "{mark:?} {age} {earlier}");
    }
}

#[test]
fn a_reviewed_manifest_that_cannot_be_read_is_told_and_not_passed_over_for_the_generated_one() {
    for (text, why) in [
        ("spec: [", "annotation nvidia.com/generated-dgd-spec has no manifest that could be created: "),
        (
            "apiVersion: apps/v1\nkind: Deployment",
            "annotation nvidia.com/generated-dgd-spec has no manifest that could be created: it is of kind \"Deployment\" and \
             apiVersion \"apps/v1\". Correct it there, or remove the annotation to have the graph created as it is in \
             status.profilingResults.selectedConfig.",
        ),
    ] {
        let mut world = World::profiled(&spec("autoApply: false"));
        let generated = world.seen.object.annotations.insert(GENERATED_GRAPH.into(), text.into()).unwrap();
        world.edit(&spec(""));
        world.settle();
        assert_eq!((world.phase(), world.seen.graph.as_ref()), (Phase::Deploying, None));
        let (status, reason, message) = world.says("DeploymentReady");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "DeploymentCreationFailed"));
        assert!(message.starts_with(&format!("There is no DGD qwen-dgd, and {why}")), "{message}");
        assert!(!message.contains('\n'), "{message}");
        assert!(world.says("Succeeded").2.ends_with(&message));
        let mut corrected = World::new(world.seen.clone());
        corrected
            .seen
            .object
            .annotations
            .insert(GENERATED_GRAPH.into(), generated.replace("replicas: 2", "replicas: 3"));
        corrected.settle();
        let graph = &corrected.objects["DynamoGraphDeployment qwen-dgd"];
        assert_eq!(graph["spec"]["components"][1]["replicas"], 3);
        world.seen.object.annotations.remove(GENERATED_GRAPH);
        world.settle();
        assert_eq!(world.objects["DynamoGraphDeployment qwen-dgd"]["spec"]["components"][1]["replicas"], 2);
    }
}

#[test]
fn a_graph_of_somebody_elses_that_has_taken_the_name_is_not_followed() {
    for serving in [true, false] {
        let mut world = if serving { World::deployed(&spec("")) } else { World::profiled(&spec("")) };
        world.notes.clear();
        let theirs = ObservedGraph {
            name: "qwen-dgd".into(),
            uid: "theirs".into(),
            created: Some(world.seen.now + SignedDuration::from_mins(1)),
            state: Some("successful".into()),
            ..ObservedGraph::default()
        };
        world.seen.graph = Some(theirs);
        world.settle();
        let text = "Deployment was deleted by user. Create a new DGDR to redeploy.";
        assert_eq!((world.phase(), world.told()), (Phase::Failed, vec!["DeploymentDeleted"]));
        assert_eq!(world.says("DeploymentReady"), said("False", "DeploymentDeleted", text));
        let owner = &world.objects[&format!("ConfigMap {MAP}")]["metadata"]["ownerReferences"][0];
        assert_eq!(owner["uid"], "graph-1", "nothing is given to it");
    }
}

/// Earlier operators followed whatever had the name, and a replaced manifest takes labels away.
#[test]
fn the_graph_that_was_followed_so_far_is_followed_without_its_labels() {
    let mut world = World::deployed(&spec(""));
    let graph = world.graph();
    graph.labels.clear();
    graph.annotations.clear();
    world.settle();
    assert_eq!(world.phase(), Phase::Deployed);
    world.graph().state = Some("failed".into());
    world.settle();
    assert_eq!(world.says("DeploymentReady").1, "DeploymentDegraded");
}

#[test]
fn annotations_that_leave_no_room_for_the_graph_are_named_with_the_command_that_takes_them_off() {
    let mut world = World::settled(&spec(""));
    world.notes.clear();
    world.seen.object.annotations.insert("notes".into(), "x".repeat(262_000));
    world.seen.output =
        Some(super::output(&[("phase", "Done"), ("profiler_status", "success"), ("final_config.yaml", FINAL)]));
    world.job(JobState::Complete);
    for _ in 0..3 {
        let object = ObjectId::new("DynamoGraphDeploymentRequest", "team-a", "qwen");
        let message = "the API server answered 422: metadata.annotations: Too long".to_owned();
        world.pass(Some(Failure { object, message, transient: false, conflict: false }));
    }
    assert_eq!((world.phase(), world.told()), (Phase::Profiling, vec!["UpdateFailed"]));
    let message = world.says("Succeeded").2;
    assert!(message.contains("has no room beside the request's other annotations (262"), "{message}");
    let next =
        "Take the largest off, notes (262000 bytes), and it goes on: kubectl annotate dgdr -n team-a qwen notes-";
    assert!(message.ends_with(next), "{message}");
    world.seen.object.annotations.remove("notes");
    world.settle();
    assert_eq!(world.phase(), Phase::Deploying);
}
