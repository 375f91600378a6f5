//! Schemas for `schema_with` that cannot be derived: Kubernetes' own types, plain JSON and times.

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::meta::core_schema::{core_list, core_type};

pub use crate::meta::core_schema::conditions;

pub fn env(_: &mut SchemaGenerator) -> Schema {
    core_list("io.k8s.api.core.v1.EnvVar")
}

pub fn volumes(_: &mut SchemaGenerator) -> Schema {
    core_list("io.k8s.api.core.v1.Volume")
}

pub fn volume_mounts(_: &mut SchemaGenerator) -> Schema {
    core_list("io.k8s.api.core.v1.VolumeMount")
}

pub fn spread_constraints(_: &mut SchemaGenerator) -> Schema {
    core_list("io.k8s.api.core.v1.TopologySpreadConstraint")
}

pub fn resources(_: &mut SchemaGenerator) -> Schema {
    core_type("io.k8s.api.core.v1.ResourceRequirements")
}

pub fn quantity(_: &mut SchemaGenerator) -> Schema {
    core_type("io.k8s.apimachinery.pkg.api.resource.Quantity")
}

pub fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    core_type("io.k8s.apimachinery.pkg.util.intstr.IntOrString")
}

pub fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// An integer without a format: the published CRDs have none for Go's `int`, and a format would narrow it.
pub fn integer(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer" })
}

/// Any JSON value.
pub fn any_json(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}
