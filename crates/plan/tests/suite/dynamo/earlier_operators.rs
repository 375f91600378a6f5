//! Requests with a status of an earlier operator, and graphs whose API is temporarily not served.

use serde_json::json;
use steersman_api::dynamo::v1beta1::Phase;
use steersman_plan::dynamo::names::GENERATED_GRAPH;
use steersman_plan::dynamo::plan;

use super::{FINAL, TestEnv, request_snapshot, spec, summary};

/// A request with a status that an earlier operator wrote.
fn inherited_env(status: serde_json::Value) -> TestEnv {
    let mut snapshot = request_snapshot(&spec(""));
    snapshot.object.status = Some(serde_json::from_value(status).unwrap());
    TestEnv::new(snapshot)
}

fn condition(type_: &str, reason: &str, generation: i64) -> serde_json::Value {
    json!({ "type": type_, "status": "False", "reason": reason, "message": "no GPUs", "observedGeneration": generation,
        "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

#[test]
fn inherited_failure_stays_until_spec_changes() {
    let cases = [
        ("its spec was refused", 1, vec![condition("Validation", "ValidationFailed", 1)]),
        // The earlier operator wrote discovered hardware into the spec and updated observedGeneration in one condition
        // only.
        (
            "its Job was refused",
            2,
            vec![condition("Profiling", "JobCreationFailed", 2), condition("Succeeded", "Failed", 2)],
        ),
    ];
    for (case, generation, conditions) in cases {
        let mut env = inherited_env(json!({ "phase": "Failed", "observedGeneration": 1, "conditions": conditions }));
        env.snapshot.object.generation = Some(generation);
        env.settle();
        assert_eq!((env.phase(), env.created.len(), env.event_reasons()), (Phase::Failed, 0, vec![]), "{case}");
        assert!(env.condition_summary("Succeeded").2.contains("no GPUs"), "{case}");
        assert!(env.status().conditions.iter().all(|known| known.type_ != "SpecAccepted"), "{case}");
        env.edit_spec(&spec("backend: vllm"));
        env.settle();
        assert_eq!(env.phase(), Phase::Profiling, "{case}");
        assert_eq!(env.condition_summary("SpecAccepted").0, "True");
    }
}

#[test]
fn inherited_graph_deletion_is_not_undone() {
    let deleted = json!({ "phase": "Ready", "observedGeneration": 1, "dgdName": "qwen-dgd",
        "conditions": [condition("DeploymentReady", "DeploymentDeleted", 1)] });
    for phase in ["Ready", "Deploying"] {
        let mut env = inherited_env(deleted.clone());
        env.snapshot.object.status.as_mut().unwrap().phase = Some(serde_json::from_value(json!(phase)).unwrap());
        env.snapshot.object.annotations.insert(GENERATED_GRAPH.into(), FINAL.into());
        env.settle();
        assert_eq!((env.phase(), &env.snapshot.graph), (Phase::Failed, &None), "{phase}");
        let text = "Deployment was deleted by user. Create a new DGDR to redeploy.";
        assert_eq!(env.condition_summary("DeploymentReady"), summary("False", "DeploymentDeleted", text));
        assert_eq!(env.event_reasons(), ["DeploymentDeleted"]);
    }
    // Without autoApply no graph is expected, so that its absence is no failure.
    let mut env = inherited_env(deleted);
    env.edit_spec(&spec("autoApply: false"));
    env.settle();
    assert_eq!(env.phase(), Phase::Ready);
}

#[test]
fn unserved_graph_api_is_unknown_not_deleted() {
    for phase in [Phase::Deployed, Phase::Deploying] {
        let mut env = TestEnv::after_profiling(&spec(""));
        if phase == Phase::Deployed {
            env.graph_mut().state = Some("successful".into());
            env.settle();
        }
        assert_eq!(env.phase(), phase);
        env.events.clear();
        let graph = env.snapshot.graph.take();
        env.snapshot.graphs_served = false;
        env.settle();
        assert_eq!((env.phase(), env.event_reasons()), (phase, vec!["DeploymentUnknown"]));
        let (status, reason, message) = env.condition_summary("DeploymentReady");
        assert_eq!((status.as_str(), reason.as_str()), ("Unknown", "DeploymentUnknown"));
        let why = "the cluster does not serve DynamoGraphDeployment (nvidia.com/v1beta1), so the state of DGD qwen-dgd is \
                   unknown. Install the CRD dynamographdeployments.nvidia.com of NVIDIA's Dynamo operator";
        assert!(message.starts_with(why), "{message}");
        // `kubectl wait --for=condition=Succeeded` must not succeed while the graph is unknown.
        let (status, reason, succeeded_message) = env.condition_summary("Succeeded");
        assert_eq!((status.as_str(), reason), ("Unknown", format!("{phase:?}")));
        assert_eq!(succeeded_message, format!("DeploymentUnknown: {message}"));
        assert_eq!(env.status().dgd_name.as_deref(), Some("qwen-dgd"));
        assert!(plan(&env.snapshot).writes.is_empty(), "the graph owns its ConfigMaps by now");

        env.snapshot.graph = graph.clone();
        env.snapshot.graphs_served = true;
        env.settle();
        assert_eq!((env.phase(), env.condition_summary("DeploymentReady").1 == "DeploymentUnknown"), (phase, false));
        let (status, reason, succeeded_message) = env.condition_summary("Succeeded");
        assert_eq!((status == "True", reason), (phase == Phase::Deployed, format!("{phase:?}")));
        assert!(!succeeded_message.contains("DeploymentUnknown"), "{succeeded_message}");
        env.snapshot.graph = None;
        env.settle();
        assert_eq!(env.phase(), Phase::Failed, "the graph is known to be deleted");
    }
}
