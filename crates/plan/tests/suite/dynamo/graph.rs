//! The graph that is created from the profiler's output.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use steersman_api::dynamo::v1beta1::Phase;
use steersman_plan::dynamo::graph::{ANNOTATION_LIMIT, generate, name, read};
use steersman_plan::dynamo::names::{self, ADDITIONAL, GENERATED_GRAPH, REQUEST_UID};
use steersman_plan::dynamo::{ObservedGraph, plan};
use steersman_reconcile::{Failure, ObjectId};

use super::{FINAL, TestEnv, now, output, request_snapshot, spec};

const GRAPH: &str = "DynamoGraphDeployment qwen-dgd";

#[test]
fn graph_is_created_with_labels_without_owner() {
    let env = TestEnv::after_deployment(&spec("runtimeVersionOverride: 1.4.1"));
    let graph = &env.objects[GRAPH];
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
    assert_eq!(json!(env.status().profiling_results.unwrap().selected_config), want);
    assert_eq!(
        env.snapshot.object.annotations[GENERATED_GRAPH], "",
        "emptied once the graph exists, so that its absence means deleted"
    );
}

#[test]
fn runtime_version_set_at_ready_reaches_graph() {
    let mut env = TestEnv::after_profiling(&spec("autoApply: false"));
    env.edit_spec(&spec("runtimeVersionOverride: 1.4.2\nautoApply: true"));
    env.settle();
    assert_eq!(env.objects[GRAPH]["spec"]["components"][0]["runtimeVersionOverride"], "1.4.2");
}

#[test]
fn overrides_name_the_graph() {
    let named = |metadata: Value| names::graph("qwen", json!({"metadata": metadata}).as_object());
    assert_eq!(named(json!({"name": "mine"})), "mine");
    for metadata in [json!({"name": ""}), json!({}), json!(null), json!({"name": 7})] {
        assert_eq!(named(metadata), "qwen-dgd");
    }
    let env = TestEnv::after_deployment(&spec(
        "overrides: {dgd: {apiVersion: nvidia.com/v1beta1, kind: DynamoGraphDeployment, metadata: {name: mine}}}",
    ));
    assert_eq!(env.status().dgd_name.as_deref(), Some("mine"));
    assert!(env.created.contains(&"DynamoGraphDeployment mine".to_owned()));
}

#[test]
fn unordered_documents_are_read_invalid_ones_skipped() {
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
fn ambiguous_yaml_scalars_remain_strings() {
    let mut env = TestEnv::after_settling(&spec("autoApply: false"));
    let scalars = "[y, N, 'yes', 'off', '1e3', '010', 'null', ' x', true, 1.5]";
    env.deliver_result(&FINAL.replace("replicas: 1", &format!("podTemplate: {{args: {scalars}}}")));
    env.edit_spec(&spec(""));
    env.settle();
    let args = &env.objects[GRAPH]["spec"]["components"][0]["podTemplate"]["args"];
    assert_eq!(*args, json!(["y", "N", "yes", "off", "1e3", "010", "null", " x", true, 1.5]));
}

#[test]
fn v1alpha1_graph_is_created_as_v1alpha1() {
    let mut env = TestEnv::after_settling(&spec("runtimeVersionOverride: 1.4.1"));
    env.deliver_result(
        "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\nspec: {services: {Frontend: {replicas: 1}}}",
    );
    let graph = &env.objects[GRAPH];
    assert_eq!(graph["apiVersion"], "nvidia.com/v1alpha1");
    assert_eq!(graph["spec"]["services"]["Frontend"], json!({"replicas": 1, "runtimeVersionOverride": "1.4.1"}));
}

#[test]
fn pareto_configurations_are_stored_in_status() {
    let mut env = TestEnv::after_settling(&spec(""));
    env.snapshot.output = Some(output(&[
        ("profiler_status", "success"),
        ("final_config.yaml", FINAL),
        ("pareto.yaml", "- {gpus: 4}\n- {gpus: 8}"),
    ]));
    env.set_job_state(steersman_plan::dynamo::JobState::Complete);
    env.settle();
    assert_eq!(
        json!(env.status().profiling_results.unwrap().pareto),
        json!([{"config": {"gpus": 4}}, {"config": {"gpus": 8}}])
    );
}

#[test]
fn foreign_graph_blocks_deployment_until_deleted() {
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
        (graph(BTreeMap::new(), ""), "was not created for this request"),
        (graph(names::labels("other", "team-a"), "8f3c"), "was not created for this request"),
        (graph(ours.clone(), "earlier"), "was created for an earlier request of the same name"),
        (graph(ours.clone(), ""), "was created for an earlier request of the same name"),
    ] {
        let mut env = TestEnv::after_settling(&spec(""));
        env.snapshot.graph = Some(found.clone());
        env.events.clear();
        env.deliver_result(FINAL);
        assert_eq!((env.phase(), env.snapshot.graph.as_ref()), (Phase::Deploying, Some(&found)));
        let (status, reason, message) = env.condition_summary("DeploymentReady");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "DeploymentNameTaken"));
        assert!(
            message.starts_with(&format!("DGD qwen-dgd exists and {whose}. Steersman does not change it.")),
            "{message}"
        );
        assert_eq!(env.event_reasons(), ["SpecGenerated", "DeploymentCreationFailed"]);
        assert_eq!(env.status().deployment_info, None);
        assert_eq!(env.objects["ConfigMap planner-config-1a2b"]["metadata"]["ownerReferences"], Value::Null);
        env.snapshot.graph = None;
        env.settle();
        assert_eq!(env.snapshot.graph.as_ref().unwrap().uid, "graph-1");
        assert_eq!(env.event_reasons().last(), Some(&"DeploymentCreated"));
    }
}

