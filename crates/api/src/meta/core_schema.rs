//! Schemas of Kubernetes' own types inside ours.
//! Comes in: the name of a definition of Kubernetes' OpenAPI; goes out: a placeholder that `crds::all` replaces by that
//! definition, because the schemas that k8s-openapi derives carry no list types, map keys or defaults.

use schemars::{Schema, json_schema};

/// Marks a placeholder; its value is the name of the definition.
pub const CORE: &str = "x-steersman-core";

/// How the elements of a list are told apart when two managers apply it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Nothing is said, as in most Go types: the list is replaced as a whole.
    Unmarked,
    /// Each element is known by these of its fields.
    Map(&'static [&'static str]),
}

/// `definition` as it stands in Kubernetes' OpenAPI, for example `io.k8s.api.core.v1.EnvVar`.
pub fn core_type(definition: &str) -> Schema {
    json_schema!({ CORE: definition })
}

/// A list of `definition`.
pub fn core_list(definition: &str, list: List) -> Schema {
    let mut schema = json_schema!({ "type": "array", "items": core_type(definition) });
    if let List::Map(keys) = list {
        schema.insert("x-kubernetes-list-type".to_owned(), "map".into());
        schema.insert("x-kubernetes-list-map-keys".to_owned(), keys.into());
    }
    schema
}
