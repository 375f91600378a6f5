//! What an operator says of itself, and operators that one test has to itself.
//! Comes in: a process; goes out: lines of its log, its series, and how many passes it has made.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::Role;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use steersman::installation;
use steersman_testkit::operator::{STEADY, until_leads};
use steersman_testkit::{Cluster, Launch, Log, Namespace, Operator as Process, apply, metrics, wait};
use tempfile::TempDir;

use crate::world;

/// The log and the metrics of one operator.
#[derive(Clone)]
pub struct Voice {
    log: Log,
    /// Where it serves its metrics, once it has said so.
    address: Arc<OnceLock<String>>,
}

impl Voice {
    pub fn of(operator: &Process) -> Self {
        Self { log: operator.log().clone(), address: Arc::default() }
    }

    /// Its last lines, for whoever has to find out why a test failed.
    pub fn last_words(&self) -> String {
        self.log.end()
    }

    pub fn lines(&self) -> Vec<Value> {
        self.log.lines()
    }

    pub fn times_said(&self, message: &str) -> usize {
        self.log.times_said(message, |_| true)
    }

    pub async fn until_said(&self, message: &str) {
        self.log.until_said(message).await.unwrap();
    }

    /// What Prometheus would scrape; None while nobody answers.
    pub async fn metrics(&self) -> Option<String> {
        let address = match self.address.get() {
            Some(address) => address,
            None => {
                let url = self.log.address("metrics")?;
                self.address.get_or_init(|| url.trim_start_matches("http://").to_owned())
            }
        };
        metrics::scrape(address).await
    }

    /// Values of a metric, with all labels of each, where those hold all of `labels`.
    pub async fn series(&self, metric: &str, labels: &[(&str, &str)]) -> Vec<(String, f64)> {
        let text = wait::eventually("the operator's metrics", async || self.metrics().await).await.unwrap();
        metrics::find(&text, metric, labels)
    }

    /// The one value of the metric with these labels.
    pub async fn value(&self, metric: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let found = self.series(metric, labels).await;
        assert!(found.len() < 2, "one series of {metric}: {found:?}");
        found.first().map(|(_, value)| *value)
    }

    /// When its last pass over the fleet ended.
    pub async fn last_pass(&self) -> Option<f64> {
        self.value("steersman_fleet_last_pass_seconds", &[]).await
    }

    /// Until it has made so many passes from now on, each begun and ended since.
    pub async fn passes(&self, count: usize) {
        for _ in 0..=count {
            let before = self.last_pass().await;
            let next = async || (self.last_pass().await != before).then_some(());
            let made = wait::eventually("the next pass", next).await;
            made.unwrap_or_else(|error| panic!("{error}\n{}", self.last_words()));
        }
    }
}

/// An operator of one test alone, with the shipped rights: it acts in one namespace, which the shared one leaves alone.
pub struct Operator {
    process: Option<Process>,
    pub voice: Voice,
    /// Its Lease and its settings are here.
    pub home: Namespace,
    launch: Launch,
    // One for each start; they go last.
    folders: Vec<TempDir>,
}

impl Operator {
    pub async fn start(cluster: &Cluster, watched: &str) -> Self {
        let home = cluster.namespace("operator").await.unwrap();
        let admin = cluster.admin().await.unwrap();
        let own: Api<Role> = Api::namespaced(admin.clone(), installation::NAMESPACE);
        let rules = own.get(installation::NAME).await.unwrap().rules;
        let group = "rbac.authorization.k8s.io";
        let role = json!({ "apiVersion": format!("{group}/v1"), "kind": "Role",
            "metadata": { "name": installation::NAME }, "rules": rules });
        let account =
            json!({ "kind": "ServiceAccount", "name": installation::NAME, "namespace": installation::NAMESPACE });
        let binding = json!({ "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
            "metadata": { "name": installation::NAME }, "subjects": [account],
            "roleRef": { "apiGroup": group, "kind": "Role", "name": installation::NAME } });
        for manifest in [role, binding] {
            apply::manifests(&admin, Some(home.name()), &manifest.to_string()).await.unwrap();
        }
        let account = cluster.service_account(installation::NAMESPACE, installation::NAME).await.unwrap();
        until_leads(&account, home.name()).await.unwrap();
        let kubeconfig = cluster.service_account_kubeconfig(installation::NAMESPACE, installation::NAME).await.unwrap();
        let own = ["--namespace", home.name(), "--config-namespace", home.name(), "--watch-namespace", watched];
        let program = Path::new(env!("CARGO_BIN_EXE_steersman"));
        let launch =
            Launch::new(program, &kubeconfig, "the-only-one").with(&own).with(&["--controllers", "va"]).with(&STEADY);
        let folder = tempfile::tempdir().unwrap();
        let process = launch.start(folder.path()).unwrap();
        Self { voice: Voice::of(&process), process: Some(process), home, launch, folders: vec![folder] }
    }

    /// As its ConfigMap says, it asks this Prometheus.
    pub async fn asks(&self, admin: &Client, meter: &world::Meter) {
        world::settle(admin, self.home.name(), &*meter.lock().await).await.unwrap();
    }

    pub async fn set(&self, admin: &Client, name: &str, data: Value) {
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data });
        let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), self.home.name());
        maps.patch(name, &PatchParams::apply("scenarios").force(), &Patch::Apply(map)).await.unwrap();
    }

    /// With a log of its own each time.
    pub fn start_again(&mut self) {
        let folder = tempfile::tempdir().unwrap();
        let process = self.launch.start(folder.path()).unwrap();
        self.folders.push(folder);
        self.voice = Voice::of(&process);
        self.process = Some(process);
    }

    /// On the spot: it can neither finish nor clean up anything.
    pub fn kill(&mut self) {
        self.process = None;
    }
}
