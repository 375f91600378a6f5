//! The operator as a process beside the cluster, as the account that is shipped and with its rights.
//! Comes in: the program, who it is and what it is told; goes out: a process whose log and addresses can be read.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};
use kube::{Client, ResourceExt};
use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::log::Log;
use crate::ports::HeldPort;
use crate::process::{Process, spawn_bound};
use crate::{apply, wait};

/// What an administrator applies before the operator is started.
const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac.yaml");

/// The operator's account with the roles that are shipped, so that what runs here has the rights it has elsewhere.
pub struct Account {
    pub namespace: String,
    pub name: String,
    /// By which a process is the account.
    pub kubeconfig: PathBuf,
}

impl Account {
    /// As an administrator, and until both of its roles count.
    pub async fn install(cluster: &Cluster) -> Result<Self> {
        let manifests = fs::read_to_string(SHIPPED).with_context(|| format!("cannot read {SHIPPED}"))?;
        let applied = apply::manifests(&cluster.admin().await?, None, &manifests).await?;
        let is_account = |kind: &str| kind == "ServiceAccount";
        let account = applied.iter().find(|object| object.types.as_ref().is_some_and(|types| is_account(&types.kind)));
        let account = account.with_context(|| format!("there is no ServiceAccount in {SHIPPED}"))?;
        let (namespace, name) = (account.namespace().unwrap_or_default(), account.name_any());
        let client = cluster.service_account(&namespace, &name).await?;
        // One rule of a role stands for all: they come with the same object.
        wait::until_allowed(&client, "list", "llmd.ai", "variantautoscalings", None).await?;
        until_leads(&client, &namespace).await?;
        let kubeconfig = cluster.service_account_kubeconfig(&namespace, &name).await?;
        Ok(Self { namespace, name, kubeconfig })
    }
}

/// Until the account may hold its Lease in this namespace, and with that all that it may do only where it is at home.
pub async fn until_leads(account: &Client, namespace: &str) -> Result<()> {
    wait::until_allowed(account, "create", "coordination.k8s.io", "leases", Some(namespace)).await
}

/// Whom the API server shall ask: families by their short names.
pub struct Asked<'a> {
    /// Their CRDs are installed; empty: those of all.
    pub converted: &'a [&'a str],
    /// Their objects are judged before they are stored; empty: those of all that have rules. None: nobody's.
    pub judged: Option<&'a [&'a str]>,
}

/// For an operator that has its Lease to itself: a machine that stands still for a while does not take it away, and with it
/// all that the operator has counted. Whoever comes after one that was killed waits as long, unless it has the same name.
pub const STEADY: [&str; 4] = ["--lease-duration", "120", "--renew-deadline", "100"];

