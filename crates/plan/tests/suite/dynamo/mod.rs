//! Decisions about DynamoGraphDeploymentRequests. `TestEnv` applies the writes of each plan to a snapshot; tests set
//! everything else.

mod admission;
mod delivery;
mod earlier_operators;
mod earlier_texts;
mod failures;
mod graph;
mod graph_schema;
mod hardware;
mod job;
mod laws;
mod leaves;
mod legacy;
mod merge;
mod needs;
mod phases;
mod problems;
mod recovery;
mod user_changes;
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
    JobState, ObservedAccount, ObservedBinding, ObservedConfigMap, ObservedGraph, ObservedJob, ObservedObject,
    ObservedOutput, ObservedOwners, ObservedReferences, Plan, Settings, Snapshot, events, names, plan, status,
};
use steersman_plan::pods::ObservedPod;
use steersman_reconcile::{Event, Failure, Lookup, ObjectId, Outcome, WriteOp};
use steersman_testkit::fake_profiler::SAMPLE_RESULT as FINAL;

const IMAGE: &str = "nvcr.io/nvidia/ai-dynamo/dynamo-planner:1.4.0";
const HARDWARE: &str =
    "hardware: {gpuSku: h100_sxm, vramMb: 81920, numGpusPerNode: 8, totalGpus: 8, interconnect: nvlink, rdma: false}";

fn now() -> Timestamp {
    "2026-11-15T23:00:00Z".parse().unwrap()
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The spec of a request with complete hardware, followed by `more` lines of YAML.
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
    ObservedNode { name: name.into(), labels, gpus: 8 }
}

