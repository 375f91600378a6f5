//! Which GPUs are planned for.

use serde_json::json;
use steersman_api::dynamo::v1beta1::{Hardware, Phase};
use steersman_plan::dynamo::hardware::{LABELS, ObservedExporter, ObservedHardware, ObservedNode, complete, dcgm, sku};
use steersman_reconcile::Lookup;

use super::{World, a_request, no_hardware, node, spec};

fn gpu_node(name: &str, product: &str, count: &str, memory: &str) -> ObservedNode {
    node(
        name,
        &[("nvidia.com/gpu.count", count), ("nvidia.com/gpu.product", product), ("nvidia.com/gpu.memory", memory)],
    )
}

fn nodes(nodes: Vec<ObservedNode>) -> ObservedHardware {
    ObservedHardware { nodes: Lookup::Known(nodes), ..no_hardware() }
}

fn exporter(node: &str, metrics: &str) -> ObservedExporter {
    ObservedExporter { gpus: Lookup::Known(dcgm::read(node, metrics)) }
}

fn silent(why: &str) -> ObservedExporter {
    ObservedExporter { gpus: Lookup::Unknown(why.into()) }
}

fn found(asked: serde_json::Value, seen: &ObservedHardware) -> serde_json::Value {
    let asked: Hardware = serde_json::from_value(asked).unwrap();
    json!(complete(Some(&asked), seen).unwrap())
}

fn refused(asked: serde_json::Value, seen: &ObservedHardware) -> String {
    let asked: Hardware = serde_json::from_value(asked).unwrap();
    let finding = complete(Some(&asked), seen).unwrap_err();
    format!("{} {}", finding.message, finding.remedy)
}

