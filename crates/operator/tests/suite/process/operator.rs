//! A `steersman run` process with its log and addresses, and the namespace in which operators compete for the Lease.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Client, Config};
use rustix::process::Signal;
use serde_json::{Value, json};
use steersman::rbac::RbacArgs;
use steersman::run::LEASE;
use steersman_testkit::{Cluster, Log, Operator as Process, OperatorAccount, OperatorCommand, wait};
use tempfile::TempDir;

/// The operator's binary.
const PROGRAM: &str = env!("CARGO_BIN_EXE_steersman");

/// The operator's own namespace with the shipped roles and no Lease.
pub struct TestInstallation {
    kubeconfig: PathBuf,
    leases: Api<Lease>,
}

impl TestInstallation {
    /// Installs the shipped roles. The caller needs exclusive use of the cluster: the role names one Lease in one namespace.
    pub async fn create(cluster: &Cluster) -> Self {
        Self::of_account(cluster, OperatorAccount::install(cluster).await.unwrap()).await
    }

    /// Installs the roles for these flags.
    pub async fn create_with(cluster: &Cluster, rbac: &RbacArgs) -> Self {
        let manifests = rbac.manifests().unwrap();
        Self::of_account(cluster, OperatorAccount::install_with(cluster, &manifests).await.unwrap()).await
    }

    async fn of_account(cluster: &Cluster, account: OperatorAccount) -> Self {
        let OperatorAccount { namespace, kubeconfig, .. } = account;
        let leases: Api<Lease> = Api::namespaced(cluster.admin().await.unwrap(), &namespace);
        // An earlier test whose operators were killed may have left its Lease.
        let _ = leases.delete(LEASE, &DeleteParams::default()).await;
        Self { kubeconfig, leases }
    }

    pub async fn start(&self, identity: &str, more: &[&str]) -> OperatorProcess {
        self.start_with(identity, more, &[]).await
    }

    /// Starts an operator with these environment variables.
    pub async fn start_with(&self, identity: &str, more: &[&str], variables: &[(&str, &str)]) -> OperatorProcess {
        let operator = OperatorProcess::spawn_with(&self.kubeconfig, identity, more, variables);
        operator.wait_for_log("listening").await;
        operator
    }

    pub async fn until_led_by(&self, identity: &str) {
        let holds = |lease: &Lease| holder(lease) == identity;
        let what = format!("is held by {identity}");
        wait::until(self.leases.clone(), LEASE, &what, wait::TIMEOUT, holds).await.unwrap();
    }

    /// Extends the Lease of the current holder, even a dead one, until [`TestInstallation::release_lease`], so that a test
    /// does not race with its expiry.
    pub async fn extend_lease(&self) {
        self.patch_lease(json!({ "leaseDurationSeconds": 3600 })).await;
    }

    /// Releases the Lease, so that a waiting operator takes it now.
    pub async fn release_lease(&self) {
        self.patch_lease(json!({ "holderIdentity": "", "leaseDurationSeconds": 1 })).await;
    }

