//! Effect of each field of a v1beta1 spec, with two values that show it. `xtask check` generates a page from the table.
//! Each leaf of the schema has a row; fields of the Job's overrides share rows.

use super::row::{Copied, Row, row};

const PROFILER: &str = "profiler";
const MOUNTED: &str = "Job, profiler";

pub const ROWS: &[Row] = &[
    row("model", "{}", ["one", "other"], "the model that is profiled and served", "profiler; refused without"),
    row("backend", "{}", ["vllm", "sglang"], "the engine; without, the profiler chooses", PROFILER),
    row("image", "{}", ["planner:1.3.0", "planner:1.3.1"], "the image that profiles; without, the default", MOUNTED),
    row(
        "runtimeVersionOverride",
        "{}",
        ["1.2.3", "1.2.4"],
        "the version of components that name none; without, the tag of `image`",
        "graph, profiler",
    ),
    row("modelCache.pvcName", "{modelCache: {}}", ["one", "other"], "the claim that is mounted, read only", MOUNTED),
    row(
        "modelCache.pvcModelPath",
        "{modelCache: {pvcName: weights}}",
        ["one", "other"],
        "where in the claim the model is; without, its root",
        PROFILER,
    ),
    row(
        "modelCache.pvcMountPath",
        "{modelCache: {pvcName: weights}}",
        ["/one", "/other"],
        "where the claim is mounted; without, `/opt/model-cache`",
        MOUNTED,
    ),
    row(
        "hardware.gpuSku",
        "{}",
        ["l40s", "h200_sxm"],
        "the type of GPU, and which nodes count; without, found",
        PROFILER,
    ),
    row("hardware.vramMb", "{}", ["1000", "2000.5"], "the memory of one GPU in MiB; without, found", PROFILER),
    row(
        "hardware.totalGpus",
        "{}",
        ["3", "4"],
        "how many GPUs may be used; without, those found, at most 32",
        PROFILER,
    ),
    row("hardware.numGpusPerNode", "{}", ["3", "4"], "how many GPUs a node has; without, found", PROFILER),
    row(
        "hardware.interconnect",
        "{}",
        ["pcie", "nvlink"],
        "how they are connected; without, what exporters tell. Not read today",
        PROFILER,
    ),
    row("hardware.rdma", "{}", ["true", "false"], "whether nodes speak RDMA; without, found. Not read today", PROFILER),
    row("workload.isl", "{workload: {}}", ["10", "20"], "tokens of a prompt", PROFILER),
    row("workload.osl", "{workload: {}}", ["10", "20"], "tokens of an answer", PROFILER),
    row("workload.concurrency", "{workload: {}}", ["10", "20.5"], "requests at the same time", PROFILER),
    row("workload.requestRate", "{workload: {}}", ["10", "20.5"], "requests in a second", PROFILER),
    row("sla.ttft", "{sla: {}}", ["10", "20.5"], "milliseconds to the first token", PROFILER),
    row("sla.itl", "{sla: {}}", ["10", "20.5"], "milliseconds between tokens", PROFILER),
    row("sla.e2eLatency", "{sla: {}}", ["10", "20.5"], "milliseconds to the end of the answer", PROFILER),
    row(
        "sla.optimizationType",
        "{sla: {}}",
        ["latency", "throughput"],
        "what to prefer; `SpecAccepted` says that it is not read today",
        PROFILER,
    ),
    row(
        "overrides.dgd",
        "{overrides: {}}",
        [
            "{apiVersion: nvidia.com/v1beta1, kind: DynamoGraphDeployment, metadata: {name: one}}",
            "{apiVersion: nvidia.com/v1beta1, kind: DynamoGraphDeployment, metadata: {name: other}}",
        ],
        "the name of the graph; all else is merged over what the profiler generates",
        "Job, graph, profiler",
    ),
    row(
        "overrides.profilingJob.template.spec.containers[].name",
        "{overrides: {profilingJob: {template: {spec: {containers: [{image: 'other:1'}]}}}}}",
        ["profiler", "output-copier"],
        "which container is meant: `profiler`, or `output-copier` with `resources` only",
        "Job, profiler; refused without",
    ),
    row(
        "features.planner",
        "{features: {}}",
        ["{mode: agg}", "{mode: disagg}"],
        "the planner and its settings",
        PROFILER,
    ),
    row("features.mocker.enabled", "{features: {mocker: {}}}", ["true", "false"], "simulated workers", PROFILER),
    row("searchStrategy", "{backend: vllm}", ["thorough", "rapid"], "how far to search", PROFILER),
    row("autoApply", "{}", ["false", "true"], "whether the graph is created; without, it is", "graph, profiler"),
];

