//! Schemas that no derive can give: Kubernetes' own types, plain JSON and times.
//! Comes in: the generator that schemars passes around; goes out: what the field's `schema_with` names.

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::meta::core_schema::{List, core_list, core_type};

pub fn env(_: &mut SchemaGenerator) -> Schema {
    core_list("io.k8s.api.core.v1.EnvVar", List::Unmarked)
}

pub fn volumes(_: &mut SchemaGenerator) -> Schema {
    core_list("io.k8s.api.core.v1.Volume", List::Unmarked)
}

pub fn volume_mounts(_: &mut SchemaGenerator) -> Schema {
    core_list("io.k8s.api.core.v1.VolumeMount", List::Unmarked)
}

pub fn spread_constraints(_: &mut SchemaGenerator) -> Schema {
    core_list("io.k8s.api.core.v1.TopologySpreadConstraint", List::Unmarked)
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

pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    core_list("io.k8s.apimachinery.pkg.apis.meta.v1.Condition", List::Unmarked)
}

pub fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// An integer without a format: the published CRDs give none to Go's `int`, and a format would narrow it.
pub fn integer(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer" })
}

/// Whatever JSON the user writes, kept as it is.
pub fn any_json(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}
