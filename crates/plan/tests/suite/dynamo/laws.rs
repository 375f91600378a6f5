//! Properties that hold for every request in every state of the cluster.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::Job;
use proptest::prelude::*;
use serde_json::{Value, json};
use steersman_api::dynamo::v1beta1::{DynamoGraphDeploymentRequestStatus, Phase};
use steersman_plan::dynamo::graph::merge::merge;
use steersman_plan::dynamo::hardware::{ObservedExporter, ObservedHardware, dcgm};
use steersman_plan::dynamo::{
    JobState, ObservedGraph, ObservedJob, ObservedOutput, ObservedReferences, Snapshot, events, plan, status,
};
use steersman_plan::pods::{ObservedContainer, ObservedPod, Terminated, Waiting};
use steersman_reconcile::{Failure, Lookup, ObjectId, Outcome, WriteOp};

use super::{FINAL, TestEnv, node, now, request_snapshot, spec, stored_status, written_object_id};

/// Value of an environment variable of the Job. No other object, event or status may contain it.
const SECRET: &str = "hush";

fn one_of<T: Clone + std::fmt::Debug + 'static>(items: Vec<T>) -> impl Strategy<Value = T> {
    prop::sample::select(items)
}

fn lines() -> impl Strategy<Value = String> {
    let line = one_of(vec![
        "backend: vllm".to_owned(),
        "searchStrategy: thorough".to_owned(),
        "autoApply: false".to_owned(),
        "modelCache: {pvcName: weights}".to_owned(),
        "runtimeVersionOverride: 1.4.1".to_owned(),
        "sla: {ttft: -1, e2eLatency: 5}".to_owned(),
        "features: {mocker: {enabled: true}, planner: {}}".to_owned(),
        "overrides: {dgd: {apiVersion: nvidia.com/v1beta1, kind: DynamoGraphDeployment, metadata: {name: mine}}}".to_owned(),
        "overrides: {dgd: {apiVersion: x, kind: y}}".to_owned(),
        format!(
            "overrides: {{profilingJob: {{suspend: true, template: {{spec: {{automountServiceAccountToken: false, \
             containers: [{{name: profiler, env: [{{name: TOKEN, value: {SECRET}}}]}}]}}}}}}}}"
        ),
        "overrides: {profilingJob: {template: {metadata: 7, spec: {volumes: x, securityContext: [], containers: [1]}}}}".to_owned(),
    ]);
    prop::collection::btree_map(any::<u8>(), line, 0..4).prop_map(|lines| {
        // YAML does not allow duplicate keys.
        let mut unique: BTreeMap<String, String> = BTreeMap::new();
        for line in lines.into_values() {
            unique.insert(line.split(':').next().unwrap().to_owned(), line);
        }
        unique.into_values().collect::<Vec<_>>().join("\n")
    })
}

fn specs() -> impl Strategy<Value = String> {
    (lines(), one_of(vec!["given", "given", "none", "odd", "no image"])).prop_map(|(lines, how)| match how {
        "given" => spec(&lines),
        "none" => format!("model: m\nimage: i:latest\n{lines}"),
        "odd" => format!("model: m\nimage: i:1.0.0\nhardware: {{gpuSku: odd}}\n{lines}"),
        _ => format!("model: m\n{lines}"),
    })
}

fn statuses() -> impl Strategy<Value = Option<DynamoGraphDeploymentRequestStatus>> {
    let phase = one_of(vec!["Pending", "Profiling", "Ready", "Deploying", "Deployed", "Failed"]);
    let part = one_of(vec![
        json!({}),
        json!({"observedGeneration": 1, "profilingJobName": "profile-qwen"}),
        json!({"profilingPhase": "SweepingDecode", "observedGeneration": 7}),
        json!({"dgdName": "qwen-dgd", "deploymentInfo": {"replicas": 1}, "profilingResults": {"selectedConfig": {"kind": "x"}}}),
    ]);
    let condition = |type_: &'static str| {
        let reason = one_of(vec!["Initializing", "DeploymentInProgress", "DeploymentDegraded", "ValidationFailed"]);
        let message = one_of(vec!["", "x", "profiling job failed: x", "pod p container profiler: x"]);
        prop::option::of((one_of(vec!["True", "False"]), reason, message)).prop_map(move |fields| {
            fields.map(|(status, reason, message)| {
                json!({
                    "type": type_, "status": status, "reason": reason, "message": message,
                    "lastTransitionTime": "2026-11-01T00:00:00Z",
                })
            })
        })
    };
    let conditions = (condition("Validation"), condition("Profiling"), condition("DeploymentReady"));
    prop::option::of((phase, part, conditions).prop_map(|(phase, mut part, (a, b, c))| {
        part["phase"] = json!(phase);
        part["conditions"] = [a, b, c].into_iter().flatten().collect();
        serde_json::from_value(part).unwrap()
    }))
}

