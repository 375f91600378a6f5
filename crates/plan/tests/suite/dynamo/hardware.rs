//! Discovery of the GPU hardware that profiling plans for.

use serde_json::json;
use steersman_api::dynamo::v1beta1::{Hardware, Phase};
use steersman_plan::dynamo::hardware::{LABELS, ObservedExporter, ObservedHardware, ObservedNode, complete, dcgm, sku};
use steersman_reconcile::Lookup;

use super::{TestEnv, no_hardware, node, request_snapshot, spec};

pub fn gpu_node(name: &str, product: &str, count: &str, memory: &str) -> ObservedNode {
    node(
        name,
        &[("nvidia.com/gpu.count", count), ("nvidia.com/gpu.product", product), ("nvidia.com/gpu.memory", memory)],
    )
}

pub fn nodes(nodes: Vec<ObservedNode>) -> ObservedHardware {
    ObservedHardware { nodes: Lookup::Known(nodes), ..no_hardware() }
}

pub fn exporter(node: &str, metrics: &str) -> ObservedExporter {
    ObservedExporter { gpus: Lookup::Known(dcgm::read(node, metrics).unwrap()) }
}

pub fn failed_exporter(why: &str) -> ObservedExporter {
    ObservedExporter { gpus: Lookup::Unknown(why.into()) }
}

fn completed_hardware(requested: serde_json::Value, cluster: &ObservedHardware) -> serde_json::Value {
    let requested: Hardware = serde_json::from_value(requested).unwrap();
    json!(complete(Some(&requested), cluster).unwrap())
}

fn discovery_error(requested: serde_json::Value, cluster: &ObservedHardware) -> String {
    let requested: Hardware = serde_json::from_value(requested).unwrap();
    let finding = complete(Some(&requested), cluster).unwrap_err();
    format!("{} {}", finding.message, finding.remedy)
}