    async fn patch_lease(&self, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.leases.patch(LEASE, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn holder(&self) -> String {
        holder(&self.leases.get(LEASE).await.unwrap()).to_owned()
    }

    pub async fn transitions(&self) -> i32 {
        self.leases.get(LEASE).await.unwrap().spec.unwrap().lease_transitions.unwrap()
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

pub struct OperatorProcess {
    process: Process,
    // The folder holds the log, so it is dropped last.
    _folder: TempDir,
}

impl OperatorProcess {
    pub fn spawn(kubeconfig: &Path, identity: &str, more: &[&str]) -> Self {
        Self::spawn_with(kubeconfig, identity, more, &[])
    }

    fn spawn_with(kubeconfig: &Path, identity: &str, more: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_in(
            tempfile::tempdir().unwrap(),
            OperatorCommand::new(PROGRAM.as_ref(), kubeconfig, identity).args(more).envs(variables),
        )
    }

    fn start_in(folder: TempDir, command: OperatorCommand) -> Self {
        Self { process: command.start(folder.path()).unwrap(), _folder: folder }
    }

    /// Starts an operator whose API server does not answer at this address.
    pub fn without_api_server(server: &str) -> Self {
        Self::without_api_server_with(server, &[])
    }

    pub fn without_api_server_with(server: &str, more: &[&str]) -> Self {
        Self::without_api_server_as(PROGRAM.as_ref(), server, more)
    }

    /// Starts `program`, which runs an operator with its arguments.
    pub fn without_api_server_as(program: &Path, server: &str, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: a, clusters: [{{name: a, cluster: {{server: \"{server}\"}}}}], \
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}], users: [{{name: a, user: {{token: t}}}}]}}"
        );
        fs::write(&kubeconfig, text).unwrap();
        Self::start_in(folder, OperatorCommand::new(program, &kubeconfig, "nowhere").args(more))
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal).unwrap();
    }

    /// Waits until the process ends. None if a signal ended it.
    pub async fn exit_code(&mut self) -> Option<i32> {
        self.process.wait_for_exit().await.unwrap().code()
    }

    pub fn log(&self) -> String {
        self.lines().text()
    }

    /// Standard error of the process.
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    fn lines(&self) -> &Log {
        self.process.log()
    }

    pub fn has_logged(&self, message: &str) -> bool {
        self.lines().contains(message)
    }

    /// The number of log lines with this message that satisfy `counts`.
    pub fn count_logged(&self, message: &str, counts: impl Fn(&Value) -> bool) -> usize {
        self.lines().count(message, counts)
    }

    pub async fn wait_for_log(&self, message: &str) {
        let logged = wait::eventually(message, async || self.has_logged(message).then_some(())).await;
        logged.unwrap_or_else(|error| panic!("{error}\n{}{}", self.log(), self.stderr()));
    }

    pub fn assert_log_is_json(&self) {
        for line in self.log().lines() {
            let object: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            let level = object["level"].as_str().unwrap();
            assert!(["DEBUG", "INFO", "WARN", "ERROR"].contains(&level), "{line}");
            assert!(object["ts"].as_str().unwrap().ends_with('Z') && object["msg"].is_string(), "{line}");
        }
        assert_eq!(self.stderr(), "");
    }

    pub async fn health(&self, path: &str) -> Option<(u16, String)> {
        self.get("health", path, None).await
    }

    pub async fn metrics(&self, path: &str, token: Option<&str>) -> Option<(u16, String)> {
        self.get("metrics", path, token).await
    }

    pub async fn until_answer(&self, path: &str, status: u16) {
        let what = format!("{path} answers {status}");
        wait::eventually(&what, async || self.health(path).await.filter(|answer| answer.0 == status)).await.unwrap();
    }

    pub async fn until_metric(&self, line: &str) {
        let fetch = async || self.metrics("/metrics", None).await.filter(|answer| answer.1.contains(line));
        wait::eventually(line, fetch).await.unwrap();
    }

    /// Waits for a successful scrape, because the API server's authorizer notices a new role binding with a delay.
    pub async fn until_scraped_with(&self, token: &str) {
        let scraped = async || self.metrics("/metrics", Some(token)).await.filter(|answer| answer.0 == 200);
        wait::eventually("a scrape with a good token", scraped).await.unwrap();
    }

    /// URL of this server of the operator.
    pub fn address(&self, server: &str) -> Option<String> {
        self.lines().address(server)
    }

    /// Current and maximal resident memory of the process, in MiB.
    pub fn memory(&self) -> (u64, u64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let mib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
        };
        (mib("VmRSS:"), mib("VmHWM:"))
    }

    /// Status and body of the response. None if the server does not respond.
    async fn get(&self, server: &str, path: &str, token: Option<&str>) -> Option<(u16, String)> {
        let mut config = Config::new(self.address(server)?.parse().unwrap());
        config.accept_invalid_certs = true;
        // The tests expect a 503, so the client must not retry it.
        config.default_retry = false;
        let mut request = http::Request::get(path);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::try_from(config).unwrap();
        let answer = client.send(request.body(Body::empty()).unwrap()).await.ok()?;
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect_bytes().await.ok()?;
        Some((status, String::from_utf8(bytes.to_vec()).unwrap()))
    }
}

/// A token of the service account, like the one mounted into the pod of a scraper.
pub async fn token(admin: &Client, namespace: &str, name: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), namespace);
    let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
    let issued = accounts.create_token_request(name, &PostParams::default(), &request).await.unwrap();
    issued.status.unwrap().token
}
