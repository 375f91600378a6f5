//! Changes that users make to generated objects are preserved: reviewed manifests, edited ConfigMaps, graphs of their
//! own.

use jiff::SignedDuration;
use serde_json::{Value, json};
use steersman_api::dynamo::v1beta1::Phase;
use steersman_plan::dynamo::names::{self, GENERATED_GRAPH, REQUEST_UID};
use steersman_plan::dynamo::{JobState, ObservedConfigMap, ObservedGraph, plan};
use steersman_reconcile::{Failure, ObjectId, Write, WriteOp};

use super::{FINAL, TestEnv, now, spec, summary};

const CONFIG_MAP: &str = "planner-config-1a2b";

fn planned_config_map(env: &TestEnv) -> Value {
    let maps = plan(&env.snapshot).writes.into_iter().filter_map(|write| match write {
        WriteOp::Unowned(Write::Apply(object)) => Some(json!(object)),
        _ => None,
    });
    let maps: Vec<Value> = maps.filter(|object| object["kind"] == "ConfigMap").collect();
    assert_eq!(maps.len(), 1, "{maps:?}");
    maps[0].clone()
}

#[test]
fn edited_config_map_content_is_preserved() {
    for automatic in ["", "autoApply: false"] {
        let mut env = TestEnv::after_profiling(&spec(automatic));
        env.snapshot.additional[0].content =
            json!({"data": {"planner_config.json": "edited", "more": "1"}}).as_object().unwrap().clone();
        env.snapshot.additional[0].resource_version = Some("8".into());
        let map = planned_config_map(&env);
        assert_eq!(map["data"], json!({"planner_config.json": "edited", "more": "1"}), "{automatic}");
        assert_eq!(map["metadata"]["resourceVersion"], "8", "the write is conditional on the observed version");
        assert_eq!(map["metadata"]["labels"], json!(names::labels("qwen", "team-a")));
        assert_eq!(map["metadata"]["annotations"][REQUEST_UID], "8f3c");
        env.snapshot.additional.clear();
        let map = planned_config_map(&env);
        assert_eq!(map["data"], json!({"planner_config.json": "{}"}), "a deleted ConfigMap is created again");
        assert_eq!(map["metadata"].get("resourceVersion"), None);
    }
}

#[test]
fn only_own_config_map_content_is_preserved() {
    let hour = SignedDuration::from_hours(1);
    for (request, age, legacy_graph, preserved) in [
        (Some("8f3c"), -hour, false, true),
        (Some("another request"), hour, false, false),
        // A user's own ConfigMap with our labels: its content is not the generated one.
        (None, hour, false, false),
        (None, hour, true, true),
        (None, -hour, true, false),
    ] {
        let mut env = TestEnv::after_deployment(&spec(""));
        let results = env.snapshot.object.status.as_mut().unwrap().profiling_results.as_mut().unwrap();
        if legacy_graph {
            let metadata = results.selected_config.as_mut().unwrap().get_mut("metadata").unwrap();
            metadata.as_object_mut().unwrap().remove("annotations");
        }
        env.snapshot.additional = vec![ObservedConfigMap {
            name: CONFIG_MAP.into(),
            created: Some(now() + age),
            request: request.map(str::to_owned),
            content: json!({"data": {"a": "b"}}).as_object().unwrap().clone(),
            ..ObservedConfigMap::default()
        }];
        let want = if preserved { json!({"a": "b"}) } else { json!({"planner_config.json": "{}"}) };
        assert_eq!(planned_config_map(&env)["data"], want, "{request:?} {age} {legacy_graph}");
    }
}

