//! Objects whose image carries its configuration: passes on a real API server, beside a registry that answers, refuses and
//! fails.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use steersman::installation::Installation;
use steersman::llamastack::oci::{Bases, ClusterLogins, Rhythm};
use steersman_plan::oci::TYPE_DOCKERCONFIGJSON;
use steersman_reconcile::NamespacedName;
use steersman_testkit::{condition, wait};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;
use crate::registry::served::{HOST, Served, Wants};
use crate::registry::{docker_config, in_label};

const QUICK: Rhythm = Rhythm {
    moved: Duration::from_millis(50),
    first_retry: Duration::from_millis(50),
    last_retry: Duration::from_millis(100),
    at_once: 2,
};

/// A controller in the test's own hands: its passes are made when a test says so, all else runs beside them.
struct Controller {
    family: LlamaStack,
    context: Arc<ReconcileContext>,
    namespace: String,
    woken: futures::stream::BoxStream<'static, NamespacedName>,
    _running: DropGuard,
}

impl Controller {
    fn start(cluster: &Cluster, client: &Client, namespace: &Namespace, served: &Served) -> Self {
        Self::start_at(cluster, client, namespace, served, QUICK)
    }

    fn start_at(cluster: &Cluster, client: &Client, namespace: &Namespace, served: &Served, rhythm: Rhythm) -> Self {
        let server = server(cluster, client.clone());
        let bases = Bases::new(served.registry(), ClusterLogins::new(server.clone()), rhythm);
        let family = LlamaStack::following(&Installation::default(), None, Some(bases));
        let context = Arc::new(ReconcileContext::new(&family, server, "test"));
        let (woken, stop) = (context.queue.stream().boxed(), CancellationToken::new());
        let beside = (family.clone(), context.clone(), Scope::Namespace(namespace.name().to_owned()), stop.clone());
        tokio::spawn(async move { beside.0.run_watches(&beside.1, &beside.2, beside.3).await });
        Self { family, context, namespace: namespace.name().to_owned(), woken, _running: stop.drop_guard() }
    }

    async fn pass(&self) -> ReconcileOutcome {
        let ReconcileContext { server, cache, .. } = &*self.context;
        let object = objects(&server.client, &self.namespace).get("starter").await.unwrap();
        cache.fill(server, &Scope::Namespace(self.namespace.clone())).await.unwrap();
        reconcile(&self.family, &self.context, &object).await.unwrap()
    }

    /// Makes passes as the object is woken, until its status is as expected.
    async fn until(&mut self, expected: impl Fn(&Value) -> bool) -> Value {
        loop {
            self.pass().await;
            let own = objects(&self.context.server.client, &self.namespace).get("starter").await.unwrap();
            if expected(&own.data["status"]) {
                return own.data["status"].clone();
            }
            let woken = tokio::time::timeout(wait::LIMIT, self.woken.next()).await;
            let woken = woken.unwrap_or_else(|_| panic!("nobody wakes it: {}", own.data["status"]));
            assert_eq!(woken, Some(NamespacedName::new(self.namespace.clone(), "starter")));
        }
    }
}

async fn an_image(client: &Client, namespace: &Namespace, account: Option<&str>) {
    let wish = json!({
        "apiVersion": "llamastack.io/v1alpha2",
        "kind": "LlamaStackDistribution",
        "metadata": { "name": "starter" },
        "spec": {
            "distribution": { "image": format!("{HOST}/a/b:1") },
            "disabled": ["eval"],
            "workload": { "overrides": { "serviceAccountName": account } },
        },
    });
    objects(client, namespace.name()).create(&PostParams::default(), &object(wish)).await.unwrap();
}

fn generated(status: &Value) -> bool {
    condition(status, "ConfigGenerated")["status"] == "True"
}

async fn deployment(namespace: &Namespace) -> Option<Deployment> {
    namespace.all::<Deployment>().get_opt("starter").await.unwrap()
}

fn image(deployment: Deployment) -> String {
    deployment.spec.unwrap().template.spec.unwrap().containers.remove(0).image.unwrap()
}

async fn base_in_use(namespace: &Namespace, status: &Value) -> String {
    let name = status["configGeneration"]["configMapName"].as_str().unwrap();
    namespace.all::<ConfigMap>().get(name).await.unwrap().data.unwrap().remove("config.yaml").unwrap()
}

