//! Runs the operator's binary and kubectl as a user at a terminal does, without the environment of this machine.

use std::path::Path;
use std::process::Command;

use steersman_testkit::{Cluster, wait};

pub struct CommandOutput {
    /// None if a signal ended the program.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl CommandOutput {
    pub fn is_ok(&self) -> bool {
        self.code == Some(0)
    }

    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.is_ok(), "{}{}", self.stdout, self.stderr);
        self.stdout
    }

    /// Standard output of a success that printed nothing to standard error.
    #[track_caller]
    pub fn ok_without_stderr(self) -> String {
        assert_eq!(self.stderr, "");
        self.ok()
    }

    /// Standard error of a failure.
    #[track_caller]
    pub fn failure(self) -> String {
        assert!(!self.is_ok(), "expected a failure, not: {}", self.stdout);
        self.stderr
    }

    /// Standard error of a failure with status 1 that is explained in one line.
    #[track_caller]
    pub fn one_line_failure(self) -> String {
        assert_eq!(self.code, Some(1), "{}{}", self.stdout, self.stderr);
        assert_eq!(self.stderr.trim_end().lines().count(), 1, "{}", self.stderr);
        self.stderr
    }
}

/// The operator's binary.
pub fn steersman(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steersman"));
    command.args(arguments).env_clear();
    command
}

/// The operator's binary as the user of `kubeconfig`. The request timeout is as long as tests wait, because a busy API server
/// must not fail them.
pub fn steersman_as(kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = steersman(arguments);
    command.arg("--kubeconfig").arg(kubeconfig).args(["--request-timeout", &wait::TIMEOUT.as_secs().to_string()]);
    command
}

/// The operator's binary as an administrator of the cluster.
pub fn steersman_as_admin(cluster: &Cluster, arguments: &[&str]) -> Command {
    steersman_as(&cluster.admin_kubeconfig(), arguments)
}

pub fn kubectl(cluster: &Cluster, arguments: &[&str]) -> Command {
    cluster.kubectl_command(arguments).expect("kubectl is built together with the cluster that runs")
}

pub fn output_of(command: &mut Command) -> CommandOutput {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    CommandOutput { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs the command on a blocking thread, so that servers in the test's process can answer it meanwhile.
pub async fn run(mut command: Command) -> CommandOutput {
    tokio::task::spawn_blocking(move || output_of(&mut command)).await.unwrap()
}
