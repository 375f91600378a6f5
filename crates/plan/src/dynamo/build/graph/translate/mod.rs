//! Translates overrides to the version that the graph is generated in.

mod alpha;
mod beta;

use serde_json::Value;

pub use alpha::{TranslatedOverride, field_missing_in_alpha, restore_service_resources, to_alpha};
pub use beta::to_beta;

use super::JsonObject;

const MAIN: &str = "main";
const SIDECAR: &str = "sidecar-frontend";
/// Fields of a service that become fields of its main container.
const PROBES: [&str; 2] = ["livenessProbe", "readinessProbe"];
/// Fields of a service that a component has under the same name.
pub(super) const COMMON_FIELDS: [&str; 9] = [
    "runtimeVersionOverride",
    "globalDynamoNamespace",
    "modelRef",
    "replicas",
    "minAvailable",
    "eppConfig",
    "topologyConstraint",
    "providerOverride",
    "multinode",
];

/// The mode of a block, in v1alpha1 and in v1beta1.
const MODES: [(&str, &str); 2] = [("intraPod", "IntraPod"), ("interPod", "InterPod")];

fn renamed(mut value: Value, from: &str, to: &str) -> Value {
    if let Value::Object(fields) = &mut value
        && let Some(inner) = fields.remove(from)
    {
        fields.insert(to.to_owned(), inner);
    }
    value
}