const TWO_GPUS: &str = r#"# HELP DCGM_FI_DEV_GPU_TEMP Temperature
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
fn every_model_is_the_type_that_it_says() {
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
fn the_node_with_most_gpus_and_then_most_memory_is_planned_for_with_its_like() {
    let seen = nodes(vec![
        gpu_node("a", "Tesla T4", "4", "15360"),
        gpu_node("b", "NVIDIA-H100-80GB-HBM3", "8", "81559"),
        gpu_node("c", "NVIDIA-A100-SXM4-80GB", "8", "81920"),
        gpu_node("d", "NVIDIA-A100-SXM4-40GB", "8", "40960"),
        gpu_node("e", "NVIDIA-A100-SXM4-80GB", "0", "81920"),
        node("f", &[]),
    ]);
    let want = json!({"gpuSku": "a100_sxm", "vramMb": 81920, "numGpusPerNode": 8, "totalGpus": 16, "rdma": false});
    assert_eq!(found(json!({}), &seen), want);
    let want = json!({"gpuSku": "t4", "vramMb": 15360, "numGpusPerNode": 4, "totalGpus": 4, "rdma": false});
    assert_eq!(found(json!({"gpuSku": "t4"}), &seen), want);
}

#[test]
fn what_the_request_says_stays_and_only_a_discovered_total_is_capped() {
    let seen = nodes((0..9).map(|name| gpu_node(&name.to_string(), "NVIDIA H200", "8", "143771")).collect());
    assert_eq!(found(json!({}), &seen)["totalGpus"], 32);
    let asked = json!({"totalGpus": 64, "vramMb": 1.5, "interconnect": "own", "rdma": true});
    let want = json!({
        "gpuSku": "h200_sxm", "vramMb": 1.5, "numGpusPerNode": 8, "totalGpus": 64, "interconnect": "own", "rdma": true,
    });
    assert_eq!(found(asked, &seen), want);
}

#[test]
fn exporters_are_asked_first_and_tell_more() {
    let mut seen = nodes(vec![
        gpu_node("n1", "Tesla T4", "1", "1"),
        node("n2", &[("feature.node.kubernetes.io/rdma.available", "true")]),
    ]);
    seen.exporters = Lookup::Known(vec![silent("HTTP GET failed"), exporter("n2", TWO_GPUS)]);
    let want = json!({
        "gpuSku": "h100_sxm", "vramMb": 81559, "numGpusPerNode": 2, "totalGpus": 2, "interconnect": "nvlink", "rdma": true,
    });
    assert_eq!(found(json!({}), &seen), want);
    // Where they have none of the type, labels may.
    assert_eq!(found(json!({"gpuSku": "t4"}), &seen)["numGpusPerNode"], 1);
}

#[test]
fn a_pod_for_rdma_counts_for_all_and_without_nodes_nobody_has_looked() {
    let mut seen = ObservedHardware { nodes: Lookup::Unknown("forbidden".into()), ..no_hardware() };
    seen.exporters = Lookup::Known(vec![exporter("n", &TWO_GPUS.replace("NVLINK", "OTHER"))]);
    let hardware = found(json!({}), &seen);
    assert_eq!((&hardware["interconnect"], &hardware["rdma"]), (&json!("pcie"), &json!(null)));
    seen.rdma_pod = true;
    assert_eq!(found(json!({}), &seen)["rdma"], true);
}

#[test]
fn what_cannot_be_found_out_says_why_from_both_sides() {
    let mut seen = no_hardware();
    let text = refused(json!({}), &seen);
    assert!(text.starts_with(
        "GPU hardware info required but auto-discovery failed. Verify DCGM exporter is reachable from the operator's \
         namespace, or set spec.hardware.{gpuSku,vramMb,numGpusPerNode} explicitly."
    ));
    type Change = fn(&mut ObservedHardware);
    let cases: [(Change, &str); 8] = [
        (|_| (), "Cause: gpu operator is not installed gpu-operator; no nodes found in cluster"),
        (
            |seen| seen.gpu_operator = true,
            "DCGM is not enabled in the GPU Operator (check GPU Operator configuration and",
        ),
        (
            |seen| seen.exporters = Lookup::Unknown("timeout".into()),
            "listing DCGM exporter pods failed: list pods: timeout",
        ),
        (
            |seen| seen.exporters = Lookup::Known(vec![silent("no route")]),
            "failed to scrape any DCGM exporter pod: [no route]",
        ),
        (
            |seen| seen.exporters = Lookup::Known(vec![exporter("n", "up 1")]),
            "no GPU metrics could be parsed from any DCGM pod",
        ),
        (
            |seen| seen.nodes = Lookup::Known(vec![node("a", &[])]),
            "no nodes with NVIDIA GPU Feature Discovery labels found (checked 1 nodes). Ensure GPU nodes have labels: \
             nvidia.com/gpu.count, nvidia.com/gpu.product, nvidia.com/gpu.memory",
        ),
        (|seen| seen.nodes = Lookup::Unknown("forbidden".into()), "failed to list cluster nodes: forbidden"),
        (
            |seen| seen.by_labels = false,
            "no GPU metrics could be parsed from any DCGM pod; node-label discovery is disabled",
        ),
    ];
    for (set, why) in cases {
        set(&mut seen);
        let text = refused(json!({}), &seen);
        assert!(text.contains(why), "{text}");
    }
    let text = refused(json!({"gpuSku": "l4"}), &nodes(vec![gpu_node("a", "Tesla T4", "1", "1")]));
    assert!(text.contains("labels matching SKU \"l4\" found (checked 1 nodes)"), "{text}");
}

/// There is one on every node, and a condition holds no more than 32,768 characters.
#[test]
fn of_many_exporters_that_do_not_answer_three_are_named_and_it_is_told_once() {
    let mut seen = no_hardware();
    let silent_ones =
        (0..1_000).map(|node| silent(&format!("node-{node}: connection refused after {}", "x".repeat(80))));
    seen.exporters = Lookup::Known(silent_ones.collect());
    let text = refused(json!({}), &seen);
    assert!(text.contains("node-2:") && !text.contains("node-3:"), "{text}");
    assert!(text.contains(", and 997 more like these]"), "{text}");
}

#[test]
fn a_finding_that_no_condition_can_hold_is_told_once() {
    let mut seen = a_request("model: m\nimage: planner:1.4.0");
    seen.hardware = ObservedHardware { exporters: Lookup::Unknown("x".repeat(40_000)), ..no_hardware() };
    let mut world = World::new(seen);
    for _ in 0..4 {
        world.pass(None);
    }
    assert_eq!(world.told(), ["ValidationFailed"]);
    assert!(world.says("Validation").2.ends_with("(cut)"));
}

#[test]
fn a_gpu_that_nobody_knows_is_told_with_the_ones_that_are_known() {
    let unknown = nodes(vec![
        gpu_node("a", "NVIDIA RTX 6000 Ada", "2", "49140"),
        gpu_node("b", "NVIDIA GeForce RTX 4090", "2", "24564"),
    ]);
    let text = refused(json!({}), &unknown);
    assert!(text.contains("the GPU of node a, \"NVIDIA RTX 6000 Ada\", is none that the profiler knows"), "{text}");
    assert!(text.contains("Set spec.hardware.gpuSku to the nearest of gb200_sxm, gb10,"), "{text}");
    let mut world = World::new(a_request("model: m\nimage: i:1.0.0"));
    world.seen.hardware = unknown;
    world.settle();
    assert_eq!(world.phase(), Phase::Pending);
    // Two kinds of unknown GPUs are not one.
    assert_eq!(steersman_plan::dynamo::hardware::discover(None, &world.seen.hardware).unwrap().nodes, 1);
}

#[test]
fn discovered_hardware_is_written_to_the_request_before_the_job_is_made_from_it() {
    let mut world = World::new(a_request("model: m\nimage: i:1.0.0\nhardware: {gpuSku: t4}"));
    world.seen.hardware = nodes(vec![gpu_node("a", "Tesla T4", "4", "15360")]);
    world.settle();
    assert_eq!((world.phase(), world.seen.object.generation), (Phase::Profiling, Some(2)));
    assert_eq!(world.status().observed_generation, Some(2));
    let args = &world.objects["Job profile-qwen"]["spec"]["template"]["spec"]["containers"][0]["args"];
    let config: serde_json::Value = serde_json::from_str(args[1].as_str().unwrap()).unwrap();
    let want = json!({"gpuSku": "t4", "vramMb": 15360, "numGpusPerNode": 4, "totalGpus": 4, "rdma": false});
    assert_eq!(config["hardware"], want);
    // What is discovered later changes nothing any more.
    world.seen.hardware = no_hardware();
    assert!(!world.pass(None));
}

#[test]
fn optional_facts_are_not_waited_for() {
    let given = spec("").replace(", interconnect: nvlink, rdma: false", "");
    assert_eq!(World::settled(&given).phase(), Phase::Profiling);
    let without_total = given.replace(", totalGpus: 8", "");
    assert_eq!(World::settled(&without_total).phase(), Phase::Pending);
}

#[test]
fn a_node_with_two_exporters_counts_once() {
    let mut seen = no_hardware();
    let one = TWO_GPUS.replace("gpu=\"1\"", "other=\"1\"");
    seen.exporters = Lookup::Known(vec![exporter("a", &one), exporter("a", TWO_GPUS), exporter("b", TWO_GPUS)]);
    let hardware = found(json!({}), &seen);
    assert_eq!((&hardware["numGpusPerNode"], &hardware["totalGpus"]), (&json!(2), &json!(4)));
}

#[test]
fn an_exporter_of_another_type_leaves_the_word_to_the_labels_and_both_say_why_not() {
    let mut seen = nodes(vec![gpu_node("a", "Tesla T4", "1", "15360")]);
    seen.exporters = Lookup::Known(vec![exporter("b", TWO_GPUS)]);
    let text = refused(json!({"gpuSku": "l4"}), &seen);
    let both =
        "no GPU nodes matching SKU \"l4\" found; no nodes with NVIDIA GPU Feature Discovery labels matching SKU \"l4\"";
    assert!(text.contains(both), "{text}");
}

#[test]
fn without_the_right_to_see_nodes_exporters_are_enough() {
    let mut seen = ObservedHardware { by_labels: false, nodes: Lookup::Unknown("off".into()), ..no_hardware() };
    seen.exporters = Lookup::Known(vec![exporter("a", TWO_GPUS)]);
    let want = json!({
        "gpuSku": "h100_sxm", "vramMb": 81559, "numGpusPerNode": 2, "totalGpus": 2, "interconnect": "nvlink",
    });
    assert_eq!(found(json!({}), &seen), want, "and of what only nodes tell nothing is said");
}

#[test]
fn labels_that_count_are_all_that_needs_to_be_kept() {
    let mut all = gpu_node("a", "NVIDIA H200", "8", "143771");
    all.labels.extend([
        ("nvidia.com/rdma.present".to_owned(), "true".to_owned()),
        ("kubernetes.io/hostname".to_owned(), "a".to_owned()),
    ]);
    let mut trimmed = all.clone();
    trimmed.labels.retain(|label, _| LABELS.contains(&label.as_str()));
    assert_eq!(trimmed.labels.len(), 4);
    assert_eq!(found(json!({}), &nodes(vec![all])), found(json!({}), &nodes(vec![trimmed])));
}

#[test]
fn a_request_waits_without_a_verdict_while_somebody_looks_and_is_told_of_once() {
    let mut world = World::new(a_request("model: m\nimage: i:1.0.0"));
    world.seen.hardware = ObservedHardware::awaited();
    world.settle();
    assert_eq!(world.phase(), Phase::Pending);
    assert_eq!(world.says("Profiling").1, "DiscoveringHardware");
    let judged = world.status().conditions.iter().any(|known| known.type_ == "Validation");
    assert!(!judged, "nothing is wrong yet, and nothing right");
    assert_eq!(world.told(), ["Initialized"]);

    world.seen.hardware = no_hardware();
    world.settle();
    assert_eq!((world.phase(), world.says("Validation").1.as_str()), (Phase::Pending, "ValidationFailed"));
    assert_eq!(world.told(), ["Initialized", "ValidationFailed"]);

    // An operator that starts again has to look first, and takes nothing back until it has.
    let before = world.status();
    world.seen.hardware = ObservedHardware::awaited();
    assert!(!world.pass(None));
    assert_eq!(world.status(), before);

    world.seen.hardware = nodes(vec![gpu_node("a", "NVIDIA H200", "8", "143771")]);
    world.settle();
    assert_eq!(world.phase(), Phase::Profiling);
}

#[test]
fn nobody_is_waited_for_where_everything_is_given() {
    let mut world = World::new(a_request(&spec("")));
    world.seen.hardware = ObservedHardware::awaited();
    world.settle();
    assert_eq!(world.phase(), Phase::Profiling);
}
