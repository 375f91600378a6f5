//! The chart on a cluster whose pods are simulated: installed, used, upgraded and removed with the real helm. The tests do the
//! work of the pods: they run the operator's binary with the arguments and the account that the chart gives it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use steersman::installation::NAMESPACE;
use steersman_api::Family;
use steersman_testkit::process::spawn_child_bound_to_parent;
use steersman_testkit::{Cluster, Operator, OperatorCommand, PodBehaviour, object, wait};

use super::{VALUES_FILES, folder, helm, values_file};
use crate::certs::forward::Forwarder;
use crate::command::{CommandOutput, kubectl, output_of, run, steersman_as};
use crate::private_cluster::{PrivateCluster, private_cluster};

struct ChartEnv {
    cluster: &'static Cluster,
    admin: Client,
    home: tempfile::TempDir,
    _private: PrivateCluster,
}

async fn chart_env() -> Option<ChartEnv> {
    let home = tempfile::tempdir().unwrap();
    helm(home.path(), &[])?;
    let private = private_cluster().await?;
    let cluster = private.cluster;
    Some(ChartEnv { cluster, admin: cluster.admin().await.unwrap(), home, _private: private })
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
        command.arg("--kubeconfig").arg(self.cluster.admin_kubeconfig());
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

    fn kubectl(&self, arguments: &[&str]) -> CommandOutput {
        output_of(&mut kubectl(self.cluster, arguments))
    }

    async fn create_namespace(&self, name: &str) {
        let namespaces: Api<Namespace> = Api::all(self.admin.clone());
        let namespace: Namespace = object(json!({ "metadata": { "name": name } }));
        if namespaces.get_opt(name).await.unwrap().is_none() {
            namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        }
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    /// Does the work of a hook's pod: runs its command with its account, then lets the pod succeed. Returns what the command
    /// printed.
    async fn play_hook(&self, name: &str) -> String {
        let job = wait::until(self.jobs(), name, "is created by helm", wait::TIMEOUT, |_| true).await.unwrap();
        let pod = job.spec.unwrap().template.spec.unwrap();
        let arguments = pod.containers[0].args.clone().unwrap();
        let account = pod.service_account_name.unwrap();
        let kubeconfig = self.cluster.service_account_kubeconfig(NAMESPACE, &account).await.unwrap();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let printed = run(steersman_as(&kubeconfig, &arguments)).await.ok();
        let pods: Api<Pod> = Api::namespaced(self.admin.clone(), NAMESPACE);
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
        let found = async || pods.list(&of_job).await.ok()?.items.pop()?.metadata.name;
        let pod = wait::eventually("the pod of the hook", found).await.unwrap();
        let done = Patch::Merge(PodBehaviour::Run.merge_patch());
        pods.patch(&pod, &PatchParams::default(), &done).await.unwrap();
        printed
    }

    async fn deployment(&self) -> Deployment {
        Api::namespaced(self.admin.clone(), NAMESPACE).get("steersman").await.unwrap()
    }

    /// Starts the operator as its Deployment says, but on free ports of this machine.
    async fn start_operator(&self, identity: &str, log: &Path) -> Operator {
        let pod = self.deployment().await.spec.unwrap().template.spec.unwrap();
        let container = &pod.containers[0];
        let mut arguments: Vec<String> = Vec::new();
        for argument in container.args.as_ref().unwrap().iter().filter(|argument| *argument != "run") {
            let (flag, value) = argument.split_once('=').unwrap();
            if flag != "--metrics-address" {
                arguments.extend([flag.to_owned(), value.to_owned()]);
            }
        }
        arguments.extend(
            ["--webhooks", "on", "--webhook-address", "127.0.0.1:0", "--namespace", NAMESPACE].map(String::from),
        );
        let variables = container.env.iter().flatten();
        let variables: Vec<(&str, &str)> =
            variables.filter_map(|variable| Some((variable.name.as_str(), variable.value.as_deref()?))).collect();
        let account = pod.service_account_name.as_ref().unwrap();
        let kubeconfig: PathBuf = self.cluster.service_account_kubeconfig(NAMESPACE, account).await.unwrap();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let program = Path::new(env!("CARGO_BIN_EXE_steersman"));
        OperatorCommand::new(program, &kubeconfig, identity).args(&arguments).envs(&variables).start(log).unwrap()
    }

    /// Lets API servers reach the webhooks at this port of this machine: the local cluster has no kube-proxy, which makes the
    /// address of a Service reachable. Port 443 is that of the chart.
    fn route_webhooks_to(&self, port: u16) {
        let external = json!({ "spec": { "type": "ExternalName", "externalName": "localhost", "clusterIP": null,
                                         "clusterIPs": null } });
        let patch = |kind: &str, name: &str, how: &str, patch: &Value| {
            self.kubectl(&["patch", kind, name, "-n", NAMESPACE, "--type", how, "-p", &patch.to_string()]).ok();
        };
        patch("service", "steersman-webhook", "merge", &external);
        let replace = |path: &str| json!([{ "op": "replace", "path": path, "value": port }]);
        let webhook = replace("/webhooks/0/clientConfig/service/port");
        for of in steersman::admission::ALL {
            patch(of.kind(), of.name(), "json", &webhook);
        }
        let conversion = replace("/spec/conversion/webhook/clientConfig/service/port");
        for family in [Family::Dgdr, Family::Llsd] {
            patch("crd", family.crd_name(), "json", &conversion);
        }
    }

    fn objects(&self, family: Family) -> Api<DynamicObject> {
        let resource = crate::schemas::api_resource(family, family.storage_version());
        Api::namespaced_with(self.admin.clone(), USERS_NAMESPACE, &resource)
    }

    fn apply(&self, manifest: &Value) -> CommandOutput {
        let file = self.home.path().join("object.json");
        std::fs::write(&file, manifest.to_string()).unwrap();
        self.kubectl(&["apply", "--server-side", "-n", USERS_NAMESPACE, "-f", file.to_str().unwrap()])
    }

    /// What helm has installed and not removed, without the Secrets in which it stores releases.
    fn leftovers(&self) -> String {
        let kinds = "deployments,services,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,jobs,\
                     poddisruptionbudgets,networkpolicies,configmaps,validatingwebhookconfigurations,\
                     mutatingwebhookconfigurations";
        self.kubectl(&["get", kinds, "-A", "-l", "app.kubernetes.io/managed-by=Helm", "-o", "name"]).ok()
    }
}

fn users_objects() -> [(Family, Value); 3] {
    let metadata = |name: &str| json!({ "name": name });
    [
        (
            Family::Llsd,
            // The older version, which needs conversion.
            json!({ "apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution", "metadata": metadata("stack"),
                    "spec": { "server": { "distribution": { "name": "starter" } } } }),
        ),
        (
            Family::Dgdr,
            json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest",
                    "metadata": metadata("request"), "spec": { "model": "m", "backend": "vllm",
                    "hardware": { "gpuSku": "h100_sxm", "numGpusPerNode": 8, "totalGpus": 8, "vramMb": 81920 } } }),
        ),
        (
            Family::Va,
            json!({ "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling", "metadata": metadata("variant"),
                    "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "stack" },
                              "modelID": "m" } }),
        ),
    ]
}

