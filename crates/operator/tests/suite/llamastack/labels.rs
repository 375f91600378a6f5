//! Objects whose image carries its base configuration in OCI labels, with a registry that answers, refuses or fails.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use steersman::installation::{Installation, SecretAccess};
use steersman::llamastack::oci::{Bases, ClusterCredentials, ReadSchedule};
use steersman_plan::oci::TYPE_DOCKERCONFIGJSON;
use steersman_reconcile::NamespacedName;
use steersman_testkit::{condition, wait};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;
use crate::registry::fake::{FakeRegistry, HOST, RequiredAuth};
use crate::registry::{docker_config, in_label};

const FAST_RHYTHM: ReadSchedule = ReadSchedule {
    tag_interval: Duration::from_millis(50),
    first_retry: Duration::from_millis(50),
    last_retry: Duration::from_millis(100),
    max_concurrent: 2,
};

/// A controller whose watches run in the background, and whose reconciles are started by the test.
struct Controller {
    family: LlamaStack,
    context: Arc<ReconcileContext>,
    namespace: String,
    enqueued: futures::stream::BoxStream<'static, NamespacedName>,
    _stop: DropGuard,
}

impl Controller {
    fn start(cluster: &Cluster, client: &Client, namespace: &Namespace, registry: &FakeRegistry) -> Self {
        Self::start_at(cluster, client, namespace, registry, FAST_RHYTHM)
    }

    fn start_at(
        cluster: &Cluster,
        client: &Client,
        namespace: &Namespace,
        registry: &FakeRegistry,
        schedule: ReadSchedule,
    ) -> Self {
        let server = server(cluster, client.clone());
        let bases =
            Bases::new(registry.registry(), ClusterCredentials::new(server.clone(), SecretAccess::Get), schedule);
        let family = LlamaStack::following(&Installation::default(), None, Some(bases));
        let context = Arc::new(ReconcileContext::new(&family, server, "test"));
        let (enqueued, stop) = (context.queue.stream().boxed(), CancellationToken::new());
        let background = (family.clone(), context.clone(), Scope::Namespace(namespace.name().to_owned()), stop.clone());
        tokio::spawn(async move { background.0.run_watches(&background.1, &background.2, background.3).await });
        Self { family, context, namespace: namespace.name().to_owned(), enqueued, _stop: stop.drop_guard() }
    }

    async fn reconcile(&self) -> ReconcileOutcome {
        let ReconcileContext { server, cache, .. } = &*self.context;
        let object = objects(&server.client, &self.namespace).get("starter").await.unwrap();
        cache.fill(server, &Scope::Namespace(self.namespace.clone())).await.unwrap();
        reconcile(&self.family, &self.context, &object).await.unwrap()
    }

    /// Reconciles whenever the object is enqueued, until its status is as expected.
    async fn until(&mut self, expected: impl Fn(&Value) -> bool) -> Value {
        loop {
            self.reconcile().await;
            let own = objects(&self.context.server.client, &self.namespace).get("starter").await.unwrap();
            if expected(&own.data["status"]) {
                return own.data["status"].clone();
            }
            let next = tokio::time::timeout(wait::TIMEOUT, self.enqueued.next()).await;
            let next = next.unwrap_or_else(|_| panic!("the object is not enqueued: {}", own.data["status"]));
            assert_eq!(next, Some(NamespacedName::new(self.namespace.clone(), "starter")));
        }
    }
}

async fn create_with_image(client: &Client, namespace: &Namespace, account: Option<&str>) {
    let own = json!({
        "apiVersion": "llamastack.io/v1alpha2",
        "kind": "LlamaStackDistribution",
        "metadata": { "name": "starter" },
        "spec": {
            "distribution": { "image": format!("{HOST}/a/b:1") },
            "disabled": ["eval"],
            "workload": { "overrides": { "serviceAccountName": account } },
        },
    });
    objects(client, namespace.name()).create(&PostParams::default(), &object(own)).await.unwrap();
}

fn config_is_generated(status: &Value) -> bool {
    condition(status, "ConfigGenerated")["status"] == "True"
}

async fn deployment(namespace: &Namespace) -> Option<Deployment> {
    namespace.api::<Deployment>().get_opt("starter").await.unwrap()
}

fn image(deployment: Deployment) -> String {
    deployment.spec.unwrap().template.spec.unwrap().containers.remove(0).image.unwrap()
}

async fn base_config(namespace: &Namespace, status: &Value) -> String {
    let name = status["configGeneration"]["configMapName"].as_str().unwrap();
    namespace.api::<ConfigMap>().get(name).await.unwrap().data.unwrap().remove("config.yaml").unwrap()
}

