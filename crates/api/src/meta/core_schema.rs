//! Schemas of Kubernetes' own types inside ours: placeholders that `crds::all` replaces, because the schemas of k8s-openapi
//! have no list types, map keys or defaults.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Marks a placeholder; its value is the name of the definition.
pub const CORE: &str = "x-steersman-core";

const CONDITION: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Condition";

/// A `definition` of Kubernetes' OpenAPI, for example `io.k8s.api.core.v1.EnvVar`.
pub fn core_type(definition: &str) -> Schema {
    json_schema!({ CORE: definition })
}

/// A list without a list type, as most Go types have it: managers replace it as a whole.
pub fn core_list(definition: &str) -> Schema {
    json_schema!({ "type": "array", "items": core_type(definition) })
}

pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    core_list(CONDITION)
}

/// Conditions that managers merge by their type.
pub fn conditions_by_type(_: &mut SchemaGenerator) -> Schema {
    let mut schema = core_list(CONDITION);
    schema.insert("x-kubernetes-list-type".to_owned(), "map".into());
    schema.insert("x-kubernetes-list-map-keys".to_owned(), vec!["type"].into());
    schema
}
