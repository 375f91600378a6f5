//! The examples, and the requests that Dynamo itself publishes: each is taken by the API server and leads to a Job, or is
//! refused with the text that it names.

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

/// As it is stored: nobody converts on this cluster.
pub fn stored(object: Value) -> Value {
    let is_request = object["kind"] == Family::Dgdr.kind();
    if is_request { convert(object, "nvidia.com/v1beta1").unwrap().object } else { object }
}

/// A namespace with the token for downloads, on a cluster with GPUs of the types that the manifests name.
pub struct Place {
    cluster: &'static Cluster,
    admin: Client,
    pub namespace: Namespace,
    _turn: MutexGuard<'static, ()>,
}

impl Place {
    pub async fn open(prefix: &str) -> Option<Self> {
        let (cluster, admin) = with_crds().await?;
        let turn = without_gpus(&admin).await;
        let namespace = cluster.namespace(prefix).await.unwrap();
        let secret: Secret = object(json!({ "metadata": { "name": names::TOKEN_SECRET } }));
        namespace.all().create(&PostParams::default(), &secret).await.unwrap();
        for (name, product, memory) in
            [("l40s", "NVIDIA-L40S", "46068"), ("h200", "NVIDIA-H200", "143771"), ("b200", "NVIDIA-B200", "183359")]
        {
            let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": {
                "nvidia.com/gpu.count": "4", "nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": memory } } });
            apply::manifests(&admin, None, &node.to_string()).await.unwrap();
        }
        Some(Self { cluster, admin, namespace, _turn: turn })
    }

    pub async fn claim(&self, name: &str) {
        let claim: PersistentVolumeClaim = object(json!({ "metadata": { "name": name }, "spec": {
            "accessModes": ["ReadWriteMany"], "resources": { "requests": { "storage": "1Gi" } } } }));
        self.namespace.all().create(&PostParams::default(), &claim).await.unwrap();
    }

    pub async fn apply(&self, object: &Value) -> Result<Vec<DynamicObject>> {
        apply::manifests(&self.admin, Some(self.namespace.name()), &object.to_string()).await
    }

    /// The status after as many passes as it takes.
    pub async fn settled(&self, name: &str) -> Value {
        for _ in 0..20 {
            let passed = pass_of(self.cluster, self.admin.clone(), self.namespace.name(), name).await;
            if matches!(passed.unwrap(), ReconcileOutcome::Reconciled { written: 0, .. }) {
                let request = requests(&self.admin, self.namespace.name()).get(name).await.unwrap();
                return request.data["status"].clone();
            }
        }
        panic!("{name} never comes to rest");
    }

    /// That the request profiles; goes out: its Job.
    async fn profiles(&self, name: &str) -> (Value, Job) {
        let status = self.settled(name).await;
        assert_eq!(status["phase"], "Profiling", "{name}: {}", condition(&status, "Succeeded").1);
        let job = self.namespace.all::<Job>().get(&names::profiling_job(name)).await.unwrap();
        (status, job)
    }
}

#[tokio::test]
async fn every_example_leads_to_a_job_and_says_nothing_in_vain() {
    let Some(place) = Place::open("examples").await else { return };
    let examples = examples("");
    assert!(examples.len() >= 10, "{examples:?}");
    for file in examples {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("# "), "{} begins with what it is for", file.display());
        let mut name = None;
        for object in documents(&file).into_iter().map(stored) {
            place.apply(&object).await.unwrap_or_else(|error| panic!("{}: {error:#}", file.display()));
            name = object["metadata"]["name"].as_str().map(str::to_owned);
        }
        let (status, _) = place.profiles(&name.expect("the request comes last")).await;
        assert_eq!(condition(&status, "SpecAccepted").0, "SpecAccepted", "{}: {status:#}", file.display());
    }
}

/// Where admission is not asked, the request ends with the same words.
#[tokio::test]
async fn every_example_to_be_refused_is_refused_with_its_text() {
    let Some(place) = Place::open("examples-refused").await else { return };
    for file in examples("invalid") {
        let text = std::fs::read_to_string(&file).unwrap();
        let refused = text.lines().next().unwrap().strip_prefix("# refused: ").expect("the first line says the text");
        let object = documents(&file).remove(0);
        let said = match place.apply(&object).await {
            Err(error) => format!("{error:#}"),
            Ok(_) => {
                let status = place.settled(object["metadata"]["name"].as_str().unwrap()).await;
                assert_eq!(status["phase"], "Failed", "{}", file.display());
                condition(&status, "Succeeded").1
            }
        };
        assert!(said.contains(refused), "{}: expected {refused:?} in {said:?}", file.display());
    }
}

/// What the API asks of a spec that is written for the profiler alone: no null, and overrides that say what they are. The
/// profiler takes those that do not for v1alpha1.
pub fn as_request(mut spec: Value) -> Value {
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
async fn the_published_specs_and_requests_lead_to_jobs() {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../../shared/upstream/dynamo"].iter().collect();
    if !folder.is_dir() {
        return skip::skip("the specs of Dynamo's profiler", "no upstream files");
    }
    let Some(place) = Place::open("published").await else { return };
    place.claim("model-cache").await;
    let specs = files(&folder.join("profiler-configs"));
    assert_eq!(specs.len(), 18);
    for (number, file) in specs.iter().enumerate() {
        let spec = as_request(documents(file).remove(0));
        let name = format!("spec-{number}");
        let request = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": Family::Dgdr.kind(),
            "metadata": { "name": name }, "spec": spec });
        place.apply(&request).await.unwrap_or_else(|error| panic!("{}: {error:#}", file.display()));
        let (_, job) = place.profiles(&name).await;
        let args = job.spec.unwrap().template.spec.unwrap().containers[0].args.clone().unwrap();
        let told: Value = serde_json::from_str(&args[1]).unwrap();
        assert_eq!((&told["model"], &told["overrides"]), (&spec["model"], &spec["overrides"]), "{}", file.display());
    }
    let mut seen = 0;
    for file in files(&folder) {
        for request in documents(&file).into_iter().filter(|object| object["kind"] == Family::Dgdr.kind()) {
            let name = request["metadata"]["name"].as_str().unwrap().to_owned();
            place.apply(&request).await.unwrap_or_else(|error| panic!("{}: {error:#}", file.display()));
            place.profiles(&name).await;
            seen += 1;
        }
    }
    assert!(seen >= 4, "{seen} example requests");
}
