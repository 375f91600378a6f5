//! `steersman run` as a process, under the operator's ServiceAccount with exactly the shipped roles.

mod labels;
mod routes;
mod servers;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::audit::AuditedWrite;
use steersman_testkit::{Cluster, ExclusiveCluster, Flavour, Namespace, condition, exclusive_cluster, object, wait};

use crate::process::operator::{OperatorProcess, TestInstallation};
use crate::schemas::{api_resource, install_crd, single_version_crd, uninstall_crd};
use crate::servers::fake::{Behaviour, FakeServers};

const VERSION: &str = "v1alpha2";

pub struct TestEnv {
    pub cluster: &'static Cluster,
    pub admin: Client,
    pub installation: TestInstallation,
    pub namespace: Namespace,
    _exclusive: ExclusiveCluster,
}

/// Installs the shipped roles and the CRD, and creates a namespace. The CRD has one version, so that no conversion
/// webhook is needed.
pub async fn test_env(flavour: Flavour, prefix: &str) -> Option<TestEnv> {
    let exclusive = exclusive_cluster(flavour).await?;
    let cluster = exclusive.cluster;
    let installation = TestInstallation::create(cluster).await;
    let admin = cluster.admin().await.unwrap();
    install_crd(&admin, &single_version_crd(Family::Llsd, VERSION), &api_resource(Family::Llsd, VERSION)).await;
    let namespace = cluster.namespace(prefix).await.unwrap();
    Some(TestEnv { cluster, admin, installation, namespace, _exclusive: exclusive })
}

impl TestEnv {
    pub fn objects(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), self.namespace.name(), &api_resource(Family::Llsd, VERSION))
    }

    pub async fn create(&self, name: &str, spec: Value) {
        let own: DynamicObject = object(json!({ "apiVersion": "llamastack.io/v1alpha2",
            "kind": "LlamaStackDistribution", "metadata": { "name": name }, "spec": spec }));
        self.objects().create(&PostParams::default(), &own).await.unwrap();
    }

    async fn until_phase(&self, name: &str, phase: &str, operator: &OperatorProcess) {
        let is = |object: &DynamicObject| object.data["status"]["phase"] == phase;
        let what = format!("{name} is {phase}");
        let reached = wait::eventually(&what, async || self.objects().get_opt(name).await.ok()?.filter(is));
        reached.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    }

    /// The writes of one operator.
    pub fn writes_of(&self, identity: &str) -> Vec<AuditedWrite> {
        let agent = format!(" {identity}");
        let writes = self.cluster.audited_writes().unwrap();
        writes.into_iter().filter(|written| written.user_agent.ends_with(&agent)).collect()
    }
}

pub fn starter() -> Value {
    json!({ "distribution": { "name": "starter" }, "networking": { "port": 8321 } })
}

