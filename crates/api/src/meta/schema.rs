//! Schemas for `schema_with` that cannot be derived: plain JSON, and placeholders of Kubernetes' own types, which `crds::all`
//! replaces, because the schemas of k8s-openapi have no list types, map keys or defaults.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Marks a placeholder; its value is the name of the definition.
pub const CORE: &str = "x-steersman-core";

/// Placeholders of definitions in Kubernetes' OpenAPI. A list has no list type, as in most Go types: managers replace it as a
/// whole.
macro_rules! core_types {
    (types { $($name:ident: $definition:literal,)+ } lists { $($list:ident: $item:literal,)+ }) => {
        $(pub fn $name(_: &mut SchemaGenerator) -> Schema {
            json_schema!({ CORE: $definition })
        })+
        $(pub fn $list(_: &mut SchemaGenerator) -> Schema {
            json_schema!({ "type": "array", "items": { CORE: $item } })
        })+
    };
}

core_types! {
    types {
        int_or_string: "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        job_spec: "io.k8s.api.batch.v1.JobSpec",
        quantity: "io.k8s.apimachinery.pkg.api.resource.Quantity",
        resources: "io.k8s.api.core.v1.ResourceRequirements",
        time: "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
    }
    lists {
        conditions: "io.k8s.apimachinery.pkg.apis.meta.v1.Condition",
        env: "io.k8s.api.core.v1.EnvVar",
        spread_constraints: "io.k8s.api.core.v1.TopologySpreadConstraint",
        tolerations: "io.k8s.api.core.v1.Toleration",
        volume_mounts: "io.k8s.api.core.v1.VolumeMount",
        volumes: "io.k8s.api.core.v1.Volume",
    }
}

/// Conditions that managers merge by their type.
pub fn conditions_by_type(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = conditions(generator);
    schema.insert("x-kubernetes-list-type".to_owned(), "map".into());
    schema.insert("x-kubernetes-list-map-keys".to_owned(), vec!["type"].into());
    schema
}

/// An integer without a format: the published CRDs have none for Go's `int`, and a format would narrow it.
pub fn integer(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer" })
}

pub fn any_json(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// An object of another program, which is passed on unchanged.
pub fn opaque(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A whole Kubernetes object: the API server requires `apiVersion` and `kind` and checks its metadata.
pub fn embedded_object(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = opaque(generator);
    schema.insert("x-kubernetes-embedded-resource".to_owned(), true.into());
    schema
}