#[test]
fn replaced_request_still_finds_its_graph() {
    let remove_annotation = |env: &mut TestEnv| env.snapshot.object.annotations.remove(GENERATED_GRAPH);
    let quota_failure = Failure {
        object: ObjectId::new("DynamoGraphDeployment", "team-a", "qwen-dgd"),
        message: "the API server answered 403: exceeded quota".into(),
        transient: true,
        conflict: false,
    };
    let mut env = TestEnv::after_settling(&spec(""));
    env.snapshot.output = Some(output(&[("profiler_status", "success"), ("final_config.yaml", FINAL)]));
    env.set_job_state(steersman_plan::dynamo::JobState::Complete);
    env.reconcile(Some(quota_failure));
    assert_eq!(env.phase(), Phase::Deploying);
    assert_eq!(env.condition_summary("DeploymentReady").1, "DeploymentCreationFailed");
    remove_annotation(&mut env);
    env.settle();
    assert!(env.created.contains(&GRAPH.to_owned()), "the graph never existed, so that it was not deleted");
    assert_eq!(env.condition_summary("DeploymentReady").1, "DeploymentInProgress");

    let mut env = TestEnv::after_settling(&spec("autoApply: false"));
    env.deliver_result(FINAL);
    assert!(env.condition_summary("Succeeded").2.ends_with("yourself from annotation nvidia.com/generated-dgd-spec"));
    remove_annotation(&mut env);
    env.settle();
    assert!(env.condition_summary("Succeeded").2.ends_with("yourself from status.profilingResults.selectedConfig"));
    let foreign_graph =
        ObservedGraph { name: "qwen-dgd".into(), state: Some("successful".into()), ..ObservedGraph::default() };
    env.snapshot.graph = Some(foreign_graph);
    env.edit_spec(&spec(""));
    env.settle();
    assert_eq!(
        (env.phase(), env.condition_summary("DeploymentReady").1.as_str()),
        (Phase::Deploying, "DeploymentNameTaken")
    );
    assert_eq!(env.objects["ConfigMap planner-config-1a2b"]["metadata"]["ownerReferences"], Value::Null);
}

#[test]
fn graph_of_earlier_operator_is_adopted() {
    let mut env = TestEnv::after_settling(&spec(""));
    env.snapshot.graph = Some(ObservedGraph {
        name: "qwen-dgd".into(),
        labels: names::labels("qwen", "team-a"),
        created: Some(now() + jiff::SignedDuration::from_mins(5)),
        state: Some("successful".into()),
        ..ObservedGraph::default()
    });
    env.deliver_result(FINAL);
    assert_eq!(env.phase(), Phase::Deployed);
    assert!(!env.created.contains(&GRAPH.to_owned()));
}

