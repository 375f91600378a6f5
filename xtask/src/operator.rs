//! Builds the operator and runs it as a process next to the local cluster, with its CRDs and webhook configurations
//! installed and with the RBAC rules that are shipped.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use serde_json::json;
use steersman_api::Family;
use steersman_testkit::{Cluster, Operator, OperatorAccount, OperatorCommand, WebhookFamilies, wait};

use crate::command::{cargo, run_lines, show};
use crate::progress::Progress;

/// Some pods use the operator's own image, whose name a process outside the cluster cannot know. The image is never pulled,
/// because pods are simulated.
const IMAGE: &str = "steersman:local";

/// Holder identity of the Lease.
pub const IDENTITY: &str = "local";

/// A running operator.
pub struct Running {
    pub operator: Operator,
    /// Address (host and port) of its metrics.
    pub metrics: String,
}

/// Installs the CRDs and webhook configurations, starts the operator and waits until its webhooks work. A `gateway` answers
/// the operator's requests to Services and pods.
pub async fn start(
    cluster: &Cluster,
    account: &OperatorAccount,
    folder: &Path,
    program: &Path,
    gateway: Option<SocketAddr>,
) -> Result<Running> {
    let mut launch = OperatorCommand::new(program, &account.kubeconfig, IDENTITY).args(&["--operator-image", IMAGE]);
    if let Some(gateway) = gateway {
        launch = launch.args(&["--cluster-gateway", &gateway.to_string()]);
    }
    let all = WebhookFamilies { crds: &[], admission: Some(&[]) };
    let (mut operator, install_output) = launch.start_with_webhooks(cluster, &all, &folder.join("log")).await?;
    println!("\n{}", install_output.trim_end());
    wait_until_ready(cluster, &mut operator).await?;
    let metrics = operator.log().address("metrics").with_context(|| {
        format!(
            "the operator's log does not contain the address of its metrics; end of its log:\n{}",
            operator.log_end()
        )
    })?;
    Ok(Running { operator, metrics: metrics.trim_start_matches("http://").to_owned() })
}

/// Builds the operator and returns the path of the binary.
pub fn build(release: bool) -> Result<PathBuf> {
    let mut command = cargo();
    // The whole workspace is selected: the package alone would change the features of shared dependencies, which would be
    // compiled again.
    command.args(["build", "--workspace", "--bin", "steersman"]);
    if release {
        command.arg("--release");
    }
    run_build(command)
}

/// Runs a `cargo build` of the operator and returns the path of the binary.
pub fn run_build(mut command: Command) -> Result<PathBuf> {
    let mut progress = Progress::start("building the operator");
    command.args(["--message-format", "json-render-diagnostics"]);
    let mut program = None;
    let mut output_lines = Vec::new();
    let status = run_lines(&command, |line| {
        let Some(line) = line else { return progress.update("compiling") };
        match serde_json::from_str::<serde_json::Value>(line) {
            Ok(message) => {
                let executable = message["executable"].as_str().filter(|_| message["target"]["name"] == "steersman");
                program = executable.map(PathBuf::from).or(program.take());
            }
            Err(_) => {
                progress.update(line.trim());
                output_lines.push(line.to_owned());
            }
        }
    })?;
    ensure!(status.success(), explain(&show(&command), &output_lines));
    progress.done();
    program.context("cargo did not report the path of the operator's binary")
}

/// Returns one sentence with advice for a common cause; otherwise the compiler's output.
fn explain(command: &str, output_lines: &[String]) -> String {
    let find_line = |words: &[&str]| output_lines.iter().find(|line| words.iter().any(|word| line.contains(word)));
    if let Some(line) = find_line(&["linker `cc` not found", "failed to find tool \"cc\""]) {
        let advice = "install gcc or clang as `cc` and run this again";
        return format!(
            "no C compiler is installed, but the operator is built with it: {advice} (output of Cargo: {line})"
        );
    }
    if let Some(line) = find_line(&["Could not resolve host", "Could not connect", "Timeout was reached"]) {
        let advice = "check the network, and Cargo's settings if you use a mirror, then run this again";
        return format!(
            "cannot reach crates.io to download the operator's dependencies: {advice} (output of Cargo: {})",
            line.trim()
        );
    }
    format!("`{command}` failed:\n{}", output_lines.join("\n"))
}

/// Waits until objects of an older version are accepted: the API server needs a moment to trust the operator's certificate,
/// for conversion and for admission.
async fn wait_until_ready(cluster: &Cluster, operator: &mut Operator) -> Result<()> {
    let progress = Progress::start("starting the operator");
    let admin = cluster.admin().await?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let server = json!({ "server": { "distribution": { "name": "starter" } } });
    // The image is empty, so that the mutating webhook has to set it.
    let request = json!({ "model": "m", "backend": "vllm", "profilingConfig": { "profilerImage": "" } });
    let converts = async || {
        for (family, spec) in [(Family::Llsd, &server), (Family::Dgdr, &request)] {
            let kind = GroupVersionKind::gvk(family.group(), "v1alpha1", family.kind());
            let resource = ApiResource::from_gvk_with_plural(&kind, family.plural());
            let objects: Api<DynamicObject> = Api::namespaced_with(admin.clone(), "default", &resource);
            let mut object = DynamicObject::new("probe", &resource);
            object.data = json!({ "spec": spec });
            objects.create(&dry_run, &object).await.ok()?;
        }
        Some(())
    };
    let started = wait::eventually("the operator converts objects", converts).await;
    operator.ensure_running()?;
    if started.is_err() {
        bail!("the operator's webhooks do not accept objects; end of its log:\n{}", operator.log_end());
    }
    progress.done();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_build_failure_is_one_sentence() {
        let cases = [
            ("error: linker `cc` not found", "no C compiler is installed"),
            ("  [6] Could not resolve hostname (Could not resolve host: index.crates.io)", "cannot reach crates.io"),
        ];
        for (line, expected) in cases {
            let message = explain("cargo build", &["   Compiling a v1".to_owned(), line.to_owned()]);
            assert!(message.starts_with(expected), "{message}");
            assert!(message.contains("run this again") && !message.contains('\n'), "{message}");
        }
        let other = explain("cargo build", &["error[E0308]: mismatched types".to_owned()]);
        assert_eq!(other, "`cargo build` failed:\nerror[E0308]: mismatched types");
    }
}
