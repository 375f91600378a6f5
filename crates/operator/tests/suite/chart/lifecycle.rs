//! The chart on a cluster whose pods are simulated: installed, used, upgraded and removed with the real helm. The tests do the
//! work of the pods: they run the operator's binary with the arguments and the account that the chart gives it.

use std::process::Stdio;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, EvictParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use steersman::installation::NAMESPACE;
use steersman_api::Family;
use steersman_testkit::pod_behaviour::{BEHAVIOUR_ANNOTATION, PodBehaviour, is_ready};
use steersman_testkit::process::spawn_child_bound_to_parent;
use steersman_testkit::wait;

use super::{VALUES_FILES, folder, helm, values_file};
use crate::command::{CommandOutput, run, steersman_as};
use crate::installation::{FAMILIES, Installation, UsersObjects, manifest, name};
use crate::private_cluster::{PrivateCluster, private_cluster};
use crate::shell::Shell;

struct ChartEnv {
    installation: Installation,
    home: tempfile::TempDir,
    _private: PrivateCluster,
}

async fn chart_env() -> Option<ChartEnv> {
    let home = tempfile::tempdir().unwrap();
    helm(home.path(), &[])?;
    let private = private_cluster().await?;
    let installation = Installation::new(private.cluster, NAMESPACE).await;
    Some(ChartEnv { installation, home, _private: private })
}

/// Namespace of the objects of users. No values file names it, so that no release meets the children of these objects.
const USERS_NAMESPACE: &str = "team-b";

/// A helm command that runs, and waits for its hooks.
struct RunningHelm(tokio::task::JoinHandle<CommandOutput>);

impl RunningHelm {
    async fn succeeded(self) -> String {
        self.0.await.unwrap().ok()
    }
}

impl ChartEnv {
    fn start_helm(&self, arguments: &[&str]) -> RunningHelm {
        let mut command = helm(self.home.path(), arguments).unwrap();
        command.arg("--kubeconfig").arg(self.installation.cluster.admin_kubeconfig());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        RunningHelm(tokio::task::spawn_blocking(move || {
            let output = spawn_child_bound_to_parent(command).unwrap().wait_with_output().unwrap();
            let text = |bytes| String::from_utf8(bytes).unwrap();
            CommandOutput { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
        }))
    }

    /// `helm install` or `helm upgrade` of the chart, with these further arguments.
    fn start_release(&self, verb: &str, more: &[&str]) -> RunningHelm {
        let chart = folder();
        let timeout = format!("{}s", wait::TIMEOUT.as_secs() * 2);
        let given = [verb, "steersman", chart.to_str().unwrap(), "--namespace", NAMESPACE, "--timeout", &timeout];
        self.start_helm(&[&given, more].concat())
    }

    fn start_uninstall(&self) -> RunningHelm {
        self.start_helm(&["uninstall", "steersman", "--namespace", NAMESPACE, "--timeout", "180s"])
    }

    fn kubectl(&self, arguments: &[&str]) -> CommandOutput {
        self.installation.kubectl(arguments)
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.installation.admin.clone(), NAMESPACE)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.installation.admin.clone(), NAMESPACE)
    }

    /// Does the work of a hook's pod: runs its command with its account, then lets the pod succeed. Returns what the command
    /// printed.
    async fn play_hook(&self, name: &str) -> String {
        let job = wait::until(self.jobs(), name, "is created by helm", wait::TIMEOUT, |_| true).await.unwrap();
        let pod = job.spec.unwrap().template.spec.unwrap();
        let arguments = pod.containers[0].args.clone().unwrap();
        let account = pod.service_account_name.unwrap();
        let kubeconfig = self.installation.cluster.service_account_kubeconfig(NAMESPACE, &account).await.unwrap();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let printed = run(steersman_as(&kubeconfig, &arguments)).await.ok();
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
        let found = async || self.pods().list(&of_job).await.ok()?.items.pop()?.metadata.name;
        let pod = wait::eventually("the pod of the hook", found).await.unwrap();
        let done = Patch::Merge(PodBehaviour::Run.merge_patch());
        self.pods().patch(&pod, &PatchParams::default(), &done).await.unwrap();
        printed
    }

    /// What helm has installed and not removed, without the Secrets in which it stores releases.
    fn leftovers(&self) -> String {
        let kinds = "deployments,services,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,jobs,\
                     poddisruptionbudgets,networkpolicies,configmaps,validatingwebhookconfigurations,\
                     mutatingwebhookconfigurations";
        self.kubectl(&["get", kinds, "-A", "-l", "app.kubernetes.io/managed-by=Helm", "-o", "name"]).ok()
    }

    /// Whether the user may do this with the objects of a family in the namespace of the users.
    fn may(&self, user: &str, verb: &str, family: Family) -> bool {
        let resource = family.crd_name();
        let question = ["auth", "can-i", verb, resource, "-n", USERS_NAMESPACE, "--as", user, "--quiet"];
        self.kubectl(&question).is_ok()
    }

    /// Users with the ClusterRoles of Kubernetes get the rights on the kinds of the chart. The controller manager adds them
    /// to these roles after a moment.
    async fn users_get_rights_by_their_roles(&self) {
        for role in ["view", "edit", "admin"] {
            let (binding, user) = (format!("team-{role}"), format!("--user=team-{role}"));
            let role = format!("--clusterrole={role}");
            self.kubectl(&["create", "rolebinding", &binding, "-n", USERS_NAMESPACE, &role, &user]).ok();
        }
        for family in FAMILIES {
            for (user, verb, allowed) in [
                ("team-view", "watch", true),
                ("team-edit", "create", true),
                ("team-edit", "patch", true),
                ("team-edit", "get", true),
                ("team-admin", "delete", true),
                ("team-admin", "list", true),
                ("team-view", "create", false),
                ("team-view", "delete", false),
                ("team-none", "get", false),
            ] {
                let what = format!("{user} may {verb} {family}: {allowed}");
                let as_expected = async || (self.may(user, verb, family) == allowed).then_some(());
                wait::eventually(&what, as_expected).await.unwrap();
            }
        }
    }
}

