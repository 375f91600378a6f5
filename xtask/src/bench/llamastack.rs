//! The burst of LlamaStackDistributions: the objects, their children and the goals.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};
use steersman::args::ManifestFormat;
use steersman::offline::{self, FileArgs, RenderArgs};
use steersman_api::Family;
use steersman_testkit::NodePool;

use super::burst::{self, BaselineChildren, Burst, Goals, name};

/// Default sizes: the burst with goals, and a larger one that shows whether the cost per object grows.
const SIZES: [usize; 2] = [200, 1000];

pub fn run(sizes: &[usize], program: Option<PathBuf>) -> Result<()> {
    let objects = Burst {
        family: Family::Llsd,
        version: "v1alpha1",
        nodes: vec![NodePool::without_gpus("cpu", 12)],
        annotations: Vec::new(),
        object,
        patch: None,
        children,
        created: &["PersistentVolumeClaim"],
        sizes: if sizes.is_empty() { SIZES.to_vec() } else { sizes.to_vec() },
        goals: Goals { objects: SIZES[0], cpu_seconds: Some(2.4), resident_mb: Some(40.0), requests: Some(14.0) },
    };
    burst::run::<Deployment>(&objects, program)
}

/// A v1alpha1 object with storage, as users of the Go operator have it.
fn object(name: &str) -> Value {
    json!({
        "apiVersion": "llamastack.io/v1alpha1",
        "kind": "LlamaStackDistribution",
        "metadata": { "name": name },
        "spec": { "replicas": 1, "server": {
            "distribution": { "name": "starter" },
            "containerSpec": { "port": 8321 },
            "storage": { "size": "10Gi" },
        } },
    })
}

fn children(folder: &Path, _: &str) -> Result<BaselineChildren> {
    let file = folder.join("object.json");
    fs::write(&file, object(&name(0)).to_string())?;
    let files = FileArgs { files: vec![file], recursive: false };
    let rendered = offline::render(&RenderArgs { files, base: None, output: ManifestFormat::Json })?;
    ensure!(rendered.ending == offline::Ending::Fine, "cannot render the object: {}", rendered.notes.join("; "));
    let list: Value = serde_json::from_str(&rendered.out)?;
    Ok(BaselineChildren { each: list["items"].as_array().cloned().unwrap_or_default(), ..BaselineChildren::default() })
}
