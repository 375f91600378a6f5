//! Completes the hardware of a request from the GPUs of the cluster.

pub mod dcgm;
pub mod sku;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Number;
use steersman_api::dynamo::v1beta1::{GpuSku, Hardware};
use steersman_reconcile::{Finding, Lookup};

/// Limit of the assumed number of GPUs. A number in the request is not limited.
pub const MAX_TOTAL_GPUS: i32 = 32;

/// The labels of nodes to keep in the store.
pub const LABELS: [&str; 6] = [COUNT, PRODUCT, MEMORY, RDMA[0], RDMA[1], RDMA[2]];

const COUNT: &str = "nvidia.com/gpu.count";
const PRODUCT: &str = "nvidia.com/gpu.product";
const MEMORY: &str = "nvidia.com/gpu.memory";
const RDMA: [&str; 3] = [
    "nvidia.com/rdma.present",
    "feature.node.kubernetes.io/rdma.available",
    "feature.node.kubernetes.io/network-sriov.capable",
];

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObservedHardware {
    /// Discovery is in progress and its result unknown.
    pub awaited: bool,
    /// Exporter pods, or why they could not be listed.
    pub exporters: Lookup<Vec<ObservedExporter>>,
    /// Whether pods of NVIDIA's GPU operator run.
    pub gpu_operator: bool,
    /// Whether the operator's settings allow it to read nodes.
    pub by_labels: bool,
    /// All nodes, or why they could not be listed.
    pub nodes: Lookup<Vec<ObservedNode>>,
    /// Whether the network operator runs a pod for RDMA.
    pub rdma_pod: bool,
}