#[tokio::test]
async fn fr_027f_moved_tag_updates_image_and_config() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let namespace = cluster.namespace("labels").await.unwrap();
    let registry = FakeRegistry::start().await;
    let digest = registry.push("a/b", "1", in_label("first"), &[]);
    create_with_image(&admin, &namespace, None).await;
    let mut controller = Controller::start(cluster, &admin, &namespace, &registry);

    // The first reconcile does not wait for the registry, and does not deploy a guess.
    controller.reconcile().await;
    let waiting = objects(&admin, namespace.name()).get("starter").await.unwrap().data["status"].clone();
    assert_eq!(waiting["phase"], "Pending");
    let generated = condition(&waiting, "ConfigGenerated");
    assert_eq!((&generated["status"], &generated["reason"]), (&json!("Unknown"), &json!("ImageLabelsAwaited")));
    assert!(deployment(&namespace).await.is_none());
    assert!(
        namespace.api::<ServiceAccount>().get_opt("starter-sa").await.unwrap().is_some(),
        "users add pull Secrets to this ServiceAccount"
    );

    let status = controller.until(config_is_generated).await;
    assert_eq!(status["resolvedDistribution"]["configSource"], "oci-label");
    assert_eq!(status["resolvedDistribution"]["image"], format!("{HOST}/a/b:1@{digest}"));
    assert_eq!(image(deployment(&namespace).await.unwrap()), format!("{HOST}/a/b:1@{digest}"));
    assert!(base_config(&namespace, &status).await.contains("distro_name: first"));

    // FR-020b: when the tag moves, image and configuration change together.
    let tag_interval = registry.push("a/b", "1", in_label("second"), &[]);
    let is_new = |status: &Value| status["resolvedDistribution"]["image"].as_str().unwrap().ends_with(&tag_interval);
    let status = controller.until(is_new).await;
    let now = deployment(&namespace).await.unwrap();
    assert_eq!(now.metadata.generation, Some(2), "image and configuration must change in one write");
    assert_eq!(image(now), format!("{HOST}/a/b:1@{tag_interval}"));
    assert!(base_config(&namespace, &status).await.contains("distro_name: second"));

    // FR-027i: the content of a digest is read once, however often the object is reconciled.
    controller.reconcile().await;
    let blob_reads = registry.take_requests().iter().filter(|path| path.contains("/blobs/")).count();
    assert_eq!(blob_reads, 2, "one read for each digest");
}

#[tokio::test]
async fn registry_outage_at_start_keeps_deployment() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let namespace = cluster.namespace("labels-down").await.unwrap();
    let registry = FakeRegistry::start().await;
    registry.push("a/b", "1", in_label("first"), &[]);
    create_with_image(&admin, &namespace, None).await;
    let mut controller = Controller::start(cluster, &admin, &namespace, &registry);
    controller.until(config_is_generated).await;
    let before = deployment(&namespace).await.unwrap();
    drop(controller);

    registry.change(|inside| inside.error_status = Some(503));
    let mut controller = Controller::start(cluster, &admin, &namespace, &registry);
    let unusable = |status: &Value| condition(status, "SpecAccepted")["reason"] == "ImageLabelsUnusable";
    let status = controller.until(unusable).await;
    let message = condition(&status, "SpecAccepted")["message"].as_str().unwrap();
    assert!(message.contains("answered HTTP 503") && message.contains("keeps its current configuration"), "{message}");
    assert!(config_is_generated(&status), "the running configuration was generated for this spec");
    let after = deployment(&namespace).await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);

    registry.change(|inside| inside.error_status = None);
    controller.until(|status| condition(status, "SpecAccepted")["reason"] != "ImageLabelsUnusable").await;
    let after = deployment(&namespace).await.unwrap();
    assert_eq!(after.metadata.generation, before.metadata.generation);
}

async fn create_pull_secret(namespace: &Namespace) {
    let mut secret: Secret = object(json!({ "metadata": { "name": "pull" }, "type": TYPE_DOCKERCONFIGJSON }));
    secret.data = Some(docker_config(HOST, "the-user", "the-password"));
    namespace.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
}

#[tokio::test]
async fn fr_027h_added_pull_secret_is_used_immediately() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let namespace = cluster.namespace("labels-account").await.unwrap();
    let registry = FakeRegistry::start().await;
    registry.push("a/b", "1", in_label("private"), &[]);
    registry.require_auth(RequiredAuth::Token, "the-user", "the-password");
    create_with_image(&admin, &namespace, None).await;
    let unreached = Duration::from_secs(3600);
    let slow =
        ReadSchedule { tag_interval: unreached, first_retry: unreached, last_retry: unreached, max_concurrent: 2 };
    let mut controller = Controller::start_at(cluster, &admin, &namespace, &registry, slow);
    controller.until(|status| condition(status, "SpecAccepted")["reason"] == "ImageLabelsUnusable").await;

    create_pull_secret(&namespace).await;
    let added = Patch::Merge(json!({ "imagePullSecrets": [{ "name": "pull" }] }));
    namespace.api::<ServiceAccount>().patch("starter-sa", &PatchParams::default(), &added).await.unwrap();
    let status = controller.until(config_is_generated).await;
    assert!(base_config(&namespace, &status).await.contains("distro_name: private"));
    let account = namespace.api::<ServiceAccount>().get("starter-sa").await.unwrap();
    assert_eq!(account.image_pull_secrets.unwrap().len(), 1, "pull Secrets that users add must be kept");
}

#[tokio::test]
async fn fr_027h_service_account_pull_secrets_open_registry() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let namespace = cluster.namespace("labels-private").await.unwrap();
    let registry = FakeRegistry::start().await;
    registry.push("a/b", "1", in_label("private"), &[]);
    registry.require_auth(RequiredAuth::Token, "the-user", "the-password");
    create_with_image(&admin, &namespace, Some("puller")).await;
    let mut controller = Controller::start(cluster, &admin, &namespace, &registry);
    let unusable = |status: &Value| condition(status, "SpecAccepted")["reason"] == "ImageLabelsUnusable";
    let status = controller.until(unusable).await;
    assert_eq!((&status["phase"], config_is_generated(&status)), (&json!("Pending"), false));
    let message = condition(&status, "SpecAccepted")["message"].as_str().unwrap();
    assert!(message.contains("the service account \"puller\" does not exist yet"), "{message}");

    create_pull_secret(&namespace).await;
    let account: ServiceAccount =
        object(json!({ "metadata": { "name": "puller" }, "imagePullSecrets": [{ "name": "pull" }] }));
    namespace.api::<ServiceAccount>().create(&PostParams::default(), &account).await.unwrap();
    let status = controller.until(config_is_generated).await;
    assert!(base_config(&namespace, &status).await.contains("distro_name: private"));
    assert!(!status.to_string().contains("the-password"));
}
