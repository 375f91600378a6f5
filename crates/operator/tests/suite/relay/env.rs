//! The environment of the relay for one request: the pod of the profiling Job, an account with the relay's rights only, the
//! profiler's folder, and the relay's process.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::api::{Api, Patch, PatchParams, PostParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use steersman::relay::deliver::RequestRef;
use steersman::relay::follow::{RelayTarget, RelayTiming};
use steersman::relay::rules;
use steersman_plan::dynamo::build::account;
use steersman_plan::dynamo::hardware::ObservedHardware;
use steersman_plan::dynamo::{
    JobState, ObservedJob, ObservedObject, ObservedOutput, ObservedReferences, Settings, Snapshot, names, profile_job,
};
use steersman_runtime::client::Server;
use steersman_testkit::{Cluster, Log, Namespace, object, process, wait};
use tempfile::TempDir;

use crate::server::server;

pub const UID: &str = "5ee2-8f3c";
pub const STARTED_AT: &str = "2026-11-16T06:00:00Z";
const POD_NAME: &str = "profile-qwen-x7k2p";

/// The operator's snapshot of a request in phase Profiling.
pub fn profiling_request(namespace: &str, features: Value) -> Snapshot {
    let spec = json!({ "model": "Qwen/Qwen3-0.6B", "image": "planner:1.4.0", "features": features });
    let status = json!({ "phase": "Profiling", "profilingPhase": "Initializing", "observedGeneration": 1 });
    Snapshot {
        now: Timestamp::now(),
        settings: Settings { operator_image: "steersman:1".into(), ..Settings::default() },
        object: ObservedObject {
            name: "qwen".into(),
            namespace: namespace.into(),
            uid: UID.into(),
            generation: Some(1),
            created: None,
            deleting: false,
            finalizers: vec![],
            annotations: Default::default(),
            spec: serde_json::from_value(spec).unwrap(),
            status: Some(serde_json::from_value(status).unwrap()),
        },
        job: Some(ObservedJob { owner: Some(UID.into()), ..ObservedJob::default() }),
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
        hardware: ObservedHardware::awaited(),
    }
}

pub struct ProfilingEnv {
    cluster: &'static Cluster,
    pub namespace: Namespace,
    pub folder: TempDir,
    /// The relay's arguments, as the Job has them.
    args: Vec<String>,
}

impl ProfilingEnv {
    pub async fn new(cluster: &'static Cluster, prefix: &str) -> Self {
        Self::with_all_rights(cluster, prefix, &[]).await
    }

    /// An environment whose folder is a PersistentVolumeClaim, which outlives its pods.
    pub async fn with_claim(cluster: &'static Cluster, prefix: &str) -> Self {
        Self::with_all_rights(cluster, prefix, &[("nvidia.com/dgdr-output-pvc", "results")]).await
    }

    async fn with_all_rights(cluster: &'static Cluster, prefix: &str, annotations: &[(&str, &str)]) -> Self {
        let env = Self::create(cluster, prefix, annotations, |_| true).await;
        let account = env.account().await;
        let name = Some(env.namespace.name());
        for (verb, group, resource) in [
            ("get", "", "pods"),
            ("update", "", "configmaps"),
            // The admission plugin OwnerReferencesPermissionEnforcement requires this for `blockOwnerDeletion`.
            ("update", "nvidia.com", "dynamographdeploymentrequests/finalizers"),
        ] {
            wait::until_allowed(&account, verb, group, resource, name).await.unwrap();
        }
        env
    }

    /// An environment with the relay's rights for some resources only.
    pub async fn with_rights(cluster: &'static Cluster, prefix: &str, granted: impl Fn(&str) -> bool) -> Self {
        Self::create(cluster, prefix, &[], granted).await
    }