#[tokio::test]
async fn fr_027f_an_image_with_labels_comes_to_life_and_follows_them() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let namespace = cluster.namespace("labels").await.unwrap();
    let served = Served::start().await;
    let digest = served.push("a/b", "1", in_label("first"), &[]);
    an_image(&admin, &namespace, None).await;
    let mut controller = Controller::start(cluster, &admin, &namespace, &served);

    // The first pass waits for nobody, and builds on no guess.
    controller.pass().await;
    let waiting = objects(&admin, namespace.name()).get("starter").await.unwrap().data["status"].clone();
    assert_eq!(waiting["phase"], "Pending");
    let told = condition(&waiting, "ConfigGenerated");
    assert_eq!((&told["status"], &told["reason"]), (&json!("Unknown"), &json!("ImageLabelsAwaited")));
    assert!(deployment(&namespace).await.is_none());
    assert!(namespace.all::<ServiceAccount>().get_opt("starter-sa").await.unwrap().is_some(), "for pull secrets");

    let status = controller.until(generated).await;
    assert_eq!(status["resolvedDistribution"]["configSource"], "oci-label");
    assert_eq!(status["resolvedDistribution"]["image"], format!("{HOST}/a/b:1@{digest}"));
    assert_eq!(image(deployment(&namespace).await.unwrap()), format!("{HOST}/a/b:1@{digest}"));
    assert!(base_in_use(&namespace, &status).await.contains("distro_name: first"));

    // FR-020b: the tag moves, and takes image and configuration along.
    let moved = served.push("a/b", "1", in_label("second"), &[]);
    let is_new = |status: &Value| status["resolvedDistribution"]["image"].as_str().unwrap().ends_with(&moved);
    let status = controller.until(is_new).await;
    let now = deployment(&namespace).await.unwrap();
    assert_eq!(now.metadata.generation, Some(2), "one write for both");
    assert_eq!(image(now), format!("{HOST}/a/b:1@{moved}"));
    assert!(base_in_use(&namespace, &status).await.contains("distro_name: second"));

    // FR-027i: what a digest names is read once, however often passes are made.
    controller.pass().await;
    let read = served.asked().iter().filter(|asked| asked.contains("/blobs/")).count();
    assert_eq!(read, 2, "one configuration for each digest");
}

#[tokio::test]
async fn a_registry_that_is_down_when_the_operator_starts_moves_nothing() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let namespace = cluster.namespace("labels-down").await.unwrap();
    let served = Served::start().await;
    served.push("a/b", "1", in_label("first"), &[]);
    an_image(&admin, &namespace, None).await;
    let mut controller = Controller::start(cluster, &admin, &namespace, &served);
    controller.until(generated).await;
    let before = deployment(&namespace).await.unwrap();
    drop(controller);

    served.change(|inside| inside.fails = Some(503));
    let mut controller = Controller::start(cluster, &admin, &namespace, &served);
    let told = |status: &Value| condition(status, "SpecAccepted")["reason"] == "ImageLabelsUnusable";
    let status = controller.until(told).await;
    let message = condition(&status, "SpecAccepted")["message"].as_str().unwrap();
    assert!(message.contains("answered 503") && message.contains("keeps the configuration"), "{message}");
    assert!(generated(&status), "what runs was generated for this very spec");
    let after = deployment(&namespace).await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);

    served.change(|inside| inside.fails = None);
    controller.until(|status| condition(status, "SpecAccepted")["reason"] != "ImageLabelsUnusable").await;
    let after = deployment(&namespace).await.unwrap();
    assert_eq!(after.metadata.generation, before.metadata.generation);
}

async fn pull_secret(namespace: &Namespace) {
    let mut secret: Secret = object(json!({ "metadata": { "name": "pull" }, "type": TYPE_DOCKERCONFIGJSON }));
    secret.data = Some(docker_config(HOST, "the-user", "the-password"));
    namespace.all::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
}

#[tokio::test]
async fn fr_027h_what_is_added_to_the_servers_own_account_counts_at_once() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let namespace = cluster.namespace("labels-account").await.unwrap();
    let served = Served::start().await;
    served.push("a/b", "1", in_label("private"), &[]);
    served.guard(Wants::Token, "the-user", "the-password");
    an_image(&admin, &namespace, None).await;
    let never = Duration::from_secs(3600);
    let slow = Rhythm { moved: never, first_retry: never, last_retry: never, at_once: 2 };
    let mut controller = Controller::start_at(cluster, &admin, &namespace, &served, slow);
    controller.until(|status| condition(status, "SpecAccepted")["reason"] == "ImageLabelsUnusable").await;

    pull_secret(&namespace).await;
    let added = Patch::Merge(json!({ "imagePullSecrets": [{ "name": "pull" }] }));
    namespace.all::<ServiceAccount>().patch("starter-sa", &PatchParams::default(), &added).await.unwrap();
    let status = controller.until(generated).await;
    assert!(base_in_use(&namespace, &status).await.contains("distro_name: private"));
    let account = namespace.all::<ServiceAccount>().get("starter-sa").await.unwrap();
    assert_eq!(account.image_pull_secrets.unwrap().len(), 1, "what users add to it stays");
}

#[tokio::test]
async fn fr_027h_the_pull_secrets_of_the_pods_account_open_a_private_registry() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let namespace = cluster.namespace("labels-private").await.unwrap();
    let served = Served::start().await;
    served.push("a/b", "1", in_label("private"), &[]);
    served.guard(Wants::Token, "the-user", "the-password");
    an_image(&admin, &namespace, Some("puller")).await;
    let mut controller = Controller::start(cluster, &admin, &namespace, &served);
    let refused = |status: &Value| condition(status, "SpecAccepted")["reason"] == "ImageLabelsUnusable";
    let status = controller.until(refused).await;
    assert_eq!((&status["phase"], generated(&status)), (&json!("Pending"), false));
    let message = condition(&status, "SpecAccepted")["message"].as_str().unwrap();
    assert!(message.contains("the service account \"puller\" does not exist yet"), "{message}");

    pull_secret(&namespace).await;
    let account: ServiceAccount =
        object(json!({ "metadata": { "name": "puller" }, "imagePullSecrets": [{ "name": "pull" }] }));
    namespace.all::<ServiceAccount>().create(&PostParams::default(), &account).await.unwrap();
    let status = controller.until(generated).await;
    assert!(base_in_use(&namespace, &status).await.contains("distro_name: private"));
    assert!(!status.to_string().contains("the-password"));
}
