//! The effect of each field of a v1beta1 spec, with values that show it: one row for each leaf of the schema. Fields of
//! the Job's overrides share rows. `xtask check` generates a page from the table.

use super::row::{Copied, Row, row};

const PROFILER: &str = "profiler";
const MOUNTED: &str = "Job, profiler";

pub const ROWS: &[Row] = &[
    row("model", "{}", ["one", "other"], "model to profile and serve", "profiler; refused without"),
    row("backend", "{}", ["vllm", "sglang"], "engine; default: the profiler chooses one", PROFILER),
    row(
        "image",
        "{}",
        ["planner:1.3.0", "planner:1.3.1"],
        "image of the profiler; default: that of the operator",
        MOUNTED,
    ),
    row(
        "runtimeVersionOverride",
        "{}",
        ["1.2.3", "1.2.4"],
        "version of the components of the graph that set none; default: the tag of `image`",
        "graph, profiler",
    ),
    row("modelCache.pvcName", "{modelCache: {}}", ["one", "other"], "claim with the model, mounted read-only", MOUNTED),
    row(
        "modelCache.pvcModelPath",
        "{modelCache: {pvcName: weights}}",
        ["one", "other"],
        "directory of the model in the claim; default: its root",
        PROFILER,
    ),
    row(
        "modelCache.pvcMountPath",
        "{modelCache: {pvcName: weights}}",
        ["/one", "/other"],
        "mount path of the claim; default `/opt/model-cache`",
        MOUNTED,
    ),
    row(
        "hardware.gpuSku",
        "{}",
        ["l40s", "h200_sxm"],
        "type of GPU; other hardware fields are discovered on nodes with this type. Default: discovered",
        PROFILER,
    ),
    row("hardware.vramMb", "{}", ["1000", "2000.5"], "memory of one GPU in MiB; default: discovered", PROFILER),
    row("hardware.totalGpus", "{}", ["3", "4"], "largest number of GPUs; default: discovered, at most 32", PROFILER),
    row("hardware.numGpusPerNode", "{}", ["3", "4"], "GPUs per node; default: discovered", PROFILER),
    row(
        "hardware.interconnect",
        "{}",
        ["pcie", "nvlink"],
        "interconnect of the GPUs; default: discovered by DCGM exporters. Current profilers do not read it",
        PROFILER,
    ),
    row(
        "hardware.rdma",
        "{}",
        ["true", "false"],
        "whether nodes have RDMA; default: discovered. Current profilers do not read it",
        PROFILER,
    ),
    row("workload.isl", "{workload: {}}", ["10", "20"], "tokens in a prompt", PROFILER),
    row("workload.osl", "{workload: {}}", ["10", "20"], "tokens in a response", PROFILER),
    row("workload.concurrency", "{workload: {}}", ["10", "20.5"], "concurrent requests", PROFILER),
    row("workload.requestRate", "{workload: {}}", ["10", "20.5"], "requests per second", PROFILER),
    row("sla.ttft", "{sla: {}}", ["10", "20.5"], "milliseconds to the first token", PROFILER),
    row("sla.itl", "{sla: {}}", ["10", "20.5"], "milliseconds between tokens", PROFILER),
    row("sla.e2eLatency", "{sla: {}}", ["10", "20.5"], "milliseconds for the whole response", PROFILER),
    row(
        "sla.optimizationType",
        "{sla: {}}",
        ["latency", "throughput"],
        "goal of the optimization; `SpecAccepted` reports that current profilers do not read it",
        PROFILER,
    ),
    row(
        "overrides.dgd",
        "{overrides: {}}",
        [
            "{apiVersion: nvidia.com/v1beta1, kind: DynamoGraphDeployment, metadata: {name: one}}",
            "{apiVersion: nvidia.com/v1beta1, kind: DynamoGraphDeployment, metadata: {name: other}}",
        ],
        "name of the graph; labels, annotations and `spec` are merged over the generated graph",
        "Job, graph, profiler",
    ),
    row(
        "overrides.profilingJob.template.spec.containers[].name",
        "{overrides: {profilingJob: {template: {spec: {containers: [{image: 'other:1'}]}}}}}",
        ["profiler", "output-copier"],
        "container to change: `profiler`, or `output-copier`, of which only `resources` can be changed",
        "Job, profiler; refused without",
    ),
    row("features.planner", "{features: {}}", ["{mode: agg}", "{mode: disagg}"], "planner and its settings", PROFILER),
    row("features.mocker.enabled", "{features: {mocker: {}}}", ["true", "false"], "simulated workers", PROFILER),
    row("searchStrategy", "{backend: vllm}", ["thorough", "rapid"], "search depth", PROFILER),
    row("autoApply", "{}", ["false", "true"], "creation of the graph; default true", "graph, profiler"),
];

