//! Runs kubectl, in the version of the cluster, as the administrator.

use std::process::Command;

use anyhow::{Context, Result};

use crate::binaries::Binaries;
use crate::cluster::Cluster;

impl Cluster {
    /// A kubectl command for the caller to run.
    pub fn kubectl_command(&self, arguments: &[&str]) -> Result<Command> {
        let program = Binaries::find()?.context("kubectl is not built")?.path("kubectl");
        let mut command = Command::new(program);
        // The user's home folder holds kubectl's cache of other clusters.
        command.env_clear().env("HOME", &self.folder);
        command.arg("--kubeconfig").arg(self.admin_kubeconfig()).args(arguments);
        Ok(command)
    }

    /// Runs kubectl. Returns its standard output, or its standard error if it fails.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let run = || anyhow::Ok(self.kubectl_command(arguments)?.output()?);
        let output = run().map_err(|error| format!("kubectl cannot be run: {error:#}"))?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}