#[test]
fn unreadable_reviewed_manifest_blocks_deployment() {
    for (text, why) in [
        ("spec: [", "annotation nvidia.com/generated-dgd-spec is not a valid manifest: "),
        (
            "apiVersion: apps/v1\nkind: Deployment",
            "annotation nvidia.com/generated-dgd-spec is not a valid manifest: it has kind \"Deployment\" and \
             apiVersion \"apps/v1\". Correct the annotation, or remove it to create the graph from \
             status.profilingResults.selectedConfig.",
        ),
    ] {
        let mut env = TestEnv::after_profiling(&spec("autoApply: false"));
        let generated = env.snapshot.object.annotations.insert(GENERATED_GRAPH.into(), text.into()).unwrap();
        env.edit_spec(&spec(""));
        env.settle();
        assert_eq!((env.phase(), env.snapshot.graph.as_ref()), (Phase::Deploying, None));
        let (status, reason, message) = env.condition_summary("DeploymentReady");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "DeploymentCreationFailed"));
        assert!(message.starts_with(&format!("DGD qwen-dgd does not exist and cannot be created: {why}")), "{message}");
        assert!(!message.contains('\n'), "{message}");
        assert!(env.condition_summary("Succeeded").2.ends_with(&message));
        let mut corrected = TestEnv::new(env.snapshot.clone());
        corrected
            .snapshot
            .object
            .annotations
            .insert(GENERATED_GRAPH.into(), generated.replace("replicas: 2", "replicas: 3"));
        corrected.settle();
        let graph = &corrected.objects["DynamoGraphDeployment qwen-dgd"];
        assert_eq!(graph["spec"]["components"][1]["replicas"], 3);
        env.snapshot.object.annotations.remove(GENERATED_GRAPH);
        env.settle();
        assert_eq!(env.objects["DynamoGraphDeployment qwen-dgd"]["spec"]["components"][1]["replicas"], 2);
    }
}

#[test]
fn foreign_graph_with_same_name_is_ignored() {
    for serving in [true, false] {
        let mut env = if serving { TestEnv::after_deployment(&spec("")) } else { TestEnv::after_profiling(&spec("")) };
        env.events.clear();
        let foreign_graph = ObservedGraph {
            name: "qwen-dgd".into(),
            uid: "theirs".into(),
            created: Some(env.snapshot.now + SignedDuration::from_mins(1)),
            state: Some("successful".into()),
            ..ObservedGraph::default()
        };
        env.snapshot.graph = Some(foreign_graph);
        env.settle();
        let text = "Deployment was deleted by user. Create a new DGDR to redeploy.";
        assert_eq!((env.phase(), env.event_reasons()), (Phase::Failed, vec!["DeploymentDeleted"]));
        assert_eq!(env.condition_summary("DeploymentReady"), summary("False", "DeploymentDeleted", text));
        let owner = &env.objects[&format!("ConfigMap {CONFIG_MAP}")]["metadata"]["ownerReferences"][0];
        assert_eq!(owner["uid"], "graph-1", "the foreign graph becomes owner of nothing");
    }
}

/// Earlier operators followed any graph of that name, and `kubectl replace` may remove our labels.
#[test]
fn known_graph_is_followed_without_labels() {
    let mut env = TestEnv::after_deployment(&spec(""));
    let graph = env.graph_mut();
    graph.labels.clear();
    graph.annotations.clear();
    env.settle();
    assert_eq!(env.phase(), Phase::Deployed);
    env.graph_mut().state = Some("failed".into());
    env.settle();
    assert_eq!(env.condition_summary("DeploymentReady").1, "DeploymentDegraded");
}

#[test]
fn oversized_annotations_are_named_with_remedy() {
    let mut env = TestEnv::after_settling(&spec(""));
    env.events.clear();
    env.snapshot.object.annotations.insert("notes".into(), "x".repeat(262_000));
    env.snapshot.output =
        Some(super::output(&[("phase", "Done"), ("profiler_status", "success"), ("final_config.yaml", FINAL)]));
    env.set_job_state(JobState::Complete);
    for _ in 0..3 {
        let object = ObjectId::new("DynamoGraphDeploymentRequest", "team-a", "qwen");
        let message = "the API server answered 422: metadata.annotations: Too long".to_owned();
        env.reconcile(Some(Failure { object, message, transient: false, conflict: false }));
    }
    assert_eq!((env.phase(), env.event_reasons()), (Phase::Profiling, vec!["UpdateFailed"]));
    let message = env.condition_summary("Succeeded").2;
    assert!(message.contains("and the other annotations of this DGDR (262"), "{message}");
    let next = "Remove the largest, notes (262000 bytes): kubectl annotate dgdr -n team-a qwen notes-";
    assert!(message.ends_with(next), "{message}");
    env.snapshot.object.annotations.remove("notes");
    env.settle();
    assert_eq!(env.phase(), Phase::Deploying);
}
