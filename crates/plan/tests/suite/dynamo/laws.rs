//! What holds for every request, however odd, in every situation.

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

use super::{FINAL, World, a_request, node, now, spec, stored, written};

/// Stands where values of Secrets can be, and may come up nowhere but in the Job that was given it.
const SECRET: &str = "hush";

fn of<T: Clone + std::fmt::Debug + 'static>(items: Vec<T>) -> impl Strategy<Value = T> {
    prop::sample::select(items)
}

fn lines() -> impl Strategy<Value = String> {
    let line = of(vec![
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
        // A key twice is no YAML.
        let mut unique: BTreeMap<String, String> = BTreeMap::new();
        for line in lines.into_values() {
            unique.insert(line.split(':').next().unwrap().to_owned(), line);
        }
        unique.into_values().collect::<Vec<_>>().join("\n")
    })
}

fn specs() -> impl Strategy<Value = String> {
    (lines(), of(vec!["given", "given", "none", "odd", "no image"])).prop_map(|(lines, how)| match how {
        "given" => spec(&lines),
        "none" => format!("model: m\nimage: i:latest\n{lines}"),
        "odd" => format!("model: m\nimage: i:1.0.0\nhardware: {{gpuSku: odd}}\n{lines}"),
        _ => format!("model: m\n{lines}"),
    })
}

