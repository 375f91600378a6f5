//! Reads the log and metrics of an operator, and starts operators for a single test.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::Role;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use steersman::installation;
use steersman_testkit::operator::{LONG_LEASE_ARGS, wait_until_may_lead};
use steersman_testkit::{Cluster, Log, Namespace, Operator as Process, OperatorCommand, apply, metrics, wait};
use tempfile::TempDir;

use crate::env;

/// The log and the metrics of one operator.
#[derive(Clone)]
pub struct OperatorProbe {
    log: Log,
    /// Address of the metrics, read from the log at the first scrape.
    address: Arc<OnceLock<String>>,
}

impl OperatorProbe {
    pub fn new(operator: &Process) -> Self {
        Self { log: operator.log().clone(), address: Arc::default() }
    }

    /// The last lines of the log, for the message of a failed test.
    pub fn log_end(&self) -> String {
        self.log.last_lines()
    }

    pub fn log_lines(&self) -> Vec<Value> {
        self.log.lines()
    }

    pub fn log_count(&self, message: &str) -> usize {
        self.log.count(message, |_| true)
    }

    pub async fn wait_for_log(&self, message: &str) {
        self.log.wait_for(message).await.unwrap();
    }

    /// The metrics in the text format. None while the operator does not serve them.
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

    /// The series of a metric that have all of `labels`, as their full labels and value.
    pub async fn series(&self, metric: &str, labels: &[(&str, &str)]) -> Vec<(String, f64)> {
        let text = wait::eventually("the operator serves metrics", async || self.metrics().await).await.unwrap();
        metrics::find_series(&text, metric, labels)
    }

    /// The value of the only series of a metric with these labels.
    pub async fn value(&self, metric: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let found = self.series(metric, labels).await;
        assert!(found.len() < 2, "more than one series of {metric}: {found:?}");
        found.first().map(|(_, value)| *value)
    }

    /// Time at which the last reconcile of the fleet ended.
    pub async fn last_reconcile(&self) -> Option<f64> {
        self.value("steersman_fleet_last_reconcile_timestamp_seconds", &[]).await
    }

    /// Waits for this number of reconciles that start and end from now on.
    pub async fn wait_for_reconciles(&self, count: usize) {
        for _ in 0..=count {
            let before = self.last_reconcile().await;
            let next = async || (self.last_reconcile().await != before).then_some(());
            let ended = wait::eventually("the next reconcile has ended", next).await;
            ended.unwrap_or_else(|error| panic!("{error}\n{}", self.log_end()));
        }
    }
}

/// The operator of a single test, with the RBAC rules that are shipped. It watches one namespace, which the shared operator
/// ignores.
pub struct DedicatedOperator {
    process: Option<Process>,
    pub probe: OperatorProbe,
    /// Namespace of its Lease and settings.
    pub home: Namespace,
    command: OperatorCommand,
    // Each start has a folder. The field is the last, so that the process is dropped first.
    folders: Vec<TempDir>,
}

impl DedicatedOperator {
    pub async fn start(cluster: &Cluster, watched: &str) -> Self {
        let home = cluster.namespace("operator").await.unwrap();
        let admin = cluster.admin().await.unwrap();
        let roles: Api<Role> = Api::namespaced(admin.clone(), installation::NAMESPACE);
        let rules = roles.get(installation::NAME).await.unwrap().rules;
        let group = "rbac.authorization.k8s.io";
        let role = json!({ "apiVersion": format!("{group}/v1"), "kind": "Role",
            "metadata": { "name": installation::NAME }, "rules": rules });
        let account =
            json!({ "kind": "ServiceAccount", "name": installation::NAME, "namespace": installation::NAMESPACE });
        let binding = json!({ "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
            "metadata": { "name": installation::NAME }, "subjects": [account],
            "roleRef": { "apiGroup": group, "kind": "Role", "name": installation::NAME } });
        for manifest in [role, binding] {
            apply::apply_manifests(&admin, Some(home.name()), &manifest.to_string()).await.unwrap();
        }
        let account = cluster.service_account(installation::NAMESPACE, installation::NAME).await.unwrap();
        wait_until_may_lead(&account, home.name()).await.unwrap();
        let kubeconfig = cluster.service_account_kubeconfig(installation::NAMESPACE, installation::NAME).await.unwrap();
        let arguments = ["--namespace", home.name(), "--config-namespace", home.name(), "--watch-namespace", watched];
        let program = Path::new(env!("CARGO_BIN_EXE_steersman"));
        let command = OperatorCommand::new(program, &kubeconfig, "the-only-one")
            .args(&arguments)
            .args(&["--controllers", "va"])
            .args(&LONG_LEASE_ARGS);
        let folder = tempfile::tempdir().unwrap();
        let process = command.start(folder.path()).unwrap();
        Self { probe: OperatorProbe::new(&process), process: Some(process), home, command, folders: vec![folder] }
    }

    /// Applies settings with the address of this Prometheus.
    pub async fn use_prometheus(&self, admin: &Client, prometheus: &env::SharedPrometheus) {
        env::apply_settings(admin, self.home.name(), &*prometheus.lock().await).await.unwrap();
    }

    pub async fn set_config_map(&self, admin: &Client, name: &str, data: Value) {
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data });
        let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), self.home.name());
        maps.patch(name, &PatchParams::apply("scenarios").force(), &Patch::Apply(map)).await.unwrap();
    }

    /// Starts the process again, with a new log.
    pub fn restart(&mut self) {
        let folder = tempfile::tempdir().unwrap();
        let process = self.command.start(folder.path()).unwrap();
        self.folders.push(folder);
        self.probe = OperatorProbe::new(&process);
        self.process = Some(process);
    }

    /// Kills the process, so that it cannot finish or clean up anything.
    pub fn kill(&mut self) {
        self.process = None;
    }
}