fn pods() -> impl Strategy<Value = Vec<ObservedPod>> {
    let waits = prop::option::of(one_of(vec!["ErrImagePull", "CreateContainerConfigError", "x"]));
    let container =
        (one_of(vec!["profiler", "output-copier"]), waits, any::<bool>()).prop_map(|(name, waiting, ended)| {
            ObservedContainer {
                name: name.into(),
                image: "i".into(),
                waiting: waiting.map(|reason| Waiting { reason: reason.into(), message: "m".into() }),
                terminated: ended.then(|| Terminated { exit_code: 1, reason: "Error".into(), message: String::new() }),
                ..ObservedContainer::default()
            }
        });
    let pod = (one_of(vec!["Pending", "Running", "Failed"]), any::<bool>(), prop::collection::vec(container, 0..3))
        .prop_map(|(phase, unscheduled, mut containers)| {
            // Container names are unique in a pod.
            containers.dedup_by(|one, other| one.name == other.name);
            ObservedPod {
                name: "p".into(),
                phase: phase.into(),
                deleting: false,
                unscheduled: unscheduled.then(|| "no room".into()),
                terminated: unscheduled.then(|| ("Evicted".into(), String::new())),
                containers,
            }
        });
    prop::collection::vec(pod, 0..2)
}

fn outputs() -> impl Strategy<Value = Option<ObservedOutput>> {
    let data = (
        prop::option::of(one_of(vec!["SweepingDecode", "Done", "odd", ""])),
        prop::option::of(one_of(vec!["success", "failed", "odd"])),
        prop::option::of(one_of(vec![
            FINAL.to_owned(),
            "kind: [".to_owned(),
            String::new(),
            FINAL.replace("v1beta1", "v1"),
        ])),
    )
        .prop_map(|(phase, verdict, text)| {
            let entries = [("phase", phase), ("profiler_status", verdict)];
            let mut data: BTreeMap<String, String> =
                entries.into_iter().filter_map(|(key, value)| Some((key.into(), value?.into()))).collect();
            data.extend(text.map(|text| ("final_config.yaml".to_owned(), text)));
            data
        });
    let owner = one_of(vec![None, Some("8f3c".to_owned()), Some("other".to_owned())]);
    prop::option::of((data, owner).prop_map(|(data, owner)| ObservedOutput {
        uid: "o".into(),
        version: None,
        owner,
        data,
    }))
}

fn graphs() -> impl Strategy<Value = Option<ObservedGraph>> {
    let state = one_of(vec![None, Some("successful"), Some("pending"), Some("")]);
    prop::option::of((state, any::<bool>(), any::<bool>()).prop_map(|(state, labelled, old)| ObservedGraph {
        name: "qwen-dgd".into(),
        uid: "g".into(),
        labels: if labelled { steersman_plan::dynamo::names::labels("qwen", "team-a") } else { BTreeMap::new() },
        created: Some(if old { now() - SignedDuration::from_hours(1) } else { now() }),
        state: state.map(str::to_owned),
        ..ObservedGraph::default()
    }))
}

fn hardware() -> impl Strategy<Value = ObservedHardware> {
    let labels =
        [("nvidia.com/gpu.count", "4"), ("nvidia.com/gpu.product", "Tesla T4"), ("nvidia.com/gpu.memory", "15360")];
    let nodes = one_of(vec![
        Lookup::Unknown("forbidden".to_owned()),
        Lookup::Known(vec![]),
        Lookup::Known(vec![node("a", &labels), node("b", &labels[..1])]),
    ]);
    let metrics_and_flags = (".{0,80}", any::<(bool, bool, bool)>());
    (nodes, metrics_and_flags).prop_map(|(nodes, (metrics, (awaited, by_labels, rdma_pod)))| ObservedHardware {
        awaited,
        exporters: Lookup::Known(vec![ObservedExporter { gpus: Lookup::Known(dcgm::read("a", &metrics).unwrap()) }]),
        gpu_operator: false,
        by_labels,
        nodes,
        rdma_pod,
    })
}

