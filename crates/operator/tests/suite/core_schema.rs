//! The stored definitions of Kubernetes' types equal what the pinned API server says of them.

use std::path::Path;

use steersman_api::crds;
use steersman_testkit::{Flavour, openapi, shared};

/// Set: the stored file is written instead of compared.
const WRITE: &str = "STEERSMAN_WRITE";

#[tokio::test]
async fn core_schema_is_what_the_api_server_says() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let names = crds::core_names().unwrap();
    let client = cluster.admin().await.unwrap();
    let definitions = openapi::definitions(&client, &names, &crds::WRITTEN_BY_HAND).await.unwrap();
    // One definition per line: a later Kubernetes shows in a diff as the types that it changed.
    let lines: Vec<_> = definitions.iter().map(|(name, schema)| format!("\"{name}\": {schema}")).collect();
    let said = format!("{{\n{}\n}}\n", lines.join(",\n"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/schemas/core.json");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, said).unwrap();
        return;
    }
    let stored = std::fs::read_to_string(&path).unwrap();
    assert!(
        stored == said,
        "crates/api/schemas/core.json is not what the API server says of {} types; \
         write it anew with {WRITE}=1 cargo test -p steersman core_schema, then cargo xtask check --write",
        definitions.len()
    );
}
