//! Compares `crates/api/schemas/core.json` with the OpenAPI definitions that the pinned API server publishes.

use std::path::Path;

use steersman_api::crds;
use steersman_testkit::{Flavour, openapi, shared_cluster};

/// If this variable is set, the stored file is written instead of compared.
const WRITE_VARIABLE: &str = "STEERSMAN_WRITE";

#[tokio::test]
async fn core_schema_equals_the_api_servers() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let names = crds::core_names().unwrap();
    let client = cluster.admin().await.unwrap();
    let definitions = openapi::definitions(&client, &names, &crds::WRITTEN_BY_HAND).await.unwrap();
    // One definition per line: a later Kubernetes shows in a diff as the types that it changed.
    let lines: Vec<_> = definitions.iter().map(|(name, schema)| format!("\"{name}\": {schema}")).collect();
    let published = format!("{{\n{}\n}}\n", lines.join(",\n"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/schemas/core.json");
    if std::env::var_os(WRITE_VARIABLE).is_some() {
        std::fs::write(&path, published).unwrap();
        return;
    }
    let stored = std::fs::read_to_string(&path).unwrap();
    assert!(
        stored == published,
        "crates/api/schemas/core.json differs from what the API server publishes for {} types; \
         write it again with {WRITE_VARIABLE}=1 cargo test -p steersman core_schema, then cargo xtask check --write",
        definitions.len()
    );
}
