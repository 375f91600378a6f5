//! Runs the operator as a process outside the cluster, with the service account and the permissions of `deploy/rbac.yaml`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};
use kube::{Client, ResourceExt};
use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::log::Log;
use crate::ports::ReservedPort;
use crate::process::{Process, spawn_child_bound_to_parent};
use crate::{apply, wait};

/// The manifests that an administrator applies before the operator starts.
const SHIPPED_MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac.yaml");

/// The operator's service account with the shipped roles, so that tests run with the permissions of a real installation.
pub struct OperatorAccount {
    pub namespace: String,
    pub name: String,
    /// Kubeconfig with a token of the account.
    pub kubeconfig: PathBuf,
}

impl OperatorAccount {
    /// Creates the account as an administrator, and waits until both of its roles are effective.
    pub async fn install(cluster: &Cluster) -> Result<Self> {
        let manifests =
            fs::read_to_string(SHIPPED_MANIFESTS).with_context(|| format!("cannot read {SHIPPED_MANIFESTS}"))?;
        Self::install_with(cluster, &manifests).await
    }

    /// Creates the account with other roles than the shipped ones, as `steersman rbac` prints them for other flags.
    pub async fn install_with(cluster: &Cluster, manifests: &str) -> Result<Self> {
        let applied = apply::apply_manifests(&cluster.admin().await?, None, manifests).await?;
        let is_account = |kind: &str| kind == "ServiceAccount";
        let account = applied.iter().find(|object| object.types.as_ref().is_some_and(|types| is_account(&types.kind)));
        let account = account.context("the manifests have no ServiceAccount")?;
        let (namespace, name) = (account.namespace().unwrap_or_default(), account.name_any());
        let client = cluster.service_account(&namespace, &name).await?;
        // All rules of a role become effective together, so checking one is enough.
        wait::until_allowed(&client, "list", "llmd.ai", "variantautoscalings", None).await?;
        wait_until_may_lead(&client, &namespace).await?;
        let kubeconfig = cluster.service_account_kubeconfig(&namespace, &name).await?;
        Ok(Self { namespace, name, kubeconfig })
    }
}

/// Waits until the account may write Leases in this namespace. The other permissions in its own namespace come with the
/// same role.
pub async fn wait_until_may_lead(account: &Client, namespace: &str) -> Result<()> {
    wait::until_allowed(account, "create", "coordination.k8s.io", "leases", Some(namespace)).await
}

/// The families, by their short names, for which the API server calls the operator's webhooks.
pub struct WebhookFamilies<'a> {
    /// Families whose CRDs are installed. Empty means all.
    pub crds: &'a [&'a str],
    /// Families with admission webhooks. Empty means all that have rules; `None` means none.
    pub admission: Option<&'a [&'a str]>,
}

/// Arguments for an operator without a competitor for its Lease. It keeps the Lease, and with it its counters, even if the
/// machine stalls for a while. The successor of a killed operator waits this long, unless it has the same identity.
pub const LONG_LEASE_ARGS: [&str; 4] = ["--lease-duration", "120", "--renew-deadline", "100"];

/// The command line and environment of an operator, which may be started several times.
#[derive(Clone)]
pub struct OperatorCommand {
    program: PathBuf,
    kubeconfig: PathBuf,
    identity: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
}

impl OperatorCommand {
    /// `identity` is the name of the operator's pod. The user agent of every call of the operator ends with it, except of
    /// admission's lookups.
    pub fn new(program: &Path, kubeconfig: &Path, identity: &str) -> Self {
        Self {
            program: program.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            identity: identity.to_owned(),
            arguments: Vec::new(),
            variables: Vec::new(),
        }
    }