// kubectl and helm block a thread, while the forwarder passes their reviews to the webhook on another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chart_is_installed_used_upgraded_and_removed() {
    let Some(env) = chart_env().await else { return };
    let installation = &env.installation;
    for namespace in [NAMESPACE, USERS_NAMESPACE] {
        installation.create_namespace(namespace).await;
    }
    // The pods of the hooks wait until the test has run their commands.
    let hang = r#"hooks.podAnnotations={"steersman.dev/play":"hang"}"#;
    let install = env.start_release("install", &["--set-json", hang]);
    let applied = env.play_hook("steersman-apply-crds").await;
    for family in steersman_api::crds::FAMILIES {
        assert!(applied.contains(&format!("{}: created", family.crd_name())), "{applied}");
    }
    let converted =
        "llamastackdistributions.llamastack.io: created, converted by Service steersman-system/steersman-webhook";
    assert!(applied.contains(converted), "{applied}");
    let notes = install.succeeded().await;

    let log = tempfile::tempdir().unwrap();
    let operator = installation.start_operator("chart-pod", log.path()).await;
    let forwarder = installation.forward_webhooks(&operator).await;

    // All three families work with the roles of the chart.
    let users = UsersObjects::new(installation, USERS_NAMESPACE);
    users.create(&FAMILIES, &operator).await;
    users.wait_for_effects(&FAMILIES, &operator).await;
    env.users_get_rights_by_their_roles().await;

    // The notes end with the next three commands.
    let shell = Shell::new(installation.cluster, operator.log().path());
    let commands: Vec<&str> = notes.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    assert_eq!(commands.len(), 3, "{notes}");
    for (command, expected) in
        commands.iter().zip(["successfully rolled out", "\"controller started\"", "KIND:       LlamaStackDistribution"])
    {
        let printed = shell.run(command).await.ok();
        assert!(printed.contains(expected), "{command}: {printed}");
    }

    // An upgrade to another image keeps the CA bundles and the other values, and the next pod goes on.
    installation.route_webhooks_to(443);
    let values = ["--reset-then-reuse-values", "--set", "image.tag=0.1.1", "--set", "replicas=3"];
    let upgrade = env.start_release("upgrade", &values);
    let applied = env.play_hook("steersman-apply-crds").await;
    assert!(applied.contains("unchanged"), "{applied}");
    upgrade.succeeded().await;
    let upgraded = installation.deployment().await.spec.unwrap();
    assert_eq!(upgraded.replicas, Some(3));
    assert_eq!(upgraded.template.spec.unwrap().containers[0].image.as_deref(), Some("steersman:0.1.1"));
    let bundle = ["get", "validatingwebhookconfiguration", "steersman-llsd", "-o", "jsonpath={..caBundle}"];
    assert!(!env.kubectl(&bundle).ok().is_empty());
    drop((operator, forwarder));
    let next_log = tempfile::tempdir().unwrap();
    let operator = installation.start_operator("next-chart-pod", next_log.path()).await;
    let _forwarder = installation.forward_webhooks(&operator).await;
    let mut changed = manifest(Family::Llsd);
    changed["spec"]["replicas"] = json!(2);
    let accepted = async || users.apply(&changed).is_ok().then_some(());
    wait::eventually("the webhooks of the next pod answer", accepted).await.unwrap();
    let scaled = |server: &Deployment| server.spec.as_ref().is_some_and(|spec| spec.replicas == Some(2));
    wait::until(users.servers(), name(Family::Llsd), "has two replicas", wait::TIMEOUT, scaled).await.unwrap();

    // The uninstall detaches the CRDs while the operator still runs. It knows its webhooks by their port, too.
    installation.route_webhooks_to(443);
    let uninstall = env.start_uninstall();
    let detached = env.play_hook("steersman-detach-crds").await;
    assert!(detached.contains("llamastackdistributions.llamastack.io: detached"), "{detached}");
    uninstall.succeeded().await;
    drop(operator);
    assert_eq!(env.leftovers(), "");

    // Users' objects and servers survive without an operator, and can be read, changed and deleted.
    let older = ["get", "--raw", "/apis/llamastack.io/v1alpha1/namespaces/team-b/llamastackdistributions/stack"];
    let unserved = async || (!env.kubectl(&older).is_ok()).then_some(());
    wait::eventually("the older version is not served without its converter", unserved).await.unwrap();
    users.servers().get(name(Family::Llsd)).await.unwrap();
    users.use_and_delete(&FAMILIES).await;
    env.kubectl(&["delete", "rolebinding", "-n", USERS_NAMESPACE, "team-view", "team-edit", "team-admin"]).ok();
    for family in steersman_api::crds::FAMILIES {
        env.kubectl(&["delete", "crd", family.crd_name()]).ok();
    }
}

