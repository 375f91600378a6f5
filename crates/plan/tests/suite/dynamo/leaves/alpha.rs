//! The effect of each field of a v1alpha1 spec after its conversion, with values that show it: one row for each leaf of
//! the schema.

use super::row::{Copied, Row, row};

const NO_EFFECT: &str = "nothing";
const OUTPUT: &str = "Job";

pub const ROWS: &[Row] = &[
    row("model", "{}", ["one", "other"], "as `model`", "profiler; refused without"),
    row("backend", "{}", ["trtllm", "sglang"], "as `backend`", "profiler; refused without"),
    row("useMocker", "{}", ["true", "false"], "as `features.mocker.enabled`", "profiler"),
    row(
        "runtimeVersionOverride",
        "{autoApply: true}",
        ["1.2.3", "1.2.4"],
        "as `runtimeVersionOverride`",
        "graph, profiler",
    ),
    row("autoApply", "{}", ["true", "false"], "as `autoApply`; default false", "graph, profiler"),
    row(
        "enableGpuDiscovery",
        "{}",
        ["false", "true"],
        "nothing: missing hardware fields are always discovered",
        "condition",
    ),
    row(
        "profilingConfig.profilerImage",
        "{}",
        ["one:1.2.3", "other:1.2.3"],
        "as `image`",
        "Job, profiler; refused without",
    ),
    row(
        "profilingConfig.config",
        "{}",
        ["{sla: {ttft: 10}}", "{sla: {ttft: 20}, engine: {x: 1}}"],
        "as `sla`, `workload`, `modelCache`, `hardware` and `features.planner`; other keys have no effect",
        "profiler",
    ),
    row(
        "profilingConfig.configMapRef.name",
        "{profilingConfig: {configMapRef: {}}}",
        ["one", "other"],
        "ConfigMap that is mounted at `/config`, which current profilers do not read",
        "Job; refused without",
    ),
    row(
        "profilingConfig.configMapRef.key",
        "{profilingConfig: {configMapRef: {name: base}}}",
        ["one", "other"],
        "key in that ConfigMap; default `disagg.yaml`",
        OUTPUT,
    ),
    row("profilingConfig.outputPVC", "{}", ["one", "other"], "claim for the profiler's files", OUTPUT),
    row(
        "profilingConfig.nodeSelector{}",
        "{profilingConfig: {nodeSelector: {}}}",
        ["one", "other"],
        "as in `overrides.profilingJob`",
        "Job, profiler",
    ),
    row("deploymentOverrides.name", "{}", ["one", "other"], NO_EFFECT, "condition"),
    row("deploymentOverrides.namespace", "{}", ["one", "other"], NO_EFFECT, "condition"),
    row("deploymentOverrides.labels{}", "{}", ["one", "other"], NO_EFFECT, "condition"),
    row("deploymentOverrides.annotations{}", "{}", ["one", "other"], NO_EFFECT, "condition"),
    row(
        "deploymentOverrides.workersImage",
        "{}",
        ["one:1", "other:1"],
        "as `image` if `profilerImage` is empty; otherwise nothing",
        "condition",
    ),
];

pub const COPIED: &[Copied] = &[
    ("profilingConfig.resources", "as in `overrides.profilingJob`, for container `profiler`", "Job, profiler"),
    ("profilingConfig.tolerations", "as in `overrides.profilingJob`", "Job, profiler"),
];