    pub fn args(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    pub fn envs(mut self, variables: &[(&str, &str)]) -> Self {
        self.variables.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        self
    }

    /// Starts the operator with its log in `folder`. By default, it listens on free ports of this machine, and webhooks are
    /// off, because they write to CRDs, which are cluster-wide.
    pub fn start(&self, folder: &Path) -> Result<Operator> {
        let (log, stderr) = (folder.join("steersman.log"), folder.join("steersman.err"));
        let open = |path: &Path| File::create(path).with_context(|| format!("cannot create {}", path.display()));
        let mut command = Command::new(&self.program);
        // Settings of the user's environment must not apply.
        command.env_clear().env("POD_NAME", &self.identity);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.arg("run").arg("--kubeconfig").arg(&self.kubeconfig);
        let is_set = |flag: &str| self.arguments.iter().any(|argument| argument == flag);
        for flag in ["--health-address", "--metrics-address"] {
            if !is_set(flag) {
                command.args([flag, "127.0.0.1:0"]);
            }
        }
        if !is_set("--webhooks") && !is_set("--webhook-url") {
            command.args(["--webhooks", "off"]);
        }
        command.args(&self.arguments).stdin(Stdio::null()).stdout(open(&log)?).stderr(open(&stderr)?);
        let process = Process::spawn("steersman", command, log.clone(), Some(stderr))?;
        Ok(Operator { process, log: Log::open(&log) })
    }

    /// Starts an operator whose webhooks the API server calls. Its CRDs and webhook configurations are installed as an
    /// administrator, because the operator has no permission to create them. Returns the output of the installation too.
    pub async fn start_with_webhooks(
        &self,
        cluster: &Cluster,
        families: &WebhookFamilies<'_>,
        folder: &Path,
    ) -> Result<(Operator, String)> {
        // The API server calls the operator at this port. It is released right before the operator starts.
        let port = ReservedPort::any_free()?;
        let address = format!("127.0.0.1:{}", port.number());
        let url = format!("https://{address}");
        let timeout = wait::TIMEOUT.as_secs().to_string();
        let mut output = self.install(cluster, &["crds", "--wait", &timeout], families.crds, &url).await?;
        if let Some(families) = families.admission {
            output += &self.install(cluster, &["webhooks"], families, &url).await?;
        }
        drop(port);
        let operator = self.clone().args(&["--webhook-address", &address, "--webhook-url", &url]).start(folder)?;
        Ok((operator, output))
    }

    async fn install(&self, cluster: &Cluster, subcommand: &[&str], families: &[&str], url: &str) -> Result<String> {
        let timeout = wait::TIMEOUT.as_secs().to_string();
        let mut command = Command::new(&self.program);
        command.args(subcommand).arg("--apply").args(families).args([
            "--webhook-url",
            url,
            "--request-timeout",
            &timeout,
        ]);
        command.arg("--kubeconfig").arg(cluster.admin_kubeconfig()).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let result = tokio::task::spawn_blocking(|| spawn_child_bound_to_parent(command)?.wait_with_output()).await?;
        let output = result.with_context(|| format!("cannot run {}", self.program.display()))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`steersman {} --apply` failed: {}", subcommand[0], stderr.trim_end());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A running operator. Dropping it kills the process without a graceful stop.
pub struct Operator {
    process: Process,
    log: Log,
}

impl Operator {
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The standard output.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The standard error.
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// The last lines of its output, to explain a failure.
    pub fn log_end(&self) -> String {
        self.process.log_end()
    }

    /// Fails with the last lines of its output if the operator has ended.
    pub fn ensure_running(&mut self) -> Result<()> {
        self.process.ensure_running()
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    pub async fn wait_for_exit(&mut self) -> Result<ExitStatus> {
        wait::eventually("the operator ends", async || self.process.exit_status().transpose()).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn command_line(extra: &[&str]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let command = OperatorCommand::new(Path::new("/bin/echo"), Path::new("/k"), "me").args(extra);
        let mut operator = command.start(folder.path()).unwrap();
        assert!(operator.wait_for_exit().await.unwrap().success());
        operator.log().text()
    }

    #[tokio::test]
    async fn default_arguments_use_free_ports_only() {
        let fixed = "run --kubeconfig /k --health-address 127.0.0.1:0";
        let defaults = format!("{fixed} --metrics-address 127.0.0.1:0 --webhooks off");
        assert_eq!(command_line(&[]).await, format!("{defaults}\n"));
        assert_eq!(command_line(&["--controllers", "va"]).await, format!("{defaults} --controllers va\n"));
        let metrics_address = ["--metrics-address", "0.0.0.0:0"];
        assert_eq!(
            command_line(&metrics_address).await,
            format!("{fixed} --webhooks off --metrics-address 0.0.0.0:0\n")
        );
        let with_webhooks = command_line(&["--webhook-url", "https://127.0.0.1:1"]).await;
        assert!(!with_webhooks.contains("--webhooks off"), "{with_webhooks}");
    }

    #[tokio::test]
    async fn early_exit_is_reported_with_stderr() {
        let folder = tempfile::tempdir().unwrap();
        // The shell takes `run` for a script, which does not exist.
        let command = OperatorCommand::new(Path::new("/bin/sh"), Path::new("/k"), "me");
        let mut operator = command.start(folder.path()).unwrap();
        assert!(!operator.wait_for_exit().await.unwrap().success());
        assert!(operator.stderr().contains("run") && operator.log().text().is_empty(), "{}", operator.stderr());
        let message = operator.ensure_running().unwrap_err().to_string();
        assert!(message.contains("steersman ended by itself") && message.contains(&operator.stderr()), "{message}");
    }
}