    async fn create(
        cluster: &'static Cluster,
        prefix: &str,
        annotations: &[(&str, &str)],
        granted: impl Fn(&str) -> bool,
    ) -> Self {
        let namespace = cluster.namespace(prefix).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut snapshot = profiling_request(namespace.name(), json!({}));
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        snapshot.object.annotations.extend(annotations);
        let account: ServiceAccount = object(without_owners(account::account(&snapshot.object, None)));
        namespace.api().create(&PostParams::default(), &account).await.unwrap();
        let role = json!({ "metadata": { "name": namespace.name() }, "rules": role_rules(&granted) });
        let role: ClusterRole = object(role);
        let admin = cluster.admin().await.unwrap();
        Api::all(admin).create(&PostParams::default(), &role).await.unwrap();
        let binding = account::binding(&snapshot.object, names::ROLE_BINDING, namespace.name(), None);
        let binding: RoleBinding = object(without_owners(binding));
        namespace.api().create(&PostParams::default(), &binding).await.unwrap();
        let account = cluster.service_account(namespace.name(), names::SERVICE_ACCOUNT).await.unwrap();
        let (verb, resource) = if granted("configmaps") { ("create", "configmaps") } else { ("get", "pods") };
        wait::until_allowed(&account, verb, "", resource, Some(namespace.name())).await.unwrap();

        let job = profile_job::job(&snapshot, "planner:1.4.0").to_string();
        let path = Value::from(folder.path().to_str().unwrap()).to_string();
        let job: Value = serde_json::from_str(&job.replace(&format!("{:?}", profile_job::OUTPUT_PATH), &path)).unwrap();
        let template = &job["spec"]["template"]["spec"];
        let pod: Pod = object(json!({ "metadata": { "name": POD_NAME }, "spec": template }));
        namespace.api().create(&PostParams::default(), &pod).await.unwrap();
        let copier = template["containers"].as_array().unwrap().iter().find(|of| of["name"] == profile_job::COPIER);
        let copier = copier.unwrap();
        assert_eq!(copier["command"], json!(["steersman", "relay"]));
        let args = copier["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap().to_owned()).collect();
        Self { cluster, namespace, folder, args }
    }

    /// Grants all of the relay's rights.
    pub async fn grant_all_rights(&self) {
        let roles: Api<ClusterRole> = Api::all(self.cluster.admin().await.unwrap());
        let patch = Patch::Merge(json!({ "rules": role_rules(|_| true) }));
        roles.patch(self.namespace.name(), &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn account(&self) -> kube::Client {
        self.cluster.service_account(self.namespace.name(), names::SERVICE_ACCOUNT).await.unwrap()
    }

    pub fn server(&self, client: kube::Client) -> Server {
        server(self.cluster, client)
    }

    pub fn target(&self) -> RelayTarget {
        let request = RequestRef { name: "qwen".into(), namespace: self.namespace.name().into(), uid: UID.into() };
        RelayTarget {
            request,
            pod: POD_NAME.into(),
            container: profile_job::PROFILER.into(),
            folder: self.folder.path().into(),
        }
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// Replaces the file atomically, as careful programs do.
    pub fn write_by_rename(&self, name: &str, text: &str) {
        self.write("new", text);
        fs::rename(self.folder.path().join("new"), self.folder.path().join(name)).unwrap();
    }

    pub fn write_status(&self, text: &str) {
        self.write("profiler_status.yaml", text);
    }

    pub async fn set_profiler_running(&self) {
        self.set_profiler_state(json!({ "running": { "startedAt": STARTED_AT } })).await;
    }

    pub async fn set_profiler_ended(&self, code: i32, reason: &str) {
        let end = json!({ "exitCode": code, "reason": reason, "startedAt": STARTED_AT, "finishedAt": STARTED_AT });
        self.set_profiler_state(json!({ "terminated": end })).await;
    }

    async fn set_profiler_state(&self, state: Value) {
        let status = json!({ "name": profile_job::PROFILER, "state": state, "image": "planner:1.4.0", "imageID": "",
            "ready": false, "restartCount": 0 });
        let patch = Patch::Merge(json!({ "status": { "phase": "Running", "containerStatuses": [status] } }));
        self.namespace.api::<Pod>().patch_status(POD_NAME, &PatchParams::default(), &patch).await.unwrap();
    }

    pub fn outputs(&self) -> Api<ConfigMap> {
        self.namespace.api()
    }

    pub async fn output(&self) -> ConfigMap {
        self.outputs().get(&names::output("qwen")).await.unwrap()
    }

    /// Waits until the ConfigMap has this value.
    pub async fn wait_for_output(&self, key: &str, value: &str) {
        let has_value = |map: &ConfigMap| map.data.iter().flatten().any(|(name, text)| name == key && text == value);
        let what = format!("has {key}: {value}");
        wait::until(self.outputs(), &names::output("qwen"), &what, wait::TIMEOUT, has_value).await.unwrap();
    }

    /// The operator's snapshot with the output of the relay and this state of the Job.
    pub async fn snapshot(&self, state: JobState, features: Value) -> Snapshot {
        let output = self.output().await;
        let owners = output.metadata.owner_references.unwrap();
        let owner = owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone());
        let mut snapshot = profiling_request(self.namespace.name(), features);
        let accepted = steersman_plan::dynamo::request::spec_hash(&snapshot.object.spec);
        snapshot.object.annotations.insert(names::ACCEPTED_SPEC.into(), accepted);
        snapshot.job = Some(ObservedJob { owner: Some(UID.into()), state, ..ObservedJob::default() });
        snapshot.output = Some(ObservedOutput {
            uid: output.metadata.uid.unwrap(),
            version: output.metadata.resource_version,
            owner,
            data: output.data.unwrap(),
        });
        snapshot
    }

    /// Starts the sidecar with the arguments of the Job.
    pub async fn start_sidecar(&self) -> Sidecar {
        let name = self.namespace.name();
        let kubeconfig = self.cluster.service_account_kubeconfig(name, names::SERVICE_ACCOUNT).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| fs::File::create(folder.path().join(name)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_steersman"));
        command.arg("relay").args(&self.args).env_clear().env("POD_NAME", POD_NAME).env("KUBECONFIG", &kubeconfig);
        command.stdin(Stdio::null()).stdout(open("log")).stderr(open("stderr"));
        Sidecar { child: process::spawn_child_bound_to_parent(command).unwrap(), folder, kubeconfig }
    }
}

/// The relay's rights for the granted resources, as rules of a role.
fn role_rules(granted: impl Fn(&str) -> bool) -> Vec<Value> {
    let rules = rules().into_iter().filter(|rule| granted(rule.resource));
    rules.map(|rule| json!({ "apiGroups": [rule.group], "resources": [rule.resource], "verbs": rule.verbs })).collect()
}

pub fn fast_timing() -> RelayTiming {
    RelayTiming {
        read_files: Duration::from_millis(20),
        read_pod: Duration::from_millis(50),
        patience: Duration::from_millis(100),
        long_patience: Duration::from_millis(300),
        longest_pause: Duration::from_millis(100),
        rights: wait::TIMEOUT,
        flush: wait::TIMEOUT,
    }
}

pub struct Sidecar {
    child: Child,
    folder: TempDir,
    kubeconfig: PathBuf,
}

impl Sidecar {
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub async fn exit_code(&mut self) -> Option<i32> {
        wait::eventually("the relay ends", async || self.child.try_wait().unwrap()).await.unwrap().code()
    }

    pub fn log(&self) -> String {
        self.lines().text()
    }

    fn lines(&self) -> Log {
        Log::open(&self.folder.path().join("log"))
    }

    pub async fn wait_for_log(&self, message: &str) {
        self.lines().wait_for(message).await.unwrap();
    }

    pub fn stderr(&self) -> String {
        fs::read_to_string(self.folder.path().join("stderr")).unwrap()
    }

    pub fn assert_log_is_json_without_token(&self) {
        let kubeconfig: Value = serde_saphyr::from_str(&fs::read_to_string(&self.kubeconfig).unwrap()).unwrap();
        let token = kubeconfig["users"][0]["user"]["token"].as_str().unwrap();
        let log = self.log();
        assert!(log.lines().all(|line| serde_json::from_str::<Value>(line).is_ok_and(|line| line["msg"].is_string())));
        assert!(!log.contains(token) && !self.stderr().contains(token));
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The request does not exist, and the garbage collector deletes objects without an owner.
fn without_owners(mut object: Value) -> Value {
    object["metadata"]["ownerReferences"] = json!([]);
    object
}
