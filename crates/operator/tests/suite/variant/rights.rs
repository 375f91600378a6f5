//! Operators with fewer rights than the shipped ones: what they may not see is not taken for absent, and hurts nobody else.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::DeleteParams;
use steersman_testkit::wait;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::targets::create_group;
use super::*;

/// An operator, as long as it is wanted.
struct Running {
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    /// As somebody who has the shipped rights but for those to this resource.
    async fn without(scene: &Scene, resource: &str) -> Self {
        let name = scene.namespace.name();
        let rules = rbac::rules().into_iter().filter(|rule| rule.resource != resource);
        let rules: Vec<Value> = rules
            .map(|rule| {
                json!({ "apiGroups": [rule.group], "resources": [rule.resource], "verbs": rule.verbs,
                    "resourceNames": rule.names })
            })
            .collect();
        let role: ClusterRole = object(json!({ "metadata": { "name": name }, "rules": rules }));
        Api::all(scene.admin.clone()).create(&PostParams::default(), &role).await.unwrap();
        let binding: ClusterRoleBinding = object(json!({ "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name }] }));
        Api::all(scene.admin.clone()).create(&PostParams::default(), &binding).await.unwrap();
        let client = scene.cluster.user(name).await.unwrap();
        wait::until_allowed(&client, "list", "llmd.ai", "variantautoscalings", None).await.unwrap();
        let given = given(scene.cluster, client, Scope::Namespace(name.to_owned()), scene.settings.name(), &[]);
        let (metrics, stop) = (given.controller.metrics.clone(), CancellationToken::new());
        let task = tokio::spawn(steersman::variant::run(given, DebounceConfig::default(), stop.clone()));
        Self { metrics, stop, task }
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    async fn until_shown(&self, series: &str, is: bool) {
        let what = format!("{series} is {}", if is { "shown" } else { "gone" });
        let shown = async || (self.metrics.text().unwrap().contains(series) == is).then_some(());
        wait::eventually(&what, shown)
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", self.metrics.text().unwrap()));
    }
}

#[tokio::test]
async fn without_a_right_to_groups_all_others_are_decided_on_and_the_right_is_noticed() {
    let Some(scene) = Scene::new("no-groups").await else { return };
    scene.deploy("decode", 2).await;
    scene.create("plain", spec("decode")).await;
    create_group(&scene, "wide", 3).await;
    let running = Running::without(&scene, "leaderworkersets").await;
    let decided = async || scene.desired("plain").await.filter(|replicas| *replicas == 2);
    wait::eventually("the Deployment is decided on", decided).await.unwrap();
    // Statuses of one pass are written side by side.
    let told =
        async || Some(condition(&scene.status("wide").await, "TargetResolved")).filter(|told| !told.0.is_empty());
    let (truth, _, message) = wait::eventually("the group is told", told).await.unwrap();
    assert_eq!(truth, "Unknown", "nobody may say that it is not there: {message}");
    assert!(message.contains("cannot list resource \"leaderworkersets\""), "{message}");
    let right = "allow Steersman's service account to get, list and watch leaderworkersets of leaderworkerset.x-k8s.io";
    assert!(message.contains(right), "{message}");

    let rule = json!({ "apiGroups": ["leaderworkerset.x-k8s.io"], "resources": ["leaderworkersets"],
        "verbs": ["get", "list", "watch"] });
    let roles: Api<ClusterRole> = Api::all(scene.admin.clone());
    let mut role = roles.get(scene.namespace.name()).await.unwrap();
    role.rules.get_or_insert_default().push(object(rule));
    roles.replace(scene.namespace.name(), &PostParams::default(), &role).await.unwrap();
    let found = async || scene.desired("wide").await.filter(|replicas| *replicas == 3);
    wait::eventually("the group is decided on", found).await.unwrap();
    assert_eq!(condition(&scene.status("wide").await, "TargetResolved").1, "TargetFound");
    running.end().await;
}

#[tokio::test]
async fn what_was_decided_is_shown_while_something_cannot_be_listed() {
    let Some(scene) = Scene::new("no-pods").await else { return };
    for name in ["stays", "goes"] {
        scene.deploy(name, 2).await;
        scene.create(name, spec(name)).await;
    }
    scene.pass().await;
    let running = Running::without(&scene, "pods").await;
    let series = |name: &str| format!("wva_desired_replicas{{target_name=\"{name}\"");
    running.until_shown(&series("stays"), true).await;
    running.until_shown(&series("goes"), true).await;
    scene.objects().delete("goes", &DeleteParams::default()).await.unwrap();
    running.until_shown(&series("goes"), false).await;
    running.until_shown(&series("stays"), true).await;
    running.end().await;
}
