//! Schemas that the Rust types of this family cannot say by themselves.
//! Comes in: nothing; goes out: the schema of one kind of field, for `schema_with`.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use crate::meta::core_schema::{List, core_list, core_type};

const CONDITION: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Condition";

/// An object whose inside belongs to another program and passes through untouched.
pub fn opaque(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A whole Kubernetes object; the API server asks it for `apiVersion` and `kind` and checks its metadata.
pub fn embedded_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

pub fn conditions_by_type(_: &mut SchemaGenerator) -> Schema {
    core_list(CONDITION, List::Map(&["type"]))
}

/// v1alpha1 never said how its conditions are told apart.
pub fn unmarked_conditions(_: &mut SchemaGenerator) -> Schema {
    core_list(CONDITION, List::Unmarked)
}

pub fn job_spec(_: &mut SchemaGenerator) -> Schema {
    core_type("io.k8s.api.batch.v1.JobSpec")
}

pub fn resource_requirements(_: &mut SchemaGenerator) -> Schema {
    core_type("io.k8s.api.core.v1.ResourceRequirements")
}

pub fn tolerations(_: &mut SchemaGenerator) -> Schema {
    core_list("io.k8s.api.core.v1.Toleration", List::Unmarked)
}

/// An enum with a variant that is kept out of the schema is still derived as a choice, of which one is left.
pub fn only_choice(schema: &mut Schema) {
    let Some(Value::Array(mut choices)) = schema.remove("anyOf") else { return };
    if let (Some(Value::Object(only)), true) = (choices.pop(), choices.is_empty()) {
        schema.ensure_object().extend(only);
    }
}
