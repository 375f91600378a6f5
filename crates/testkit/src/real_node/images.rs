//! Images reach a real node as archives: it has no registry.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use super::{RealCluster, programs};
use crate::process::spawn_child_bound_to_parent;

/// The namespace of containerd that the kubelet uses.
const CONTAINERD_NAMESPACE: &str = "k8s.io";

impl RealCluster {
    /// Imports an archive of images in the format of OCI or Docker.
    pub async fn import(&self, archive: &Path) -> Result<()> {
        // The archive stays in the cache, so the node need not keep its layers.
        self.ctr(&["images", "import", "--local", "--discard-unpacked-layers", &archive.display().to_string()])
            .await
            .with_context(|| format!("cannot import the image in {}", archive.display()))?;
        Ok(())
    }

    /// Gives an imported image another name.
    pub async fn tag(&self, image: &str, name: &str) -> Result<()> {
        self.ctr(&["images", "tag", "--force", image, name]).await?;
        Ok(())
    }

    async fn ctr(&self, arguments: &[&str]) -> Result<String> {
        let socket = programs::socket().display().to_string();
        let arguments = [&["--address", &socket, "--namespace", CONTAINERD_NAMESPACE], arguments].concat();
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let mut command = self.namespaces.command(&self.binaries, &self.binaries.containers.path("ctr"), &arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let run = || spawn_child_bound_to_parent(command)?.wait_with_output();
        let output = tokio::task::spawn_blocking(run).await?.context("cannot run ctr")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`ctr {}` failed: {}", arguments[4..].join(" "), stderr.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
