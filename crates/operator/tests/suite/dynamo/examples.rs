//! Our examples, and the specs and requests that Dynamo publishes: each is accepted and creates a Job, or is refused with
//! the message in its first line.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use steersman_api::convert::convert;
use steersman_testkit::skip;

use super::*;

pub fn files(folder: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = listed.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.is_file());
    files.sort();
    files
}

pub fn examples(folder: &str) -> Vec<PathBuf> {
    files(&[env!("CARGO_MANIFEST_DIR"), "../../examples/dynamo", folder].iter().collect::<PathBuf>())
}

pub fn documents(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Converts a request to the storage version, because this cluster has no conversion webhook.
pub fn to_storage_version(object: Value) -> Value {
    let is_request = object["kind"] == Family::Dgdr.kind();
    if is_request { convert(object, "nvidia.com/v1beta1").unwrap().object } else { object }
}

/// A namespace with the download token, on a cluster with nodes of the GPU types that the manifests name.
pub struct ExampleNamespace {
    cluster: &'static Cluster,
    admin: Client,
    pub namespace: Namespace,
    _gpu_lock: MutexGuard<'static, ()>,
}

impl ExampleNamespace {
    pub async fn create(prefix: &str) -> Option<Self> {
        let (cluster, admin) = cluster_with_crds().await?;
        let lock = lock_gpus(&admin).await;
        let namespace = cluster.namespace(prefix).await.unwrap();
        let secret: Secret = object(json!({ "metadata": { "name": names::TOKEN_SECRET } }));
        namespace.api().create(&PostParams::default(), &secret).await.unwrap();
        for (name, product, memory) in
            [("l40s", "NVIDIA-L40S", "46068"), ("h200", "NVIDIA-H200", "143771"), ("b200", "NVIDIA-B200", "183359")]
        {
            let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": {
                "nvidia.com/gpu.count": "4", "nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": memory } } });
            apply::apply_manifests(&admin, None, &node.to_string()).await.unwrap();
        }
        Some(Self { cluster, admin, namespace, _gpu_lock: lock })
    }

    pub async fn create_pvc(&self, name: &str) {
        let claim: PersistentVolumeClaim = object(json!({ "metadata": { "name": name }, "spec": {
            "accessModes": ["ReadWriteMany"], "resources": { "requests": { "storage": "1Gi" } } } }));
        self.namespace.api().create(&PostParams::default(), &claim).await.unwrap();
    }

    pub async fn apply(&self, object: &Value) -> Result<Vec<DynamicObject>> {
        apply::apply_manifests(&self.admin, Some(self.namespace.name()), &object.to_string()).await
    }

    /// Reconciles until nothing is written any more; returns the status.
    pub async fn settle(&self, name: &str) -> Value {
        for _ in 0..20 {
            let outcome = reconcile_request(self.cluster, self.admin.clone(), self.namespace.name(), name).await;
            if matches!(outcome.unwrap(), ReconcileOutcome::Reconciled { written: 0, .. }) {
                let request = requests(&self.admin, self.namespace.name()).get(name).await.unwrap();
                return request.data["status"].clone();
            }
        }
        panic!("{name}: still writing after 20 reconciles");
    }

    /// Asserts that the request is profiling; returns its status and Job.
    async fn assert_profiling(&self, name: &str) -> (Value, Job) {
        let status = self.settle(name).await;
        assert_eq!(status["phase"], "Profiling", "{name}: {}", condition(&status, "Succeeded").1);
        let job = self.namespace.api::<Job>().get(&names::profiling_job(name)).await.unwrap();
        (status, job)
    }
}

