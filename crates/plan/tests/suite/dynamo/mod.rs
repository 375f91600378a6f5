//! A request, and a small world that does what the plan says: objects appear when they are written, and the rest is set by
//! the test.

mod admission;
mod delivery;
mod failures;
mod graph;
mod hardware;
mod inherited;
mod job;
mod kept;
mod laws;
mod leaves;
mod legacy;
mod merge;
mod needs;
mod phases;
mod problems;
mod versions;
mod waiting;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::DynamicObject;
use serde_json::{Value, json};
use steersman_api::dynamo::v1beta1::{DynamoGraphDeploymentRequestStatus, Phase};
use steersman_plan::dynamo::hardware::{ObservedHardware, ObservedNode};
use steersman_plan::dynamo::{
    JobState, ObservedBinding, ObservedConfigMap, ObservedGraph, ObservedJob, ObservedObject, ObservedOutput,
    ObservedReferences, Plan, Settings, Snapshot, events, names, plan, status,
};
use steersman_plan::pods::ObservedPod;
use steersman_reconcile::{Event, Failure, Lookup, ObjectId, Outcome, WriteOp};
use steersman_testkit::profiler::RESULT as FINAL;

const IMAGE: &str = "nvcr.io/nvidia/ai-dynamo/dynamo-planner:1.4.0";
const HARDWARE: &str =
    "hardware: {gpuSku: h100_sxm, vramMb: 81920, numGpusPerNode: 8, totalGpus: 8, interconnect: nvlink, rdma: false}";

