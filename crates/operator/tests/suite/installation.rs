//! An installation of the operator on a cluster whose pods are simulated. The test runs the operator's binary with the arguments,
//! variables and account of the installed Deployment.

use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{EnvVar, Namespace};
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::{Value, json};
use steersman::installation::NAME;
use steersman_api::Family;
use steersman_testkit::{Cluster, Operator, OperatorCommand, object, wait};

use crate::certs::forward::Forwarder;
use crate::command::{CommandOutput, kubectl, output_of};

/// Name of the Service of the webhooks, which no setting changes.
const WEBHOOK_SERVICE: &str = "steersman-webhook";

pub struct Installation {
    pub cluster: &'static Cluster,
    pub admin: Client,
    /// Namespace of the operator.
    pub namespace: String,
}

impl Installation {
    pub async fn new(cluster: &'static Cluster, namespace: &str) -> Self {
        Self { cluster, admin: cluster.admin().await.unwrap(), namespace: namespace.to_owned() }
    }

    pub fn kubectl(&self, arguments: &[&str]) -> CommandOutput {
        output_of(&mut kubectl(self.cluster, arguments))
    }

    pub async fn create_namespace(&self, name: &str) {
        let namespaces: Api<Namespace> = Api::all(self.admin.clone());
        let namespace: Namespace = object(json!({ "metadata": { "name": name } }));
        if namespaces.get_opt(name).await.unwrap().is_none() {
            namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        }
    }

    pub async fn deployment(&self) -> Deployment {
        Api::namespaced(self.admin.clone(), &self.namespace).get(NAME).await.unwrap()
    }

    /// Starts the operator as its Deployment says, but on free ports of this machine.
    pub async fn start_operator(&self, identity: &str, log: &Path) -> Operator {
        let pod = self.deployment().await.spec.unwrap().template.spec.unwrap();
        let container = &pod.containers[0];
        let variables = self.variables(container.env.as_deref().unwrap_or_default());
        let mut arguments: Vec<String> = Vec::new();
        for argument in container.args.as_ref().unwrap().iter().filter(|argument| *argument != "run") {
            let (flag, value) = argument.split_once('=').unwrap();
            if flag != "--metrics-address" {
                let value = variables
                    .iter()
                    .fold(value.to_owned(), |value, (name, of_pod)| value.replace(&format!("$({name})"), of_pod));
                arguments.extend([flag.to_owned(), value]);
            }
        }
        if !arguments.iter().any(|argument| argument == "--webhooks") {
            arguments.extend(["--webhooks", "on", "--webhook-address", "127.0.0.1:0"].map(String::from));
        }
        let account = pod.service_account_name.as_ref().unwrap();
        let kubeconfig = self.cluster.service_account_kubeconfig(&self.namespace, account).await.unwrap();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let variables: Vec<(&str, &str)> =
            variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let program = Path::new(env!("CARGO_BIN_EXE_steersman"));
        OperatorCommand::new(program, &kubeconfig, identity).args(&arguments).envs(&variables).start(log).unwrap()
    }

    /// The variables of the container, without the name of the pod, which each operator of a test has itself.
    fn variables(&self, variables: &[EnvVar]) -> Vec<(String, String)> {
        let value = |variable: &EnvVar| {
            let field = variable.value_from.as_ref().and_then(|source| source.field_ref.as_ref());
            match field.map(|field| field.field_path.as_str()) {
                Some("metadata.namespace") => Some(self.namespace.clone()),
                Some("metadata.name") => None,
                Some(other) => panic!("the test does not know the field {other}"),
                None => variable.value.clone(),
            }
        };
        variables.iter().filter_map(|variable| Some((variable.name.clone(), value(variable)?))).collect()
    }

    /// Lets API servers reach the webhooks of the operator, by a forwarder that must live as long as they are called.
    pub async fn forward_webhooks(&self, operator: &Operator) -> Forwarder {
        let forwarder = Forwarder::start().await;
        self.route_webhooks_to(forwarder.port());
        let listening = wait::eventually("the webhook listens", async || operator.log().address("webhook")).await;
        let address = listening.unwrap_or_else(|error| panic!("{error}\n{}", operator.log().text()));
        forwarder.add_backend(address.trim_start_matches("https://").parse().unwrap());
        forwarder
    }

    /// Lets API servers reach the webhooks at this port of this machine: the local cluster has no kube-proxy, which makes the
    /// address of a Service reachable. Port 443 is that of the manifests.
    pub fn route_webhooks_to(&self, port: u16) {
        let external = json!({ "spec": { "type": "ExternalName", "externalName": "localhost", "clusterIP": null,
                                         "clusterIPs": null } });
        let patch = |kind: &str, name: &str, how: &str, patch: &Value| {
            self.kubectl(&["patch", kind, name, "-n", &self.namespace, "--type", how, "-p", &patch.to_string()]).ok();
        };
        patch("service", WEBHOOK_SERVICE, "merge", &external);
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
}

/// Objects of all families in one namespace, as their users work with them.
pub struct UsersObjects<'a> {
    installation: &'a Installation,
    pub namespace: String,
    folder: tempfile::TempDir,
}

