//! Two tenants: one attacks, the other expects to be served.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use steersman_testkit::{Cluster, Namespace, apply, condition, object, wait};

use crate::env::{self, TestEnv};

/// Account of a tenant in its namespace.
const ACCOUNT: &str = "tenant";

/// Role of tenants, besides Kubernetes' own role `admin`.
const ROLE: &str = "tenant-of-model-serving";

/// Reviews of the victim, one after the other.
const REVIEWS: usize = 20;

/// Image of a server in the absence of any settings.
pub const SHIPPED_IMAGE: &str = "docker.io/llamastack/distribution-starter:0.7.1";

/// One attack: the attacker's and the victim's namespace.
pub struct HostileCase {
    pub env: &'static TestEnv,
    pub admin: Client,
    pub attacker: Tenant,
    pub victim: Tenant,
}

/// A namespace with an account that administers it and has no rights elsewhere.
pub struct Tenant {
    pub namespace: Namespace,
    pub client: Client,
}

/// Lets the administrator of a namespace manage the three kinds, as their projects' roles do.
pub fn role() -> Value {
    json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": ROLE },
        "rules": [{ "apiGroups": ["llamastack.io", "nvidia.com", "llmd.ai"], "resources": ["*"], "verbs": ["*"] }] })
}

/// The API of the kind of this manifest.
pub fn objects(client: &Client, namespace: &str, manifest: &Value) -> Api<DynamicObject> {
    let (group, version) = manifest["apiVersion"].as_str().unwrap().split_once('/').unwrap();
    let kind = GroupVersionKind::gvk(group, version, manifest["kind"].as_str().unwrap());
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

/// A LlamaStackDistribution of v1alpha2.
pub fn server(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution", "metadata": { "name": name },
        "spec": spec })
}

pub fn config_map(name: &str, data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

impl HostileCase {
    /// None if the cluster is not built; the test is then listed as skipped.
    pub async fn open(attack: &str) -> Option<Self> {
        Some(Self::create(env::test_env().await?, attack).await)
    }

    /// Opens a case with an operator of its own.
    pub async fn open_alone(attack: &str) -> Option<Self> {
        Some(Self::create(env::dedicated_env().await?, attack).await)
    }

    async fn create(env: &'static TestEnv, attack: &str) -> Self {
        // Not in the environment: a client belongs to the runtime of its test.
        let admin = env.cluster.admin().await.unwrap();
        let attacker = Tenant::create(env.cluster, &admin, &format!("{attack}-attacker")).await;
        let victim = Tenant::create(env.cluster, &admin, &format!("{attack}-victim")).await;
        Self { env, admin, attacker, victim }
    }

    /// Creates one object of each kind for the victim, and waits until the operator has acted on all of them.
    pub async fn expect_victim_served(&self) {
        let time = self.victim.serve(self.env).await;
        println!("the victim of {} is served within {time:?}", self.attacker.name());
        let deployment = self.victim.namespace.api::<Deployment>().get("stack").await.unwrap();
        let image = json!(deployment.spec.unwrap().template)["spec"]["containers"][0]["image"].clone();
        assert_eq!(image, SHIPPED_IMAGE);
        self.env.expect_undisturbed_leader(&self.admin).await;
    }

    /// The longest time in which the API server admits a new object of the victim, among [`REVIEWS`].
    pub async fn slowest_review(&self) -> Duration {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let probes = [server("probe", json!({ "distribution": { "name": "starter" } })), request("probe")];
        let mut slowest = Duration::ZERO;
        for probe in probes.iter().cycle().take(REVIEWS) {
            let started = Instant::now();
            let own = objects(&self.victim.client, self.victim.name(), probe);
            own.create(&dry_run, &object(probe.clone())).await.unwrap();
            slowest = slowest.max(started.elapsed());
        }
        slowest
    }
}

impl Tenant {
    pub async fn create(cluster: &Cluster, admin: &Client, prefix: &str) -> Self {
        let namespace = cluster.namespace(prefix).await.unwrap();
        let client = administrator(cluster, admin, namespace.name()).await;
        Self { namespace, client }
    }

    /// Creates one object of each kind, and returns the time until the operator has acted on all of them.
    pub async fn serve(&self, env: &TestEnv) -> Duration {
        let started = Instant::now();
        self.apply(server("stack", json!({ "distribution": { "name": "starter" } }))).await.unwrap();
        self.apply(request("request")).await.unwrap();
        self.apply(workload("model", 1, json!({}))).await.unwrap();
        self.apply(variant("model", json!({}))).await.unwrap();
        env.expect_in_time("the objects of a tenant are served", async || {
            let job = self.namespace.api::<Job>().get_opt("profile-request").await.unwrap();
            let stack = self.read(&server("stack", json!({}))).await;
            let variant = self.read(&variant("model", json!({}))).await;
            let is_ready = stack["status"]["phase"] == "Ready" && job.is_some();
            (is_ready && condition(&variant, "MetricsAvailable")["status"] == "True").then_some(())
        })
        .await;
        started.elapsed()
    }

    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    /// Applies a manifest as the tenant. Err: the message of the rejection.
    pub async fn apply(&self, manifest: Value) -> Result<(), String> {
        let applied = apply::apply_manifests(&self.client, Some(self.name()), &manifest.to_string()).await;
        applied.map(|_| ()).map_err(|error| format!("{error:#}"))
    }

    /// Reads the object of this manifest as the tenant. Null if it does not exist.
    pub async fn read(&self, manifest: &Value) -> Value {
        let name = manifest["metadata"]["name"].as_str().unwrap();
        json!(objects(&self.client, self.name(), manifest).get_opt(name).await.unwrap())
    }
}

/// The client of an account that administers this namespace and has no rights elsewhere.
pub async fn administrator(cluster: &Cluster, admin: &Client, namespace: &str) -> Client {
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": ACCOUNT } });
    let binding = |role: &str| {
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": role },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace }] })
    };
    for manifest in [account, binding("admin"), binding(ROLE)] {
        apply::apply_manifests(admin, Some(namespace), &manifest.to_string()).await.unwrap();
    }
    let client = cluster.service_account(namespace, ACCOUNT).await.unwrap();
    for (group, resource) in [("llamastack.io", "llamastackdistributions"), ("", "configmaps")] {
        wait::until_allowed(&client, "create", group, resource, Some(namespace)).await.unwrap();
    }
    client
}

/// A DynamoGraphDeploymentRequest that names its hardware.
pub fn request(name: &str) -> Value {
    let hardware = json!({ "gpuSku": "h100_sxm", "vramMb": 81_920, "numGpusPerNode": 8, "totalGpus": 8,
        "interconnect": "nvlink", "rdma": false });
    let image = "nvcr.io/nvidia/ai-dynamo/dynamo-planner:1.4.0";
    json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest", "metadata": { "name": name },
        "spec": { "model": "Qwen/Qwen3-0.6B", "backend": "vllm", "image": image, "hardware": hardware } })
}

/// A Deployment of model servers with these resources for each replica.
pub fn workload(name: &str, replicas: usize, resources: Value) -> Value {
    let labels = json!({ "app": name });
    let container = json!({ "name": "vllm", "image": "example.com/vllm:1", "resources": resources });
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name }, "spec": {
        "replicas": replicas, "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } } } })
}

/// A VariantAutoscaling for the Deployment of the same name, with further fields of its spec.
pub fn variant(name: &str, fields: Value) -> Value {
    let mut spec = json!({ "modelID": "m", "variantCost": "10.0",
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name } });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({ "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling", "metadata": { "name": name },
        "spec": spec })
}
