//! Operators with fewer permissions than the shipped roles: a forbidden resource is not taken for absent, and affects no
//! other object.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::DeleteParams;
use steersman_testkit::wait;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::targets::create_group;
use super::*;

/// A controller that runs until [`Self::stop`].
struct RunningController {
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl RunningController {
    /// Starts as a user with the shipped permissions except those for `resource`.
    async fn start_without(test: &TestNamespace, resource: &str) -> Self {
        let name = test.namespace.name();
        let rules = rbac::rules().into_iter().filter(|rule| rule.resource != resource);
        let rules: Vec<Value> = rules
            .map(|rule| {
                json!({ "apiGroups": [rule.group], "resources": [rule.resource], "verbs": rule.verbs,
                    "resourceNames": rule.names })
            })
            .collect();
        let role: ClusterRole = object(json!({ "metadata": { "name": name }, "rules": rules }));
        Api::all(test.admin.clone()).create(&PostParams::default(), &role).await.unwrap();
        let binding: ClusterRoleBinding = object(json!({ "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name }] }));
        Api::all(test.admin.clone()).create(&PostParams::default(), &binding).await.unwrap();
        let client = test.cluster.user(name).await.unwrap();
        wait::until_allowed(&client, "list", "llmd.ai", "variantautoscalings", None).await.unwrap();
        let context = fleet_context(test.cluster, client, Scope::Namespace(name.to_owned()), test.settings.name(), &[]);
        let (metrics, stop) = (context.controller.metrics.clone(), CancellationToken::new());
        let task = tokio::spawn(steersman::variant::run(context, DebounceConfig::default(), stop.clone()));
        Self { metrics, stop, task }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    async fn until_exported(&self, series: &str, exported: bool) {
        let what = format!("{series} is {}", if exported { "exported" } else { "removed" });
        let reached = async || (self.metrics.text().unwrap().contains(series) == exported).then_some(());
        wait::eventually(&what, reached)
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", self.metrics.text().unwrap()));
    }
}

#[tokio::test]
async fn missing_permission_affects_only_its_kind() {
    let Some(test) = TestNamespace::new("no-groups").await else { return };
    test.deploy("decode", 2).await;
    test.create("plain", spec("decode")).await;
    create_group(&test, "wide", 3).await;
    let running = RunningController::start_without(&test, "leaderworkersets").await;
    let decided = async || test.desired("plain").await.filter(|replicas| *replicas == 2);
    wait::eventually("the Deployment has a decision", decided).await.unwrap();
    // The statuses of one reconcile are written concurrently.
    let resolved = async || {
        Some(condition(&test.status("wide").await, "TargetResolved")).filter(|resolved| !resolved.0.is_empty())
    };
    let (truth, _, message) = wait::eventually("the status of the group is written", resolved).await.unwrap();
    assert_eq!(truth, "Unknown", "a forbidden target must not be reported as missing: {message}");
    assert!(message.contains("cannot list resource \"leaderworkersets\""), "{message}");
    let advice =
        "allow Steersman's service account to get, list and watch leaderworkersets of leaderworkerset.x-k8s.io";
    assert!(message.contains(advice), "{message}");

    let rule = json!({ "apiGroups": ["leaderworkerset.x-k8s.io"], "resources": ["leaderworkersets"],
        "verbs": ["get", "list", "watch"] });
    let roles: Api<ClusterRole> = Api::all(test.admin.clone());
    let mut role = roles.get(test.namespace.name()).await.unwrap();
    role.rules.get_or_insert_default().push(object(rule));
    roles.replace(test.namespace.name(), &PostParams::default(), &role).await.unwrap();
    let found = async || test.desired("wide").await.filter(|replicas| *replicas == 3);
    wait::eventually("the group has a decision", found).await.unwrap();
    assert_eq!(condition(&test.status("wide").await, "TargetResolved").1, "TargetFound");
    running.stop().await;
}

#[tokio::test]
async fn decisions_are_exported_while_pods_are_forbidden() {
    let Some(test) = TestNamespace::new("no-pods").await else { return };
    for name in ["stays", "goes"] {
        test.deploy(name, 2).await;
        test.create(name, spec(name)).await;
    }
    test.reconcile().await;
    let running = RunningController::start_without(&test, "pods").await;
    let series = |name: &str| format!("wva_desired_replicas{{target_name=\"{name}\"");
    running.until_exported(&series("stays"), true).await;
    running.until_exported(&series("goes"), true).await;
    test.objects().delete("goes", &DeleteParams::default()).await.unwrap();
    running.until_exported(&series("goes"), false).await;
    running.until_exported(&series("stays"), true).await;
    running.stop().await;
}