/// The request `team-a/qwen` with this spec, as in its first reconcile.
fn request_snapshot(spec: &str) -> Snapshot {
    Snapshot {
        now: now(),
        settings: Settings {
            default_image: None,
            operator_image: "steersman:1".into(),
            operator_image_pull_policy: None,
            profiling_cluster_role: Some("dgdr-profiling".into()),
            profiling_cluster_role_found: true,
            thorough_cluster_role: Some("dgdr-profiling-thorough".into()),
            thorough_cluster_role_found: true,
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
        references: ObservedReferences { token_secret: Some(true), ..ObservedReferences::default() },
        account: None,
        binding: None,
        thorough_binding: None,
        hardware: no_hardware(),
    }
}

fn output(data: &[(&str, &str)]) -> ObservedOutput {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ObservedOutput { uid: "out-1".into(), version: Some("7".into()), owner: Some("8f3c".into()), data }
}

/// One request and the cluster around it, in memory.
struct TestEnv {
    snapshot: Snapshot,
    /// All published events, in order.
    events: Vec<Event>,
    /// Phases in the order in which the request entered them.
    phases: Vec<Phase>,
    /// Created objects as kind and name, such as `Job profile-qwen`.
    created: Vec<String>,
    /// Number of Jobs that the operator deleted.
    deleted_jobs: usize,
    /// The objects as last written.
    objects: BTreeMap<String, Value>,
    /// Number of reconciles that changed the request or the cluster.
    reconciles: usize,
}

impl TestEnv {
    fn new(snapshot: Snapshot) -> Self {
        Self {
            snapshot,
            events: vec![],
            phases: vec![],
            created: vec![],
            deleted_jobs: 0,
            objects: BTreeMap::new(),
            reconciles: 0,
        }
    }

    /// A request that is reconciled until nothing changes: its Job runs, if the spec is valid.
    fn after_settling(spec: &str) -> Self {
        let mut env = Self::new(request_snapshot(spec));
        env.settle();
        env
    }

    /// A request whose Job has delivered its result.
    fn after_profiling(spec: &str) -> Self {
        let mut env = Self::after_settling(spec);
        env.deliver_result(FINAL);
        env
    }

    /// A request whose graph is ready.
    fn after_deployment(spec: &str) -> Self {
        let mut env = Self::after_profiling(spec);
        env.graph_mut().state = Some("successful".into());
        env.settle();
        env
    }

    fn deliver_result(&mut self, text: &str) {
        self.snapshot.output =
            Some(output(&[("phase", "Done"), ("profiler_status", "success"), ("final_config.yaml", text)]));
        self.set_job_state(JobState::Complete);
        self.settle();
    }

    fn set_job_state(&mut self, state: JobState) {
        let accepted_spec =
            self.objects.get("Job profile-qwen").map(|job| &job["metadata"]["annotations"][names::ACCEPTED_SPEC]);
        let accepted_spec = accepted_spec.and_then(|hash| hash.as_str().map(str::to_owned));
        let retry = self.objects.get("Job profile-qwen").map(|job| &job["metadata"]["annotations"][names::RETRY]);
        let retry = retry.and_then(|retry| retry.as_str().map(str::to_owned));
        let (ended, phase) = match &state {
            JobState::Running | JobState::Suspended => (None, None),
            JobState::Complete => (Some(self.snapshot.now), Some("Succeeded")),
            JobState::Failed(_) => (Some(self.snapshot.now), Some("Failed")),
        };
        // The pod of a Job that has ended stays.
        if let Some(phase) = phase.filter(|_| self.snapshot.job_pods.is_empty()) {
            self.set_pod_phase(phase);
        }
        let uid = format!("job-{}", self.created.len());
        self.snapshot.job = Some(ObservedJob {
            uid,
            owner: Some("8f3c".into()),
            accepted_spec,
            retry,
            state,
            ended,
            ..ObservedJob::default()
        });
    }

    fn set_pod_phase(&mut self, phase: &str) {
        self.snapshot.job_pods =
            vec![ObservedPod { name: "profile-qwen-x".into(), phase: phase.into(), ..ObservedPod::default() }];
    }

    fn graph_mut(&mut self) -> &mut ObservedGraph {
        self.snapshot.graph.as_mut().unwrap()
    }

    /// Runs one reconcile, in which `failure` stops the writes. Returns whether the request or the cluster changed.
    fn reconcile(&mut self, failure: Option<Failure>) -> bool {
        let before = self.snapshot.clone();
        let plan = plan(&self.snapshot);
        let outcome = Outcome { written: 0, failure };
        let status = status(&self.snapshot, &plan, &outcome);
        self.events.extend(events(&self.snapshot, &plan, &outcome));
        let done = outcome.failure.as_ref().map_or(plan.writes.len(), |failure| writes_before(&plan, failure));
        plan.writes.iter().take(done).for_each(|write| self.apply_write(write));
        if let Some(phase) =
            status.phase.filter(|_| status.phase != before.object.status.as_ref().and_then(|s| s.phase))
        {
            self.phases.push(phase);
        }
        if self.snapshot.object.status.is_some() || status != DynamoGraphDeploymentRequestStatus::default() {
            self.snapshot.object.status = Some(stored_status(&status));
        }
        self.reconciles += usize::from(before != self.snapshot);
        before != self.snapshot
    }

    /// Reconciles until nothing changes.
    fn settle(&mut self) {
        for _ in 0..20 {
            if !self.reconcile(None) {
                return;
            }
            self.snapshot.now += SignedDuration::from_secs(1);
        }
        panic!("the request does not settle: {:#?}", self.snapshot.object);
    }

    fn apply_write(&mut self, write: &WriteOp) {
        match write {
            WriteOp::PatchOwner(patch) => self.apply_patch(patch),
            WriteOp::Delete { kind, uid, version, .. } => match kind.kind.as_str() {
                "ConfigMap" => {
                    let output = self.snapshot.output.take().unwrap();
                    assert_eq!((output.uid, output.version), (uid.clone(), version.clone()));
                }
                "Job" => {
                    assert_eq!(self.snapshot.job.take().unwrap().uid, *uid);
                    self.snapshot.job_pods.clear();
                    self.deleted_jobs += 1;
                }
                _ => assert_eq!(self.snapshot.binding.take().unwrap().uid, *uid),
            },
            WriteOp::Owned(write) => self.apply_object(write.object(), true),
            WriteOp::Unowned(write) => self.apply_object(write.object(), false),
        }
    }

    fn apply_object(&mut self, object: &DynamicObject, owned: bool) {
        let kind = object.types.as_ref().unwrap().kind.clone();
        let name = object.metadata.name.clone().unwrap();
        assert_eq!(object.metadata.namespace.as_deref(), Some("team-a"));
        let key = format!("{kind} {name}");
        if !self.objects.contains_key(&key) || (kind == "Job" && self.snapshot.job.is_none()) {
            self.created.push(key.clone());
        }
        self.objects.insert(key, json!(object));
        match kind.as_str() {
            "Job" if self.snapshot.job.is_none() => self.set_job_state(JobState::Running),
            "ServiceAccount" => {
                self.snapshot.account = Some(ObservedAccount { foreign: false, owners: observed_owners(object) });
            }
            "RoleBinding" => {
                let cluster_role = object.data["roleRef"]["name"].as_str().unwrap().to_owned();
                let owners = observed_owners(object);
                let binding =
                    Some(ObservedBinding { uid: "rb-1".into(), cluster_role, owners, ..ObservedBinding::default() });
                if name == names::ROLE_BINDING {
                    self.snapshot.binding = binding;
                } else {
                    self.snapshot.thorough_binding = binding;
                }
            }
            "ConfigMap" => {
                let metadata = &object.metadata;
                let request = metadata.annotations.as_ref().and_then(|known| known.get(names::REQUEST_UID).cloned());
                let known = self.snapshot.additional.iter().position(|known| known.name == name);
                let created =
                    known.map_or(Some(self.snapshot.now), |place| self.snapshot.additional.remove(place).created);
                let content = steersman_plan::dynamo::graph::content(&object.data);
                let resource_version = Some("7".to_owned());
                self.snapshot.additional.push(ObservedConfigMap { name, resource_version, created, request, content });
            }
            "DynamoGraphDeployment" if self.snapshot.graph.is_none() => {
                self.snapshot.graph = Some(ObservedGraph {
                    name,
                    uid: "graph-1".into(),
                    api_version: object.types.as_ref().unwrap().api_version.clone(),
                    created: Some(self.snapshot.now),
                    labels: object.metadata.labels.clone().unwrap_or_default(),
                    annotations: object.metadata.annotations.clone().unwrap_or_default(),
                    ..ObservedGraph::default()
                });
            }
            _ => {}
        }
        assert_eq!(owned, kind == "Job", "{kind}");
    }

    fn apply_patch(&mut self, patch: &Value) {
        let object = &mut self.snapshot.object;
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

    fn edit_spec(&mut self, spec: &str) {
        self.snapshot.object.spec = serde_json::from_value(yaml(spec)).unwrap();
        self.snapshot.object.generation = self.snapshot.object.generation.map(|generation| generation + 1);
    }

    fn status(&self) -> DynamoGraphDeploymentRequestStatus {
        self.snapshot.object.status.clone().unwrap_or_default()
    }

    fn phase(&self) -> Phase {
        self.status().phase.unwrap()
    }

    fn condition(&self, type_: &str) -> Condition {
        let conditions = self.status().conditions;
        conditions.iter().find(|known| known.type_ == type_).unwrap_or_else(|| panic!("{conditions:?}")).clone()
    }

    /// Status, reason and message of one condition.
    fn condition_summary(&self, type_: &str) -> (String, String, String) {
        let Condition { status, reason, message, .. } = self.condition(type_);
        (status, reason, message)
    }

    fn event_reasons(&self) -> Vec<&str> {
        self.events.iter().map(|event| event.reason).collect()
    }
}

fn observed_owners(object: &DynamicObject) -> ObservedOwners {
    let references = object.metadata.owner_references.iter().flatten().map(|reference| json!(reference)).collect();
    ObservedOwners { resource_version: Some("5".into()), references }
}

/// The object that a write is for.
fn written_object_id(write: &WriteOp) -> ObjectId {
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

/// Number of writes before the failed one; 0 if the plan does not write that object.
fn writes_before(plan: &Plan, failure: &Failure) -> usize {
    plan.writes.iter().position(|write| written_object_id(write) == failure.object).unwrap_or_default()
}

/// The status after a round trip through JSON, as the API server returns it.
fn stored_status(status: &DynamoGraphDeploymentRequestStatus) -> DynamoGraphDeploymentRequestStatus {
    serde_json::from_value(json!(status)).unwrap()
}

/// Expected status, reason and message of a condition, to compare with [`TestEnv::condition_summary`].
fn summary(status: &str, reason: &str, message: &str) -> (String, String, String) {
    (status.into(), reason.into(), message.into())
}

/// The Job in the writes of a plan.
fn planned_job(plan: &Plan) -> Value {
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