#[tokio::test]
async fn object_becomes_ready_and_errors_are_reported() {
    let Some(env) = test_env(Flavour::Full, "acting").await else { return };
    let operator = env.installation.start("acting", &[]).await;
    let mut spec = starter();
    spec["workload"] = json!({ "storage": { "size": "20Gi" } });
    env.create("starter", spec).await;
    env.until_phase("starter", "Ready", &operator).await;
    operator.until_metric("controller_runtime_reconcile_total{controller=\"llsd\",result=\"success\"}").await;

    // An unknown distribution name keeps the Deployment; the status and an event say what to do.
    let before = env.namespace.api::<Deployment>().get("starter").await.unwrap();
    let wrong = Patch::Merge(json!({ "spec": { "distribution": { "name": "startr" } } }));
    env.objects().patch("starter", &PatchParams::default(), &wrong).await.unwrap();
    env.until_phase("starter", "Failed", &operator).await;
    let events: Api<Event> = env.namespace.api();
    let event = wait::eventually("an event reports it", async || {
        let listed = events.list(&ListParams::default()).await.ok()?;
        listed.items.into_iter().find(|event| event.reason.as_deref() == Some("DistributionUnknown"))
    });
    let event = event.await.unwrap();
    let message = event.message.unwrap();
    assert!(message.contains("startr") && message.contains("Set spec.distribution.name to one of"), "{message}");
    let after = env.namespace.api::<Deployment>().get("starter").await.unwrap();
    assert_eq!(after.metadata.generation, before.metadata.generation);

    let right = Patch::Merge(json!({ "spec": { "distribution": { "name": "starter" } } }));
    env.objects().patch("starter", &PatchParams::default(), &right).await.unwrap();
    env.until_phase("starter", "Ready", &operator).await;

    // A deleted child is recreated.
    let deployments: Api<Deployment> = env.namespace.api();
    deployments.delete("starter", &kube::api::DeleteParams::default()).await.unwrap();
    let recreated = wait::eventually("the Deployment is recreated", async || {
        deployments.get_opt("starter").await.ok()?.filter(|found| found.metadata.uid != before.metadata.uid)
    });
    recreated.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    env.until_phase("starter", "Ready", &operator).await;
    operator.assert_log_is_json();
    uninstall_crd(&env.admin, Family::Llsd).await;
}

#[tokio::test]
async fn controller_waits_for_missing_crd() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let cluster = exclusive.cluster;
    let installation = TestInstallation::create(cluster).await;
    let operator = installation.start("early", &[]).await;
    operator.wait_for_log("controller is waiting for its CRD").await;
    assert!(operator.log().contains("install it with: steersman crds --apply"), "{}", operator.log());
    operator.until_answer("/readyz", 200).await;
    let admin = cluster.admin().await.unwrap();
    install_crd(&admin, &single_version_crd(Family::Llsd, VERSION), &api_resource(Family::Llsd, VERSION)).await;
    operator.wait_for_log("controller started").await;
    uninstall_crd(&admin, Family::Llsd).await;
    drop(exclusive);
}

#[tokio::test]
async fn settled_operator_writes_only_its_lease() {
    let Some(env) = test_env(Flavour::Full, "idle").await else { return };
    for index in 0..3 {
        env.create(&format!("idle-{index}"), starter()).await;
    }
    // Two servers answer and one does not; each result causes one write.
    let fake = FakeServers::start().await;
    for index in 0..2 {
        let host = format!("idle-{index}-service.{}.svc.cluster.local:8321", env.namespace.name());
        fake.set(&host, Behaviour::Healthy(json!([])));
    }
    let operator = env.installation.start("idle", &["--cluster-gateway", &fake.address.to_string()]).await;
    for index in 0..3 {
        let (phase, healthy) = if index < 2 { ("Ready", "True") } else { ("Initializing", "False") };
        let name = format!("idle-{index}");
        env.until_phase(&name, phase, &operator).await;
        let polled = async || {
            let object = env.objects().get(&name).await.ok()?;
            (condition(&object.data, "HealthCheck")["status"] == healthy).then_some(())
        };
        wait::eventually("the server was polled", polled).await.unwrap();
    }
    // The last write triggers one more reconcile; writes after further renewals of the Lease are unwanted.
    let renewals = || env.writes_of("idle").iter().filter(|written| written.is_lease()).count();
    let more_renewals = async |count: usize| {
        let before = renewals();
        wait::eventually("the Lease is renewed", async || (renewals() >= before + count).then_some(())).await.unwrap();
    };
    more_renewals(1).await;
    let before = env.writes_of("idle").into_iter().filter(|written| !written.is_lease()).count();
    more_renewals(4).await;
    let after: Vec<_> = env.writes_of("idle").into_iter().filter(|written| !written.is_lease()).collect();
    assert_eq!(after.len(), before, "{:#?}", &after[before.min(after.len())..]);
    uninstall_crd(&env.admin, Family::Llsd).await;
}