const POD: &str = "the same field of the Job's pods";
const BY_NAME: &str = "added to the Job's own by name, or in place of the one with that name";
const CONTAINER: &str = "the same field of container `profiler`";

/// Fields that the Job takes over. The longest matching prefix applies.
pub const JOB: &[Copied] = &[
    ("overrides.profilingJob.backoffLimit", "how often the Job is tried again; without, never", "Job"),
    ("overrides.profilingJob.activeDeadlineSeconds", "how long the Job may take; without, for ever", "Job"),
    ("overrides.profilingJob.ttlSecondsAfterFinished", "when the ended Job goes; without, with the request", "Job"),
    ("overrides.profilingJob.completions", "the same field of the Job", "Job"),
    ("overrides.profilingJob.parallelism", "the same field of the Job", "Job"),
    ("overrides.profilingJob.suspend", "the same field of the Job", "Job"),
    ("overrides.profilingJob.template.metadata.labels", "labels of the Job's pods, but for the Job's own", "Job"),
    ("overrides.profilingJob.template.metadata.annotations", "annotations of the Job's pods", "Job"),
    ("overrides.profilingJob.template.spec.tolerations", "the same of the pods, and of the graph's components", "Job"),
    ("overrides.profilingJob.template.spec.nodeSelector", POD, "Job"),
    ("overrides.profilingJob.template.spec.topologySpreadConstraints", POD, "Job"),
    ("overrides.profilingJob.template.spec.affinity", POD, "Job"),
    ("overrides.profilingJob.template.spec.priorityClassName", POD, "Job"),
    ("overrides.profilingJob.template.spec.serviceAccountName", "the pods' account, which you give its rights", "Job"),
    ("overrides.profilingJob.template.spec.runtimeClassName", POD, "Job"),
    ("overrides.profilingJob.template.spec.dnsPolicy", POD, "Job"),
    ("overrides.profilingJob.template.spec.dnsConfig", POD, "Job"),
    ("overrides.profilingJob.template.spec.terminationGracePeriodSeconds", POD, "Job"),
    (
        "overrides.profilingJob.template.spec.automountServiceAccountToken",
        "the same; the sidecar keeps its token",
        "Job",
    ),
    ("overrides.profilingJob.template.spec.imagePullSecrets", BY_NAME, "Job"),
    ("overrides.profilingJob.template.spec.volumes", BY_NAME, "Job"),
    ("overrides.profilingJob.template.spec.initContainers", BY_NAME, "Job"),
    ("overrides.profilingJob.template.spec.securityContext", "the same fields of the Job's pods", "Job"),
    ("overrides.profilingJob.template.spec.securityContext.supplementalGroupsPolicy", IGNORED, "condition"),
    ("overrides.profilingJob.template.spec.securityContext.seLinuxChangePolicy", IGNORED, "condition"),
    ("overrides.profilingJob.template.spec.containers[].image", CONTAINER, "Job"),
    ("overrides.profilingJob.template.spec.containers[].resources", CONTAINER, "Job"),
    ("overrides.profilingJob.template.spec.containers[].securityContext", CONTAINER, "Job"),
    ("overrides.profilingJob.template.spec.containers[].env", "variables of container `profiler`, by name", "Job"),
    ("overrides.profilingJob.template.spec.containers[].envFrom", "more variables of container `profiler`", "Job"),
    (
        "overrides.profilingJob.template.spec.containers[].volumeMounts",
        "mounts of container `profiler`, by name",
        "Job",
    ),
    ("overrides.profilingJob", "everything else", "condition"),
];

const IGNORED: &str = "not taken over";