fn annotations() -> impl Strategy<Value = BTreeMap<String, String>> {
    let entry = one_of(vec![
        ("nvidia.com/generated-dgd-spec", FINAL),
        ("nvidia.com/generated-dgd-spec", ""),
        ("nvidia.com/generated-dgd-spec", "kind: DynamoGraphDeployment\napiVersion: nvidia.com/v1beta1\nspec: {}"),
        ("dgdr.nvidia.com/additional-resources", FINAL),
        ("steersman.dev/accepted-spec", "odd"),
        ("steersman.dev/retry", "1"),
        ("nvidia.com/dgdr-output-pvc", "results"),
        ("nvidia.com/dgdr-config-map-ref", "{"),
        ("nvidia.com/dgdr-config-map-ref", r#"{"name":"base"}"#),
    ]);
    prop::collection::vec(entry, 0..4)
        .prop_map(|entries| entries.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

fn jobs() -> impl Strategy<Value = Option<ObservedJob>> {
    let state = one_of(vec![JobState::Running, JobState::Suspended, JobState::Complete, JobState::Failed("x".into())]);
    let owner = one_of(vec![Some("8f3c".to_owned()), Some("8f3c".to_owned()), Some("other".to_owned()), None]);
    prop::option::of(
        (state, owner, one_of(vec![None, Some("odd".to_owned())]), one_of(vec![None, Some("1".to_owned())])).prop_map(
            |(state, owner, accepted_spec, retry)| ObservedJob {
                uid: "job-0".into(),
                owner,
                accepted_spec,
                retry,
                ended: matches!(state, JobState::Complete | JobState::Failed(_))
                    .then(|| now() - SignedDuration::from_hours(1)),
                failure: matches!(state, JobState::Failed(_)).then(|| "BackoffLimitExceeded".to_owned()),
                unlabelled: false,
                state,
            },
        ),
    )
}

pub(super) fn snapshots() -> impl Strategy<Value = Snapshot> {
    let object = (specs(), statuses(), annotations(), prop::option::of(1..9i64), prop::bool::weighted(0.1));
    let cluster = (jobs(), pods(), outputs(), graphs(), hardware(), any::<bool>(), any::<bool>());
    (object, cluster).prop_map(|((spec, status, annotations, generation, deleting), cluster)| {
        let (job, pods, output, graph, hardware, present, token_unwatched) = cluster;
        let mut snapshot = request_snapshot(&spec);
        snapshot.object.status = status;
        snapshot.object.annotations = annotations;
        snapshot.object.generation = generation;
        snapshot.object.deleting = deleting;
        snapshot.object.finalizers = vec!["nvidia.com/finalizer".into()];
        snapshot.references = ObservedReferences {
            model_cache: Some(present),
            output_claim: Some(true),
            config_map: Some(present),
            token_secret: Some(present),
            token_unwatched,
        };
        let graphs_served = present || graph.is_some();
        Snapshot { job, graph_pods: pods.clone(), job_pods: pods, output, graph, graphs_served, hardware, ..snapshot }
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let object = one_of(vec!["Job", "DynamoGraphDeployment", "ConfigMap"]);
    let failure = (object, any::<bool>()).prop_map(|(kind, transient)| Failure {
        object: ObjectId::new(kind, "team-a", "x"),
        message: "y".into(),
        transient,
        conflict: false,
    });
    prop::option::of(failure).prop_map(|failure| Outcome { written: 0, failure })
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), "[a-z]{0,2}".prop_map(Value::from)];
    leaf.prop_recursive(5, 40, 4, |inner| {
        let name = one_of(vec![
            "spec",
            "components",
            "name",
            "podTemplate",
            "containers",
            "env",
            "args",
            "$patch",
            "services",
            "value",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.prop_map(str::to_owned), inner, 0..4).prop_map(|fields| json!(fields)),
        ]
    })
}

proptest! {
    #[test]
    fn plan_and_status_are_deterministic(snapshot in snapshots(), outcome in outcome()) {
        let first = plan(&snapshot);
        prop_assert_eq!(&first, &plan(&snapshot.clone()));
        prop_assert!(first.findings.is_sorted_by_key(|finding| finding.severity));
        let rendered = status(&snapshot, &first, &outcome);
        prop_assert_eq!(&rendered, &status(&snapshot.clone(), &first, &outcome));
        // The profiling phase is cleared outside of Profiling, unless the stored status is kept unchanged.
        let unchanged = snapshot.object.status.as_ref() == Some(&rendered);
        prop_assert!(unchanged || rendered.profiling_phase.is_none() || rendered.phase == Some(Phase::Profiling));
    }

    #[test]
    fn every_snapshot_settles_without_repeated_events(snapshot in snapshots()) {
        let mut env = TestEnv::new(snapshot);
        env.settle();
        let event_count = env.events.len();
        env.snapshot.now += SignedDuration::from_hours(1);
        prop_assert!(!env.reconcile(None));
        prop_assert_eq!(event_count, env.events.len());
        // A retry may lead to the same events.
        for attempt in env.events.split(|event| event.reason == "Retrying") {
            let unique: std::collections::BTreeSet<_> = attempt.iter().map(|event| (event.reason, &event.message)).collect();
            prop_assert_eq!(unique.len(), attempt.len(), "{:?}", env.event_reasons());
        }
    }

    #[test]
    fn second_job_or_graph_is_never_created(snapshot in snapshots()) {
        let existing = (snapshot.job.is_some(), snapshot.graph.is_some());
        let mut env = TestEnv::new(snapshot);
        env.settle();
        let count = |kind: &str| env.created.iter().filter(|name| name.starts_with(kind)).count();
        prop_assert!(count("Job ") <= usize::from(!existing.0) + env.deleted_jobs);
        prop_assert!(count("DynamoGraphDeployment ") <= usize::from(!existing.1));
    }

    #[test]
    fn transient_failure_leads_to_same_end_state(snapshot in snapshots(), failing_attempt in 0..6usize, failing_write in 0..6usize) {
        let mut undisturbed = TestEnv::new(snapshot.clone());
        undisturbed.settle();
        let mut disturbed = TestEnv::new(snapshot);
        for attempt in 0..6 {
            // One write fails; the writes before it succeed.
            let writes = plan(&disturbed.snapshot).writes;
            let write = writes.get(failing_write.min(writes.len().saturating_sub(1))).filter(|_| attempt == failing_attempt);
            let failure = |write| Failure { object: written_object_id(write), message: "timeout".into(), transient: true, conflict: false };
            disturbed.reconcile(write.map(failure));
        }
        disturbed.settle();
        prop_assert_eq!(undisturbed.status().phase, disturbed.status().phase);
        prop_assert_eq!(undisturbed.snapshot.object.annotations, disturbed.snapshot.object.annotations);
        prop_assert_eq!(undisturbed.snapshot.graph.is_some(), disturbed.snapshot.graph.is_some());
        prop_assert_eq!(undisturbed.snapshot.job, disturbed.snapshot.job);
    }

    #[test]
    fn job_environment_values_appear_only_in_job(snapshot in snapshots(), outcome in outcome()) {
        let plan = plan(&snapshot);
        let reported = format!("{:?}{:?}{}", plan.findings, events(&snapshot, &plan, &outcome), json!(status(&snapshot, &plan, &outcome)));
        prop_assert!(!reported.contains(SECRET), "{}", reported);
        for write in &plan.writes {
            let contains_secret = format!("{write:?}").contains(SECRET);
            prop_assert!(!contains_secret || matches!(write, WriteOp::Owned(_)));
        }
    }

    #[test]
    fn planned_job_is_valid_without_duplicate_names(snapshot in snapshots()) {
        for write in &plan(&snapshot).writes {
            let WriteOp::Owned(write) = write else { continue };
            let job: Job = serde_json::from_value(json!(write.object())).unwrap();
            let pod = job.spec.unwrap().template.spec.unwrap();
            let unique = |names: Vec<&String>| names.iter().collect::<std::collections::BTreeSet<_>>().len() == names.len();
            prop_assert!(unique(pod.volumes.iter().flatten().map(|volume| &volume.name).collect()));
            prop_assert_eq!(pod.containers.len(), 2);
            for container in &pod.containers {
                prop_assert!(unique(container.env.iter().flatten().map(|env| &env.name).collect()));
                let mounts: Vec<&String> = container.volume_mounts.iter().flatten().map(|mount| &mount.name).collect();
                prop_assert!(mounts.iter().all(|name| pod.volumes.iter().flatten().any(|volume| volume.name == **name)));
                prop_assert!(unique(mounts));
            }
        }
    }

    #[test]
    fn status_round_trips_through_json(snapshot in snapshots(), outcome in outcome()) {
        let status = status(&snapshot, &plan(&snapshot), &outcome);
        prop_assert_eq!(&stored_status(&status), &status);
    }

    #[test]
    fn any_override_is_merged_or_rejected(graph in json_value(), graph_override in json_value()) {
        for (version, of_graph) in [("v1alpha1", "v1alpha1"), ("v1beta1", "v1beta1"), ("v1alpha1", "v1beta1")] {
            let manifest = |version: &str, spec: &Value| json!({
                "apiVersion": format!("nvidia.com/{version}"), "kind": "DynamoGraphDeployment", "spec": spec,
            });
            let (graph, graph_override) = (manifest(of_graph, &graph), manifest(version, &graph_override));
            let (graph, graph_override) = (graph.as_object().unwrap(), graph_override.as_object().unwrap());
            if let Ok(merged) = merge(graph, graph_override) {
                prop_assert_eq!(&merged.graph["kind"], "DynamoGraphDeployment");
                // The merged graph contains no merge directive.
                let in_graph = json!(graph).to_string().contains("$patch");
                prop_assert!(in_graph || !json!(merged.graph).to_string().contains("$patch"));
            }
        }
    }
}
