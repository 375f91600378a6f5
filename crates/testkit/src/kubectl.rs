//! What a person at a terminal would see: the kubectl of the cluster's own version, as its administrator.

use std::process::Command;

use anyhow::{Context, Result};

use crate::binaries::Binaries;
use crate::cluster::Cluster;

impl Cluster {
    /// For those who run it themselves.
    pub fn kubectl_command(&self, arguments: &[&str]) -> Result<Command> {
        let program = Binaries::find()?.context("it is not built")?.path("kubectl");
        let mut command = Command::new(program);
        // What it remembers of other clusters lies in the home folder.
        command.env_clear().env("HOME", &self.folder);
        command.arg("--kubeconfig").arg(self.admin_kubeconfig()).args(arguments);
        Ok(command)
    }

    /// What kubectl prints, or what it complains about.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let run = || anyhow::Ok(self.kubectl_command(arguments)?.output()?);
        let output = run().map_err(|error| format!("kubectl cannot be run: {error:#}"))?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}
