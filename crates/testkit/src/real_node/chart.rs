//! Installs, upgrades and removes the operator with the chart and helm, as an administrator does.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::RealCluster;
use super::scenario::{LLAMA_STACK_IMAGE, OPERATOR, OPERATOR_NAMESPACE, OPERATOR_REPLICAS};
use crate::process::spawn_child_bound_to_parent;

/// The folder of the chart.
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/chart");

/// Time that helm gives each hook. The pod of a hook starts within seconds on an idle machine.
const HOOK_TIMEOUT: &str = "300s";

impl RealCluster {
    /// Installs the chart with this image of the operator, or upgrades it, and waits until all replicas are ready. The image is
    /// named as `REGISTRY/REPOSITORY:TAG`.
    pub async fn install_operator(&self, image: &str) -> Result<()> {
        let values = self.folder.join("values.json");
        std::fs::write(&values, values_with(image)?.to_string())
            .with_context(|| format!("cannot write {}", values.display()))?;
        let values = values.display().to_string();
        self.helm(&["upgrade", OPERATOR, CHART, "--install", "--create-namespace", "--values", &values]).await?;
        self.wait_for_rollout(OPERATOR_NAMESPACE, OPERATOR, OPERATOR_REPLICAS).await
    }

    /// Removes the chart. Objects of users and their CRDs stay.
    pub async fn uninstall_operator(&self) -> Result<()> {
        self.helm(&["uninstall", OPERATOR]).await
    }

    /// Runs helm in the operator's namespace, and waits for the hooks.
    async fn helm(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(self.helm.path("helm"));
        // helm has settings and caches in the home folder.
        command.env_clear().env("HOME", &self.folder).args(arguments);
        command.args(["--namespace", OPERATOR_NAMESPACE, "--timeout", HOOK_TIMEOUT]);
        command.arg("--kubeconfig").arg(self.cluster.admin_kubeconfig());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let run = || spawn_child_bound_to_parent(command)?.wait_with_output();
        let output = tokio::task::spawn_blocking(run).await?.context("cannot run helm")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`helm {}` failed: {}", arguments.join(" "), stderr.trim());
        Ok(())
    }
}

/// Values of the chart for this cluster: images that the node has, and the right of its Prometheus to read metrics.
fn values_with(image: &str) -> Result<Value> {
    let (registry, name) = image.rsplit_once('/').with_context(|| format!("{image} has no registry"))?;
    let (repository, tag) = name.split_once(':').with_context(|| format!("{image} has no tag"))?;
    Ok(json!({
        "image": { "registry": registry, "repository": repository, "tag": tag },
        "images": { "distributions": { "starter": LLAMA_STACK_IMAGE } },
        "metrics": { "readers": [{ "namespace": "monitoring", "name": "prometheus" }] },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_parts_of_image() {
        let values = values_with("localhost/steersman:1.2.3-next").unwrap();
        let expected = json!({ "registry": "localhost", "repository": "steersman", "tag": "1.2.3-next" });
        assert_eq!(values["image"], expected);
        assert!(values_with("steersman").is_err());
    }
}
