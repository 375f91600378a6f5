//! The operator beside the local cluster: built, its CRDs and webhook configurations installed, and run with the rights
//! that are shipped.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use serde_json::json;
use steersman_api::Family;
use steersman_testkit::{Account, Asked, Cluster, Launch, Operator, wait};

use crate::command::{cargo, run_lines, show};
use crate::progress::Progress;

/// Some servers have containers of the operator's own image, which a process outside the cluster cannot know. Nobody pulls
/// it: pods are played.
const IMAGE: &str = "steersman:local";

/// The name by which it holds the Lease.
pub const IDENTITY: &str = "local";

/// The operator under way.
pub struct Running {
    pub operator: Operator,
    /// Where it serves its measurements.
    pub metrics: String,
}

/// Installs the CRDs and configurations, starts the operator and waits until it converts and judges objects.
pub async fn start(cluster: &Cluster, account: &Account, folder: &Path, program: &Path) -> Result<Running> {
    let launch = Launch::new(program, &account.kubeconfig, IDENTITY).with(&["--operator-image", IMAGE]);
    let all = Asked { converted: &[], judged: Some(&[]) };
    let (mut operator, said) = launch.start_asked(cluster, &all, &folder.join("log")).await?;
    println!("\n{}", said.trim_end());
    until_ready(cluster, &mut operator).await?;
    let metrics = operator.log().address("metrics").context("the operator serves no measurements")?;
    Ok(Running { operator, metrics: metrics.trim_start_matches("http://").to_owned() })
}

/// The binary, built if it is not there yet.
pub fn build(release: bool) -> Result<PathBuf> {
    let mut progress = Progress::start("building the operator");
    let mut command = cargo();
    // Not of its package alone: that would change the features of shared dependencies and compile them again.
    command.args(["build", "--workspace", "--bin", "steersman", "--message-format", "json-render-diagnostics"]);
    if release {
        command.arg("--release");
    }
    let mut program = None;
    let mut said = Vec::new();
    let status = run_lines(&command, |line| {
        let Some(line) = line else { return progress.say("compiling") };
        match serde_json::from_str::<serde_json::Value>(line) {
            Ok(message) => {
                let executable = message["executable"].as_str().filter(|_| message["target"]["name"] == "steersman");
                program = executable.map(PathBuf::from).or(program.take());
            }
            Err(_) => {
                progress.say(line.trim());
                said.push(line.to_owned());
            }
        }
    })?;
    ensure!(status.success(), explain(&show(&command), &said));
    progress.done();
    program.context("cargo did not say where the operator's program is")
}

/// One sentence for what a machine may lack; the compiler's own words for the rest.
fn explain(command: &str, said: &[String]) -> String {
    let says = |words: &[&str]| said.iter().find(|line| words.iter().any(|word| line.contains(word)));
    if let Some(line) = says(&["linker `cc` not found", "failed to find tool \"cc\""]) {
        let advice = "install gcc or clang, so that `cc` runs, and run this again";
        return format!("a C compiler is missing, and the operator is built with it: {advice} (Cargo says: {line})");
    }
    if let Some(line) = says(&["Could not resolve host", "Could not connect", "Timeout was reached"]) {
        let advice = "check the network, and the settings of Cargo if you use a mirror, and run this again";
        return format!(
            "crates.io cannot be reached, and the operator's dependencies come from it: {advice} (Cargo says: {})",
            line.trim()
        );
    }
    format!("`{command}` failed:\n{}", said.join("\n"))
}

/// Ready is when objects of an older version are taken: the API server needs a moment to trust the operator's certificate,
/// for conversion and for admission.
async fn until_ready(cluster: &Cluster, operator: &mut Operator) -> Result<()> {
    let progress = Progress::start("starting the operator");
    let admin = cluster.admin().await?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let server = json!({ "server": { "distribution": { "name": "starter" } } });
    // Without an image, so that one has to be filled in.
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
    let started = wait::eventually("the operator converts", converts).await;
    operator.ensure_running()?;
    if started.is_err() {
        bail!("the operator does not convert and judge objects; its log ends with:\n{}", operator.log_end());
    }
    progress.done();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_lacks_is_one_sentence() {
        let cases = [
            ("error: linker `cc` not found", "a C compiler is missing"),
            (
                "  [6] Could not resolve hostname (Could not resolve host: index.crates.io)",
                "crates.io cannot be reached",
            ),
        ];
        for (said, expected) in cases {
            let message = explain("cargo build", &["   Compiling a v1".to_owned(), said.to_owned()]);
            assert!(message.starts_with(expected), "{message}");
            assert!(message.contains("run this again") && !message.contains('\n'), "{message}");
        }
        let other = explain("cargo build", &["error[E0308]: mismatched types".to_owned()]);
        assert_eq!(other, "`cargo build` failed:\nerror[E0308]: mismatched types");
    }
}