#[test]
fn config_maps_become_owned_by_the_graph() {
    let mut env = TestEnv::after_settling(&spec("autoApply: false"));
    let other_objects = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: dgdr-output-qwen}\n---\napiVersion: v1\nkind: Secret\n\
                 metadata: {name: s}\n";
    env.deliver_result(&format!("{FINAL}{other_objects}"));
    let map = env.objects["ConfigMap planner-config-1a2b"].clone();
    assert_eq!(
        (&map["metadata"]["ownerReferences"], &map["data"]),
        (&Value::Null, &json!({"planner_config.json": "{}"}))
    );
    assert_eq!(map["metadata"]["labels"], json!(names::labels("qwen", "team-a")));
    assert!(!env.snapshot.object.annotations[ADDITIONAL].contains("Secret"), "annotations must not expose Secrets");
    let event = env.events.iter().find(|event| event.reason == "AdditionalResourcesSkipped").unwrap();
    assert!(event.message.starts_with("Not created from the profiling output: Secret s. Only ConfigMaps are"));
    env.edit_spec(&spec(""));
    env.settle();
    let owner = json!([{
        "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "name": "qwen-dgd", "uid": "graph-1",
        "controller": true, "blockOwnerDeletion": true,
    }]);
    assert_eq!(env.objects["ConfigMap planner-config-1a2b"]["metadata"]["ownerReferences"], owner);
    assert!(!env.objects.contains_key("Secret s") && !env.objects.contains_key("ConfigMap dgdr-output-qwen"));
    assert_eq!(plan(&env.snapshot).writes.len(), 1, "every reconcile plans the same write");
}