// kubectl and helm block a thread, while the forwarder passes their reviews to the webhook on another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chart_is_installed_used_upgraded_and_removed() {
    let Some(env) = chart_env().await else { return };
    for namespace in [NAMESPACE, USERS_NAMESPACE] {
        env.create_namespace(namespace).await;
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
    assert!(notes.contains("rollout status deployment/steersman"), "{notes}");

    let forwarder = Forwarder::start().await;
    env.route_webhooks_to(forwarder.port());
    let log = tempfile::tempdir().unwrap();
    let operator = env.start_operator("chart-pod", log.path()).await;
    let address = wait::eventually("the webhook listens", async || operator.log().address("webhook")).await.unwrap();
    forwarder.add_backend(address.trim_start_matches("https://").parse().unwrap());

    // All three families work with the roles of the chart.
    for (family, manifest) in users_objects() {
        let last = std::cell::RefCell::new(String::new());
        let created = async || {
            let output = env.apply(&manifest);
            last.replace(format!("{}{}", output.stdout, output.stderr));
            output.is_ok().then_some(())
        };
        let accepted = wait::eventually(&format!("the API server accepts a {family}"), created).await;
        accepted.unwrap_or_else(|error| panic!("{error}: {}\n{}", last.borrow(), operator.log().text()));
    }
    for (family, manifest) in users_objects() {
        let name = manifest["metadata"]["name"].as_str().unwrap();
        let reconciled = async || {
            let found = env.objects(family).get(name).await.ok()?;
            (!found.data["status"]["conditions"].as_array()?.is_empty()).then_some(())
        };
        wait::eventually(&format!("{family} {name} has conditions"), reconciled).await.unwrap();
    }
    let servers: Api<Deployment> = Api::namespaced(env.admin.clone(), USERS_NAMESPACE);
    wait::until(servers.clone(), "stack", "exists", wait::TIMEOUT, |_| true).await.unwrap();
    assert!(!operator.log().contains("forbidden"), "{}", operator.log().text());

    // An upgrade changes the Deployment and keeps the CA bundles, so that users notice nothing.
    env.route_webhooks_to(443);
    let upgrade = env.start_release("upgrade", &["--set-json", hang, "--set", "replicas=3"]);
    let applied = env.play_hook("steersman-apply-crds").await;
    assert!(applied.contains("unchanged"), "{applied}");
    upgrade.succeeded().await;
    assert_eq!(env.deployment().await.spec.unwrap().replicas, Some(3));
    let bundle = ["get", "validatingwebhookconfiguration", "steersman-llsd", "-o", "jsonpath={..caBundle}"];
    assert!(!env.kubectl(&bundle).ok().is_empty());

    // The uninstall detaches the CRDs while the operator still runs.
    let uninstall = env.start_helm(&["uninstall", "steersman", "--namespace", NAMESPACE, "--timeout", "180s"]);
    let detached = env.play_hook("steersman-detach-crds").await;
    assert!(detached.contains("llamastackdistributions.llamastack.io: detached"), "{detached}");
    uninstall.succeeded().await;
    drop(operator);
    assert_eq!(env.leftovers(), "");

    // Users' objects and servers survive without an operator, and can be read, changed and deleted.
    for (family, manifest) in users_objects() {
        let name = manifest["metadata"]["name"].as_str().unwrap();
        let found = env.objects(family).get(name).await.unwrap();
        assert!(found.metadata.finalizers.unwrap_or_default().is_empty(), "{family}");
        let annotate = ["annotate", family.plural(), name, "-n", USERS_NAMESPACE, "seen=yes"];
        env.kubectl(&annotate).ok();
    }
    servers.get("stack").await.unwrap();
    for (family, manifest) in users_objects() {
        let name = manifest["metadata"]["name"].as_str().unwrap();
        env.kubectl(&["delete", family.plural(), name, "-n", USERS_NAMESPACE, "--timeout", "60s"]).ok();
        assert!(env.objects(family).get_opt(name).await.unwrap().is_none());
    }
    for family in steersman_api::crds::FAMILIES {
        env.kubectl(&["delete", "crd", family.crd_name()]).ok();
    }
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
    for namespace in [NAMESPACE, "team-a"] {
        env.create_namespace(namespace).await;
    }
    for crd in monitoring_crds() {
        env.apply(&crd).ok();
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
        let wanted = env.deployment().await.spec.unwrap().replicas.unwrap();
        let ready = |live: &Deployment| {
            live.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default() >= wanted.min(2)
        };
        let deployments: Api<Deployment> = Api::namespaced(env.admin.clone(), NAMESPACE);
        wait::until(deployments, "steersman", "has ready pods", wait::TIMEOUT, ready).await.unwrap();
        let again = env.start_release("upgrade", &["-f", &values_file(name)]).succeeded().await;
        assert!(again.contains("REVISION: 2"), "{name}: {again}");
        env.start_helm(&["uninstall", "steersman", "--namespace", NAMESPACE]).succeeded().await;
        assert_eq!(env.leftovers(), "", "{name}");
    }
}
