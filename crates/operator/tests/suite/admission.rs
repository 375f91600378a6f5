//! Admission of LlamaStackDistributions: by the judge alone, by the configurations as they are rendered, and with kubectl
//! on a real API server that asks the real process.

mod command;
mod down;
mod examples;
mod judge;
mod moved;
mod references;
mod rendered;
mod versions;

use std::process::Command;

use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::binaries::Binaries;
use steersman_testkit::{Cluster, Namespace, object, wait};

use crate::certs::Site;
use crate::process::operator::Operator;
use crate::schemas::resource;

/// An operator that converts and judges, reached by the API server, and a namespace to write to.
struct Court {
    namespace: Namespace,
    operator: Operator,
    site: Site,
}

/// What a program printed.
struct Said {
    ok: bool,
    out: String,
    error: String,
}

impl Said {
    #[track_caller]
    fn ok(self) -> String {
        assert!(self.ok, "{}{}", self.out, self.error);
        self.out
    }

    #[track_caller]
    fn failed(self) -> String {
        assert!(!self.ok, "expected a failure, not: {}", self.out);
        self.error
    }
}

fn said(command: &mut Command) -> Said {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { ok: output.status.success(), out: text(output.stdout), error: text(output.stderr) }
}

/// On a thread of its own: meanwhile the test forwards what the API server sends to the operator.
async fn run(mut command: Command) -> Said {
    tokio::task::spawn_blocking(move || said(&mut command)).await.unwrap()
}

fn kubectl(cluster: &Cluster, arguments: &[&str]) -> Command {
    let binaries = Binaries::find().unwrap().expect("a cluster runs, so its programs are built");
    let mut command = Command::new(binaries.path("kubectl"));
    command.arg("--kubeconfig").arg(cluster.admin_kubeconfig()).args(arguments);
    command
}

/// The binary, as an administrator.
async fn steersman(cluster: &Cluster, arguments: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steersman"));
    command.args(arguments).arg("--kubeconfig").arg(cluster.admin_kubeconfig()).env_clear();
    run(command).await
}

impl Court {
    /// None (after saying so) where no cluster is to be had.
    async fn open(prefix: &str, more: &[&str]) -> Option<Self> {
        let site = Site::prepared().await?;
        clear(site.cluster);
        let url = site.forwarder.url();
        steersman(site.cluster, &["crds", "--apply", "llsd", "--webhook-url", &url]).await.ok();
        steersman(site.cluster, &["webhooks", "--apply", "llsd", "--webhook-url", &url]).await.ok();
        let operator = site.start("court", more).await;
        operator.until_answer("/readyz", 200).await;
        let namespace = site.cluster.namespace(prefix).await.unwrap();
        let court = Self { namespace, operator, site };
        court.until_asked().await;
        Some(court)
    }

    /// API servers follow CRDs and configurations in their own time: until then objects slip past, or cannot be converted.
    async fn until_asked(&self) {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let asked = async || {
            for version in ["v1alpha1", "v1alpha2"] {
                let (good, wrong) = (named(version, "probe", "starter"), named(version, "probe", "nobody-knows"));
                self.objects(version).create(&dry_run, &good).await.ok()?;
                let refused = self.objects(version).create(&dry_run, &wrong).await.err()?.to_string();
                refused.contains("Unknown distribution").then_some(())?;
            }
            Some(())
        };
        let asked = wait::eventually("the operator is asked about every object", asked).await;
        asked.unwrap_or_else(|error| panic!("{error}\n{}", self.operator.log()));
    }

    fn cluster(&self) -> &'static Cluster {
        self.site.cluster
    }

    fn objects(&self, version: &str) -> Api<DynamicObject> {
        objects(&self.site.admin, self.namespace.name(), version)
    }

    async fn kubectl(&self, arguments: &[&str]) -> Said {
        run(kubectl(self.cluster(), &[arguments, &["--namespace", self.namespace.name()]].concat())).await
    }

    /// `kubectl apply` of one manifest.
    async fn apply(&self, manifest: &Value, more: &[&str]) -> Said {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("manifest.json");
        std::fs::write(&file, manifest.to_string()).unwrap();
        self.kubectl(&[&["apply", "-f", file.to_str().unwrap()], more].concat()).await
    }
}

/// A failed test must not leave others with a configuration that nobody answers, or with a CRD that nobody converts.
impl Drop for Court {
    fn drop(&mut self) {
        clear(self.cluster());
    }
}

fn clear(cluster: &Cluster) {
    let kubectl = |arguments: &[&str]| said(&mut kubectl(cluster, arguments)).ok;
    let configuration = steersman::admission::name(Family::Llsd);
    kubectl(&["delete", "validatingwebhookconfiguration", configuration, "--ignore-not-found"]);
    let crd = Family::Llsd.crd_name();
    if !kubectl(&["get", "crd", crd, "-o", "name"]) {
        return;
    }
    let none = r#"{"spec":{"conversion":{"strategy":"None","webhook":null}}}"#;
    kubectl(&["patch", "crd", crd, "--type=merge", "-p", none]);
    kubectl(&["delete", "llsd", "--all", "--all-namespaces", "--timeout=20s"]);
    kubectl(&["delete", "crd", crd, "--timeout=20s"]);
}

fn objects(client: &Client, namespace: &str, version: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource(Family::Llsd, version))
}

/// A manifest of v1alpha2.
fn manifest(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution",
            "metadata": { "name": name }, "spec": spec })
}

/// The least object, in either version.
fn named(version: &str, name: &str, distribution: &str) -> DynamicObject {
    let distribution = json!({ "distribution": { "name": distribution } });
    let spec = if version == "v1alpha1" { json!({ "server": distribution }) } else { distribution };
    let api_version = format!("llamastack.io/{version}");
    object(
        json!({ "apiVersion": api_version, "kind": "LlamaStackDistribution", "metadata": { "name": name }, "spec": spec }),
    )
}