#[test]
fn oversized_output_is_rejected_with_its_size() {
    let object = request_snapshot(&spec("")).object;
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
fn removed_annotation_is_restored_from_status() {
    let mut env = TestEnv::after_profiling(&spec("autoApply: false"));
    env.snapshot.object.annotations.remove(GENERATED_GRAPH);
    env.edit_spec(&spec(""));
    env.settle();
    assert_eq!(env.snapshot.graph.as_ref().unwrap().name, "qwen-dgd");
    let mut env = TestEnv::after_profiling(&spec("autoApply: false"));
    env.snapshot.object.annotations.remove(GENERATED_GRAPH);
    env.snapshot.object.status.as_mut().unwrap().profiling_results = None;
    env.edit_spec(&spec(""));
    env.settle();
    assert_eq!(env.phase(), Phase::Deploying);
    assert!(env.condition_summary("DeploymentReady").2.contains("Put the manifest back into the annotation"));
}

#[test]
fn graph_name_prefers_status_then_manifest() {
    let mut env = TestEnv::after_profiling(&spec("autoApply: false"));
    // A graph under another name would not be followed, so that the name in the status wins.
    let renamed = env.snapshot.object.annotations[GENERATED_GRAPH].replace("qwen-dgd", "renamed");
    env.snapshot.object.annotations.insert(GENERATED_GRAPH.into(), renamed);
    assert_eq!(name(&env.snapshot.object), "qwen-dgd");
    env.edit_spec(&spec(""));
    let mut earlier = TestEnv::new(env.snapshot.clone());
    env.settle();
    assert_eq!(env.snapshot.graph.as_ref().unwrap().name, "qwen-dgd");

    earlier.snapshot.object.status.as_mut().unwrap().dgd_name = None;
    assert_eq!(name(&earlier.snapshot.object), "renamed");
    earlier.settle();
    assert_eq!(earlier.status().dgd_name.as_deref(), Some("renamed"));
    earlier.snapshot.object.status = None;
    earlier.snapshot.object.annotations.clear();
    assert_eq!(name(&earlier.snapshot.object), "qwen-dgd");
}

/// A ConfigMap in few bytes, with `9^5` nodes.
fn alias_bomb(name: &str) -> String {
    let mut text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\na0: &a [x,x,x,x,x,x,x,x,x]\n");
    for (above, level) in ["a", "b", "c", "d"].into_iter().zip(["b", "c", "d", "e"]) {
        text.push_str(&format!("{level}0: &{level} [{}]\n", [format!("*{above}").as_str(); 9].join(",")));
    }
    text
}

#[test]
fn alias_bombs_in_annotations_are_reported() {
    let mut env = TestEnv::after_deployment(&spec(""));
    let few = vec![alias_bomb("a"); 90].join("---\n");
    let many = vec![alias_bomb("a"); 1_000].join("---\n");
    assert!(many.len() < ANNOTATION_LIMIT, "{}", many.len());
    for (annotation, text, message) in [
        (
            ADDITIONAL,
            &few,
            "more than 100000 YAML nodes after aliases are expanded, so that none of its ConfigMaps is written",
        ),
        (ADDITIONAL, &many, "more than 100 YAML documents, so that none of its ConfigMaps is written"),
        (GENERATED_GRAPH, &alias_bomb("a").replace("[x,", "[[x,x,x],"), "so that no graph is created from it"),
    ] {
        env.snapshot.object.annotations.insert(annotation.to_owned(), text.clone());
        let plan = plan(&env.snapshot);
        let finding = plan.findings.iter().find(|finding| finding.reason == "AnnotationTooLarge").unwrap();
        assert!(finding.message.starts_with(&format!("Annotation {annotation} has more than ")), "{finding}");
        assert!(finding.message.contains(message), "{finding}");
        assert_eq!(plan.writes.len(), 0, "{:?}", plan.writes);
        env.snapshot.object.annotations.remove(annotation);
    }
}

#[test]
fn alias_bombs_in_output_fail_generation() {
    let object = request_snapshot(&spec("")).object;
    let bombs = format!("{FINAL}---\n{}", vec![alias_bomb("a"); 90].join("---\n"));
    let error = generate(&object, &output(&[("final_config.yaml", &bombs)])).unwrap_err();
    assert_eq!(
        error,
        "failed to extract DGD from final_config.yaml: it has more than 100000 YAML nodes after aliases are expanded. \
         Shorten the profiler's output"
    );
    let pareto = format!("- &x {{{}}}\n{}", "k: v", "- *x\n".repeat(1_001));
    let error = generate(&object, &output(&[("final_config.yaml", FINAL), ("pareto.yaml", &pareto)])).unwrap_err();
    assert!(error.contains("pareto.yaml has more than 1000 YAML anchors or aliases"), "{error}");
    assert!(generate(&object, &output(&[("final_config.yaml", FINAL), ("pareto.yaml", "a: 1")])).is_ok(), "no list");
}

/// Only the result of profiling shows which components the graph has.
#[test]
fn override_of_unknown_component_is_reported() {
    let wanted = "{apiVersion: nvidia.com/v1beta1, kind: DynamoGraphDeployment, spec: {components: [{name: Frontend, replicas: 2}, \
                  {name: VllmDecodeWorkr, replicas: 2}]}}";
    let mut env = TestEnv::after_settling(&spec(&format!("overrides: {{dgd: {wanted}}}")));
    assert_eq!(env.condition_summary("SpecAccepted").1, "SpecAccepted");
    env.deliver_result(FINAL);
    let (status, reason, message) = env.condition_summary("SpecAccepted");
    assert_eq!([status.as_str(), reason.as_str()], ["True", "FieldIgnored"]);
    let why = "spec.overrides.dgd changes VllmDecodeWorkr, which the generated graph does not have. Its components are Frontend";
    assert!(message.starts_with(why), "{message}");
    let services =
        "{apiVersion: nvidia.com/v1alpha1, kind: DynamoGraphDeployment, spec: {services: {Other: {replicas: 1}}}}";
    let env = TestEnv::after_profiling(&spec(&format!("overrides: {{dgd: {services}}}")));
    assert!(env.condition_summary("SpecAccepted").2.starts_with("spec.overrides.dgd changes Other, which"));
}
