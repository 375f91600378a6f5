//! The operator beside the local cluster: built, its CRDs and webhook configurations installed, and run with the rights
//! that are shipped.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use serde_json::json;
use steersman::admission::{self, Policy};
use steersman::cli::{ClusterArgs, ConverterArgs};
use steersman::crds::{self, Given};
use steersman::{client, rbac};
use steersman_api::Family;
use steersman_testkit::Cluster;
use steersman_testkit::ports::HeldPort;
use steersman_testkit::process::Process;
use steersman_testkit::{apply, wait};

use crate::command::{cargo, run_lines, show};
use crate::progress::Progress;

/// Some servers have containers of the operator's own image, which a process outside the cluster cannot know. Nobody pulls
/// it: pods are played.
const IMAGE: &str = "steersman:local";

/// The operator under way.
pub struct Running {
    pub process: Process,
    /// Where it serves its measurements.
    pub metrics: String,
}

/// Installs the CRDs and configurations, starts the operator and waits until it converts and judges objects.
pub async fn start(cluster: &Cluster, folder: &Path, program: &Path) -> Result<Running> {
    // API servers reach the operator by this port; it is let go of at the last moment.
    let port = HeldPort::any()?;
    let url = format!("https://127.0.0.1:{}", port.number());
    install(cluster, &url).await?;
    let kubeconfig = cluster.service_account_kubeconfig(rbac::NAMESPACE, rbac::NAME).await?;
    let address = format!("127.0.0.1:{}", port.number());
    let kubeconfig = kubeconfig.display().to_string();
    let arguments = ["run", "--kubeconfig", &kubeconfig, "--identity", "local", "--health-address", "127.0.0.1:0"];
    let measured = HeldPort::any()?;
    let metrics = format!("127.0.0.1:{}", measured.number());
    let webhook = ["--metrics-address", &metrics, "--webhook-address", &address, "--webhook-url", &url];
    drop((port, measured));
    let log = folder.join("log/steersman.log");
    let arguments = [&arguments[..], &webhook, &["--operator-image", IMAGE]].concat();
    let mut process = Process::start("steersman", program, &arguments, folder, log)?;
    until_ready(cluster, &mut process).await?;
    Ok(Running { process, metrics })
}

/// The operator's account with the role that is shipped, so that what runs here has the rights it has elsewhere.
pub async fn install_account(cluster: &Cluster) -> Result<()> {
    let path = crate::root().join("deploy/rbac.yaml");
    let manifests = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    apply::manifests(&cluster.admin().await?, None, &manifests).await?;
    // One rule of the role stands for all: they come with the same object.
    let account = cluster.service_account(rbac::NAMESPACE, rbac::NAME).await?;
    wait::until_allowed(&account, "list", "llmd.ai", "variantautoscalings", None).await
}

/// The binary, built if it is not there yet.
pub fn build(release: bool) -> Result<PathBuf> {
    let mut progress = Progress::start("building the operator");
    let mut command = cargo();
    command.args([
        "build",
        "--package",
        "steersman",
        "--bin",
        "steersman",
        "--message-format",
        "json-render-diagnostics",
    ]);
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
    ensure!(status.success(), "`{}` failed:\n{}", show(&command), said.join("\n"));
    progress.done();
    program.context("cargo did not say where the operator's program is")
}

/// As an administrator would, by hand or by a chart: the operator itself may not.
async fn install(cluster: &Cluster, url: &str) -> Result<()> {
    let args =
        ClusterArgs { kubeconfig: Some(cluster.admin_kubeconfig()), context: None, request_timeout: wait::LIMIT };
    let server = client::connect(&args).await?;
    let given = Given::read(&ConverterArgs { url: Some(url.to_owned()), ..ConverterArgs::default() })?;
    println!();
    crds::apply(&server, &[], &given, wait::LIMIT, &mut |line| println!("{line}")).await?;
    admission::apply(&server, &[], &given, Policy::Fail, &mut |line| println!("{line}")).await?;
    Ok(())
}

/// Ready is when objects of an older version are taken: the API server needs a moment to trust the operator's certificate,
/// for conversion and for admission.
async fn until_ready(cluster: &Cluster, process: &mut Process) -> Result<()> {
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
    process.ensure_running()?;
    if started.is_err() {
        bail!("the operator does not convert and judge objects; its log ends with:\n{}", process.log_end());
    }
    progress.done();
    Ok(())
}