fn statuses() -> impl Strategy<Value = Option<DynamoGraphDeploymentRequestStatus>> {
    let phase = of(vec!["Pending", "Profiling", "Ready", "Deploying", "Deployed", "Failed"]);
    let part = of(vec![
        json!({}),
        json!({"observedGeneration": 1, "profilingJobName": "profile-qwen"}),
        json!({"profilingPhase": "SweepingDecode", "observedGeneration": 7}),
        json!({"dgdName": "qwen-dgd", "deploymentInfo": {"replicas": 1}, "profilingResults": {"selectedConfig": {"kind": "x"}}}),
    ]);
    let condition = |type_: &'static str| {
        let reason = of(vec!["Initializing", "DeploymentInProgress", "DeploymentDegraded", "ValidationFailed"]);
        let message = of(vec!["", "x", "profiling job failed: x", "pod p container profiler: x"]);
        prop::option::of((of(vec!["True", "False"]), reason, message)).prop_map(move |said| {
            said.map(|(status, reason, message)| {
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
    let waits = prop::option::of(of(vec!["ErrImagePull", "CreateContainerConfigError", "x"]));
    let container = (of(vec!["profiler", "output-copier"]), waits, any::<bool>()).prop_map(|(name, waiting, ended)| {
        ObservedContainer {
            name: name.into(),
            image: "i".into(),
            waiting: waiting.map(|reason| Waiting { reason: reason.into(), message: "m".into() }),
            terminated: ended.then(|| Terminated { exit_code: 1, reason: "Error".into(), message: String::new() }),
            ..ObservedContainer::default()
        }
    });
    let pod = (of(vec!["Pending", "Running", "Failed"]), any::<bool>(), prop::collection::vec(container, 0..3))
        .prop_map(|(phase, unscheduled, mut containers)| {
            // No pod has two of one name.
            containers.dedup_by(|one, other| one.name == other.name);
            ObservedPod {
                name: "p".into(),
                phase: phase.into(),
                unscheduled: unscheduled.then(|| "no room".into()),
                terminated: unscheduled.then(|| ("Evicted".into(), String::new())),
                containers,
            }
        });
    prop::collection::vec(pod, 0..2)
}

fn outputs() -> impl Strategy<Value = Option<ObservedOutput>> {
    let data = (
        prop::option::of(of(vec!["SweepingDecode", "Done", "odd", ""])),
        prop::option::of(of(vec!["success", "failed", "odd"])),
        prop::option::of(of(vec![
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
    let owner = of(vec![None, Some("8f3c".to_owned()), Some("other".to_owned())]);
    prop::option::of((data, owner).prop_map(|(data, owner)| ObservedOutput {
        uid: "o".into(),
        version: None,
        owner,
        data,
    }))
}

fn graphs() -> impl Strategy<Value = Option<ObservedGraph>> {
    let state = of(vec![None, Some("successful"), Some("pending"), Some("")]);
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
    let nodes = of(vec![
        Lookup::Unknown("forbidden".to_owned()),
        Lookup::Known(vec![]),
        Lookup::Known(vec![node("a", &labels), node("b", &labels[..1])]),
    ]);
    let odd = (".{0,80}", any::<(bool, bool, bool)>());
    (nodes, odd).prop_map(|(nodes, (metrics, (awaited, by_labels, rdma_pod)))| ObservedHardware {
        awaited,
        exporters: Lookup::Known(vec![ObservedExporter { gpus: Lookup::Known(dcgm::read("a", &metrics)) }]),
        gpu_operator: false,
        by_labels,
        nodes,
        rdma_pod,
    })
}

fn annotations() -> impl Strategy<Value = BTreeMap<String, String>> {
    let entry = of(vec![
        ("nvidia.com/generated-dgd-spec", FINAL),
        ("nvidia.com/generated-dgd-spec", ""),
        ("nvidia.com/generated-dgd-spec", "kind: DynamoGraphDeployment\napiVersion: nvidia.com/v1beta1\nspec: {}"),
        ("dgdr.nvidia.com/additional-resources", FINAL),
        ("steersman.dev/accepted-spec", "odd"),
        ("nvidia.com/dgdr-output-pvc", "results"),
        ("nvidia.com/dgdr-config-map-ref", "{"),
        ("nvidia.com/dgdr-config-map-ref", r#"{"name":"base"}"#),
    ]);
    prop::collection::vec(entry, 0..4)
        .prop_map(|entries| entries.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

fn jobs() -> impl Strategy<Value = Option<ObservedJob>> {
    let state = of(vec![JobState::Running, JobState::Suspended, JobState::Complete, JobState::Failed("x".into())]);
    let owner = of(vec![Some("8f3c".to_owned()), Some("8f3c".to_owned()), Some("other".to_owned()), None]);
    prop::option::of(
        (state, owner, of(vec![None, Some("odd".to_owned())])).prop_map(|(state, owner, mark)| ObservedJob {
            owner,
            mark,
            state,
        }),
    )
}

pub(super) fn seen() -> impl Strategy<Value = Snapshot> {
    let object = (specs(), statuses(), annotations(), prop::option::of(1..9i64), prop::bool::weighted(0.1));
    let around = (jobs(), pods(), outputs(), graphs(), hardware(), any::<bool>());
    (object, around).prop_map(|((spec, status, annotations, generation, deleting), around)| {
        let (job, pods, output, graph, hardware, there) = around;
        let mut seen = a_request(&spec);
        seen.object.status = status;
        seen.object.annotations = annotations;
        seen.object.generation = generation;
        seen.object.deleting = deleting;
        seen.object.finalizers = vec!["nvidia.com/finalizer".into()];
        seen.named = ObservedReferences {
            model_cache: Some(there),
            output_claim: Some(true),
            config_map: Some(there),
            token_secret: there,
        };
        let graphs_served = there || graph.is_some();
        Snapshot { job, graph_pods: pods.clone(), job_pods: pods, output, graph, graphs_served, hardware, ..seen }
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let object = of(vec!["Job", "DynamoGraphDeployment", "ConfigMap"]);
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
        let name = of(vec![
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
    fn every_request_gets_one_answer_and_always_the_same(seen in seen(), outcome in outcome()) {
        let first = plan(&seen);
        prop_assert_eq!(&first, &plan(&seen.clone()));
        prop_assert!(first.findings.is_sorted_by_key(|finding| finding.severity));
        let rendered = status(&seen, &first, &outcome);
        prop_assert_eq!(&rendered, &status(&seen.clone(), &first, &outcome));
        // What is left of the profiling is cleared; a status that is only passed on stays as it was.
        let passed_on = seen.object.status.as_ref() == Some(&rendered);
        prop_assert!(passed_on || rendered.profiling_phase.is_none() || rendered.phase == Some(Phase::Profiling));
    }

    #[test]
    fn every_situation_comes_to_rest_and_then_says_nothing(seen in seen()) {
        let mut world = World::new(seen);
        world.settle();
        let told = world.notes.len();
        world.seen.now += SignedDuration::from_hours(1);
        prop_assert!(!world.pass(None));
        prop_assert_eq!(told, world.notes.len());
        let reasons = world.told();
        let unique: std::collections::BTreeSet<_> = world.notes.iter().map(|note| (note.reason, &note.message)).collect();
        prop_assert_eq!(unique.len(), reasons.len(), "{:?}", reasons);
    }

    #[test]
    fn there_are_never_two_jobs_or_graphs(seen in seen()) {
        let had = (seen.job.is_some(), seen.graph.is_some());
        let mut world = World::new(seen);
        world.settle();
        let count = |kind: &str| world.created.iter().filter(|name| name.starts_with(kind)).count();
        prop_assert!(count("Job ") <= usize::from(!had.0));
        prop_assert!(count("DynamoGraphDeployment ") <= usize::from(!had.1));
    }

    #[test]
    fn a_pass_that_fails_for_a_while_fails_no_request_and_ends_where_the_undisturbed_one_does(seen in seen(), when in 0..6usize, which in 0..6usize) {
        let mut straight = World::new(seen.clone());
        straight.settle();
        let mut disturbed = World::new(seen);
        for pass in 0..6 {
            // One of the writes fails, and those before it are done.
            let writes = plan(&disturbed.seen).writes;
            let write = writes.get(which.min(writes.len().saturating_sub(1))).filter(|_| pass == when);
            let failure = |write| Failure { object: written(write), message: "timeout".into(), transient: true, conflict: false };
            disturbed.pass(write.map(failure));
        }
        disturbed.settle();
        prop_assert_eq!(straight.status().phase, disturbed.status().phase);
        prop_assert_eq!(straight.seen.object.annotations, disturbed.seen.object.annotations);
        prop_assert_eq!(straight.seen.graph.is_some(), disturbed.seen.graph.is_some());
        prop_assert_eq!(straight.seen.job, disturbed.seen.job);
    }

    #[test]
    fn values_in_the_jobs_environment_are_told_nowhere_but_in_the_job(seen in seen(), outcome in outcome()) {
        let plan = plan(&seen);
        let told = format!("{:?}{:?}{}", plan.findings, events(&seen, &plan, &outcome), json!(status(&seen, &plan, &outcome)));
        prop_assert!(!told.contains(SECRET), "{}", told);
        for write in &plan.writes {
            let held = format!("{write:?}").contains(SECRET);
            prop_assert!(!held || matches!(write, WriteOp::Owned(_)));
        }
    }

    #[test]
    fn every_job_is_one_that_kubernetes_can_read_and_names_nothing_twice(seen in seen()) {
        for write in &plan(&seen).writes {
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
    fn a_status_is_stored_and_read_as_it_was_said(seen in seen(), outcome in outcome()) {
        let status = status(&seen, &plan(&seen), &outcome);
        prop_assert_eq!(&stored(&status), &status);
    }

    #[test]
    fn any_override_is_merged_or_refused(graph in json_value(), wanted in json_value()) {
        for (version, of_graph) in [("v1alpha1", "v1alpha1"), ("v1beta1", "v1beta1"), ("v1alpha1", "v1beta1")] {
            let whole = |version: &str, spec: &Value| json!({
                "apiVersion": format!("nvidia.com/{version}"), "kind": "DynamoGraphDeployment", "spec": spec,
            });
            let (graph, wanted) = (whole(of_graph, &graph), whole(version, &wanted));
            let (graph, wanted) = (graph.as_object().unwrap(), wanted.as_object().unwrap());
            if let Ok(merged) = merge(graph, wanted) {
                prop_assert_eq!(&merged.graph["kind"], "DynamoGraphDeployment");
                // Nothing is left of the way it was asked for.
                let asked = json!(graph).to_string().contains("$patch");
                prop_assert!(asked || !json!(merged.graph).to_string().contains("$patch"));
            }
        }
    }
}