fn now() -> Timestamp {
    "2026-11-15T23:00:00Z".parse().unwrap()
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The spec of a request for one model, with all hardware given, and more lines.
fn spec(more: &str) -> String {
    format!("model: Qwen/Qwen3-0.6B\nimage: {IMAGE}\n{HARDWARE}\n{more}")
}

fn no_hardware() -> ObservedHardware {
    ObservedHardware {
        awaited: false,
        exporters: Lookup::Known(vec![]),
        gpu_operator: false,
        by_labels: true,
        nodes: Lookup::Known(vec![]),
        rdma_pod: false,
    }
}

fn node(name: &str, labels: &[(&str, &str)]) -> ObservedNode {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ObservedNode { name: name.into(), labels }
}

/// The request `team-a/qwen` with this spec, as on the first pass.
fn a_request(spec: &str) -> Snapshot {
    Snapshot {
        now: now(),
        settings: Settings {
            default_image: None,
            operator_image: "steersman:1".into(),
            operator_image_pull_policy: None,
            profiling_cluster_role: Some("dgdr-profiling".into()),
            profiling_cluster_role_found: true,
            infrastructure: BTreeMap::new(),
        },
        object: ObservedObject {
            name: "qwen".into(),
            namespace: "team-a".into(),
            uid: "8f3c".into(),
            generation: Some(1),
            created: Some(now()),
            deleting: false,
            finalizers: vec![],
            annotations: BTreeMap::new(),
            spec: serde_json::from_value(yaml(spec)).unwrap(),
            status: None,
        },
        job: None,
        job_pods: vec![],
        output: None,
        graph: None,
        graphs_served: true,
        graph_pods: vec![],
        additional: vec![],
        named: ObservedReferences { token_secret: true, ..ObservedReferences::default() },
        account: false,
        binding: None,
        hardware: no_hardware(),
    }
}

fn output(data: &[(&str, &str)]) -> ObservedOutput {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ObservedOutput { uid: "out-1".into(), version: Some("7".into()), owner: Some("8f3c".into()), data }
}

struct World {
    seen: Snapshot,
    /// Everything that was told, in order.
    notes: Vec<Event>,
    /// Phases, each as often as it was entered.
    phases: Vec<Phase>,
    /// What was created, as `Job profile-qwen`.
    created: Vec<String>,
    /// The objects as last written.
    objects: BTreeMap<String, Value>,
    /// How many reconciles changed something.
    reconciles: usize,
}

impl World {
    fn new(seen: Snapshot) -> Self {
        Self { seen, notes: vec![], phases: vec![], created: vec![], objects: BTreeMap::new(), reconciles: 0 }
    }

    /// A request with that spec, after everything happened that happens by itself.
    fn settled(spec: &str) -> Self {
        let mut world = Self::new(a_request(spec));
        world.settle();
        world
    }

    /// The same once its Job has delivered.
    fn profiled(spec: &str) -> Self {
        let mut world = Self::settled(spec);
        world.deliver(FINAL);
        world
    }

    /// The same once its graph serves.
    fn deployed(spec: &str) -> Self {
        let mut world = Self::profiled(spec);
        world.graph().state = Some("successful".into());
        world.settle();
        world
    }

    fn deliver(&mut self, text: &str) {
        self.seen.output =
            Some(output(&[("phase", "Done"), ("profiler_status", "success"), ("final_config.yaml", text)]));
        self.job(JobState::Complete);
        self.settle();
    }

    fn job(&mut self, state: JobState) {
        let mark =
            self.objects.get("Job profile-qwen").map(|job| &job["metadata"]["annotations"][names::ACCEPTED_SPEC]);
        let mark = mark.and_then(|mark| mark.as_str().map(str::to_owned));
        self.seen.job = Some(ObservedJob { owner: Some("8f3c".into()), mark, state });
    }

    fn pods(&mut self, phase: &str) {
        self.seen.job_pods =
            vec![ObservedPod { name: "profile-qwen-x".into(), phase: phase.into(), ..ObservedPod::default() }];
    }

    fn graph(&mut self) -> &mut ObservedGraph {
        self.seen.graph.as_mut().unwrap()
    }

    /// One pass; whether the request or the cluster is another afterwards.
    fn pass(&mut self, failure: Option<Failure>) -> bool {
        let before = self.seen.clone();
        let plan = plan(&self.seen);
        let outcome = Outcome { written: 0, failure };
        let status = status(&self.seen, &plan, &outcome);
        self.notes.extend(events(&self.seen, &plan, &outcome));
        let done = outcome.failure.as_ref().map_or(plan.writes.len(), |failure| written_before(&plan, failure));
        plan.writes.iter().take(done).for_each(|write| self.write(write));
        if let Some(phase) =
            status.phase.filter(|_| status.phase != before.object.status.as_ref().and_then(|s| s.phase))
        {
            self.phases.push(phase);
        }
        if self.seen.object.status.is_some() || status != DynamoGraphDeploymentRequestStatus::default() {
            self.seen.object.status = Some(stored(&status));
        }
        self.reconciles += usize::from(before != self.seen);
        before != self.seen
    }

    /// Until nothing moves by itself.
    fn settle(&mut self) {
        for _ in 0..20 {
            if !self.pass(None) {
                return;
            }
            self.seen.now += SignedDuration::from_secs(1);
        }
        panic!("it never comes to rest: {:#?}", self.seen.object);
    }

    fn write(&mut self, write: &WriteOp) {
        match write {
            WriteOp::PatchOwner(patch) => self.patch(patch),
            WriteOp::Delete { kind, uid, version, .. } => match kind.kind.as_str() {
                "ConfigMap" => {
                    let output = self.seen.output.take().unwrap();
                    assert_eq!((output.uid, output.version), (uid.clone(), version.clone()));
                }
                _ => assert_eq!(self.seen.binding.take().unwrap().uid, *uid),
            },
            WriteOp::Owned(write) => self.object(write.object(), true),
            WriteOp::Unowned(write) => self.object(write.object(), false),
        }
    }

    fn object(&mut self, object: &DynamicObject, owned: bool) {
        let kind = object.types.as_ref().unwrap().kind.clone();
        let name = object.metadata.name.clone().unwrap();
        assert_eq!(object.metadata.namespace.as_deref(), Some("team-a"));
        let key = format!("{kind} {name}");
        if !self.objects.contains_key(&key) || (kind == "Job" && self.seen.job.is_none()) {
            self.created.push(key.clone());
        }
        self.objects.insert(key, json!(object));
        match kind.as_str() {
            "Job" if self.seen.job.is_none() => self.job(JobState::Running),
            "ServiceAccount" => self.seen.account = true,
            "RoleBinding" => {
                let role = object.data["roleRef"]["name"].as_str().unwrap().to_owned();
                self.seen.binding = Some(ObservedBinding { uid: "rb-1".into(), cluster_role: role });
            }
            "ConfigMap" => {
                let metadata = &object.metadata;
                let mark = metadata.annotations.as_ref().and_then(|known| known.get(names::REQUEST_UID).cloned());
                let known = self.seen.additional.iter().position(|known| known.name == name);
                let created = known.map_or(Some(self.seen.now), |place| self.seen.additional.remove(place).created);
                let content = steersman_plan::dynamo::graph::content(&object.data);
                let resource_version = Some("7".to_owned());
                self.seen.additional.push(ObservedConfigMap {
                    name,
                    resource_version,
                    created,
                    request: mark,
                    content,
                });
            }
            "DynamoGraphDeployment" if self.seen.graph.is_none() => {
                self.seen.graph = Some(ObservedGraph {
                    name,
                    uid: "graph-1".into(),
                    api_version: object.types.as_ref().unwrap().api_version.clone(),
                    created: Some(self.seen.now),
                    labels: object.metadata.labels.clone().unwrap_or_default(),
                    annotations: object.metadata.annotations.clone().unwrap_or_default(),
                    ..ObservedGraph::default()
                });
            }
            _ => {}
        }
        assert_eq!(owned, kind == "Job", "{kind}");
    }

    fn patch(&mut self, patch: &Value) {
        let object = &mut self.seen.object;
        for (key, value) in patch["metadata"]["annotations"].as_object().into_iter().flatten() {
            object.annotations.insert(key.clone(), value.as_str().unwrap().to_owned());
        }
        if let Some(finalizers) = patch["metadata"]["finalizers"].as_array() {
            object.finalizers = finalizers.iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        }
        if !patch["spec"].is_null() {
            object.spec.hardware = Some(serde_json::from_value(patch["spec"]["hardware"].clone()).unwrap());
            object.generation = object.generation.map(|generation| generation + 1);
        }
    }

    fn edit(&mut self, spec: &str) {
        self.seen.object.spec = serde_json::from_value(yaml(spec)).unwrap();
        self.seen.object.generation = self.seen.object.generation.map(|generation| generation + 1);
    }

    fn status(&self) -> DynamoGraphDeploymentRequestStatus {
        self.seen.object.status.clone().unwrap_or_default()
    }

    fn phase(&self) -> Phase {
        self.status().phase.unwrap()
    }

    fn condition(&self, type_: &str) -> Condition {
        let conditions = self.status().conditions;
        conditions.iter().find(|known| known.type_ == type_).unwrap_or_else(|| panic!("{conditions:?}")).clone()
    }

    /// Status, reason and message of one condition.
    fn says(&self, type_: &str) -> (String, String, String) {
        let Condition { status, reason, message, .. } = self.condition(type_);
        (status, reason, message)
    }

    fn told(&self) -> Vec<&str> {
        self.notes.iter().map(|note| note.reason).collect()
    }
}

/// The object that a write is for.
fn written(write: &WriteOp) -> ObjectId {
    match write {
        WriteOp::PatchOwner(_) => ObjectId::new("DynamoGraphDeploymentRequest", "team-a", "qwen"),
        WriteOp::Delete { kind, name, .. } => ObjectId::new(kind.kind.as_str(), "team-a", name.as_str()),
        WriteOp::Owned(write) | WriteOp::Unowned(write) => {
            let object = write.object();
            let kind = object.types.as_ref().unwrap().kind.as_str();
            ObjectId::new(kind, "team-a", object.metadata.name.as_deref().unwrap())
        }
    }
}

/// How many writes come before the one that failed. None, if the plan does not write that object.
fn written_before(plan: &Plan, failure: &Failure) -> usize {
    plan.writes.iter().position(|write| written(write) == failure.object).unwrap_or_default()
}

/// As the API server gives it back.
fn stored(status: &DynamoGraphDeploymentRequestStatus) -> DynamoGraphDeploymentRequestStatus {
    serde_json::from_value(json!(status)).unwrap()
}

fn said(status: &str, reason: &str, message: &str) -> (String, String, String) {
    (status.into(), reason.into(), message.into())
}

/// The Job that the plan would create, whatever else it writes.
fn the_job(plan: &Plan) -> Value {
    let jobs: Vec<Value> = plan
        .writes
        .iter()
        .filter_map(|write| match write {
            WriteOp::Owned(write) => Some(json!(write.object())),
            _ => None,
        })
        .collect();
    assert_eq!(jobs.len(), 1, "{:?}", plan.writes);
    jobs[0].clone()
}