/// A drain evicts pods: one replica stays, so that the webhooks are served.
#[tokio::test]
async fn eviction_leaves_one_replica() {
    let Some(env) = chart_env().await else { return };
    env.installation.create_namespace(NAMESPACE).await;
    env.start_release("install", &[]).succeeded().await;
    let deployments: Api<Deployment> = Api::namespaced(env.installation.admin.clone(), NAMESPACE);
    let ready = |live: &Deployment| live.status.as_ref().is_some_and(|status| status.ready_replicas == Some(2));
    wait::until(deployments, "steersman", "has ready pods", wait::TIMEOUT, ready).await.unwrap();
    let budget = async || {
        let path = "jsonpath={.status.disruptionsAllowed}";
        (env.kubectl(&["get", "poddisruptionbudget", "steersman", "-n", NAMESPACE, "-o", path]).ok() == "1")
            .then_some(())
    };
    wait::eventually("the budget allows one disruption", budget).await.unwrap();
    // Pods that replace evicted ones do not become ready.
    let unready = format!("{BEHAVIOUR_ANNOTATION}={}", PodBehaviour::Unready.annotation_value());
    env.kubectl(&["annotate", "namespace", NAMESPACE, &unready]).ok();
    let of_operator = ListParams::default().labels("app.kubernetes.io/name=steersman");
    let pods: Vec<Pod> = env.pods().list(&of_operator).await.unwrap().items.into_iter().filter(is_ready).collect();
    assert_eq!(pods.len(), 2);
    let evict = async |pod: &Pod| {
        let name = pod.metadata.name.as_deref().unwrap();
        env.pods().evict(name, &EvictParams::default()).await
    };
    evict(&pods[0]).await.unwrap();
    let refused = evict(&pods[1]).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 429), "{refused}");
    env.kubectl(&["annotate", "namespace", NAMESPACE, &format!("{BEHAVIOUR_ANNOTATION}-")]).ok();
    env.start_uninstall().succeeded().await;
}

