//! Schemas for `schema_with` that cannot be derived from the Rust types.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use crate::meta::core_schema::{core_list, core_type};

// v1alpha1 was published without a list type for its conditions.
pub use crate::meta::core_schema::{conditions as unmarked_conditions, conditions_by_type};

/// An object of another program, which is passed on unchanged.
pub fn opaque(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A whole Kubernetes object: the API server requires `apiVersion` and `kind` and checks its metadata.
pub fn embedded_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

pub fn job_spec(_: &mut SchemaGenerator) -> Schema {
    core_type("io.k8s.api.batch.v1.JobSpec")
}

pub fn resource_requirements(_: &mut SchemaGenerator) -> Schema {
    core_type("io.k8s.api.core.v1.ResourceRequirements")
}

pub fn tolerations(_: &mut SchemaGenerator) -> Schema {
    core_list("io.k8s.api.core.v1.Toleration")
}

/// Unwraps the single choice that is derived for an enum with a skipped variant.
pub fn only_choice(schema: &mut Schema) {
    let Some(Value::Array(mut choices)) = schema.remove("anyOf") else { return };
    if let (Some(Value::Object(only)), true) = (choices.pop(), choices.is_empty()) {
        schema.ensure_object().extend(only);
    }
}
