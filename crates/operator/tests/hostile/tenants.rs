//! Two tenants: one attacks, the other expects to be served.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use steersman_testkit::{Namespace, apply, condition, wait};

use crate::env::{self, TestEnv};

/// Longest time until the victim's objects are served. A loaded machine needs some 20 seconds; each attack once stopped the
/// operator for minutes.
const SERVED_WITHIN: Duration = Duration::from_secs(90);

/// Account of a tenant in its namespace.
const ACCOUNT: &str = "tenant";

/// Role of tenants, besides Kubernetes' own role `admin`.
const ROLE: &str = "tenant-of-model-serving";

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
    client: Client,
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
        let env = env::test_env().await?;
        // Not in the environment: a client belongs to the runtime of its test.
        let admin = env.cluster.admin().await.unwrap();
        let attacker = Tenant::create(env, &admin, &format!("{attack}-attacker")).await;
        let victim = Tenant::create(env, &admin, &format!("{attack}-victim")).await;
        Some(Self { env, admin, attacker, victim })
    }

    /// Creates one object of each kind for the victim, and waits until the operator has acted on all of them.
    pub async fn expect_victim_served(&self) {
        let started = Instant::now();
        self.victim.apply(server("stack", json!({ "distribution": { "name": "starter" } }))).await.unwrap();
        self.victim.apply(request()).await.unwrap();
        self.victim.apply(workload()).await.unwrap();
        self.victim.apply(variant()).await.unwrap();
        let namespace = &self.victim.namespace;
        let served = wait::eventually_within(SERVED_WITHIN, "the victim's objects are served", async || {
            let job = namespace.api::<Job>().get_opt("profile-request").await.unwrap();
            let stack = self.victim.read(&server("stack", json!({}))).await;
            let variant = self.victim.read(&variant()).await;
            let is_ready = stack["status"]["phase"] == "Ready" && job.is_some();
            (is_ready && condition(&variant, "TargetResolved")["status"] == "True").then_some(())
        });
        if let Err(error) = served.await {
            panic!("{error} after {:?}\n{}", started.elapsed(), self.env.operator.log_end());
        }
        let deployment = namespace.api::<Deployment>().get("stack").await.unwrap();
        let image = json!(deployment.spec.unwrap().template)["spec"]["containers"][0]["image"].clone();
        assert_eq!(image, SHIPPED_IMAGE);
        self.env.expect_undisturbed_leader(&self.admin).await;
    }
}

impl Tenant {
    async fn create(env: &TestEnv, admin: &Client, prefix: &str) -> Self {
        let namespace = env.cluster.namespace(prefix).await.unwrap();
        let name = namespace.name().to_owned();
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": ACCOUNT } });
        let binding = |role: &str| {
            json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": role },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
                "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": name }] })
        };
        for manifest in [account, binding("admin"), binding(ROLE)] {
            apply::apply_manifests(admin, Some(&name), &manifest.to_string()).await.unwrap();
        }
        let client = env.cluster.service_account(&name, ACCOUNT).await.unwrap();
        for (group, resource) in [("llamastack.io", "llamastackdistributions"), ("", "configmaps")] {
            wait::until_allowed(&client, "create", group, resource, Some(&name)).await.unwrap();
        }
        Self { namespace, client }
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

fn request() -> Value {
    let hardware = json!({ "gpuSku": "h100_sxm", "vramMb": 81_920, "numGpusPerNode": 8, "totalGpus": 8,
        "interconnect": "nvlink", "rdma": false });
    let image = "nvcr.io/nvidia/ai-dynamo/dynamo-planner:1.4.0";
    json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest",
        "metadata": { "name": "request" },
        "spec": { "model": "Qwen/Qwen3-0.6B", "backend": "vllm", "image": image, "hardware": hardware } })
}

fn workload() -> Value {
    let labels = json!({ "app": "model" });
    let container = json!({ "name": "vllm", "image": "example.com/vllm:1" });
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "model" }, "spec": {
        "replicas": 1, "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } } } })
}

fn variant() -> Value {
    json!({ "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling", "metadata": { "name": "model" },
        "spec": { "modelID": "m", "variantCost": "10.0",
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "model" } } })
}