#[tokio::test]
async fn every_example_is_accepted_and_creates_job() {
    let Some(ns) = ExampleNamespace::create("examples").await else { return };
    let examples = examples("");
    assert!(examples.len() >= 10, "{examples:?}");
    for file in examples {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("# "), "{} must begin with a comment on its purpose", file.display());
        let mut name = None;
        for object in documents(&file).into_iter().map(to_storage_version) {
            ns.apply(&object).await.unwrap_or_else(|error| panic!("{}: {error:#}", file.display()));
            name = object["metadata"]["name"].as_str().map(str::to_owned);
        }
        let (status, _) =
            ns.assert_profiling(&name.expect("an example must contain a request as its last object")).await;
        assert_eq!(condition(&status, "SpecAccepted").0, "SpecAccepted", "{}: {status:#}", file.display());
    }
}

/// The webhook is not installed here; a request that passes the schema fails with the message of admission.
#[tokio::test]
async fn invalid_example_is_refused_with_documented_message() {
    let Some(ns) = ExampleNamespace::create("examples-refused").await else { return };
    for file in examples("invalid") {
        let text = std::fs::read_to_string(&file).unwrap();
        let expected = text
            .lines()
            .next()
            .unwrap()
            .strip_prefix("# refused: ")
            .expect("the first line must be `# refused: MESSAGE`");
        let object = documents(&file).remove(0);
        let message = match ns.apply(&object).await {
            Err(error) => format!("{error:#}"),
            Ok(_) => {
                let status = ns.settle(object["metadata"]["name"].as_str().unwrap()).await;
                assert_eq!(status["phase"], "Failed", "{}", file.display());
                condition(&status, "Succeeded").1
            }
        };
        assert!(message.contains(expected), "{}: expected {expected:?} in {message:?}", file.display());
    }
}

/// Turns a spec for the profiler into one that the API accepts: without nulls, and with the apiVersion and kind of
/// `overrides.dgd`, which the profiler takes for v1alpha1 when they are missing.
pub fn to_request_spec(mut spec: Value) -> Value {
    if let Some(Value::Object(sla)) = spec.get_mut("sla") {
        sla.retain(|_, value| !value.is_null());
    }
    if let Some(graph) = spec.pointer_mut("/overrides/dgd") {
        graph["apiVersion"] = "nvidia.com/v1alpha1".into();
        graph["kind"] = Family::Dgd.kind().into();
    }
    spec
}

#[tokio::test]
async fn published_upstream_specs_and_requests_create_jobs() {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../../shared/upstream/dynamo"].iter().collect();
    if !folder.is_dir() {
        return skip::skip("the specs of Dynamo's profiler", "no upstream files");
    }
    let Some(ns) = ExampleNamespace::create("published").await else { return };
    ns.create_pvc("model-cache").await;
    let specs = files(&folder.join("profiler-configs"));
    assert_eq!(specs.len(), 18);
    for (number, file) in specs.iter().enumerate() {
        let spec = to_request_spec(documents(file).remove(0));
        let name = format!("spec-{number}");
        let request = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": Family::Dgdr.kind(),
            "metadata": { "name": name }, "spec": spec });
        ns.apply(&request).await.unwrap_or_else(|error| panic!("{}: {error:#}", file.display()));
        let (_, job) = ns.assert_profiling(&name).await;
        let args = job.spec.unwrap().template.spec.unwrap().containers[0].args.clone().unwrap();
        let profiler_spec: Value = serde_json::from_str(&args[1]).unwrap();
        assert_eq!(
            (&profiler_spec["model"], &profiler_spec["overrides"]),
            (&spec["model"], &spec["overrides"]),
            "{}",
            file.display()
        );
    }
    let mut count = 0;
    for file in files(&folder) {
        for request in documents(&file).into_iter().filter(|object| object["kind"] == Family::Dgdr.kind()) {
            let name = request["metadata"]["name"].as_str().unwrap().to_owned();
            ns.apply(&request).await.unwrap_or_else(|error| panic!("{}: {error:#}", file.display()));
            ns.assert_profiling(&name).await;
            count += 1;
        }
    }
    assert!(count >= 4, "{count} example requests");
}