/// The Job of a failed hook stays, with the log that explains the failure.
#[tokio::test]
async fn failed_hook_stops_install_and_keeps_job() {
    let Some(env) = chart_env().await else { return };
    env.installation.create_namespace(NAMESPACE).await;
    let fail = r#"hooks={"podAnnotations":{"steersman.dev/play":"fail"},"activeDeadlineSeconds":5}"#;
    let error = env.start_release("install", &["--set-json", fail, "--timeout", "30s"]).0.await.unwrap().failure();
    assert!(error.contains("pre-install"), "{error}");
    env.jobs().get("steersman-apply-crds").await.unwrap();
    assert!(!env.leftovers().contains("deployment"), "nothing is installed after the failure");
    // The next attempt replaces the Job.
    env.start_release("upgrade", &["--install", "--reset-values"]).succeeded().await;
    assert!(env.jobs().get_opt("steersman-apply-crds").await.unwrap().is_none());
    env.start_uninstall().succeeded().await;
    assert_eq!(env.leftovers(), "");
}

/// The kinds of the Prometheus operator, as far as the chart needs them to be known.
fn monitoring_crds() -> Vec<Value> {
    let crd = |kind: &str, plural: &str| {
        json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.monitoring.coreos.com") },
            "spec": { "group": "monitoring.coreos.com", "scope": "Namespaced",
                "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema":
                    { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }] } })
    };
    vec![crd("ServiceMonitor", "servicemonitors"), crd("PrometheusRule", "prometheusrules")]
}

/// Here the pods of the hooks do nothing and succeed: only the objects of the release are of interest.
#[tokio::test]
async fn every_values_file_is_installed_and_removed() {
    let Some(env) = chart_env().await else { return };
    let installation = &env.installation;
    for namespace in [NAMESPACE, "team-a"] {
        installation.create_namespace(namespace).await;
    }
    let crds = UsersObjects::new(installation, NAMESPACE);
    for crd in monitoring_crds() {
        crds.apply(&crd).ok();
    }
    for crd in ["servicemonitors", "prometheusrules"] {
        let name = format!("crd/{crd}.monitoring.coreos.com");
        env.kubectl(&["wait", "--for=condition=Established", &name, "--timeout=60s"]).ok();
    }
    // The values file for production selects these nodes.
    env.kubectl(&["label", "nodes", "--all", "--overwrite", "node-role.kubernetes.io/control-plane="]).ok();
    for name in VALUES_FILES {
        let installed = env.start_release("install", &["-f", &values_file(name)]).succeeded().await;
        assert!(installed.contains("STATUS: deployed"), "{name}: {installed}");
        let wanted = installation.deployment().await.spec.unwrap().replicas.unwrap();
        let ready = |live: &Deployment| {
            live.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default() >= wanted.min(2)
        };
        let deployments: Api<Deployment> = Api::namespaced(installation.admin.clone(), NAMESPACE);
        wait::until(deployments, "steersman", "has ready pods", wait::TIMEOUT, ready).await.unwrap();
        let again = env.start_release("upgrade", &["-f", &values_file(name)]).succeeded().await;
        assert!(again.contains("REVISION: 2"), "{name}: {again}");
        env.start_helm(&["uninstall", "steersman", "--namespace", NAMESPACE]).succeeded().await;
        assert_eq!(env.leftovers(), "", "{name}");
    }
}
