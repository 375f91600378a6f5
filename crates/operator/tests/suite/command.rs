//! Programs as somebody at a terminal runs them, with nothing of this machine's environment.
//! Comes in: a command; goes out: what it printed, and how it ended.

use std::path::Path;
use std::process::Command;

use steersman_testkit::{Cluster, wait};

/// What a program printed.
pub struct Said {
    /// None: it was killed.
    pub code: Option<i32>,
    pub out: String,
    pub error: String,
}

impl Said {
    pub fn is_ok(&self) -> bool {
        self.code == Some(0)
    }

    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.is_ok(), "{}{}", self.out, self.error);
        self.out
    }

    /// The same, with nothing on standard error.
    #[track_caller]
    pub fn plain(self) -> String {
        assert_eq!(self.error, "");
        self.ok()
    }

    #[track_caller]
    pub fn failed(self) -> String {
        assert!(!self.is_ok(), "expected a failure, not: {}", self.out);
        self.error
    }

    /// The one sentence of a failure.
    #[track_caller]
    pub fn sentence(self) -> String {
        assert_eq!(self.code, Some(1), "{}{}", self.out, self.error);
        assert_eq!(self.error.trim_end().lines().count(), 1, "{}", self.error);
        self.error
    }
}

/// The operator's binary.
pub fn steersman(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steersman"));
    command.args(arguments).env_clear();
    command
}

/// The same for commands that ask an API server, as whoever the kubeconfig is of. How long a busy one takes is not what these
/// tests are about.
pub fn asks(kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = steersman(arguments);
    command.arg("--kubeconfig").arg(kubeconfig).args(["--request-timeout", &wait::LIMIT.as_secs().to_string()]);
    command
}

/// The same, as an administrator of the cluster.
pub fn administers(cluster: &Cluster, arguments: &[&str]) -> Command {
    asks(&cluster.admin_kubeconfig(), arguments)
}

pub fn kubectl(cluster: &Cluster, arguments: &[&str]) -> Command {
    cluster.kubectl_command(arguments).expect("a cluster runs, so its programs are built")
}

pub fn said(command: &mut Command) -> Said {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
}

/// On a thread of its own: meanwhile the test answers, or hands on what the API server asks.
pub async fn run(mut command: Command) -> Said {
    tokio::task::spawn_blocking(move || said(&mut command)).await.unwrap()
}
