//! Counts the GPUs of the nodes by short product name.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use steersman_plan::variant::gpu_limit::short_product_name;
use steersman_reconcile::Lookup;
use steersman_runtime::client::Server;

use super::targets::whole;

/// Resource name and product label of each supported vendor.
const VENDORS: [(&str, &str); 3] = [
    ("nvidia.com/gpu", "nvidia.com/gpu.product"),
    ("amd.com/gpu", "amd.com/gpu.product"),
    ("intel.com/gpu", "intel.com/gpu.product"),
];

/// Resource names of GPUs in a pod's requests.
pub fn resources() -> impl Iterator<Item = &'static str> {
    VENDORS.into_iter().map(|(resource, _)| resource)
}

/// Counts the allocatable GPUs of each type, on the nodes that match the label selector, if there is one.
pub async fn count_gpus(server: &Server, selector: Option<&str>) -> Lookup<BTreeMap<String, i32>> {
    let nodes: Api<Node> = Api::all(server.client.clone());
    let wanted = selector.map_or_else(ListParams::default, |selector| ListParams::default().labels(selector));
    match server.call(nodes.list(&wanted)).await {
        Ok(listed) => Lookup::Known(count(&listed.items)),
        Err(error) => Lookup::Unknown(error.to_string()),
    }
}

fn count(nodes: &[Node]) -> BTreeMap<String, i32> {
    let mut found = BTreeMap::new();
    for node in nodes {
        let offered = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        for (resource, label) in VENDORS {
            let count = offered.and_then(|offered| offered.get(resource)).map_or(0, |amount| whole(&amount.0));
            if let Some(product) = node.labels().get(label).filter(|_| count > 0) {
                let all: &mut i32 = found.entry(short_product_name(product)).or_default();
                *all = all.saturating_add(count);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn accelerators_are_counted_by_short_name() {
        let node = |product: &str, count: &str| {
            serde_json::from_value::<Node>(json!({ "metadata": { "labels": { "nvidia.com/gpu.product": product } },
                "status": { "allocatable": { "nvidia.com/gpu": count, "cpu": "4" } } }))
            .unwrap()
        };
        let nodes = [node("NVIDIA-A100-PCIE-80GB", "8"), node("NVIDIA-A100-SXM", "4"), node("NVIDIA-H100", "0")];
        assert_eq!(count(&nodes), BTreeMap::from([("A100".to_owned(), 12)]));
    }
}