impl ObservedHardware {
    pub fn awaited() -> Self {
        let not_run = || "discovery has not run yet".to_owned();
        Self {
            awaited: true,
            exporters: Lookup::Unknown(not_run()),
            gpu_operator: false,
            by_labels: true,
            nodes: Lookup::Unknown(not_run()),
            rdma_pod: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObservedExporter {
    /// The GPUs in its metrics, by [`dcgm::read`]. None: no GPU. Unknown: why there are no metrics.
    pub gpus: Lookup<Option<NodeGpus>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObservedNode {
    pub name: String,
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeGpus {
    pub node: String,
    pub count: i32,
    /// The model as the driver spells it.
    pub model: String,
    /// Memory of one GPU in MiB.
    pub memory: i64,
    /// `nvlink` or `pcie`. None: unknown.
    pub interconnect: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredGpus {
    /// The node with most GPUs, and among these with most memory.
    pub best: NodeGpus,
    /// The profiler's name for the type. None: the profiler does not know it.
    pub sku: Option<GpuSku>,
    pub nodes: i32,
    pub rdma: Option<bool>,
}

/// Whether the request leaves anything to discover.
pub fn needs_discovery(requested: Option<&Hardware>) -> bool {
    requested.is_none_or(|hardware| lacks_gpus(hardware) || hardware.interconnect.is_none() || hardware.rdma.is_none())
}

/// Whether a field is missing that the profiler needs.
fn lacks_gpus(hardware: &Hardware) -> bool {
    hardware.gpu_sku.is_none()
        || hardware.vram_mb.is_none()
        || hardware.num_gpus_per_node.is_none()
        || hardware.total_gpus.is_none()
}

/// The request's hardware, completed with the fields that the profiler needs. Fields of the request stay. While
/// discovery is in progress, nothing is added.
pub fn complete(requested: Option<&Hardware>, snapshot: &ObservedHardware) -> Result<Hardware, Finding> {
    let mut hardware = requested.cloned().unwrap_or_default();
    if !needs_discovery(requested) || snapshot.awaited {
        return Ok(hardware);
    }
    let found = match discover(hardware.gpu_sku.as_ref(), snapshot) {
        Ok(found) => found,
        // The remaining fields are optional, and not worth waiting for.
        Err(_) if !lacks_gpus(&hardware) => return Ok(hardware),
        Err(why) => return Err(not_discovered(&why)),
    };
    if hardware.gpu_sku.is_none() {
        hardware.gpu_sku = Some(found.sku.clone().ok_or_else(|| unsupported(&found.best))?);
    }
    hardware.vram_mb.get_or_insert_with(|| Number::from(found.best.memory));
    hardware.num_gpus_per_node.get_or_insert(found.best.count);
    hardware.total_gpus.get_or_insert(found.best.count.saturating_mul(found.nodes).min(MAX_TOTAL_GPUS));
    hardware.interconnect = hardware.interconnect.or(found.best.interconnect);
    hardware.rdma = hardware.rdma.or(found.rdma);
    Ok(hardware)
}

/// The exporters come first: they see the GPUs, while labels may be stale.
pub fn discover(filter: Option<&GpuSku>, snapshot: &ObservedHardware) -> Result<DiscoveredGpus, String> {
    // Neither source returns an empty list, so that only a filter can leave nothing to select.
    let sku = filter.map(sku::text).unwrap_or_default();
    let by_exporters = dcgm::gpus(snapshot)
        .and_then(|gpus| select(filter, gpus).ok_or_else(|| format!("no GPU nodes matching SKU \"{sku}\" found")));
    let found = by_exporters.or_else(|exporters| {
        let by_labels = gpus_by_labels(snapshot).and_then(|(gpus, checked)| {
            let unmatched = || {
                format!(
                    "no nodes with NVIDIA GPU Feature Discovery labels matching SKU \"{sku}\" found (checked {checked} nodes)"
                )
            };
            select(filter, gpus).ok_or_else(unmatched)
        });
        // If both sources fail, both causes are reported: fixing one is enough.
        by_labels.map_err(|labels| format!("{exporters}; {labels}"))
    })?;
    Ok(with_rdma(found, snapshot))
}

fn gpus_by_labels(snapshot: &ObservedHardware) -> Result<(Vec<NodeGpus>, usize), String> {
    if !snapshot.by_labels {
        return Err("node-label discovery is disabled".to_owned());
    }
    let nodes = match &snapshot.nodes {
        Lookup::Known(nodes) if nodes.is_empty() => return Err("no nodes found in cluster".to_owned()),
        Lookup::Known(nodes) => nodes,
        Lookup::Unknown(why) => return Err(format!("failed to list cluster nodes: {why}")),
    };
    let gpus: Vec<NodeGpus> = nodes.iter().filter_map(gpus_of).collect();
    if gpus.is_empty() {
        return Err(format!(
            "no nodes with NVIDIA GPU Feature Discovery labels found (checked {} nodes). Ensure GPU nodes have labels: \
             {COUNT}, {PRODUCT}, {MEMORY}",
            nodes.len()
        ));
    }
    Ok((gpus, nodes.len()))
}

fn gpus_of(node: &ObservedNode) -> Option<NodeGpus> {
    let number = |label: &str| node.labels.get(label)?.parse::<i32>().ok().filter(|number| *number > 0);
    let model = node.labels.get(PRODUCT).filter(|model| !model.is_empty())?;
    Some(NodeGpus {
        node: node.name.clone(),
        count: number(COUNT)?,
        model: model.clone(),
        memory: i64::from(number(MEMORY)?),
        interconnect: None,
    })
}

/// The best node, and the number of nodes with the same type. Nodes of an unknown type must have the same model.
fn select(filter: Option<&GpuSku>, gpus: Vec<NodeGpus>) -> Option<DiscoveredGpus> {
    let matching: Vec<(Option<GpuSku>, NodeGpus)> = gpus
        .into_iter()
        .map(|gpus| (sku::infer(&gpus.model), gpus))
        .filter(|(sku, _)| filter.is_none_or(|wanted| sku.as_ref() == Some(wanted)))
        .collect();
    // The name breaks ties, so that the order of the list does not decide.
    let (sku, best) = matching
        .iter()
        .max_by(|(_, a), (_, b)| (a.count, a.memory).cmp(&(b.count, b.memory)).then_with(|| b.node.cmp(&a.node)))?;
    let same = |other: &&(Option<GpuSku>, NodeGpus)| other.0 == *sku && (sku.is_some() || other.1.model == best.model);
    let nodes = i32::try_from(matching.iter().filter(same).count()).unwrap_or(i32::MAX);
    Some(DiscoveredGpus { best: best.clone(), sku: sku.clone(), nodes, rdma: None })
}

/// Reads the labels of nodes with the same type. Without access to nodes, RDMA is unknown.
fn with_rdma(found: DiscoveredGpus, snapshot: &ObservedHardware) -> DiscoveredGpus {
    let by_label = snapshot.nodes.known().map(|nodes| {
        let same = |node: &&ObservedNode| {
            let model = node.labels.get(PRODUCT);
            node.name == found.best.node || model.is_some_and(|model| sku::infer(model) == found.sku)
        };
        nodes
            .iter()
            .filter(same)
            .any(|node| RDMA.iter().any(|label| node.labels.get(*label).is_some_and(|v| v == "true")))
    });
    DiscoveredGpus { rdma: if snapshot.rdma_pod { Some(true) } else { by_label }, ..found }
}

fn not_discovered(why: &str) -> Finding {
    Finding::blocker(
        "HardwareNotDiscovered",
        format!(
            "GPU hardware info required but auto-discovery failed. Verify DCGM exporter is reachable from the operator's \
             namespace, or set spec.hardware.{{gpuSku,vramMb,numGpusPerNode}} explicitly. Cause: {why}"
        ),
        "Set spec.hardware.totalGpus as well: without it, profiling still waits for discovery.",
    )
}

fn unsupported(NodeGpus { node, model, .. }: &NodeGpus) -> Finding {
    Finding::blocker(
        "GpuNotSupported",
        format!("spec.hardware.gpuSku: the profiler does not support {model:?}, the GPU of node {node}"),
        // Discovery ignores nodes of other types than that in the spec, and this one has none of the known types.
        format!(
            "Set spec.hardware.gpuSku to the most similar of {}, and set vramMb, numGpusPerNode and totalGpus, which \
             cannot be discovered for it.",
            sku::all()
        ),
    )
}
