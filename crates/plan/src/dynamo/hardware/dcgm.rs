//! Reads the GPUs of nodes from the metrics of DCGM exporters.

use std::collections::{BTreeMap, BTreeSet};

use steersman_reconcile::Lookup;

use super::{NodeGpus, ObservedHardware, ObservedNode, PRODUCT, sku};
use crate::exposition::{self, Sample, TooLarge};

const TEMPERATURE: &str = "DCGM_FI_DEV_GPU_TEMP";
/// The sum of these is the memory of a GPU.
const MEMORY: [&str; 3] = ["DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED"];
const LINKS: &str = "DCGM_FI_DEV_NVLINK_LINK_COUNT";

/// Most samples of these metrics, seven times those of sixteen GPUs with seven MIG instances each.
const MAX_SAMPLES: usize = 4_096;

/// Number of failed exporters in a message: there is one on every node, and most fail for the same reason.
const MAX_LISTED_FAILURES: usize = 3;

/// The GPUs of all nodes. A single exporter that answers is enough.
pub fn gpus(snapshot: &ObservedHardware) -> Result<Vec<NodeGpus>, String> {
    let exporters = match &snapshot.exporters {
        Lookup::Known(exporters) => exporters,
        Lookup::Unknown(why) => return Err(format!("listing DCGM exporter pods failed: list pods: {why}")),
    };
    if exporters.is_empty() {
        return Err(if snapshot.gpu_operator {
            "DCGM is not enabled in the GPU Operator (check GPU Operator configuration and permissions)".to_owned()
        } else {
            "gpu operator is not installed gpu-operator".to_owned()
        });
    }
    let failures: Vec<&str> = exporters
        .iter()
        .filter_map(|exporter| match &exporter.gpus {
            Lookup::Known(_) => None,
            Lookup::Unknown(why) => Some(why.as_str()),
        })
        .collect();
    if failures.len() == exporters.len() {
        return Err(format!("failed to scrape any DCGM exporter pod: [{}]", first_of(&failures)));
    }
    // Two exporters on a node report the same GPUs.
    let mut found: BTreeMap<&str, &NodeGpus> = BTreeMap::new();
    for gpus in exporters.iter().filter_map(|exporter| exporter.gpus.known()?.as_ref()) {
        let known = found.entry(&gpus.node).or_insert(gpus);
        if (gpus.count, gpus.memory) > (known.count, known.memory) {
            *known = gpus;
        }
    }
    if found.is_empty() {
        return Err("no GPU metrics could be parsed from any DCGM pod".to_owned());
    }
    let Lookup::Known(nodes) = &snapshot.nodes else { return Ok(found.into_values().cloned().collect()) };
    let nodes: BTreeMap<&str, &ObservedNode> = nodes.iter().map(|node| (node.name.as_str(), node)).collect();
    let (mut confirmed, mut refused) = (Vec::new(), Vec::new());
    for gpus in found.into_values() {
        match confirm(gpus, nodes.get(gpus.node.as_str()).copied()) {
            Ok(gpus) => confirmed.push(gpus),
            Err(why) => refused.push(why),
        }
    }
    if confirmed.is_empty() {
        let refused: Vec<&str> = refused.iter().map(String::as_str).collect();
        return Err(format!("the nodes do not confirm the metrics of any DCGM exporter: [{}]", first_of(&refused)));
    }
    Ok(confirmed)
}

/// The first failures, and the number of the others.
fn first_of(failures: &[&str]) -> String {
    let named = failures.iter().take(MAX_LISTED_FAILURES).copied().collect::<Vec<_>>().join("; ");
    match failures.len().saturating_sub(MAX_LISTED_FAILURES) {
        0 => named,
        more => format!("{named}, and {more} more"),
    }
}

/// Compares the metrics of an exporter with its node, which the kubelet and the device plugin report. An exporter can only
/// lower the number of GPUs, and cannot change their type.
fn confirm(gpus: &NodeGpus, node: Option<&ObservedNode>) -> Result<NodeGpus, String> {
    let name = &gpus.node;
    let node = node.ok_or_else(|| format!("node {name} does not exist"))?;
    if node.gpus == 0 {
        return Err(format!("node {name} has no nvidia.com/gpu in its capacity; check its device plugin"));
    }
    if let Some(product) = node.labels.get(PRODUCT)
        && let (Some(labelled), Some(reported)) = (sku::infer(product), sku::infer(&gpus.model))
        && labelled != reported
    {
        return Err(format!(
            "node {name} has the label {PRODUCT}={product}, and its exporter reports {:?}",
            gpus.model
        ));
    }
    Ok(NodeGpus { count: gpus.count.min(node.gpus), ..gpus.clone() })
}

/// The GPUs of one node. None: there are none, or their memory is unknown.
pub fn read(node: &str, metrics: &str) -> Result<Option<NodeGpus>, TooLarge> {
    let names = [TEMPERATURE, MEMORY[0], MEMORY[1], MEMORY[2], LINKS];
    let mut samples = exposition::samples(metrics, &names, MAX_SAMPLES)?;
    samples.retain(|sample| sample.value.is_some());
    Ok(gpus_of(node, &samples))
}

fn gpus_of(node: &str, samples: &[Sample<'_>]) -> Option<NodeGpus> {
    let of = |name: &'static str| samples.iter().filter(move |sample| sample.metric == name);
    let ids: BTreeSet<&str> = of(TEMPERATURE).filter_map(|sample| label(sample, "gpu")).collect();
    if ids.is_empty() {
        return None;
    }
    let mut memory: BTreeMap<&str, f64> = BTreeMap::new();
    for sample in MEMORY.into_iter().flat_map(of) {
        *memory.entry(label(sample, "gpu").unwrap_or_default()).or_default() +=
            sample.value.unwrap_or_default().max(0.0);
    }
    let most = memory.into_values().fold(0.0_f64, f64::max);
    // Missing memory metrics must not be taken for a GPU without memory.
    let memory = whole(most);
    if memory == 0 {
        return None;
    }
    let linked = of(LINKS).any(|sample| sample.value > Some(0.0));
    Some(NodeGpus {
        node: node.to_owned(),
        count: i32::try_from(ids.len()).unwrap_or(i32::MAX),
        model: of(TEMPERATURE).find_map(|sample| label(sample, "modelName")).unwrap_or_default().to_owned(),
        memory,
        interconnect: Some(if linked { "nvlink" } else { "pcie" }.to_owned()),
    })
}

/// An empty label counts as absent, as in Prometheus.
fn label<'a>(sample: &'a Sample<'_>, name: &str) -> Option<&'a str> {
    sample.label(name).filter(|value| !value.is_empty())
}

/// The bound is above the memory of any GPU, and keeps the number exact.
fn whole(number: f64) -> i64 {
    let text = format!("{:.0}", number.clamp(0.0, 1e12));
    text.parse().unwrap_or_default()
}