pub const TWO_GPUS: &str = r#"# HELP DCGM_FI_DEV_GPU_TEMP Temperature
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="a",modelName="NVIDIA H100 80GB HBM3"} 40
DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="b",modelName="NVIDIA H100 80GB HBM3"} 41
DCGM_FI_DEV_FB_FREE{gpu="0"} 80000
DCGM_FI_DEV_FB_USED{gpu="0"} 1000
DCGM_FI_DEV_FB_RESERVED{gpu="0"} 559
DCGM_FI_DEV_FB_FREE{gpu="1"} 81000
DCGM_FI_DEV_FB_USED{gpu="1",note="a \" and }"} 0
DCGM_FI_DEV_NVLINK_LINK_COUNT{gpu="0"} 18
broken line {
"#;

#[test]
fn product_name_maps_to_gpu_sku() {
    for (model, want) in [
        ("NVIDIA GB200", "gb200_sxm"),
        ("NVIDIA GB10", "gb10"),
        ("NVIDIA-B200", "b200_sxm"),
        ("NVIDIA H200", "h200_sxm"),
        ("NVIDIA-H100-80GB-HBM3", "h100_sxm"),
        ("NVIDIA H100 PCIe", "h100_pcie"),
        ("NVIDIA H100", "h100_pcie"),
        ("NVIDIA-A100-SXM4-80GB", "a100_sxm"),
        ("A100-PCIE-40GB", "a100_pcie"),
        ("DGX A100", "a100_sxm"),
        ("NVIDIA A30", "a30"),
        ("NVIDIA-L40S", "l40s"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L4", "l4"),
        ("Tesla-V100-SXM2-32GB", "v100_sxm"),
        ("Tesla V100-PCIE-16GB", "v100_pcie"),
        ("Tesla T4", "t4"),
        ("AMD Instinct MI300X", "mi300"),
        ("AMD Instinct MI250", "mi200"),
        ("mi200", "mi200"),
        ("NVIDIA RTX A3000", ""),
        ("NVIDIA RTX 6000 Ada", ""),
        ("", ""),
    ] {
        assert_eq!(sku::infer(model).map(|sku| sku::text(&sku)).unwrap_or_default(), want, "{model}");
    }
    assert_eq!(sku::all().split(", ").count(), 17);
}

#[test]
fn largest_gpu_node_decides_discovered_hardware() {
    let cluster = nodes(vec![
        gpu_node("a", "Tesla T4", "4", "15360"),
        gpu_node("b", "NVIDIA-H100-80GB-HBM3", "8", "81559"),
        gpu_node("c", "NVIDIA-A100-SXM4-80GB", "8", "81920"),
        gpu_node("d", "NVIDIA-A100-SXM4-40GB", "8", "40960"),
        gpu_node("e", "NVIDIA-A100-SXM4-80GB", "0", "81920"),
        node("f", &[]),
    ]);
    let want = json!({"gpuSku": "a100_sxm", "vramMb": 81920, "numGpusPerNode": 8, "totalGpus": 16, "rdma": false});
    assert_eq!(completed_hardware(json!({}), &cluster), want);
    let want = json!({"gpuSku": "t4", "vramMb": 15360, "numGpusPerNode": 4, "totalGpus": 4, "rdma": false});
    assert_eq!(completed_hardware(json!({"gpuSku": "t4"}), &cluster), want);
}

#[test]
fn spec_hardware_wins_and_discovered_total_is_capped() {
    let cluster = nodes((0..9).map(|name| gpu_node(&name.to_string(), "NVIDIA H200", "8", "143771")).collect());
    assert_eq!(completed_hardware(json!({}), &cluster)["totalGpus"], 32);
    let requested = json!({"totalGpus": 64, "vramMb": 1.5, "interconnect": "own", "rdma": true});
    let want = json!({
        "gpuSku": "h200_sxm", "vramMb": 1.5, "numGpusPerNode": 8, "totalGpus": 64, "interconnect": "own", "rdma": true,
    });
    assert_eq!(completed_hardware(requested, &cluster), want);
}

#[test]
fn exporters_take_precedence_over_node_labels() {
    let mut cluster = nodes(vec![
        gpu_node("n1", "Tesla T4", "1", "1"),
        node("n2", &[("feature.node.kubernetes.io/rdma.available", "true")]),
    ]);
    cluster.exporters = Lookup::Known(vec![failed_exporter("HTTP GET failed"), exporter("n2", TWO_GPUS)]);
    let want = json!({
        "gpuSku": "h100_sxm", "vramMb": 81559, "numGpusPerNode": 2, "totalGpus": 2, "interconnect": "nvlink", "rdma": true,
    });
    assert_eq!(completed_hardware(json!({}), &cluster), want);
    // The exporters report no T4, so that the node labels decide.
    assert_eq!(completed_hardware(json!({"gpuSku": "t4"}), &cluster)["numGpusPerNode"], 1);
}

#[test]
fn exporters_cannot_exceed_their_node() {
    let eight = |model: &str| -> String {
        let line = |gpu| format!("DCGM_FI_DEV_GPU_TEMP{{gpu=\"{gpu}\",modelName=\"{model}\"}} 40\n");
        (0..8).map(line).chain(["DCGM_FI_DEV_FB_FREE{gpu=\"0\"} 141000\n".to_owned()]).collect()
    };
    let with_gpus = |node: ObservedNode, gpus| ObservedNode { gpus, ..node };
    let t4 = gpu_node("n", "Tesla-T4", "1", "15360");
    let found = |nodes: Vec<ObservedNode>, exporters| {
        let cluster =
            ObservedHardware { nodes: Lookup::Known(nodes), exporters: Lookup::Known(exporters), ..no_hardware() };
        dcgm::gpus(&cluster).map(|gpus| gpus.into_iter().map(|gpus| (gpus.node, gpus.count)).collect::<Vec<_>>())
    };
    let h200 = || exporter("n", &eight("NVIDIA H200"));
    assert_eq!(found(vec![with_gpus(node("n", &[]), 2)], vec![h200()]), Ok(vec![("n".to_owned(), 2)]));
    for (nodes, why) in [
        (
            vec![t4.clone()],
            "node n has the label nvidia.com/gpu.product=Tesla-T4, and its exporter reports \"NVIDIA H200\"",
        ),
        (vec![with_gpus(node("n", &[]), 0)], "node n has no nvidia.com/gpu in its capacity; check its device plugin"),
        (vec![node("other", &[])], "node n does not exist"),
    ] {
        let expected = format!("the nodes do not confirm the metrics of any DCGM exporter: [{why}]");
        assert_eq!(found(nodes, vec![h200()]), Err(expected));
    }
    // One exporter that contradicts its node does not hide the others.
    let both = vec![h200(), exporter("good", &eight("Tesla T4"))];
    assert_eq!(found(vec![t4, node("good", &[])], both), Ok(vec![("good".to_owned(), 8)]));
    // Without access to nodes there is nothing to compare with.
    let exporters = Lookup::Known(vec![h200()]);
    let unknown = ObservedHardware { nodes: Lookup::Unknown("off".into()), exporters, ..no_hardware() };
    assert_eq!(dcgm::gpus(&unknown).unwrap()[0].count, 8);
}

#[test]
fn exporter_with_too_many_samples_is_refused() {
    let text = "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 1\n".repeat(5_000);
    let error = dcgm::read("n", &text).unwrap_err().to_string();
    assert_eq!(error, "the response has more than 4096 samples of the metrics that are read");
    let other = format!("{TWO_GPUS}{}", "other 1\n".repeat(5_000));
    assert_eq!(dcgm::read("n", &other).unwrap().unwrap().count, 2);
}

#[test]
fn rdma_is_unknown_without_nodes_or_rdma_pod() {
    let mut cluster = ObservedHardware { nodes: Lookup::Unknown("forbidden".into()), ..no_hardware() };
    cluster.exporters = Lookup::Known(vec![exporter("n", &TWO_GPUS.replace("NVLINK", "OTHER"))]);
    let hardware = completed_hardware(json!({}), &cluster);
    assert_eq!((&hardware["interconnect"], &hardware["rdma"]), (&json!("pcie"), &json!(null)));
    cluster.rdma_pod = true;
    assert_eq!(completed_hardware(json!({}), &cluster)["rdma"], true);
}

#[test]
fn failed_discovery_names_cause_of_both_sources() {
    let mut cluster = no_hardware();
    let text = discovery_error(json!({}), &cluster);
    assert!(text.starts_with(
        "GPU hardware info required but auto-discovery failed. Verify DCGM exporter is reachable from the operator's \
         namespace, or set spec.hardware.{gpuSku,vramMb,numGpusPerNode} explicitly."
    ));
    type Change = fn(&mut ObservedHardware);
    let cases: [(Change, &str); 8] = [
        (|_| (), "Cause: gpu operator is not installed gpu-operator; no nodes found in cluster"),
        (
            |cluster| cluster.gpu_operator = true,
            "DCGM is not enabled in the GPU Operator (check GPU Operator configuration and",
        ),
        (
            |cluster| cluster.exporters = Lookup::Unknown("timeout".into()),
            "listing DCGM exporter pods failed: list pods: timeout",
        ),
        (
            |cluster| cluster.exporters = Lookup::Known(vec![failed_exporter("no route")]),
            "failed to scrape any DCGM exporter pod: [no route]",
        ),
        (
            |cluster| cluster.exporters = Lookup::Known(vec![exporter("n", "up 1")]),
            "no GPU metrics could be parsed from any DCGM pod",
        ),
        (
            |cluster| cluster.nodes = Lookup::Known(vec![node("a", &[])]),
            "no nodes with NVIDIA GPU Feature Discovery labels found (checked 1 nodes). Ensure GPU nodes have labels: \
             nvidia.com/gpu.count, nvidia.com/gpu.product, nvidia.com/gpu.memory",
        ),
        (|cluster| cluster.nodes = Lookup::Unknown("forbidden".into()), "failed to list cluster nodes: forbidden"),
        (
            |cluster| cluster.by_labels = false,
            "no GPU metrics could be parsed from any DCGM pod; node-label discovery is disabled",
        ),
    ];
    for (set, why) in cases {
        set(&mut cluster);
        let text = discovery_error(json!({}), &cluster);
        assert!(text.contains(why), "{text}");
    }
    let text = discovery_error(json!({"gpuSku": "l4"}), &nodes(vec![gpu_node("a", "Tesla T4", "1", "1")]));
    assert!(text.contains("labels matching SKU \"l4\" found (checked 1 nodes)"), "{text}");
}

/// An exporter runs on every node, and a condition message holds at most 32,768 characters.
#[test]
fn only_three_unreachable_exporters_are_named() {
    let mut cluster = no_hardware();
    let failed_exporters =
        (0..1_000).map(|node| failed_exporter(&format!("node-{node}: connection refused after {}", "x".repeat(80))));
    cluster.exporters = Lookup::Known(failed_exporters.collect());
    let text = discovery_error(json!({}), &cluster);
    assert!(text.contains("node-2:") && !text.contains("node-3:"), "{text}");
    assert!(text.contains(", and 997 more]"), "{text}");
}

#[test]
fn oversized_finding_is_truncated_and_reported_once() {
    let mut snapshot = request_snapshot("model: m\nimage: planner:1.4.0");
    snapshot.hardware = ObservedHardware { exporters: Lookup::Unknown("x".repeat(40_000)), ..no_hardware() };
    let mut env = TestEnv::new(snapshot);
    for _ in 0..4 {
        env.reconcile(None);
    }
    assert_eq!(env.event_reasons(), ["ValidationFailed"]);
    assert!(env.condition_summary("Validation").2.ends_with("(cut)"));
}

#[test]
fn unknown_gpu_is_rejected_with_known_skus() {
    let unknown = nodes(vec![
        gpu_node("a", "NVIDIA RTX 6000 Ada", "2", "49140"),
        gpu_node("b", "NVIDIA GeForce RTX 4090", "2", "24564"),
    ]);
    let text = discovery_error(json!({}), &unknown);
    assert!(text.contains("the profiler does not support \"NVIDIA RTX 6000 Ada\", the GPU of node a"), "{text}");
    assert!(text.contains("Set spec.hardware.gpuSku to the most similar of gb200_sxm, gb10,"), "{text}");
    assert!(
        text.ends_with("and set vramMb, numGpusPerNode and totalGpus, which cannot be discovered for it."),
        "{text}"
    );
    assert!(text.ends_with("vramMb, numGpusPerNode and totalGpus, which cannot be discovered for it."), "{text}");
    let mut env = TestEnv::new(request_snapshot("model: m\nimage: i:1.0.0"));
    env.snapshot.hardware = unknown;
    env.settle();
    assert_eq!(env.phase(), Phase::Pending);
    // Two different unknown products are not counted as one.
    assert_eq!(steersman_plan::dynamo::hardware::discover(None, &env.snapshot.hardware).unwrap().nodes, 1);
}

#[test]
fn discovered_hardware_is_patched_before_job_creation() {
    let mut env = TestEnv::new(request_snapshot("model: m\nimage: i:1.0.0\nhardware: {gpuSku: t4}"));
    env.snapshot.hardware = nodes(vec![gpu_node("a", "Tesla T4", "4", "15360")]);
    env.settle();
    assert_eq!((env.phase(), env.snapshot.object.generation), (Phase::Profiling, Some(2)));
    assert_eq!(env.status().observed_generation, Some(2));
    let args = &env.objects["Job profile-qwen"]["spec"]["template"]["spec"]["containers"][0]["args"];
    let config: serde_json::Value = serde_json::from_str(args[1].as_str().unwrap()).unwrap();
    let want = json!({"gpuSku": "t4", "vramMb": 15360, "numGpusPerNode": 4, "totalGpus": 4, "rdma": false});
    assert_eq!(config["hardware"], want);
    // Later discoveries do not change the spec.
    env.snapshot.hardware = no_hardware();
    assert!(!env.reconcile(None));
}

#[test]
fn optional_hardware_fields_are_not_awaited() {
    let without_optional = spec("").replace(", interconnect: nvlink, rdma: false", "");
    assert_eq!(TestEnv::after_settling(&without_optional).phase(), Phase::Profiling);
    let no_total = without_optional.replace(", totalGpus: 8", "");
    assert_eq!(TestEnv::after_settling(&no_total).phase(), Phase::Pending);
}

#[test]
fn node_with_two_exporters_counts_once() {
    let mut cluster = nodes(vec![node("a", &[]), node("b", &[])]);
    let one = TWO_GPUS.replace("gpu=\"1\"", "other=\"1\"");
    cluster.exporters = Lookup::Known(vec![exporter("a", &one), exporter("a", TWO_GPUS), exporter("b", TWO_GPUS)]);
    let hardware = completed_hardware(json!({}), &cluster);
    assert_eq!((&hardware["numGpusPerNode"], &hardware["totalGpus"]), (&json!(2), &json!(4)));
}

#[test]
fn unmatched_sku_names_both_discovery_sources() {
    let mut cluster = nodes(vec![gpu_node("a", "Tesla T4", "1", "15360"), node("b", &[])]);
    cluster.exporters = Lookup::Known(vec![exporter("b", TWO_GPUS)]);
    let text = discovery_error(json!({"gpuSku": "l4"}), &cluster);
    let both =
        "no GPU nodes matching SKU \"l4\" found; no nodes with NVIDIA GPU Feature Discovery labels matching SKU \"l4\"";
    assert!(text.contains(both), "{text}");
}

#[test]
fn exporters_suffice_without_node_permission() {
    let mut cluster = ObservedHardware { by_labels: false, nodes: Lookup::Unknown("off".into()), ..no_hardware() };
    cluster.exporters = Lookup::Known(vec![exporter("a", TWO_GPUS)]);
    let want = json!({
        "gpuSku": "h100_sxm", "vramMb": 81559, "numGpusPerNode": 2, "totalGpus": 2, "interconnect": "nvlink",
    });
    assert_eq!(completed_hardware(json!({}), &cluster), want, "rdma stays unset, because only nodes report it");
}

#[test]
fn discovery_reads_only_the_listed_labels() {
    let mut all = gpu_node("a", "NVIDIA H200", "8", "143771");
    all.labels.extend([
        ("nvidia.com/rdma.present".to_owned(), "true".to_owned()),
        ("kubernetes.io/hostname".to_owned(), "a".to_owned()),
    ]);
    let mut trimmed = all.clone();
    trimmed.labels.retain(|label, _| LABELS.contains(&label.as_str()));
    assert_eq!(trimmed.labels.len(), 4);
    assert_eq!(completed_hardware(json!({}), &nodes(vec![all])), completed_hardware(json!({}), &nodes(vec![trimmed])));
}

#[test]
fn pending_discovery_is_reported_once_without_validation() {
    let mut env = TestEnv::new(request_snapshot("model: m\nimage: i:1.0.0"));
    env.snapshot.hardware = ObservedHardware::awaited();
    env.settle();
    assert_eq!(env.phase(), Phase::Pending);
    assert_eq!(env.condition_summary("Profiling").1, "DiscoveringHardware");
    let validated = env.status().conditions.iter().any(|known| known.type_ == "Validation");
    assert!(!validated, "there is no Validation condition before discovery ends");
    assert_eq!(env.event_reasons(), ["Initialized"]);

    env.snapshot.hardware = no_hardware();
    env.settle();
    assert_eq!((env.phase(), env.condition_summary("Validation").1.as_str()), (Phase::Pending, "ValidationFailed"));
    assert_eq!(env.event_reasons(), ["Initialized", "ValidationFailed"]);

    // After a restart the operator keeps the status until discovery has finished again.
    let before = env.status();
    env.snapshot.hardware = ObservedHardware::awaited();
    assert!(!env.reconcile(None));
    assert_eq!(env.status(), before);

    env.snapshot.hardware = nodes(vec![gpu_node("a", "NVIDIA H200", "8", "143771")]);
    env.settle();
    assert_eq!(env.phase(), Phase::Profiling);
}

#[test]
fn complete_spec_hardware_needs_no_discovery() {
    let mut env = TestEnv::new(request_snapshot(&spec("")));
    env.snapshot.hardware = ObservedHardware::awaited();
    env.settle();
    assert_eq!(env.phase(), Phase::Profiling);
}
