//! What a person at a terminal would see: the kubectl of the cluster's own version, as its administrator.

use std::process::Command;

use crate::binaries::Binaries;
use crate::cluster::Cluster;

impl Cluster {
    /// What kubectl prints, or what it complains about.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let told = |error: &dyn std::fmt::Display| format!("kubectl cannot be run: {error}");
        let binaries = Binaries::find().map_err(|error| told(&error))?;
        let program = binaries.ok_or_else(|| told(&"it is not built"))?.path("kubectl");
        // What it remembers of other clusters lies in the home folder.
        let output = Command::new(program)
            .env_clear()
            .env("HOME", &self.folder)
            .arg("--kubeconfig")
            .arg(self.admin_kubeconfig())
            .args(arguments)
            .output()
            .map_err(|error| told(&error))?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}