impl<'a> UsersObjects<'a> {
    pub fn new(installation: &'a Installation, namespace: &str) -> Self {
        Self { installation, namespace: namespace.to_owned(), folder: tempfile::tempdir().unwrap() }
    }

    pub fn api(&self, family: Family) -> Api<DynamicObject> {
        let resource = crate::schemas::api_resource(family, family.storage_version());
        Api::namespaced_with(self.installation.admin.clone(), &self.namespace, &resource)
    }

    pub fn servers(&self) -> Api<Deployment> {
        Api::namespaced(self.installation.admin.clone(), &self.namespace)
    }

    pub fn apply(&self, manifest: &Value) -> CommandOutput {
        let file = self.folder.path().join("object.json");
        std::fs::write(&file, manifest.to_string()).unwrap();
        self.installation.kubectl(&["apply", "--server-side", "-n", &self.namespace, "-f", file.to_str().unwrap()])
    }

    /// Creates the object of each family. A webhook that does not answer yet rejects it for a moment.
    pub async fn create(&self, families: &[Family], operator: &Operator) {
        for family in families {
            let last = std::cell::RefCell::new(String::new());
            let created = async || {
                let output = self.apply(&manifest(*family));
                last.replace(format!("{}{}", output.stdout, output.stderr));
                output.is_ok().then_some(())
            };
            let accepted = wait::eventually(&format!("the API server accepts a {family}"), created).await;
            accepted.unwrap_or_else(|error| panic!("{error}: {}\n{}", last.borrow(), operator.log().text()));
        }
    }

    /// Waits until the operator has done the work of each family: a Deployment for the server, a Job for the request, and the
    /// scale target of the variant. Then checks that no permission was missing.
    pub async fn wait_for_effects(&self, families: &[Family], operator: &Operator) {
        for family in families {
            let name = name(*family);
            let resolved = async || {
                let found = self.api(Family::Va).get(name).await.ok()?;
                let conditions = found.data["status"]["conditions"].as_array()?.clone();
                let resolved =
                    |condition: &Value| condition["type"] == "TargetResolved" && condition["status"] == "True";
                conditions.iter().any(resolved).then_some(())
            };
            let worked = match family {
                Family::Llsd => exists(self.servers(), name).await,
                Family::Dgdr => {
                    let jobs: Api<Job> = Api::namespaced(self.installation.admin.clone(), &self.namespace);
                    exists(jobs, &format!("profile-{name}")).await
                }
                Family::Va => wait::eventually("the variant has its scale target", resolved).await,
                Family::Dgd => panic!("users create no {family}"),
            };
            worked.unwrap_or_else(|error| panic!("{family}: {error:#}\n{}", operator.log().text()));
        }
        assert!(!operator.log().contains("forbidden"), "{}", operator.log().text());
    }

    /// The objects can be read, changed and deleted. Nothing else has to run.
    pub async fn use_and_delete(&self, families: &[Family]) {
        for family in families {
            let name = name(*family);
            let found = self.api(*family).get(name).await.unwrap();
            assert!(found.metadata.finalizers.unwrap_or_default().is_empty(), "{family}");
            self.installation.kubectl(&["annotate", family.plural(), name, "-n", &self.namespace, "seen=yes"]).ok();
        }
        self.delete(families).await;
    }

    pub async fn delete(&self, families: &[Family]) {
        for family in families {
            let name = name(*family);
            let delete = ["delete", family.plural(), name, "-n", &self.namespace, "--timeout", "60s"];
            self.installation.kubectl(&delete).ok();
            assert!(self.api(*family).get_opt(name).await.unwrap().is_none());
        }
    }
}

async fn exists<K>(api: Api<K>, name: &str) -> anyhow::Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug,
    K: serde::de::DeserializeOwned + serde::Serialize + Send + 'static,
{
    wait::until(api, name, "exists", wait::TIMEOUT, |_| true).await.map(drop)
}

/// The families with objects of users, in the order in which [`UsersObjects`] needs them: the variant scales the server.
pub const FAMILIES: [Family; 3] = [Family::Llsd, Family::Dgdr, Family::Va];

pub fn name(family: Family) -> &'static str {
    match family {
        Family::Llsd => "stack",
        Family::Dgdr => "request",
        Family::Va => "variant",
        Family::Dgd => "graph",
    }
}

/// The object of a family. The server is written in the older version, which needs conversion.
pub fn manifest(family: Family) -> Value {
    let metadata = json!({ "name": name(family) });
    match family {
        Family::Llsd => json!({
            "apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution", "metadata": metadata,
            "spec": { "server": { "distribution": { "name": "starter" } } },
        }),
        Family::Va => json!({
            "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling", "metadata": metadata,
            "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "stack" },
                      "modelID": "m" },
        }),
        Family::Dgdr | Family::Dgd => json!({
            "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest", "metadata": metadata,
            "spec": { "model": "m", "backend": "vllm",
                      "hardware": { "gpuSku": "h100_sxm", "numGpusPerNode": 8, "totalGpus": 8, "vramMb": 81920 } },
        }),
    }
}
