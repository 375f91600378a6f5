//! Names, labels and types of condition that people and tools know.
//! Comes in: an object's own words; goes out: what things are called, in one place.

use std::collections::BTreeMap;

/// What the newer operator reads the accelerator from.
pub const ACCELERATOR_LABEL: &str = "inference.optimization/acceleratorName";
/// Which of several operators an object belongs to.
pub const INSTANCE_LABEL: &str = "wva.llmd.ai/controller-instance";
/// On a namespace: its own ConfigMaps count even before it holds an object.
pub const CONFIG_LABEL: &str = "wva.llmd.ai/config-enabled";
/// On a namespace: nothing in it is looked at.
pub const EXCLUDE_ANNOTATION: &str = "wva.llmd.ai/exclude";

/// Our own, on an object: `true` makes its workload its owner, so that it goes when that is deleted.
pub const OWNER_ANNOTATION: &str = "steersman.dev/owner-reference";

pub const METRICS: &str = "MetricsAvailable";
pub const OPTIMIZATION: &str = "OptimizationReady";
pub const CONFLICT: &str = "DeploymentTargetConflict";
pub const READY: &str = "Ready";
pub const TARGET: &str = "TargetResolved";
/// Our own: the others say how the decision stands, this one what became of the spec's fields.
pub const SPEC: &str = "SpecAccepted";
/// Our own: there only while something in the ConfigMaps that hold for the object is wrong.
pub const CONFIG: &str = "ConfigurationValid";

pub const COSTS: &str = "accelerator-unit-costs";
pub const CLASSES: &str = "service-classes-config";
pub const ZERO_CAMEL: &str = "model-scale-to-zero-config";
pub const ZERO_SNAKE: &str = "wva-model-scale-to-zero-config";
/// The entry of a map that holds for every model.
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

/// Variables of the process that are read, beside those that the main ConfigMap has keys for.
pub const VARIABLES: [&str; 5] = [MAIN_VARIABLE, SATURATION_VARIABLE, ZERO_VARIABLE, NODES_VARIABLE, INSTANCE_VARIABLE];

/// Names of the main ConfigMap, the first that exists wins.
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
