//! Names of labels, annotations, condition types, ConfigMaps and environment variables that users and tools depend on.

use std::collections::BTreeMap;

/// On an object: its accelerator, as newer versions of the Go operator read it.
pub const ACCELERATOR_LABEL: &str = "inference.optimization/acceleratorName";
/// On an object: the operator instance that it belongs to.
pub const INSTANCE_LABEL: &str = "wva.llmd.ai/controller-instance";
/// On a namespace: its own ConfigMaps apply even before it has an object.
pub const CONFIG_LABEL: &str = "wva.llmd.ai/config-enabled";
/// On a namespace: the operator ignores all objects in it.
pub const EXCLUDE_ANNOTATION: &str = "wva.llmd.ai/exclude";

/// Steersman's own, on an object: `true` adds an owner reference to its scale target, so that deleting the target
/// deletes the object.
pub const OWNER_ANNOTATION: &str = "steersman.dev/owner-reference";

pub const METRICS: &str = "MetricsAvailable";
pub const OPTIMIZATION: &str = "OptimizationReady";
pub const CONFLICT: &str = "DeploymentTargetConflict";
pub const READY: &str = "Ready";
pub const TARGET: &str = "TargetResolved";
/// Steersman's own: which fields of the spec are used. The other conditions are about the decision.
pub const SPEC: &str = "SpecAccepted";
/// Steersman's own: exists only while a ConfigMap that applies to the object has an error.
pub const CONFIG: &str = "ConfigurationValid";

pub const COSTS: &str = "accelerator-unit-costs";
pub const CLASSES: &str = "service-classes-config";
pub const ZERO_CAMEL: &str = "model-scale-to-zero-config";
pub const ZERO_SNAKE: &str = "wva-model-scale-to-zero-config";
/// Key of the ConfigMap entry that applies to every model.
pub const DEFAULT_ENTRY: &str = "default";

pub const MAIN: [&str; 3] = [
    "workload-variant-autoscaler-variantautoscaling-config",
    "variantautoscaling-config",
    "wva-variantautoscaling-config",
];
const SATURATION: [&str; 2] =
    ["workload-variant-autoscaler-saturation-scaling-config", "wva-saturation-scaling-config"];

pub const MAIN_VARIABLE: &str = "CONFIG_MAP_NAME";
pub const SATURATION_VARIABLE: &str = "SATURATION_CONFIG_MAP_NAME";
pub const ZERO_VARIABLE: &str = "WVA_SCALE_TO_ZERO";
pub const NODES_VARIABLE: &str = "WVA_NODE_SELECTOR";
pub const INSTANCE_VARIABLE: &str = "CONTROLLER_INSTANCE";

/// Environment variables that are read in addition to those named like keys of the main ConfigMap.
pub const VARIABLES: [&str; 5] = [MAIN_VARIABLE, SATURATION_VARIABLE, ZERO_VARIABLE, NODES_VARIABLE, INSTANCE_VARIABLE];

/// Candidate names of the main ConfigMap. The first that exists is used.
pub fn main_maps(environment: &BTreeMap<String, String>) -> Vec<String> {
    named(environment, MAIN_VARIABLE, &MAIN)
}

pub fn saturation_maps(environment: &BTreeMap<String, String>) -> Vec<String> {
    named(environment, SATURATION_VARIABLE, &SATURATION)
}

fn named(environment: &BTreeMap<String, String>, variable: &str, usual: &[&str]) -> Vec<String> {
    let given = environment.get(variable).filter(|name| !name.is_empty()).cloned();
    given.into_iter().chain(usual.iter().map(ToString::to_string)).collect()
}