/// How an operator is run, as often as one likes.
#[derive(Clone)]
pub struct Launch {
    program: PathBuf,
    kubeconfig: PathBuf,
    identity: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Launch {
    /// `identity` is the name of its pod: it ends the user agent of every call that the operator makes.
    pub fn new(program: &Path, kubeconfig: &Path, identity: &str) -> Self {
        Self {
            program: program.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            identity: identity.to_owned(),
            arguments: Vec::new(),
            variables: Vec::new(),
        }
    }

    pub fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    pub fn with_variables(mut self, variables: &[(&str, &str)]) -> Self {
        self.variables.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        self
    }

    /// Addresses that are not given are any free ones of this machine, and webhooks that are not given are off: they write
    /// to CRDs, which belong to a whole cluster. What it says is kept in `folder`.
    pub fn start(&self, folder: &Path) -> Result<Operator> {
        let (log, complaint) = (folder.join("steersman.log"), folder.join("steersman.err"));
        let open = |path: &Path| File::create(path).with_context(|| format!("cannot create {}", path.display()));
        let mut command = Command::new(&self.program);
        // Settings of the user's are not meant for it.
        command.env_clear().env("POD_NAME", &self.identity);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.arg("run").arg("--kubeconfig").arg(&self.kubeconfig);
        let given = |flag: &str| self.arguments.iter().any(|argument| argument == flag);
        for flag in ["--health-address", "--metrics-address"] {
            if !given(flag) {
                command.args([flag, "127.0.0.1:0"]);
            }
        }
        if !given("--webhooks") && !given("--webhook-url") {
            command.args(["--webhooks", "off"]);
        }
        command.args(&self.arguments).stdin(Stdio::null()).stdout(open(&log)?).stderr(open(&complaint)?);
        let process = Process::spawn("steersman", command, log.clone(), Some(complaint))?;
        Ok(Operator { process, log: Log::at(&log) })
    }

    /// The same for an operator that the API server asks: with CRDs and webhook configurations that name it, installed by
    /// an administrator, as the operator itself may not. Also returns what was said of them.
    pub async fn start_asked(&self, cluster: &Cluster, asked: &Asked<'_>, folder: &Path) -> Result<(Operator, String)> {
        // API servers reach the operator by this port; it is let go of at the last moment.
        let port = HeldPort::any()?;
        let address = format!("127.0.0.1:{}", port.number());
        let url = format!("https://{address}");
        let limit = wait::LIMIT.as_secs().to_string();
        let mut said = self.install(cluster, &["crds", "--wait", &limit], asked.converted, &url).await?;
        if let Some(judged) = asked.judged {
            said += &self.install(cluster, &["webhooks"], judged, &url).await?;
        }
        drop(port);
        let operator = self.clone().with(&["--webhook-address", &address, "--webhook-url", &url]).start(folder)?;
        Ok((operator, said))
    }

    async fn install(&self, cluster: &Cluster, what: &[&str], families: &[&str], url: &str) -> Result<String> {
        let limit = wait::LIMIT.as_secs().to_string();
        let mut command = Command::new(&self.program);
        command.args(what).arg("--apply").args(families).args(["--webhook-url", url, "--request-timeout", &limit]);
        command.arg("--kubeconfig").arg(cluster.admin_kubeconfig()).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ended = tokio::task::spawn_blocking(|| spawn_bound(command)?.wait_with_output()).await?;
        let output = ended.with_context(|| format!("cannot run {}", self.program.display()))?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`steersman {} --apply` failed: {}", what[0], complaint.trim_end());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A running operator. Dropping it kills it: it can neither finish nor clean up anything.
pub struct Operator {
    process: Process,
    log: Log,
}

impl Operator {
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it says on standard output.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// What it says on standard error.
    pub fn complaint(&self) -> String {
        self.process.complaint()
    }

    /// The last that it said, for whoever has to find out why something failed.
    pub fn log_end(&self) -> String {
        self.process.log_end()
    }

    /// Fails, with its last words, if it has ended by itself.
    pub fn ensure_running(&mut self) -> Result<()> {
        self.process.ensure_running()
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    pub async fn until_ended(&mut self) -> Result<ExitStatus> {
        wait::eventually("the operator ends", async || self.process.ended().transpose()).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn said(more: &[&str]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let launch = Launch::new(Path::new("/bin/echo"), Path::new("/k"), "me").with(more);
        let mut operator = launch.start(folder.path()).unwrap();
        assert!(operator.until_ended().await.unwrap().success());
        operator.log().text()
    }

    #[tokio::test]
    async fn what_is_not_given_disturbs_nobody() {
        let own = "run --kubeconfig /k --health-address 127.0.0.1:0";
        let usual = format!("{own} --metrics-address 127.0.0.1:0 --webhooks off");
        assert_eq!(said(&[]).await, format!("{usual}\n"));
        assert_eq!(said(&["--controllers", "va"]).await, format!("{usual} --controllers va\n"));
        let scraped = ["--metrics-address", "0.0.0.0:0"];
        assert_eq!(said(&scraped).await, format!("{own} --webhooks off --metrics-address 0.0.0.0:0\n"));
        let asked = said(&["--webhook-url", "https://127.0.0.1:1"]).await;
        assert!(!asked.contains("--webhooks off"), "{asked}");
    }

    #[tokio::test]
    async fn one_that_ends_by_itself_is_told_with_its_complaint() {
        let folder = tempfile::tempdir().unwrap();
        // It takes `run` for a file, which is not there.
        let launch = Launch::new(Path::new("/bin/sh"), Path::new("/k"), "me");
        let mut operator = launch.start(folder.path()).unwrap();
        assert!(!operator.until_ended().await.unwrap().success());
        assert!(operator.complaint().contains("run") && operator.log().text().is_empty(), "{}", operator.complaint());
        let message = operator.ensure_running().unwrap_err().to_string();
        assert!(message.contains("steersman ended by itself") && message.contains(&operator.complaint()), "{message}");
    }
}