const POD: &str = "the same field of the Job's pods";
const BY_NAME: &str = "entries that are added to those of the Job or replace those with the same name";
const CONTAINER: &str = "the same field of container `profiler`";

/// The fields that the Job uses. The longest matching prefix counts.
pub const JOB: &[Copied] = &[
    ("overrides.profilingJob.backoffLimit", "number of retries; default 0", "Job"),
    ("overrides.profilingJob.activeDeadlineSeconds", "time limit of the Job; default: none", "Job"),
    (
        "overrides.profilingJob.ttlSecondsAfterFinished",
        "time until the finished Job is deleted; default: it is deleted with the request",
        "Job",
    ),
    ("overrides.profilingJob.completions", "the same field of the Job", "Job"),
    ("overrides.profilingJob.parallelism", "the same field of the Job", "Job"),
    ("overrides.profilingJob.suspend", "the same field of the Job", "Job"),
    (
        "overrides.profilingJob.template.metadata.labels",
        "labels of the Job's pods; labels that the operator sets cannot be changed",
        "Job",
    ),
    ("overrides.profilingJob.template.metadata.annotations", "annotations of the Job's pods", "Job"),
    (
        "overrides.profilingJob.template.spec.tolerations",
        "tolerations of the Job's pods; the profiler copies them to the components of the graph",
        "Job",
    ),
    ("overrides.profilingJob.template.spec.nodeSelector", POD, "Job"),
    ("overrides.profilingJob.template.spec.topologySpreadConstraints", POD, "Job"),
    ("overrides.profilingJob.template.spec.affinity", POD, "Job"),
    ("overrides.profilingJob.template.spec.priorityClassName", POD, "Job"),
    (
        "overrides.profilingJob.template.spec.serviceAccountName",
        "account of the pods; you must grant its rights",
        "Job",
    ),
    ("overrides.profilingJob.template.spec.runtimeClassName", POD, "Job"),
    ("overrides.profilingJob.template.spec.dnsPolicy", POD, "Job"),
    ("overrides.profilingJob.template.spec.dnsConfig", POD, "Job"),
    ("overrides.profilingJob.template.spec.terminationGracePeriodSeconds", POD, "Job"),
    (
        "overrides.profilingJob.template.spec.automountServiceAccountToken",
        "the same field of the Job's pods; the sidecar keeps its token",
        "Job",
    ),
    ("overrides.profilingJob.template.spec.imagePullSecrets", BY_NAME, "Job"),
    ("overrides.profilingJob.template.spec.volumes", BY_NAME, "Job"),
    ("overrides.profilingJob.template.spec.initContainers", BY_NAME, "Job"),
    ("overrides.profilingJob.template.spec.securityContext", "the same fields of the Job's pods", "Job"),
    ("overrides.profilingJob.template.spec.securityContext.supplementalGroupsPolicy", IGNORED, "condition"),
    ("overrides.profilingJob.template.spec.securityContext.seLinuxChangePolicy", IGNORED, "condition"),
    ("overrides.profilingJob.template.spec.containers[].image", CONTAINER, "Job"),
    (
        "overrides.profilingJob.template.spec.containers[].resources",
        "the same field of container `profiler` or `output-copier`",
        "Job",
    ),
    ("overrides.profilingJob.template.spec.containers[].securityContext", CONTAINER, "Job"),
    ("overrides.profilingJob.template.spec.containers[].env", "variables of container `profiler`, by name", "Job"),
    (
        "overrides.profilingJob.template.spec.containers[].envFrom",
        "additional variables of container `profiler`",
        "Job",
    ),
    (
        "overrides.profilingJob.template.spec.containers[].volumeMounts",
        "mounts of container `profiler`; they replace those with the same path or, except at `/data`, the same volume",
        "Job",
    ),
    ("overrides.profilingJob", "all other fields are ignored", "condition"),
];

const IGNORED: &str = "ignored";
