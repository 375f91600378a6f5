//! Simulated nodes with GPUs. They have the labels that NVIDIA's GPU feature discovery sets on real nodes.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Api, ObjectMeta, PostParams};

use crate::cluster::Cluster;
use crate::wait;

/// A GPU model and the properties that its nodes report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// The default name of a pool of such nodes.
    pub name: &'static str,
    /// `nvidia.com/gpu.product`, with dashes instead of spaces.
    pub product: &'static str,
    /// `nvidia.com/gpu.family`
    pub family: &'static str,
    /// `nvidia.com/gpu.memory`, in MiB.
    pub memory_mib: u32,
    /// Major and minor version of the compute capability.
    pub compute: (u8, u8),
    /// GPUs of a typical node.
    pub typical_count_per_node: u32,
    /// `nvidia.com/mig.capable`
    pub mig_capable: bool,
}

impl Gpu {
    pub const B200: Self = gpu("b200", "NVIDIA-B200", "blackwell", 183_359, (10, 0), 8, true);
    pub const H200: Self = gpu("h200", "NVIDIA-H200", "hopper", 143_771, (9, 0), 8, true);
    pub const H100: Self = gpu("h100", "NVIDIA-H100-80GB-HBM3", "hopper", 81_559, (9, 0), 8, true);
    pub const A100: Self = gpu("a100", "NVIDIA-A100-SXM4-80GB", "ampere", 81_920, (8, 0), 8, true);
    pub const L40S: Self = gpu("l40s", "NVIDIA-L40S", "ada-lovelace", 46_068, (8, 9), 4, false);
    pub const L4: Self = gpu("l4", "NVIDIA-L4", "ada-lovelace", 23_034, (8, 9), 1, false);
    pub const T4: Self = gpu("t4", "Tesla-T4", "turing", 15_360, (7, 5), 1, false);

    /// All models, largest first.
    pub const ALL: [Self; 7] = [Self::B200, Self::H200, Self::H100, Self::A100, Self::L40S, Self::L4, Self::T4];
}

const fn gpu(
    name: &'static str,
    product: &'static str,
    family: &'static str,
    memory_mib: u32,
    compute: (u8, u8),
    typical_count_per_node: u32,
    mig_capable: bool,
) -> Gpu {
    Gpu { name, product, family, memory_mib, compute, typical_count_per_node, mig_capable }
}

/// Nodes of one kind.
#[derive(Clone, Debug)]
pub struct NodePool {
    /// Node names are `<name>-0`, `<name>-1`, …; also the value of the label [`POOL_LABEL`].
    pub name: String,
    pub nodes: u32,
    /// The GPU model and the count per node. `None` for nodes without GPUs.
    pub gpus: Option<(Gpu, u32)>,
}

/// The label that names a node's pool, for node selectors.
pub const POOL_LABEL: &str = "steersman.dev/pool";

impl NodePool {
    /// Nodes with the usual number of GPUs.
    pub fn with_gpus(gpu: Gpu, nodes: u32) -> Self {
        Self { name: gpu.name.to_owned(), nodes, gpus: Some((gpu, gpu.typical_count_per_node)) }
    }

    /// Nodes without GPUs.
    pub fn without_gpus(name: &str, nodes: u32) -> Self {
        Self { name: name.to_owned(), nodes, gpus: None }
    }

    /// The same pool under another name.
    pub fn with_name(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    fn objects(&self) -> impl Iterator<Item = Node> {
        (0..self.nodes).map(|index| self.object(&format!("{}-{index}", self.name)))
    }

    fn object(&self, name: &str) -> Node {
        let mut labels = BTreeMap::from([
            ("kubernetes.io/hostname".to_owned(), name.to_owned()),
            ("kubernetes.io/os".to_owned(), "linux".to_owned()),
            ("kubernetes.io/arch".to_owned(), "amd64".to_owned()),
            (POOL_LABEL.to_owned(), self.name.clone()),
        ]);
        let mut capacity = BTreeMap::from([
            ("cpu".to_owned(), Quantity("128".into())),
            ("memory".to_owned(), Quantity("2Ti".into())),
            ("ephemeral-storage".to_owned(), Quantity("10Ti".into())),
            ("pods".to_owned(), Quantity("250".into())),
        ]);
        if let Some((gpu, count)) = self.gpus {
            labels.extend(discovery_labels(gpu, count));
            capacity.insert("nvidia.com/gpu".to_owned(), Quantity(count.to_string()));
        }
        Node {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels),
                annotations: Some(BTreeMap::from([("kwok.x-k8s.io/node".to_owned(), "fake".to_owned())])),
                ..ObjectMeta::default()
            },
            status: Some(NodeStatus {
                allocatable: Some(capacity.clone()),
                capacity: Some(capacity),
                ..NodeStatus::default()
            }),
            ..Node::default()
        }
    }
}

/// The labels that GPU feature discovery sets on a node, and the label of node feature discovery that enables it.
fn discovery_labels(gpu: Gpu, count: u32) -> BTreeMap<String, String> {
    let (count, memory) = (count.to_string(), gpu.memory_mib.to_string());
    let (major, minor) = (gpu.compute.0.to_string(), gpu.compute.1.to_string());
    let mut labels: BTreeMap<String, String> = [
        ("gpu.present", "true"),
        ("gpu.product", gpu.product),
        ("gpu.count", &count),
        ("gpu.replicas", "1"),
        ("gpu.sharing-strategy", "none"),
        ("gpu.mode", "compute"),
        ("gpu.memory", &memory),
        ("gpu.family", gpu.family),
        ("gpu.machine", "Standard-PC-Q35-ICH9-2009"),
        ("gpu.compute.major", &major),
        ("gpu.compute.minor", &minor),
        ("cuda.driver-version.full", "570.172.08"),
        ("cuda.driver-version.major", "570"),
        ("cuda.driver-version.minor", "172"),
        ("cuda.driver-version.revision", "08"),
        ("cuda.runtime-version.full", "12.8"),
        ("cuda.runtime-version.major", "12"),
        ("cuda.runtime-version.minor", "8"),
        ("mig.capable", if gpu.mig_capable { "true" } else { "false" }),
        ("mig.strategy", "single"),
        ("mps.capable", "false"),
        ("vgpu.present", "false"),
    ]
    .into_iter()
    .map(|(key, value)| (format!("nvidia.com/{key}"), value.to_owned()))
    .collect();
    labels.insert("feature.node.kubernetes.io/pci-10de.present".to_owned(), "true".to_owned());
    labels
}

impl Cluster {
    /// Adds the nodes of a pool and waits until pods can be scheduled on all of them.
    pub async fn add_nodes(&self, pool: &NodePool) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.admin().await?);
        create_nodes(&nodes, pool).await.with_context(|| format!("cannot add the node pool {}", pool.name))
    }
}

async fn create_nodes(nodes: &Api<Node>, pool: &NodePool) -> Result<()> {
    for node in pool.objects() {
        nodes.create(&PostParams::default(), &node).await?;
    }
    for node in pool.objects() {
        let name = node.metadata.name.unwrap_or_default();
        wait::until(nodes.clone(), &name, "is Ready and accepts pods", wait::TIMEOUT, accepts_pods).await?;
    }
    Ok(())
}

/// A Ready node accepts pods once the controllers have removed the taint of new nodes.
fn accepts_pods(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready =
        conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    ready && taints.is_none_or(Vec::is_empty)
}
