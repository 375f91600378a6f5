//! Requests that an earlier operator has worked on, and graphs that nobody can see for a while.

use serde_json::json;
use steersman_api::dynamo::v1beta1::Phase;
use steersman_plan::dynamo::names::GENERATED_GRAPH;
use steersman_plan::dynamo::plan;

use super::{FINAL, World, a_request, said, spec};

/// A request with this status, as another operator has left it.
fn left(status: serde_json::Value) -> World {
    let mut seen = a_request(&spec(""));
    seen.object.status = Some(serde_json::from_value(status).unwrap());
    World::new(seen)
}

fn condition(type_: &str, reason: &str, generation: i64) -> serde_json::Value {
    json!({ "type": type_, "status": "False", "reason": reason, "message": "no GPUs", "observedGeneration": generation,
        "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

#[test]
fn what_failed_under_an_earlier_operator_stays_failed_until_its_spec_is_changed() {
    let cases = [
        ("its spec was refused", 1, vec![condition("Validation", "ValidationFailed", 1)]),
        // That operator wrote the hardware that it found into the spec, and observed it in one condition alone.
        (
            "its Job was refused",
            2,
            vec![condition("Profiling", "JobCreationFailed", 2), condition("Succeeded", "Failed", 2)],
        ),
    ];
    for (what, generation, conditions) in cases {
        let mut world = left(json!({ "phase": "Failed", "observedGeneration": 1, "conditions": conditions }));
        world.seen.object.generation = Some(generation);
        world.settle();
        assert_eq!((world.phase(), world.created.len(), world.told()), (Phase::Failed, 0, vec![]), "{what}");
        assert!(world.says("Succeeded").2.contains("no GPUs"), "{what}");
        assert!(world.status().conditions.iter().all(|known| known.type_ != "SpecAccepted"), "{what}");
        world.edit(&spec("backend: vllm"));
        world.settle();
        assert_eq!(world.phase(), Phase::Profiling, "{what}");
        assert_eq!(world.says("SpecAccepted").0, "True");
    }
}

#[test]
fn a_graph_that_was_deleted_under_the_earlier_version_is_not_made_again() {
    let deleted = json!({ "phase": "Ready", "observedGeneration": 1, "dgdName": "qwen-dgd",
        "conditions": [condition("DeploymentReady", "DeploymentDeleted", 1)] });
    for phase in ["Ready", "Deploying"] {
        let mut world = left(deleted.clone());
        world.seen.object.status.as_mut().unwrap().phase = Some(serde_json::from_value(json!(phase)).unwrap());
        world.seen.object.annotations.insert(GENERATED_GRAPH.into(), FINAL.into());
        world.settle();
        assert_eq!((world.phase(), &world.seen.graph), (Phase::Failed, &None), "{phase}");
        let text = "Deployment was deleted by user. Create a new DGDR to redeploy.";
        assert_eq!(world.says("DeploymentReady"), said("False", "DeploymentDeleted", text));
        assert_eq!(world.told(), ["DeploymentDeleted"]);
    }
    // Who has not asked for a graph has nothing to lose.
    let mut world = left(deleted);
    world.edit(&spec("autoApply: false"));
    world.settle();
    assert_eq!(world.phase(), Phase::Ready);
}

#[test]
fn a_graph_that_the_cluster_does_not_serve_is_awaited_and_not_taken_for_deleted() {
    for phase in [Phase::Deployed, Phase::Deploying] {
        let mut world = World::profiled(&spec(""));
        if phase == Phase::Deployed {
            world.graph().state = Some("successful".into());
            world.settle();
        }
        assert_eq!(world.phase(), phase);
        world.notes.clear();
        let graph = world.seen.graph.take();
        world.seen.graphs_served = false;
        world.settle();
        assert_eq!((world.phase(), world.told()), (phase, vec!["DeploymentUnknown"]));
        let (status, reason, message) = world.says("DeploymentReady");
        assert_eq!((status.as_str(), reason.as_str()), ("Unknown", "DeploymentUnknown"));
        let why = "the cluster does not serve DynamoGraphDeployment (nvidia.com/v1beta1), so that nothing is known of DGD \
                   qwen-dgd. Install its CRD";
        assert!(message.starts_with(why), "{message}");
        // `kubectl wait` must not take it for a success, nor its reader for a graph that serves.
        let (status, reason, summed) = world.says("Succeeded");
        assert_eq!((status.as_str(), reason), ("Unknown", format!("{phase:?}")));
        assert_eq!(summed, format!("DeploymentUnknown: {message}"));
        assert_eq!(world.status().dgd_name.as_deref(), Some("qwen-dgd"));
        assert!(plan(&world.seen).writes.is_empty(), "its ConfigMaps are the graph's by now");

        world.seen.graph = graph.clone();
        world.seen.graphs_served = true;
        world.settle();
        assert_eq!((world.phase(), world.says("DeploymentReady").1 == "DeploymentUnknown"), (phase, false));
        let (status, reason, summed) = world.says("Succeeded");
        assert_eq!((status == "True", reason), (phase == Phase::Deployed, format!("{phase:?}")));
        assert!(!summed.contains("DeploymentUnknown"), "{summed}");
        world.seen.graph = None;
        world.settle();
        assert_eq!(world.phase(), Phase::Failed, "now it is known to be gone");
    }
}
